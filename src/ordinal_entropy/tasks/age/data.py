"""Faces with ages: which files, which age, which split; read from a csv or from the names of the files.

The csv has the columns ``age,path,split`` of the benchmark of imbalanced regression (DIR), paths relative to its own
folder: ``agedb.csv``, ``imdb_wiki.csv``, ``utkface.csv``, or any other name where it is the only one. Without a csv,
a folder of UTKFace is read by its names, ``age_gender_race_date.jpg.chip.jpg``, and split here.
"""

import csv
import io
import math
import os
import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ordinal_entropy import files
from ordinal_entropy.files import SPLITS, Problem, fault_inside, is_file_instead, shown
from ordinal_entropy.vision import images

CSVS = ("agedb.csv", "imdb_wiki.csv", "utkface.csv")
COLUMNS = ("age", "path", "split")
MAX_AGE = 200
SEED = 666  # of the split, as the benchmark has it

# an underscore or a digit after the age; the dataset's own names are not all alike: some lack the race or a dot
_UTKFACE = re.compile(r"(\d{1,3})_[\d_].*\.jpg", re.IGNORECASE)
WHERE_TO_GET_IT = (
    "AgeDB-DIR: agedb.csv from github.com/YyzHarry/imbalanced-regression (agedb-dir/data) beside the folder AgeDB "
    "with the images <id>_<name>_<age>_<m|f>.jpg, which the authors of AgeDB give out on request "
    "(ibug.doc.ic.ac.uk/resources/agedb). IMDB-WIKI-DIR: imdb_wiki.csv from the same repository beside imdb_crop and "
    "wiki_crop. UTKFace: the folder UTKFace with the aligned and cropped faces from susanqq.github.io/UTKFace; it "
    "needs no csv. With nothing downloaded: ordinal-entropy data make age DIR"
)


class Record(NamedTuple):
    """A face: the file, the age in years, and "train", "val" or "test"."""

    path: Path
    age: float
    split: str


def records(root: str | os.PathLike[str], *, seed: int = SEED) -> tuple[list[Record], list[Problem]]:
    """The faces of a dataset and what is wrong with the others; no image is opened.

    Args:
        root: the folder with the csv, or with the images of UTKFace; or the csv itself, where a folder has several.
        seed: of the split of UTKFace without a csv; not used with one.

    Returns:
        Records in the order of the csv (by name without one), each of a file that is there, and the problems: a row
        whose file is missing or outside the folder, listed twice, without a sensible age or split; a csv that cannot
        be read; a split with no faces.

    Raises:
        FileNotFoundError: no dataset is there; the message says where to get one, and how its folder looks.
        ValueError: there are several.
    """
    root = Path(root)
    table = _csv(root)
    if table is None:
        found, problems = _by_name(root, seed)
        source = root
    else:
        found, problems = _by_csv(table)
        source = table
    return found, problems + _empty_splits(found, source.name)


def require(root: str | os.PathLike[str]) -> None:
    """Raises what :func:`records` does where no dataset is there, or several are; none of its rows is read."""
    root = Path(root)
    if _csv(root) is None:
        _ages_by_name(root)


def check(root: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None) -> list[Problem]:
    """All that is wrong with a dataset: what :func:`records` says, and every image that cannot be read.

    Args:
        root: as in :func:`records`.
        progress: is told how many images are read, and how many there are.
    """
    root = Path(root)
    found, problems = records(root)
    return problems + images.unreadable(
        [record.path for record in found], root if root.is_dir() else root.parent, progress=progress
    )


