"""Files that a list names, distrusted: each lies inside the folder of the list, or a phrase says what is wrong."""

import logging
import ntpath
import os
import posixpath
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ordinal_entropy import files

SPLITS = ("train", "val", "test")
_LOG = logging.getLogger(__name__)


class Problem(NamedTuple):
    """What is wrong with a file of a dataset."""

    file: str  # as its list names it
    reason: str  # a phrase


class FileError(ValueError):
    """A file that does not hold what it should; each kind says what.

    Attributes:
        reason: what is wrong, in a phrase.
    """

    expected = "a file"

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(f"expected {self.expected} in {shown(os.fspath(path))}, got: {reason}")
        self.path, self.reason = path, reason

    def __reduce__(self) -> tuple[Any, ...]:
        """For the way from one process to another."""
        return type(self), (self.path, self.reason)


def fault(folder: str | os.PathLike[str], named: str) -> str | None:
    """What is wrong with the name of a file, relative to a folder; None where it is a file inside.

    Links are followed: one that leads out of the folder is as wrong as ``..``.

    Example:
        >>> fault(".", "../elsewhere.jpg")
        'path has .. in it'
        >>> fault(".", "no such face.jpg")
        'missing'
    """
    if not named:
        return "path is empty"
    if posixpath.isabs(named) or ntpath.isabs(named):
        return "path is absolute"
    if ".." in named.replace("\\", "/").split("/"):
        return "path has .. in it"
    try:
        real = os.path.realpath(os.path.join(folder, named))
        top = os.path.realpath(folder)
        if os.path.commonpath([real, top]) != top:
            return "a link leads out of the folder"
        return files.fault(real)
    except ValueError:  # a zero byte, or another drive
        return "not a path"


def in_place_of_a_folder(path: str | os.PathLike[str]) -> str:
    """What a path leads to that is no folder, in words.

    Example:
        >>> in_place_of_a_folder("nowhere"), in_place_of_a_folder(os.devnull)
        ('no such folder', 'a device')
    """
    wrong = files.fault(path)
    return "a file" if wrong is None else "no such folder" if wrong == "missing" else wrong


def shown(text: str, most: int = 200) -> str:
    r"""Text that others wrote, fit for a terminal: no control characters, no more than so many characters.

    Example:
        >>> shown("AgeDB/0.jpg"), shown("\x1b[2J"), shown("long", most=2)
        ('AgeDB/0.jpg', '\\x1b[2J', 'lo...')
    """
    cut = text if len(text) <= most else text[:most] + "..."
    return cut if cut.isprintable() else ascii(cut)[1:-1]


class OfASplit(Protocol):
    """A record of a dataset."""

    @property
    def split(self) -> str:
        """One of ``SPLITS``."""


def refuse(found: Sequence[OfASplit], problems: Sequence[Problem], *, skip_bad: bool = False) -> None:
    """A ValueError with the first problem and the count, if there are any.

    Args:
        found: the records that are left to be used.
        problems: what is wrong with others.
        skip_bad: problems are let pass as long as every split has a record.

    Example:
        >>> class Face(NamedTuple):
        ...     split: str
        >>> faces = [Face(split) for split in SPLITS]
        >>> refuse(faces, [Problem("1.jpg", "missing")], skip_bad=True)
        >>> refuse(faces, [Problem("1.jpg", "missing")])
        Traceback (most recent call last):
        ValueError: expected a dataset without faults, got 1.jpg: missing (1 problem in all; ordinal-entropy data
        check names each, skip_bad=true leaves the files out)
    """
    if problems and not skip_bad:
        count = f"{len(problems):,} problem{'s' if len(problems) > 1 else ''}"
        raise ValueError(
            f"expected a dataset without faults, got {problems[0].file}: {problems[0].reason} ({count} in all; "
            "ordinal-entropy data check names each, skip_bad=true leaves the files out)"
        )
    empty = [split for split in SPLITS if not any(record.split == split for record in found)]
    if empty:
        first = f"; the first of {len(problems):,} problems: {': '.join(problems[0])}" if problems else ""
        raise ValueError(f"expected images in every split, got none in {', '.join(empty)}{first}")


def tell_left_out(problems: Sequence[Problem], root: Path) -> None:
    """A warning in the log with the first problem and the count, if there are any."""
    if problems:
        files = f"{len(problems):,} file{'s' if len(problems) > 1 else ''} of {root}"
        _LOG.warning("%s left out, the first %s: %s", files, *problems[0])
