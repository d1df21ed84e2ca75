"""Files that others wrote, distrusted: what a path leads to, and how much a file claims to hold, before any is read.

Opening a pipe waits for whoever writes to it, a device may never end, and a few bytes of a header or of a packed file
may ask for more memory than there is. Every reader of the package comes here first.
"""

import errno
import logging
import ntpath
import os
import posixpath
import stat
import zipfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

MODEST = 2**28  # bytes: what any file may unpack to
RATIO = 100  # a file that unpacks to more than that may do so by this factor; tables of numbers have 1 to 20
_DEFLATE = 1032  # no deflated byte stands for more
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def fault(path: str | os.PathLike[str]) -> str | None:
    """Why a path is not that of a file to be read, in a phrase; None where it is. Links are followed.

    Example:
        >>> fault("no such file"), fault("."), fault(os.devnull)
        ('missing', 'a folder', 'a device')
    """
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return "a link to nothing" if os.path.islink(path) else "missing"
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ENAMETOOLONG):
            return "missing"
        return "a link to itself" if error.errno == errno.ELOOP else f"not readable: {error.strerror or error}"
    except ValueError:  # a zero byte
        return "not a path"
    return None if stat.S_ISREG(status.st_mode) else _KINDS.get(stat.S_IFMT(status.st_mode), "not a file")


def size(path: str | os.PathLike[str], expected: str = "a file") -> int:
    """Bytes of a file.

    Args:
        path: of the file.
        expected: what it should be, for the message.

    Raises:
        OSError: it is not a file; the message says what is there instead.

    Example:
        >>> size("houses.csv", "a table")
        Traceback (most recent call last):
        FileNotFoundError: expected a table in houses.csv, got no such file
    """
    wrong = fault(path)
    if wrong == "missing":
        raise FileNotFoundError(f"expected {expected} in {os.fspath(path)}, got no such file")
    if wrong is not None:
        raise OSError(f"expected {expected} in {os.fspath(path)}, got {wrong}")
    return os.stat(path).st_size


def content(path: str | os.PathLike[str]) -> bytes:
    """All bytes of a file.

    Raises:
        OSError: it is not a file, or cannot be read.
        ValueError: it is larger than the memory.
    """
    check_fits(path, size(path))
    return Path(path).read_bytes()


def text(path: str | os.PathLike[str]) -> str:
    """All of a file of text in UTF-8, without the mark that some begin it with.

    Raises:
        OSError: it is not a file, or cannot be read.
        ValueError: it is larger than the memory; a UnicodeDecodeError where it is no such text.
    """
    return content(path).decode("utf-8-sig")


