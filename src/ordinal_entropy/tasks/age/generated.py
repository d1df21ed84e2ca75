"""Drawn faces that show their age, in the layout of AgeDB-DIR: everything runs with nothing downloaded.

Heads grow longer and eyes smaller up to twenty; hair thins and turns grey, wrinkles, spots and glasses come later; and
each of it at another age from face to face. Skin, hair, light, background and pose say nothing of the age.
"""

import csv
import io
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ordinal_entropy import runs
from ordinal_entropy.files import on_all_cores
from ordinal_entropy.tasks.age.data import COLUMNS, balanced_split
from ordinal_entropy.tasks.generating import new_folder

if TYPE_CHECKING:
    from PIL.Image import Image
    from PIL.ImageDraw import ImageDraw

Array = NDArray[Any]

SIDE = 112  # pixels of an image
_FINER = 2  # drawn so many times larger, then reduced: smooth edges
_LEAST = 100  # faces: with fewer a split might be empty
_AGES = np.arange(1, 96)
_SKINS = np.array([(255, 224, 196), (240, 200, 165), (224, 172, 125), (190, 135, 95), (140, 95, 65), (95, 62, 45)])
_HAIRS = np.array([(30, 25, 25), (60, 40, 28), (100, 65, 35), (150, 105, 55), (200, 165, 100), (140, 60, 30)])
_GREY = np.array((215, 215, 220))
_SYLLABLES = ("Al", "Be", "Ca", "Dor", "El", "Fa", "Gil", "Ha", "Is", "Jo", "Ka", "Lin", "Mo", "Na", "Or", "Pe", "Ro")
_CIRCLE = np.stack([np.cos(t := np.linspace(0, 2 * np.pi, 40, endpoint=False)), np.sin(t)], 1)  # (40, 2)


