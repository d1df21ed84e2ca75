"""Drawn crowds with a point on every head, in the layout of ShanghaiTech: everything runs with nothing downloaded.

A camera looks over a square: people are larger near the bottom, stand alone or in groups, and those in front are drawn
over those behind, never over a head. Houses, trees, lamps, balls and the light say nothing of how many there are.
"""

import io
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

from ordinal_entropy.files import on_all_cores
from ordinal_entropy.tasks.generating import new_folder

Array = NDArray[Any]

HEIGHT, WIDTH = 192, 256  # pixels of an image
MOST = 320  # people in an image
_FINER = 2  # drawn so many times larger, then reduced: smooth edges
_LEAST = 10  # images: with fewer a split might be empty
_TEST = 1 / 3  # of the images
_APART = 1.7  # heads are no nearer to each other than so many of the larger one's radius
_SKINS = np.array([(250, 216, 186), (236, 196, 160), (214, 162, 118), (170, 118, 82), (115, 78, 56)])
_HAIRS = np.array([(28, 24, 24), (52, 36, 28), (86, 58, 34), (140, 100, 58), (150, 148, 146)])
# in place of the line that tells when a file was written: the same seed, the same bytes
_HEADER = b"MATLAB 5.0 MAT-file, points of drawn crowds".ljust(116)


