"""Images with depths: which files, which split; read from the lists of BTS and AdaBins or from the labelled .mat.

The lists lie in the dataset's folder and have a line ``image depth focal`` for each pair, paths relative to that folder
(or to ``sync`` and ``official_splits/test`` inside), with or without a slash in front. A list of NeW-CRFs has a dense
depth in place of the focal length, which is not looked at. Depths are PNGs of 16 bits, in millimetres. Validation
pairs are drawn from those to train on.
"""

import math
import os
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ordinal_entropy import files
from ordinal_entropy.files import SPLITS, Problem, fault_inside, is_file_instead, on_all_cores, shown
from ordinal_entropy.tasks.depth import labeled
from ordinal_entropy.tasks.depth.labeled import LabeledError
from ordinal_entropy.tasks.depth.maps import MAX_DEPTH, MIN_DEPTH
from ordinal_entropy.vision import images
from ordinal_entropy.vision.images import MAX_PIXELS, ImageError, Pixels

TRAIN_LISTS = ("nyudepthv2_train_files_with_gt.txt", "nyudepthv2_train_files_with_gt_dense.txt")
TEST_LISTS = ("nyudepthv2_test_files_with_gt.txt",)
MAT = "nyu_depth_v2_labeled.mat"
VALIDATION = 0.1  # of the training pairs
TEST = 654 / 1449  # of the pairs in a .mat without splits.mat: as many as officially
SEED = 0  # of the split

WHERE_TO_GET_IT = (
    f"NYU-Depth-v2 as BTS and AdaBins have it: {TRAIN_LISTS[0]} and {TEST_LISTS[0]} from github.com/cleinc/bts or "
    "github.com/shariqfarooq123/AdaBins (train_test_inputs), with lines 'image depth focal', beside the folders of the "
    "files that they name, sync/<scene>/rgb_00000.jpg and sync_depth_00000.png and official_splits/test/<kind>/..., "
    f"which the same pages say how to get. Or {MAT}, and splits.mat beside it, from "
    "cs.nyu.edu/~fergus/datasets/nyu_depth_v2.html (2.8 GB). With nothing "
    "downloaded: ordinal-entropy data make depth DIR"
)

_BASES = {"train": ("", "sync"), "test": ("", "official_splits/test")}  # what paths may be relative to
_SCENE = re.compile(r"(.*_\d{4})[a-z]?")  # kitchen_0028a and kitchen_0028b are one place
_FEW = 10  # scenes; with fewer, pairs are drawn one by one
_PNG = b"\x89PNG\r\n\x1a\n"


class Record(NamedTuple):
    """A pair: the files, and "train", "val" or "test"."""

    image: Path
    depth: Path  # the same as the image where both are in a .mat
    split: str
    place: int | None = None  # in the .mat


def records(
    root: str | os.PathLike[str], *, seed: int = SEED, validation: float = VALIDATION
) -> tuple[list[Record], list[Problem]]:
    """The pairs of a dataset and what is wrong with the others; no image is opened.

    Args:
        root: the folder with the lists, or with the .mat where it has no list; or the .mat itself.
        seed: of the draw of validation pairs, and of the test of a .mat without splits.mat.
        validation: the part of the training pairs that is drawn for validation, whole scenes where ten or more are
            told apart, by their folders or by the .mat. A pair that is left out does not change the draw of others.

    Returns:
        Records in the order of the lists, training before test, or of the .mat, each of files that are there; and the
        problems: a line without three fields or with a foreign third one, a file that is missing or outside the
        folder, listed twice; a list that is missing or no text; a split with no pairs; all that is wrong with a .mat.

    Raises:
        FileNotFoundError: no dataset is there; the message says where to get one, and how its folder looks.
        ValueError: the validation part is not one; or the root is a file, but no .mat.
        ModuleNotFoundError: a .mat needs h5py, which is not installed.
    """
    if not 0 < validation < 1:
        raise ValueError(f"expected a validation part between 0 and 1, got {validation}")
    root = Path(root)
    source = _source(root)
    by_lists = source == root and root.is_dir()
    found, problems = _by_lists(root, seed, validation) if by_lists else _by_mat(source, seed, validation)
    there = {record.split for record in found}
    name = shown(source.name)
    return found, problems + [Problem(name, f"no pair to use in split {each}") for each in SPLITS if each not in there]