def balanced_split(ages: Sequence[float], seed: int = SEED, *, at_most: int = 30) -> list[str]:
    """Of each face "train", "val" or "test": validation and test hold about as many faces of every age.

    Of the n faces of an age (in whole years), min(n // 3, at_most) drawn by lot are for validation, as many for the
    test, and the rest to train on.

    Example:
        >>> sorted(balanced_split([7, 7, 7, 7, 8, 8], seed=0))
        ['test', 'train', 'train', 'train', 'train', 'val']
    """
    by_age: dict[int, list[int]] = {}
    for index, age in enumerate(ages):
        by_age.setdefault(int(age), []).append(index)
    split = ["train"] * len(ages)
    lot = random.Random(seed)
    for _, indices in sorted(by_age.items()):
        lot.shuffle(indices)
        size = min(len(indices) // 3, at_most)
        for index in indices[:size]:
            split[index] = "val"
        for index in indices[size : 2 * size]:
            split[index] = "test"
    return split


def _csv(root: Path) -> Path | None:
    """The csv of a folder, found by its name; None for a folder without one."""
    if is_file_instead(root, ".csv", of="faces", remedy=WHERE_TO_GET_IT):
        return root
    tables = sorted(path for path in root.iterdir() if path.suffix.lower() == ".csv" and not path.is_dir())
    named = [path for path in tables if path.name.lower() in CSVS] or tables
    if len(named) > 1:
        names = ", ".join(shown(path.name) for path in named)
        raise ValueError(f"expected one csv in {root}, got {names}; give the one you mean in place of the folder")
    return named[0] if named else None


def _by_csv(table: Path) -> tuple[list[Record], list[Problem]]:
    folder, name = table.parent, shown(table.name)
    found: list[Record] = []
    problems: list[Problem] = []
    seen: dict[str, int] = {}
    unreadable = files.fault(table)
    if unreadable is not None:
        return [], [Problem(name, unreadable)]
    try:
        for line, row in _rows(table):
            where = f"line {line} of {name}"
            if isinstance(row, str):
                problems.append(Problem(name, f"line {line}: {row}"))
                continue
            age, named, split = row
            wrong = fault_inside(folder, named)
            key = os.path.normpath(named)
            if wrong is None and key in seen:
                wrong = f"listed before, in line {seen[key]}"
            seen.setdefault(key, line)
            years = _age(age)
            if isinstance(years, str):
                wrong = wrong or years
            elif split not in SPLITS:
                wrong = wrong or f"split {shown(split, 40)!r} is none of {', '.join(SPLITS)}"
            elif wrong is None:
                found.append(Record(folder / named, years, split))
            if wrong is not None:
                problems.append(Problem(shown(named) or name, f"{wrong} ({where})"))
    except UnicodeDecodeError as error:
        return [], [Problem(name, f"not text in UTF-8: byte {error.start:,} is {error.object[error.start]:#04x}")]
    except (_CsvError, ValueError) as error:
        problems.append(Problem(name, str(error)))
    except OSError as error:
        return [], [Problem(name, f"not readable: {error.strerror or error}")]
    return found, problems


class _CsvError(Exception):
    """The table as a whole, or from some line on, cannot be read."""


def _rows(table: Path) -> Iterator[tuple[int, tuple[str, str, str] | str]]:
    """Of each row the line it ends in, and age, path and split, or what is wrong with it."""
    text = files.text(table)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [column.strip() for column in next(reader, [])]
        missing = [column for column in COLUMNS if column not in header]
        if missing:
            got = ", ".join(shown(column, 40) for column in header[:20]) or "none"
            raise _CsvError(f"expected the columns {', '.join(COLUMNS)}, got {got}")
        places = [header.index(column) for column in COLUMNS]
        for cells in reader:
            if not cells:  # an empty line
                continue
            if len(cells) != len(header):
                yield reader.line_num, f"expected {len(header)} values, got {len(cells)}"
                continue
            age, path, split = (cells[place].strip() for place in places)
            yield reader.line_num, (age, path, split)
    except csv.Error as error:
        raise _CsvError(f"cannot be read from line {reader.line_num} on: {error}") from error


def _age(text: str) -> float | str:
    """The number, or what is wrong with it."""
    try:
        age = math.nan if "_" in text else float(text)  # Python reads 3_5 as 35
    except ValueError:
        age = math.nan
    if not math.isfinite(age):
        return f"age {shown(text, 40)!r} is not a number"
    return age if 0 <= age <= MAX_AGE else f"age {shown(text, 40)} is not from 0 to {MAX_AGE}"


def _by_name(root: Path, seed: int) -> tuple[list[Record], list[Problem]]:
    """UTKFace without a csv."""
    folder, ages = _ages_by_name(root)
    found, problems = [], []
    for name, age in ages.items():
        relative = (folder / name).relative_to(root).as_posix()
        wrong = fault_inside(root, relative)
        if age is None:
            wrong = "name does not begin with an age, as in age_gender_race_date.jpg.chip.jpg"
        elif wrong is None and age > MAX_AGE:
            wrong = f"age {age:g} is not from 0 to {MAX_AGE}"
        elif wrong is None:
            found.append((folder / name, age))
        if wrong is not None:
            problems.append(Problem(shown(relative), wrong))
    splits = balanced_split([age for _, age in found], seed)
    return [Record(path, age, split) for (path, age), split in zip(found, splits, strict=True)], problems


def _ages_by_name(root: Path) -> tuple[Path, dict[str, float | None]]:
    """The folder of the images of UTKFace, and the age that each name begins with, in the order of the names."""
    folder = root / "UTKFace" if (root / "UTKFace").is_dir() else root
    names = sorted(path.name for path in folder.iterdir() if path.suffix.lower() in (".jpg", ".jpeg", ".png"))
    matches = {name: _UTKFACE.fullmatch(name) for name in names}
    if not any(matches.values()):
        raise FileNotFoundError(
            f"expected a dataset of faces in {root}, got no csv with the columns {', '.join(COLUMNS)} and no images "
            f"that are named as in UTKFace. {WHERE_TO_GET_IT}"
        )
    return folder, {name: float(match[1]) if match else None for name, match in matches.items()}


def _empty_splits(found: Sequence[Record], source: str) -> list[Problem]:
    there = {record.split for record in found}
    return [Problem(shown(source), f"no face to use in split {split}") for split in SPLITS if split not in there]
