"""Images of crowds with a point on every head: which files, which points, which split; the layout of ShanghaiTech.

A part of ShanghaiTech has the folders ``train_data`` and ``test_data``, each with ``images/IMG_k.jpg`` and
``ground-truth/GT_IMG_k.mat`` (or ``ground_truth``). It has no validation images: they are drawn here by lot from the
training images.
"""

import os
import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from ordinal_entropy.files import SPLITS, Problem, fault_inside, in_place_of_a_folder, on_all_cores, shown
from ordinal_entropy.tasks.crowd import annotations
from ordinal_entropy.tasks.crowd.annotations import AnnotationError, Points
from ordinal_entropy.vision import images
from ordinal_entropy.vision.images import ImageError

PARTS = ("part_A", "part_A_final", "part_B", "part_B_final")
FOLDERS = ("train_data", "test_data")
ANNOTATIONS = ("ground-truth", "ground_truth")
SEED = 666  # of the split
VALIDATION = 0.1  # of the training images

_IMAGES = (".jpg", ".jpeg", ".png")
TREE = "part_A/train_data/images/IMG_1.jpg, part_A/train_data/ground-truth/GT_IMG_1.mat, the same in part_A/test_data"
WHERE_TO_GET_IT = (
    "ShanghaiTech A and B come from github.com/desenzhou/ShanghaiTechDataset; give the folder of one part, which "
    f"holds train_data and test_data: {TREE}; ground_truth and part_A_final will do as well. "
    "With nothing downloaded: ordinal-entropy data make crowd DIR"
)


class Record(NamedTuple):
    """An image: the file, the points ``(n, 2)`` on the heads as x and y in pixels, and "train", "val" or "test"."""

    path: Path
    points: Points
    split: str


def records(
    root: str | os.PathLike[str], *, seed: int = SEED, validation: float = VALIDATION
) -> tuple[list[Record], list[Problem]]:
    """The images of a dataset with their points, and what is wrong with others; no image is opened.

    Args:
        root: the part with ``train_data`` and ``test_data``, or the folder above, if that holds one part only.
        seed: of the split.
        validation: how much of the training images are for validation, one at least.

    Returns:
        Records in the order of the names, training before test, and the problems: an image without a ``.mat``, a
        ``.mat`` without an image, one that cannot be read (``annotations.read`` says what may be wrong with it), a
        link that leads out of the folder, a split with no images.

    Raises:
        FileNotFoundError: no dataset is there; the message says where to get one, and how its folder looks.
        ValueError: there are several.
    """
    part = _part(Path(root))
    found: list[Record] = []
    problems: list[Problem] = []
    for name in FOLDERS:
        annotated, wrong = _annotated(part, name)
        problems += wrong
        if name == "train_data":
            splits = validation_split(len(annotated), seed, validation)
        else:
            splits = ["test"] * len(annotated)
        found += [Record(path, points, split) for (path, points), split in zip(annotated, splits, strict=True)]
    return found, problems + _empty_splits(found, part.name)


def require(root: str | os.PathLike[str]) -> None:
    """Raises what :func:`records` does where no dataset is there, or several are; none of its files is read."""
    part = _part(Path(root))
    for name in FOLDERS:
        _annotations(part / name)