def require(root: str | os.PathLike[str]) -> None:
    """Raises what :func:`records` does where no dataset is there; nothing of it is read."""
    _source(Path(root))


def read(record: Record) -> tuple[Pixels, NDArray[np.float32]]:
    """The image ``(h, w, 3)``, red, green and blue, and its depth ``(h, w)`` in metres, 0 where there is none.

    Raises:
        ImageError: one of them cannot be read, or they differ in size; it is about ``record.image`` or
            ``record.depth``, and its ``reason`` is a phrase.
    """
    if record.place is not None:
        return labeled.pair(record.image, record.place)
    image, depth = images.read(record.image), read_depth(record.depth)
    if image.shape[:2] != depth.shape:
        raise ImageError(record.depth, _other_size(record, image, depth))
    return image, depth


def usable(record: Record, folder: Path) -> tuple[Pixels, NDArray[np.float32]] | Problem:
    """What :func:`read` gives of a pair; or the first thing that :func:`check` finds wrong with it."""
    try:
        image, depth = read(record)
    except ImageError as error:
        return Problem(_named(Path(error.path), folder), error.reason)
    if _some(depth):
        return image, depth
    pair = "" if record.place is None else f"pair {record.place + 1}: "
    return Problem(_named(record.depth, folder), f"{pair}{_NOTHING}")


def read_depth(path: str | os.PathLike[str], *, max_pixels: int = MAX_PIXELS) -> NDArray[np.float32]:
    """The depth in a PNG of 16 bits, ``(h, w)``: millimetres in the file, metres here; 0 where there is none.

    Args:
        path: the file.
        max_pixels: a map with more is refused before it is decoded.

    Raises:
        ImageError: missing, empty, truncated, too large, of 8 bits or in colour, or not an image; its ``reason`` says
            which.

    Example:
        >>> read_depth("no such depth.png")
        Traceback (most recent call last):
        ordinal_entropy.vision.images.ImageError: expected an image in no such depth.png, got: missing
    """
    from PIL import Image

    start = b""
    try:
        files.size(path)  # raises for what is no file: a pipe would never end
        with open(path, "rb") as file:
            start = file.read(26)  # signature, then the header: length, name, width, height, bits, kind of colour
            width, height = int.from_bytes(start[16:20], "big"), int.from_bytes(start[20:24], "big")
            grey = start[:8] == _PNG and start[12:16] == b"IHDR" and start[24:26] == b"\x10\x00"
            if not grey or width * height > max_pixels:
                raise OSError
            with Image.open(file, formats=["PNG"]) as image:
                image.load()
                millimetres = np.asarray(image)
    except Exception as error:  # decoders raise all kinds of errors on damaged files
        images.read(path, max_pixels=max_pixels)  # says what is wrong, in most cases
        raise ImageError(path, _not_a_depth(start)) from error
    return (millimetres / np.float32(1000)).astype(np.float32)