def memory() -> int | None:
    """Bytes of the machine's memory; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def check_fits(name: str | os.PathLike[str], claimed: int) -> None:
    """A ValueError where something needs more bytes than the memory has."""
    there = memory()
    if there is not None and claimed > there:
        raise ValueError(f"expected {os.fspath(name)} to fit into {there:,} bytes of memory, got {claimed:,}")


def check_archive(path: str | os.PathLike[str]) -> None:
    """A ValueError where a file is a zip archive that is damaged or claims to hold far more than its size.

    Files of torch are such archives.
    """
    if zipfile.is_zipfile(path):
        check_unpacked(path, sum(each.file_size for each in members(path).values()))


def check_unpacked(path: str | os.PathLike[str], claimed: int) -> None:
    """A ValueError where a file claims to hold far more than its size, which would fill the memory once unpacked.

    Args:
        path: of the file.
        claimed: bytes that it says it holds, all together.
    """
    own = size(path)
    most = max(MODEST, RATIO * own)
    if claimed > most:
        raise ValueError(
            f"expected at most {most:,} bytes to be unpacked from {os.fspath(path)}, which has {own:,}, got {claimed:,}"
        )


def members(path: str | os.PathLike[str]) -> dict[str, zipfile.ZipInfo]:
    """What is in a zip archive, by name; sizes are true, as far as can be told without unpacking.

    Raises:
        OSError: it is not a file, or cannot be read.
        ValueError: it is damaged, encrypted, or packed in another way than NumPy and torch do.
    """
    own = size(path)
    try:
        with zipfile.ZipFile(path) as archive:
            found = archive.infolist()
    except OSError:
        raise
    except Exception as error:  # of an archive that is damaged, any
        said = str(error) or type(error).__name__
        raise ValueError(f"expected a whole zip archive, got {os.fspath(path)}, which is damaged: {said}") from error
    for each in found:
        packed = {zipfile.ZIP_STORED: 1, zipfile.ZIP_DEFLATED: _DEFLATE}.get(each.compress_type)
        if packed is None or each.flag_bits & 1:
            how = "encrypted" if packed else f"packed by method {each.compress_type}"
            raise ValueError(f"expected members of {os.fspath(path)} that are stored or deflated, got one {how}")
        if each.compress_size > own or each.file_size > packed * (each.compress_size + 1):
            raise ValueError(
                f"expected a whole zip archive, got {os.fspath(path)}, which is damaged: one of {own:,} bytes in all "
                f"claims {each.file_size:,} unpacked from {each.compress_size:,}"
            )
    return {each.filename: each for each in found}


SPLITS = ("train", "val", "test")
_LOG = logging.getLogger(__name__)
Item = TypeVar("Item")
Found = TypeVar("Found")


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


def fault_inside(folder: str | os.PathLike[str], named: str) -> str | None:
    """What is wrong with the name of a file, relative to a folder; None where it is a file inside.

    Links are followed: one that leads out of the folder is as wrong as ``..``.

    Example:
        >>> fault_inside(".", "../elsewhere.jpg")
        'path has .. in it'
        >>> fault_inside(".", "no such face.jpg")
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
        return fault(real)
    except ValueError:  # a zero byte, or another drive
        return "not a path"


def in_place_of_a_folder(path: str | os.PathLike[str]) -> str:
    """What a path leads to that is no folder, in words.

    Example:
        >>> in_place_of_a_folder("nowhere"), in_place_of_a_folder(os.devnull)
        ('no such folder', 'a device')
    """
    wrong = fault(path)
    return "a file" if wrong is None else "no such folder" if wrong == "missing" else wrong


def is_file_instead(root: Path, ending: str, *, of: str, remedy: str) -> bool:
    """Whether a dataset was given by its one file in place of its folder; what is neither is an error.

    Args:
        root: what was given.
        ending: of the file, as in ".csv".
        of: what the dataset is of.
        remedy: a sentence behind the error that there is nothing.
    """
    if root.is_dir():
        return False
    if root.suffix.lower() == ending and os.path.lexists(root):
        return True
    if root.is_file():
        raise ValueError(f"expected a dataset folder or its {ending}, got the file {root}")
    raise FileNotFoundError(f"expected a dataset of {of} in {root}, got {in_place_of_a_folder(root)}. {remedy}")


def require_empty(folder: Path) -> None:
    """A ValueError where something is in the way of files that are to be written into a folder of their own.

    Example:
        >>> require_empty(Path("nowhere"))
        >>> require_empty(Path("/"))
        Traceback (most recent call last):
        ValueError: expected an empty folder, or none yet, got /, which is not empty
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "is not empty" if folder.is_dir() else "is a file"
        raise ValueError(f"expected an empty folder, or none yet, got {folder}, which {what}")


def on_all_cores(
    work: Callable[[Item], Found],
    items: Sequence[Item],
    progress: Callable[[int, int], None] | None = None,
    *,
    each: int = 1,
) -> list[Found]:
    """What is found for each file, by threads: Pillow decodes, and numpy computes, outside the interpreter's lock.

    Args:
        work: for one item, such as a file to be read or an image to be drawn.
        items: in the order of the result.
        progress: is told how many files are done, and how many there are.
        each: files of an item.

    Example:
        >>> on_all_cores(len, ["a", "bcd"], print, each=2)
        2 4
        4 4
        [1, 3]
    """
    found = []
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        for own in pool.map(work, items):
            found.append(own)
            if progress is not None:
                progress(each * len(found), each * len(items))
    finally:
        pool.shutdown(cancel_futures=True)
    return found


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