def check(root: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> list[Problem]:
    """All that is wrong with a dataset: what :func:`records` says, images that cannot be read, points outside of them.

    Args:
        root: as in :func:`records`.
        progress: is told how many files are read, and how many there are: each image with its ``.mat``.
    """
    part = _part(Path(root))
    found, problems = records(part)
    for record, wrong in zip(found, on_all_cores(_fault, found, progress, each=2), strict=True):
        if wrong is not None:
            problems.append(Problem(shown(record.path.relative_to(part).as_posix()), wrong))
    return problems


def validation_split(count: int, seed: int = SEED, validation: float = VALIDATION) -> list[str]:
    """Of each training image "train" or "val": round(count * validation) drawn by lot, at least one and not all.

    Example:
        >>> validation_split(5, seed=0, validation=0.4)
        ['train', 'train', 'train', 'val', 'val']
    """
    if not 0 < validation < 1:
        raise ValueError(f"expected validation to be between 0 and 1, got {validation}")
    size = min(max(round(count * validation), 1), max(count - 1, 0))
    chosen = set(random.Random(seed).sample(range(count), size))
    return ["val" if index in chosen else "train" for index in range(count)]


def _part(root: Path) -> Path:
    """The folder that holds ``train_data`` and ``test_data``."""
    if not root.is_dir():
        there = in_place_of_a_folder(root)
        raise FileNotFoundError(f"expected a dataset of crowds in {root}, got {there}. {WHERE_TO_GET_IT}")
    if not any((root / name).is_dir() for name in FOLDERS):
        parts = [root / name for name in PARTS if (root / name).is_dir()]
        if len(parts) > 1:
            names = ", ".join(part.name for part in parts)
            raise ValueError(f"expected one part of ShanghaiTech in {root}, got {names}; give the one you mean")
        if parts:
            return _part(parts[0])
    missing = [name for name in FOLDERS if not (root / name).is_dir()]
    if missing:
        raise FileNotFoundError(
            f"expected a dataset of crowds in {root}, got no folder {' and no folder '.join(missing)}. "
            f"{WHERE_TO_GET_IT}"
        )
    return root


def _annotations(folder: Path) -> Path:
    """The folder of the ``.mat`` files beside that of the images, which must be there too."""
    there = [folder / name for name in ANNOTATIONS if (folder / name).is_dir()]
    if len(there) > 1:
        raise ValueError(f"expected one of {' and '.join(ANNOTATIONS)} in {folder}, got both")
    if not there or not (folder / "images").is_dir():
        missing = "images" if there else ANNOTATIONS[0]
        raise FileNotFoundError(
            f"expected a dataset of crowds in {folder.parent}, got no folder {missing} in {folder.name}. "
            f"{WHERE_TO_GET_IT}"
        )
    return there[0]


def _annotated(part: Path, name: str) -> tuple[list[tuple[Path, Points]], list[Problem]]:
    """The images of a folder with their points, by name, and what is wrong with the others."""
    beside = _annotations(part / name)
    found: list[tuple[Path, Points]] = []
    problems: list[Problem] = []
    left = {path.name for path in beside.iterdir() if path.suffix.lower() == ".mat" and _visible(path)}
    images_there = [p for p in (part / name / "images").iterdir() if p.suffix.lower() in _IMAGES and _visible(p)]
    taken: dict[str, str] = {}
    for path in sorted(images_there, key=_by_number):
        wanted = f"GT_{path.stem}.mat"
        image, mat = (p.relative_to(part).as_posix() for p in (path, beside / wanted))
        if wanted in taken:
            problems.append(Problem(shown(image), f"{shown(wanted)} is that of {shown(taken[wanted])} already"))
            continue
        taken[wanted] = path.name
        left.discard(wanted)
        wrong = fault_inside(part, image)
        if wrong is not None:
            problems.append(Problem(shown(image), wrong))
            continue
        wrong = fault_inside(part, mat)
        if wrong == "missing":
            problems.append(Problem(shown(image), f"without annotation: {shown(mat)} is missing"))
        elif wrong is not None:
            problems.append(Problem(shown(mat), wrong))
        else:
            try:
                found.append((path, annotations.read(beside / wanted)))
            except AnnotationError as error:
                problems.append(Problem(shown(mat), error.reason))
    for alone in sorted(left):
        mat = (beside / alone).relative_to(part).as_posix()
        image = f"{name}/images/{alone.removeprefix('GT_').removesuffix('.mat')}.jpg"
        problems.append(Problem(shown(mat), f"without image: {shown(image)} is missing"))
    return found, problems


def _visible(path: Path) -> bool:
    return not path.name.startswith(".")  # what systems leave behind


def _by_number(path: Path) -> tuple[list[tuple[int, str]], str]:
    """IMG_2 comes before IMG_10."""
    pieces = re.split(r"(\d+)", path.name)
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in pieces], path.name


def _fault(record: Record) -> str | None:
    try:
        height, width, _ = images.read(record.path).shape
    except ImageError as error:
        return error.reason
    return annotations.outside(record.points, height, width)


def _empty_splits(found: Sequence[Record], source: str) -> list[Problem]:
    there = {record.split for record in found}
    return [Problem(shown(source), f"no image to use in split {split}") for split in SPLITS if split not in there]