def check(root: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> list[Problem]:
    """All that is wrong with a dataset: what :func:`records` says, and every pair that cannot be used.

    That is an image or a depth that cannot be read, a depth that is not of 16 bits, of another size than its image, or
    without a pixel between 0.001 and 10 m.

    Args:
        root: as in :func:`records`.
        progress: is told how many files are read (images of a .mat), and how many there are.
    """
    root = Path(root)
    found, problems = records(root)
    folder = root if root.is_dir() else root.parent
    of_a_pair = 1 if found and found[0].place is not None else 2  # files
    for wrong in on_all_cores(lambda record: _faults(record, folder), found, progress, each=of_a_pair):
        problems += wrong
    return problems


def drawn(scenes: Sequence[str], part: float, seed: int = SEED) -> list[bool]:
    """Which pairs are drawn: about so large a part, at least one and not all of two or more.

    Args:
        scenes: where each pair was taken. With ten different ones or more a scene is drawn as a whole, because its
            pictures are much alike; else every pair for itself.
        part: of the pairs, between 0 and 1.
        seed: of the draw.

    Example:
        >>> sum(drawn(["office"] * 30, 0.1))
        3
        >>> places = [f"scene {k // 4}" for k in range(100)]
        >>> {place for place, chosen in zip(places, drawn(places, 0.1), strict=True) if chosen}
        {'scene ...', 'scene ...', 'scene ...'}
    """
    several = len(set(scenes)) >= _FEW
    groups: dict[str | int, list[int]] = {}
    for index, scene in enumerate(scenes):
        groups.setdefault(scene if several else index, []).append(index)
    order = list(groups.values())
    random.Random(seed).shuffle(order)
    wanted = max(round(part * len(scenes)), 1)
    chosen: list[int] = []
    for members in order[:-1]:
        if len(chosen) >= wanted:
            break
        chosen += members
    found = set(chosen)
    return [index in found for index in range(len(scenes))]


def _source(root: Path) -> Path:
    """The folder that holds the lists, or the .mat."""
    if is_file_instead(root, ".mat", of="images with depths", remedy=WHERE_TO_GET_IT):
        return root
    if any(os.path.lexists(root / name) for name in TRAIN_LISTS + TEST_LISTS):
        return root
    if os.path.lexists(root / MAT):
        return root / MAT
    raise FileNotFoundError(
        f"expected a dataset of images with depths in {root}, got neither the lists {TRAIN_LISTS[0]} and "
        f"{TEST_LISTS[0]} nor {MAT}. {WHERE_TO_GET_IT}"
    )


class _Line(NamedTuple):
    number: int
    image: str  # relative to the folder
    depth: str


def _by_lists(root: Path, seed: int, validation: float) -> tuple[list[Record], list[Problem]]:
    found: list[Record] = []
    problems: list[Problem] = []
    seen: dict[str, str] = {}
    for split, names in (("train", TRAIN_LISTS), ("test", TEST_LISTS)):
        there = [name for name in names if os.path.lexists(root / name)]
        if not there:
            problems.append(Problem(names[0], "missing"))
            continue
        lines, wrong = _lines(root, there[0], _BASES[split])
        problems += wrong
        chosen = (
            drawn([_scene(os.path.dirname(line.image)) for line in lines], validation, seed) if split == "train" else []
        )
        for index, line in enumerate(lines):
            where = f"line {line.number} of {there[0]}"
            faults = [(named, fault_inside(root, named)) for named in (line.image, line.depth)]
            before = seen.setdefault(os.path.normpath(line.image), where)
            if before != where and not faults[0][1]:
                faults[0] = (line.image, f"listed before, in {before}")
            told = [Problem(shown(named) or there[0], f"{reason} ({where})") for named, reason in faults if reason]
            problems += told
            if not told:
                part = "val" if split == "train" and chosen[index] else split
                found.append(Record(root / line.image, root / line.depth, part))
    return found, problems


def _lines(root: Path, name: str, bases: Sequence[str]) -> tuple[list[_Line], list[Problem]]:
    """The pairs that a list names, relative to the root."""
    wrong = files.fault(root / name)
    if wrong is not None:
        return [], [Problem(name, wrong)]
    try:
        text = files.text(root / name)
    except UnicodeDecodeError as error:
        return [], [Problem(name, f"not text in UTF-8: byte {error.start:,} is {error.object[error.start]:#04x}")]
    except (OSError, ValueError) as error:
        return [], [Problem(name, f"not readable: {getattr(error, 'strerror', None) or error}")]
    lines, problems = [], []
    for number, content in enumerate(text.split("\n"), start=1):
        fields = content.split()
        if not fields:  # an empty line
            continue
        wrong = f"expected 3 fields, image, depth and focal length, got {len(fields)}" if len(fields) != 3 else None
        wrong = wrong or _foreign(fields[2])
        if wrong is not None:
            problems.append(Problem(name, f"line {number}: {wrong}"))
        else:
            lines.append(_Line(number, fields[0].lstrip("/"), fields[1].lstrip("/")))
    if not lines and not problems:
        problems.append(Problem(name, "empty"))
    some = lines[:100]
    base = next(
        (base for base in bases if any(fault_inside(root, _below(base, line.image)) is None for line in some)), ""
    )
    return [_Line(line.number, _below(base, line.image), _below(base, line.depth)) for line in lines], problems


def _below(base: str, named: str) -> str:
    return f"{base}/{named}" if base and named else named


def _foreign(field: str) -> str | None:
    """What is wrong with the third field of a line, which is a focal length or another depth."""
    if field.lower().endswith(".png"):
        return None
    try:
        focal = math.nan if "_" in field else float(field)  # Python reads 5_1 as 51
    except ValueError:
        focal = math.nan
    good = math.isfinite(focal) and focal > 0
    return None if good else f"focal length {shown(field, 40)!r} is not a positive number"


def _scene(name: str) -> str:
    """The place that a folder is of, as "sync/kitchen_0028" of "sync/kitchen_0028b"."""
    match = _SCENE.fullmatch(name)
    return match[1] if match else name


def _by_mat(path: Path, seed: int, validation: float) -> tuple[list[Record], list[Problem]]:
    name = shown(path.name)
    try:
        contents = labeled.contents(path)
    except LabeledError as error:
        return [], [Problem(name, error.reason)]
    scenes = [_scene(scene) for scene in contents.scenes]
    splits = ["train"] * contents.n
    beside = path.parent / "splits.mat"
    if os.path.lexists(beside):
        outside = fault_inside(path.parent, beside.name)
        try:
            if outside:
                raise LabeledError(beside, outside)
            official: list[str | None] = labeled.splits(beside, contents.n)
        except LabeledError as error:
            return [], [Problem(beside.name, error.reason)]
        kept = [place for place, split in enumerate(official) if split is not None]
        for place in kept:
            splits[place] = official[place] or ""
    else:
        kept = list(range(contents.n))
        for place, chosen in enumerate(drawn(scenes, TEST, seed)):
            splits[place] = "test" if chosen else "train"
    training = [place for place in kept if splits[place] == "train"]
    chosen_ones = drawn([scenes[place] for place in training], validation, seed)
    for place, chosen in zip(training, chosen_ones, strict=True):
        splits[place] = "val" if chosen else "train"
    return [Record(path, path, splits[place], place) for place in kept], []


def _faults(record: Record, folder: Path) -> list[Problem]:
    """What is wrong with the files of a pair."""
    if record.place is not None:
        name = shown(record.image.name)
        try:
            _, stored = labeled.pair(record.image, record.place)
        except ImageError as error:
            return [Problem(name, error.reason)]
        return [] if _some(stored) else [Problem(name, f"pair {record.place + 1}: {_NOTHING}")]
    problems = []
    image: Pixels | None = None
    depth: NDArray[np.float32] | None = None
    try:
        image = images.read(record.image)
    except ImageError as error:
        problems.append(Problem(_named(record.image, folder), error.reason))
    try:
        depth = read_depth(record.depth)
    except ImageError as error:
        problems.append(Problem(_named(record.depth, folder), error.reason))
    if depth is not None and image is not None and image.shape[:2] != depth.shape:
        problems.append(Problem(_named(record.depth, folder), _other_size(record, image, depth)))
    elif depth is not None and not _some(depth):
        problems.append(Problem(_named(record.depth, folder), _NOTHING))
    return problems


_NOTHING = f"no pixel with a depth between {MIN_DEPTH:g} and {MAX_DEPTH:g} m"


def _some(depth: NDArray[np.float32]) -> bool:
    return bool(((depth > MIN_DEPTH) & (depth < MAX_DEPTH)).any())


def _other_size(record: Record, image: Pixels, depth: NDArray[np.float32]) -> str:
    own, its = (f"{each.shape[1]:,} x {each.shape[0]:,}" for each in (depth, image))
    return f"{own} pixels, its image {shown(record.image.name)} has {its}"


def _not_a_depth(start: bytes) -> str:
    """What is wrong with an image that can be read, but not as a depth."""
    if start[:8] != _PNG:
        return "not a PNG, expected one of 16 bits"
    bits, colour = start[24], start[25]
    if colour != 0:
        return "in colour, expected 16 bits of grey"
    return f"{bits} bits, expected 16" if bits != 16 else "damaged"


def _named(path: Path, folder: Path) -> str:
    return shown(path.relative_to(folder).as_posix())