def make(
    folder: str | os.PathLike[str],
    seed: int = 0,
    count: int = 4000,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Writes ``agedb.csv`` and as many faces in ``AgeDB/``, 112 x 112, the same for the same seed.

    Ages are long-tailed, most of them around thirty. Validation and test are near balanced: of an age up to so many
    faces as keep the proportions of AgeDB-DIR, two at least. The csv comes last: a folder that was not finished has
    none, and after Ctrl-C nothing is left in it.

    Args:
        folder: where; made if it is missing, refused if anything is in it.
        seed: of ages, faces and split.
        count: of faces in all splits together, at least 100.
        progress: is told how many are drawn, and how many there will be.
    """
    folder = new_folder(folder, seed, count, least=_LEAST, of="faces")
    of_ages, *of_faces = np.random.SeedSequence(seed).spawn(count + 1)
    ages = long_tailed(count, np.random.default_rng(of_ages))
    splits = balanced_split(list(ages), seed, at_most=max(2, round(30 * count / 16_488)))  # 30 of AgeDB's faces
    (folder / "AgeDB").mkdir(parents=True)
    try:
        names = _draw_all(folder, ages, of_faces, progress)
        table = io.StringIO(newline="")
        writer = csv.writer(table, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(zip(ages.tolist(), names, splits, strict=True))
        with runs.replacing(folder / "agedb.csv") as file:
            file.write(table.getvalue().encode())
    except BaseException:
        shutil.rmtree(folder / "AgeDB", ignore_errors=True)
        raise


def long_tailed(count: int, random: np.random.Generator) -> Array:
    """Ages ``(count,)`` in whole years from 1 to 95: a peak at about 30, few children, fewer and fewer old people.

    Example:
        >>> ages = long_tailed(10_000, np.random.default_rng(0))
        >>> int(np.median(ages)), int((ages < 10).sum()) < 500, int((ages > 80).sum()) < 300
        (32, True, True)
    """
    peak = np.exp(-(((_AGES - 30) / 8) ** 2) / 2) / 8
    rest = np.exp(-(((_AGES - 45) / 22) ** 2) / 2) / 22
    chances = 0.65 * peak + 0.35 * rest
    ages: Array = random.choice(_AGES, size=count, p=chances / chances.sum())
    return ages


def _draw_all(
    folder: Path,
    ages: Array,
    seeds: Sequence[np.random.SeedSequence],
    progress: Callable[[int, int], None] | None,
) -> list[str]:
    def one(index: int) -> str:
        random = np.random.default_rng(seeds[index])
        name = "".join(random.choice(_SYLLABLES, size=3))
        path = f"AgeDB/{index}_{name}_{ages[index]}_{random.choice(['m', 'f'])}.jpg"
        face(float(ages[index]), random).save(folder / path, "JPEG", quality=int(random.integers(80, 96)))
        return path

    return on_all_cores(one, range(len(ages)), progress)


def face(age: float, random: np.random.Generator) -> "Image":
    """A face of that age, by the looks of it some years more or less; ``(112, 112)`` in colour."""
    from PIL import Image, ImageDraw

    size = SIDE * _FINER
    sheet = Image.new("RGB", (size, size), _colour(random.integers(30, 226, 3)))
    pose = _Pose(
        ImageDraw.Draw(sheet),
        centre=size * np.array([0.5, 0.53]) + random.normal(0, 0.025, 2) * size,
        scale=size * random.uniform(0.29, 0.35),
        turn=random.normal(0, 0.08),
        aside=random.normal(0, 0.06),
    )
    person = _person(age, random)
    pose.ellipse(random.uniform(-1, 1, 2), random.uniform(0.5, 1.5, 2), random.integers(30, 226, 3))  # behind the head
    _draw_behind(pose, person)
    _draw_head(pose, person, random)
    _draw_wrinkles(pose, person)
    _draw_eyes(pose, person)
    _draw_nose_and_mouth(pose, person)
    _draw_hair(pose, person)
    return _photograph(sheet.reduce(_FINER), random)


@dataclass(frozen=True)
class _Pose:
    """Draws in units of half a face's width around its middle, x to the right and y down, wherever that is."""

    draw: "ImageDraw"
    centre: Array  # (2,) pixels
    scale: float  # pixels of a unit
    turn: float  # radians
    aside: float  # how far eyes, nose and mouth are moved by looking to a side

    def pixels(self, points: Any) -> list[tuple[float, float]]:
        cosine, sine = np.cos(self.turn), np.sin(self.turn)
        turned = np.asarray(points, dtype=float) @ np.array([[cosine, sine], [-sine, cosine]])
        return [(float(x), float(y)) for x, y in self.centre + self.scale * turned]

    def shape(self, points: Any, colour: Any) -> None:
        self.draw.polygon(self.pixels(points), fill=_colour(colour))

    def ellipse(self, middle: Any, radii: Any, colour: Any) -> None:
        self.shape(np.asarray(middle) + _CIRCLE * radii, colour)

    def line(self, points: Any, colour: Any, width: float) -> None:
        pixels = max(round(width * self.scale), 1)
        self.draw.line(self.pixels(points), fill=_colour(colour), width=pixels, joint="curve")


@dataclass(frozen=True)
class _Person:
    growth: float  # 0: newborn, 1: grown up
    wear: float  # 0: young, 1: very old
    skin: Array  # (3,), as all colours
    hair: Array
    eyes: Array
    clothes: Array
    height: float  # of the head, half of it
    bare: float  # 0: hair down to the forehead, 1: bald on top
    long: float  # how far down the hair falls; 0: short
    beard: float  # 0: none
    brows: float
    smile: float
    glasses: bool


def _person(age: float, random: np.random.Generator) -> _Person:
    looks = max(age + random.normal(0, 2.5), 0.5)
    growth = float(1 - np.exp(-looks / 9))
    wear = float(np.clip((looks - 22) / 62, 0, 1.15))
    skin = _SKINS[random.integers(len(_SKINS))] * random.normal(1, 0.05) + random.normal(0, 5, 3)
    own = _HAIRS[random.integers(len(_HAIRS))]
    grey = 1 / (1 + np.exp(-(looks - random.normal(54, 7)) / 5))
    balding = random.random() < 0.5  # half of them, from an age of their own on
    bare = np.clip((looks - random.normal(38, 8)) / 40, 0, 1) if balding else 0.15 * wear
    baby = np.clip((3.5 - looks) / 3, 0, 1)
    bearded = random.random() < 0.3 and looks > 20
    return _Person(
        growth=growth,
        wear=wear,
        skin=skin * (1 - 0.1 * wear) + 12 * wear,
        hair=own * (1 - grey) + _GREY * grey,
        eyes=random.uniform((20, 40, 40), (110, 110, 140)),
        clothes=random.integers(20, 236, 3),
        height=0.86 + 0.2 * growth + random.normal(0, 0.03),
        bare=float(max(bare, 0.9 * baby)),
        long=float(random.random() < 0.4) * random.uniform(0.4, 1.3) * growth * (1 - 0.5 * wear),
        beard=float(bearded) * random.uniform(0.3, 1),
        brows=float(random.uniform(0.03, 0.07) * (0.4 + 0.6 * growth)),
        smile=float(random.normal(0.05, 0.05)),
        glasses=bool(random.random() < 0.05 + 0.6 * wear),
    )


def _draw_behind(pose: _Pose, person: _Person) -> None:
    """Shoulders, neck, and what of the hair falls behind the head."""
    broad = 0.9 + 0.7 * person.growth
    pose.ellipse((0, 2.1), (broad, 1.0), person.clothes)
    if person.long:
        pose.ellipse((0, -0.1 + person.long / 2), (0.98, person.height + person.long / 3), person.hair * 0.85)
    neck = 0.28 + 0.14 * person.growth
    pose.shape([(-neck, 0.5), (neck, 0.5), (neck, 1.35), (-neck, 1.35)], person.skin * 0.82)
    for side in (-1, 1):
        pose.ellipse((0.82 * side, 0.1), (0.12, 0.17 + 0.09 * person.wear), person.skin * 0.85)


def _outline(person: _Person) -> Array:
    """Of the head, ``(40, 2)``: round when small, tapering when grown, heavier below when old."""
    taper = 0.05 + 0.22 * person.growth - 0.12 * person.wear
    across, down = _CIRCLE.T
    return np.stack([0.82 * across * (1 - taper * np.maximum(down, 0)), person.height * down], 1)


def _draw_head(pose: _Pose, person: _Person, random: np.random.Generator) -> None:
    outline = _outline(person)
    pose.shape(outline, person.skin)
    if person.beard:
        lower = outline[(outline[:, 1] > 0.3)]
        mixed = person.skin * (1 - person.beard) + person.hair * person.beard
        pose.shape(np.concatenate([lower, [(-0.45, 0.5), (0, 0.42), (0.45, 0.5)]]), mixed)
    for cheek in (-1, 1):  # rosy when young
        pose.ellipse((0.45 * cheek, 0.35), (0.17, 0.12), person.skin + np.array([14, -8, -6]) * (1 - person.wear))
    for _ in range(random.poisson(7 * max(person.wear - 0.45, 0))):
        pose.ellipse(random.uniform((-0.6, -0.7), (0.6, 0.6)), random.uniform(0.02, 0.05), person.skin * 0.8)


def _draw_wrinkles(pose: _Pose, person: _Person) -> None:
    if person.wear < 0.08:
        return
    crease = person.skin * (1 - 0.38 * min(person.wear, 1))
    width = 0.02 + 0.025 * person.wear
    across = np.linspace(-1, 1, 9)
    for k in range(round(4 * person.wear)):  # on the forehead
        reach = 0.5 - 0.05 * k
        pose.line(np.stack([reach * across, -0.42 - 0.12 * k + 0.03 * across**2], 1), crease, width)
    eye, nose = _eye_height(person), _nose_end(person)
    for side in (-1, 1):
        for k in range(round(3.4 * person.wear)):  # crow's feet
            pose.line([(0.54 * side, eye + 0.02), (0.7 * side, eye - 0.1 + 0.1 * k)], crease, width)
        pose.line([(0.2 * side, nose - 0.05), (0.36 * side, nose + 0.28 * min(person.wear + 0.3, 1))], crease, width)
        if person.wear > 0.4:  # bags below the eyes
            bag = np.stack([0.33 * side + 0.15 * across, eye + 0.1 + 0.1 * (1 - across**2)], 1)
            pose.line(bag, crease, width)


def _eye_height(person: _Person) -> float:
    return 0.2 - 0.24 * person.growth


def _nose_end(person: _Person) -> float:
    return _eye_height(person) + 0.2 + 0.16 * person.growth + 0.06 * person.wear


def _draw_eyes(pose: _Pose, person: _Person) -> None:
    height, large = _eye_height(person), 0.2 - 0.07 * person.growth - 0.02 * person.wear
    for side in (-1, 1):
        middle = np.array([0.34 * side + pose.aside, height])
        open_ = large * (0.85 - 0.25 * person.growth - 0.15 * person.wear)
        pose.ellipse(middle, (large, open_), (245, 245, 240))
        pose.ellipse(middle, 0.8 * open_, person.eyes)
        pose.ellipse(middle, 0.4 * open_, (15, 15, 15))
        lid = middle + np.array([(-large, 0), (0, -open_), (large, 0.25 * open_ * (1 + person.wear))])
        pose.line(lid, person.skin * 0.5, 0.03)
        brow = middle + np.array([(-large, -0.17), (0, -0.22), (large, -0.17)])
        pose.line(brow, person.hair * 0.9, person.brows)
        if person.glasses:
            pose.line(middle + 0.24 * _CIRCLE[[*range(40), 0]] * (1, 0.85), (25, 25, 30), 0.035)
            pose.line([(middle[0] + 0.24 * side, height), (0.8 * side, height - 0.05)], (25, 25, 30), 0.035)
    if person.glasses:
        pose.line([(pose.aside - 0.1, height), (pose.aside + 0.1, height)], (25, 25, 30), 0.035)


def _draw_nose_and_mouth(pose: _Pose, person: _Person) -> None:
    end, broad = _nose_end(person), 0.07 + 0.05 * person.growth + 0.03 * person.wear
    x = 1.3 * pose.aside
    pose.line([(x, _eye_height(person) + 0.05), (x - broad, end), (x + broad, end)], person.skin * 0.72, 0.035)
    across = np.linspace(-1, 1, 9)
    middle, reach = end + 0.2 + 0.04 * person.growth, 0.17 + 0.12 * person.growth
    lips = np.stack([x + reach * across, middle + person.smile * (1 - 2 * across**2)], 1)
    red = person.skin * (0.75, 0.5, 0.5) * (1 - person.wear / 2) + person.skin * 0.7 * person.wear / 2
    pose.line(lips, red, 0.09 - 0.045 * min(person.wear, 1))


def _draw_hair(pose: _Pose, person: _Person) -> None:
    """A cap on the head, its edge the higher the barer; at the sides it stays longest."""
    angle = np.linspace(np.pi, 2 * np.pi, 30)
    thick = 1.12 - 0.1 * person.bare
    outer = np.stack([0.82 * thick * np.cos(angle), person.height * thick * np.sin(angle)], 1)
    across = np.linspace(1, -1, 30)
    edge = -person.height * (0.5 + 0.55 * person.bare) * (1 - np.abs(across) ** (3 + 6 * person.bare))
    inner = np.stack([0.8 * across, np.maximum(edge, -person.height * 1.1)], 1)
    sparse = 0.35 * person.bare
    pose.shape(np.concatenate([outer, inner]), person.hair * (1 - sparse) + person.skin * sparse)


def _photograph(image: "Image", random: np.random.Generator) -> "Image":
    """Light from a side, a lens that is not quite sharp, noise."""
    from PIL import Image, ImageFilter

    if random.random() < 0.5:
        image = image.filter(ImageFilter.GaussianBlur(random.uniform(0.3, 1.0)))
    ramp = np.linspace(-0.5, 0.5, SIDE)
    light = random.uniform(0.7, 1.2) + random.normal(0, 0.2) * ramp[None, :] + random.normal(0, 0.2) * ramp[:, None]
    pixels = np.asarray(image) * (light[:, :, None] * random.normal(1, 0.04, 3))  # (112, 112, 3)
    pixels = pixels + random.uniform(2, 9) * random.standard_normal(pixels.shape, dtype=np.float32)
    return Image.fromarray(np.clip(pixels, 0, 255).astype(np.uint8))


def _colour(values: Any) -> tuple[int, int, int]:
    red, green, blue = np.clip(values, 0, 255).astype(int).tolist()
    return red, green, blue