def make(
    folder: str | os.PathLike[str],
    seed: int = 0,
    count: int = 120,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Writes so many crowds, 256 x 192, as ``train_data`` and ``test_data``, the same for the same seed.

    There are 0 to 320 people in an image, small crowds more often than large ones. A third of the images are for the
    test.
    ``test_data`` gets its name last: a folder that was not finished is no dataset, and after Ctrl-C nothing is left
    in it.

    Args:
        folder: where; made if it is missing, refused if anything is in it.
        seed: of the crowds.
        count: of images in training and test together, at least 10.
        progress: is told how many are drawn, and how many there will be.
    """
    folder = new_folder(folder, seed, count, least=_LEAST, of="images")
    of_people, *of_images = np.random.SeedSequence(seed).spawn(count + 1)
    people = long_tailed(count, np.random.default_rng(of_people))
    tests = round(count * _TEST)
    places = [("train_data", k) for k in range(1, count - tests + 1)] + [("test_data", k) for k in range(1, tests + 1)]
    unfinished = folder / ".unfinished"
    for name in ("train_data", "test_data"):
        (unfinished / name / "images").mkdir(parents=True)
        (unfinished / name / "ground-truth").mkdir()
    try:
        _draw_all(unfinished, places, people, of_images, progress)
        for name in ("train_data", "test_data"):
            (unfinished / name).rename(folder / name)
        unfinished.rmdir()
    except BaseException:
        for name in (".unfinished", "test_data", "train_data"):
            shutil.rmtree(folder / name, ignore_errors=True)
        raise


def long_tailed(count: int, random: np.random.Generator) -> Array:
    """How many people are in each image, ``(count,)``: from 0 to 320, the more the rarer.

    Example:
        >>> people = long_tailed(10_000, np.random.default_rng(0))
        >>> int(people.min()), int(people.max()), int(np.median(people)) < int(people.mean())
        (0, 320, True)
    """
    people: Array = np.floor((MOST + 1) * random.random(count) ** 2).astype(int)
    return people


def crowd(people: int, random: np.random.Generator) -> tuple["Image", Array]:
    """A picture of so many people, ``(192, 256)`` in colour, and the points on their heads, ``(people, 2)``.

    Where so many find no room beside each other, there are fewer.
    """
    from PIL import Image, ImageDraw

    camera = Camera(
        far=float(random.uniform(1.3, 2.6)),
        near=float(random.uniform(4.5, 9.0)),
        top=float(random.uniform(0.12, 0.4)) * HEIGHT,
    )
    heads = _heads(people, camera, random)
    sheet = Image.new("RGB", (WIDTH * _FINER, HEIGHT * _FINER))
    draw = ImageDraw.Draw(sheet)
    _draw_square(draw, camera, random)
    for x, y in heads[np.argsort(heads[:, 1])]:  # those behind first
        _draw_person(draw, x, y, camera.radius(y), random)
    return _photograph(sheet.reduce(_FINER), random), heads


@dataclass(frozen=True)
class Camera:
    """How large a head is, by where it is."""

    far: float  # radius of a head at the top of the crowd, in pixels
    near: float  # at the bottom of the image
    top: float  # where the crowd begins, in pixels from above

    def radius(self, y: Any) -> Any:
        """Of heads at this height, grown in proportion to the distance from the horizon.

        Example:
            >>> Camera(far=2.0, near=8.0, top=64.0).radius(np.array([64, 128, 192]))
            array([2., 5., 8.])
        """
        return self.far + (self.near - self.far) * (y - self.top) / (HEIGHT - self.top)


def _heads(people: int, camera: Camera, random: np.random.Generator) -> Array:
    """Where heads are, no two of them on top of each other: some in groups, the others anywhere."""
    found = np.zeros((0, 2))
    groups = _anywhere(int(random.integers(1, 6)), camera, random)
    sociable = random.uniform(0, 0.9)
    for _ in range(30):  # rounds
        missing = people - len(found)
        if not missing:
            break
        drawn = _anywhere(2 * missing, camera, random)
        middle = groups[random.integers(len(groups), size=len(drawn))]
        around = middle + random.normal(0, 7, drawn.shape) * camera.radius(middle[:, 1:]) * (1, 0.5)
        drawn = np.where(random.random((len(drawn), 1)) < sociable, around, drawn)
        inside = (drawn >= (1, camera.top)) & (drawn <= (WIDTH - 2, HEIGHT - 2))
        for point in drawn[inside.all(axis=1)]:
            distance = np.hypot(*(found - point).T)
            if len(found) < people and np.all(distance > _APART * camera.radius(np.maximum(found[:, 1], point[1]))):
                found = np.concatenate([found, point[None]])
    return found


def _anywhere(count: int, camera: Camera, random: np.random.Generator) -> Array:
    """Places ``(count, 2)``, evenly over the square as it is, hence the more in the image the farther off they are."""
    nearer = random.uniform(1 / camera.near, 1 / camera.far, count)  # one over the size is the distance
    y = camera.top + (1 / nearer - camera.far) / (camera.near - camera.far) * (HEIGHT - camera.top)
    return np.stack([random.uniform(1, WIDTH - 2, count), np.minimum(y, HEIGHT - 2)], 1)


def _draw_square(draw: "ImageDraw", camera: Camera, random: np.random.Generator) -> None:
    """Sky, houses with windows, trees; the ground with joints, patches, lamps, bins and balls."""
    sky, ground = random.uniform((120, 140, 160), (210, 225, 250)), random.uniform((70, 70, 60), (170, 160, 150))
    horizon = camera.top + 3 * camera.far
    _box(draw, 0, 0, WIDTH, HEIGHT, ground)
    _box(draw, 0, 0, WIDTH, horizon, sky)
    x = 0.0
    while x < WIDTH:
        wide, high = random.uniform(15, 60), random.uniform(0.2, 1.1) * horizon
        if random.random() < 0.75:
            _draw_house(draw, x, horizon, wide, high, random)
        x += wide
    for _ in range(random.integers(0, 6)):
        _draw_tree(draw, random.uniform(0, WIDTH), horizon, random.uniform(0.3, 0.8) * horizon, random)
    for _ in range(random.integers(0, 12)):  # joints of the pavement towards a point on the horizon
        end = random.uniform(-WIDTH, 2 * WIDTH)
        _line(draw, [(WIDTH / 2 + (end - WIDTH / 2) * 0.05, horizon), (end, HEIGHT)], ground * 0.85, 1)
    for x, y in _anywhere(int(random.integers(0, 25)), camera, random):
        size = camera.radius(y) * random.uniform(0.3, 3)
        if y > horizon:
            _ellipse(draw, x, y, size, 0.35 * size, ground * random.uniform(0.7, 1.25))
    for x, y in _anywhere(int(random.integers(0, 8)), camera, random):
        size = camera.radius(y)
        kind = random.integers(3)
        if kind == 0:  # a lamp
            _line(draw, [(x, y + 8 * size), (x, y - 5 * size)], (50, 50, 55), 0.3 * size)
            _ellipse(draw, x, y - 5 * size, 0.8 * size, 0.8 * size, (245, 240, 210))
        elif kind == 1:  # a bin
            _box(draw, x - size, y + 3 * size, x + size, y + 6.5 * size, random.uniform(20, 120, 3))
        else:  # a ball
            _ellipse(draw, x, y + 6 * size, 0.9 * size, 0.9 * size, random.uniform(40, 250, 3))


def _draw_house(
    draw: "ImageDraw", x: float, horizon: float, wide: float, high: float, random: np.random.Generator
) -> None:
    wall = random.uniform((90, 70, 60), (215, 200, 190))
    _box(draw, x, horizon - high, x + wide, horizon, wall)
    step, pane = random.uniform(5, 9), wall * random.uniform(0.35, 0.75)
    for across in np.arange(x + 2, x + wide - step / 2, step):
        for down in np.arange(horizon - high + 2, horizon - step / 2, step * 1.2):
            _box(draw, across, down, across + 0.5 * step, down + 0.65 * step, pane)


def _draw_tree(draw: "ImageDraw", x: float, horizon: float, high: float, random: np.random.Generator) -> None:
    green = random.uniform((20, 60, 20), (90, 130, 70))
    _box(draw, x - 1, horizon - high / 2, x + 1, horizon + 2, (75, 55, 40))
    for _ in range(random.integers(15, 40)):  # round leaves, as large as heads
        across, down = random.normal(0, 0.18, 2) * high
        size = random.uniform(1.5, 4)
        _ellipse(draw, x + across, horizon - 0.7 * high + down, size, size, green * random.uniform(0.6, 1.3))


def _draw_person(draw: "ImageDraw", x: float, y: float, radius: float, random: np.random.Generator) -> None:
    """Shadow, legs, clothes, and the head around the point: all of it from the back, or with a face."""
    clothes, legs = random.uniform(15, 245, 3), random.uniform(15, 130, 3)
    skin = _SKINS[random.integers(len(_SKINS))] * random.normal(1, 0.05)
    hair = _HAIRS[random.integers(len(_HAIRS))] * random.normal(1, 0.08)
    broad, aside = random.uniform(1.5, 1.9) * radius, random.normal(0, 0.15) * radius
    _ellipse(draw, x, y + 11.5 * radius, 1.8 * radius, 0.5 * radius, (45, 45, 45))
    _box(draw, x - 0.8 * broad, y + 6 * radius, x + 0.8 * broad, y + 11.5 * radius, legs)
    _box(draw, x - broad, y + 2.2 * radius, x + broad, y + 6.5 * radius, clothes)
    _ellipse(draw, x, y + 2.3 * radius, broad, 1.1 * radius, clothes)
    _ellipse(draw, x, y, 0.92 * radius, 1.08 * radius, hair)
    if random.random() < 0.65:  # looks towards us
        _ellipse(draw, x + aside, y + 0.28 * radius, 0.72 * radius, 0.75 * radius, skin)


def _photograph(image: "Image", random: np.random.Generator) -> "Image":
    """Light from a side, a lens that is not quite sharp, noise."""
    from PIL import Image, ImageFilter

    if random.random() < 0.4:
        image = image.filter(ImageFilter.GaussianBlur(random.uniform(0.2, 0.6)))
    down, across = np.linspace(-0.5, 0.5, HEIGHT)[:, None], np.linspace(-0.5, 0.5, WIDTH)
    light = random.uniform(0.7, 1.15) + random.normal(0, 0.15) * across + random.normal(0, 0.15) * down
    pixels = np.asarray(image) * (light[:, :, None] * random.normal(1, 0.04, 3))  # (192, 256, 3)
    pixels = pixels + random.uniform(2, 8) * random.standard_normal(pixels.shape, dtype=np.float32)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _draw_all(
    folder: Path,
    places: Sequence[tuple[str, int]],
    people: Array,
    seeds: Sequence[np.random.SeedSequence],
    progress: Callable[[int, int], None] | None,
) -> None:
    def one(index: int) -> None:
        name, number = places[index]
        random = np.random.default_rng(seeds[index])
        image, heads = crowd(int(people[index]), random)
        quality = int(random.integers(85, 96))
        image.save(folder / name / "images" / f"IMG_{number}.jpg", "JPEG", quality=quality)
        (folder / name / "ground-truth" / f"GT_IMG_{number}.mat").write_bytes(_mat(heads))

    on_all_cores(one, range(len(places)), progress)


def _mat(points: Array) -> bytes:
    """A file as ShanghaiTech has it: ``image_info{1,1}`` is a struct of ``location`` and ``number``."""
    from scipy.io import savemat

    cell = np.empty((1, 1), dtype=object)
    cell[0, 0] = {"location": points, "number": float(len(points))}
    file = io.BytesIO()
    savemat(file, {"image_info": cell}, do_compression=True)
    return _HEADER + file.getvalue()[len(_HEADER) :]


def _box(draw: "ImageDraw", left: float, upper: float, right: float, lower: float, colour: Any) -> None:
    draw.rectangle([_FINER * side for side in (left, upper, right, lower)], fill=_colour(colour))


def _ellipse(draw: "ImageDraw", x: float, y: float, across: float, down: float, colour: Any) -> None:
    box = [_FINER * side for side in (x - across, y - down, x + across, y + down)]
    draw.ellipse(box, fill=_colour(colour))


def _line(draw: "ImageDraw", points: Sequence[tuple[float, float]], colour: Any, width: float) -> None:
    pixels = [(_FINER * x, _FINER * y) for x, y in points]
    draw.line(pixels, fill=_colour(colour), width=max(round(width * _FINER), 1))


def _colour(values: Any) -> tuple[int, int, int]:
    red, green, blue = np.clip(values, 0, 255).astype(int).tolist()
    return red, green, blue
