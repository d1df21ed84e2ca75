"""Files that others wrote, distrusted: what a path leads to, and how much a file claims to hold, before any is read.

Opening a pipe waits for whoever writes to it, a device may never end, and a few bytes of a header or of a packed file
may ask for more memory than there is. Every reader of the package comes here first.
"""

import errno
import os
import stat
import zipfile
from pathlib import Path

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
