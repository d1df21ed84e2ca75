"""Arrays in .npy and .npz files, distrusted: looked at before they are loaded, and never unpickled."""

import math
import os
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import IO, Any

import numpy as np

from ordinal_entropy import files

_LONGEST = 2**62  # of a side


@dataclass(frozen=True)
class Stored:
    """An array in a file.

    Attributes:
        name: of the array, for what is said about it.
        path: of the file.
        shape: as its header says; the file holds as many numbers.
        dtype: of what it holds, never Python objects.
        by_columns: whether it was saved in Fortran's order.
        numbers: opens the file where the numbers begin.
    """

    name: str
    path: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool
    numbers: Callable[[], AbstractContextManager[IO[bytes]]]

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return math.prod(self.shape) * self.dtype.itemsize

    def read(self) -> np.ndarray:
        """The whole array."""
        with self.numbers() as stream:
            values = np.frombuffer(self.take(stream, self.nbytes), self.dtype)
        return values.reshape(self.shape, order="F" if self.by_columns else "C")

    def blocks(self, count: int) -> Iterator[np.ndarray]:
        """So many rows at a time, the last of what is left; one saved by columns is loaded whole."""
        if self.by_columns:
            _check_memory(self.path, self.nbytes)
            whole = self.read()
            yield from (whole[start : start + count] for start in range(0, self.shape[0], count))
            return
        width = math.prod(self.shape[1:]) * self.dtype.itemsize
        with self.numbers() as stream:
            for start in range(0, self.shape[0], count):
                here = min(count, self.shape[0] - start)
                yield np.frombuffer(self.take(stream, here * width), self.dtype).reshape(here, *self.shape[1:])

    def take(self, stream: IO[bytes], count: int) -> bytearray:
        """The next bytes of the array; a ValueError where the file ends before."""
        content = bytearray()
        with _undamaged(self.name):
            while len(content) < count:
                part = stream.read(min(count - len(content), 2**24))
                if not part:
                    raise EOFError("it ends too early")
                content += part
        return content


def npy(path: str | os.PathLike[str]) -> Stored:
    """The array in an .npy file.

    Raises:
        OSError: it is not a file, or cannot be read.
        ValueError: it is damaged or of another kind, or holds Python objects.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.save(f"{folder}/ages.npy", np.arange(4))
        ...     npy(f"{folder}/ages.npy").shape
        (4,)
    """
    name = os.fspath(path)
    return _stored(name, name, lambda: open(path, "rb"), files.size(path))


def names(path: str | os.PathLike[str]) -> list[str]:
    """Of the arrays in an .npz file.

    Raises:
        OSError: it is not a file, or cannot be read.
        ValueError: it is damaged, of another kind, or packed in another way than NumPy does.
    """
    return [name.removesuffix(".npy") for name in files.members(path)]


def npz(path: str | os.PathLike[str], name: str) -> Stored:
    """The array of a name in an .npz file.

    Raises:
        OSError: it is not a file, or cannot be read.
        ValueError: as for :func:`names` and :func:`npy`; or there is none of that name.
    """
    found, member = files.members(path), f"{name}.npy"
    if member not in found:
        raise ValueError(f"expected {name} in {os.fspath(path)}, got none of that name")

    @contextmanager
    def opened() -> Iterator[IO[bytes]]:
        with zipfile.ZipFile(path) as archive:
            with _undamaged(f"{name} of {os.fspath(path)}"):
                stream = archive.open(member)
            with stream:
                yield stream

    return _stored(f"{name} of {os.fspath(path)}", os.fspath(path), opened, found[member].file_size)


def load(path: str | os.PathLike[str], wanted: Iterable[str]) -> dict[str, np.ndarray]:
    """Arrays of an .npz file in memory, by name.

    Raises:
        OSError: it is not a file, or cannot be read.
        ValueError: as for :func:`npz`; or they are far larger than the file, or than the memory.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/rows.npz", X=np.ones((3, 2)), y=np.arange(3))
        ...     load(f"{folder}/rows.npz", ["y"])
        {'y': array([0, 1, 2])}
    """
    found = {name: npz(path, name) for name in wanted}
    _check_memory(path, sum(each.nbytes for each in found.values()))
    return {name: each.read() for name, each in found.items()}


def _check_memory(path: str | os.PathLike[str], claimed: int) -> None:
    files.check_unpacked(path, claimed)
    files.check_fits(path, claimed)


def _stored(name: str, path: str, opened: Callable[[], AbstractContextManager[IO[bytes]]], size: int) -> Stored:
    """An array out of a stream of so many bytes."""
    with opened() as stream:
        shape, by_columns, dtype = _header(stream, name)
        begin = stream.tell()
    if dtype.hasobject:
        raise ValueError(f"expected numbers in {name}, got Python objects, which are never unpickled")
    if not dtype.itemsize or not all(0 <= side < _LONGEST for side in shape):
        raise ValueError(f"expected the shape of an array in {name}, got {shape} of {dtype}: it is damaged")
    expected = begin + math.prod(shape) * dtype.itemsize
    if size < expected:
        raise ValueError(f"expected {expected:,} bytes in {name}, as its header says, got {size:,}: it is damaged")

    @contextmanager
    def numbers() -> Iterator[IO[bytes]]:
        with opened() as stream:
            _header(stream, name)
            yield stream

    return Stored(name, path, shape, dtype, by_columns, numbers)


def _header(stream: IO[bytes], name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, order and type; the stream then stands at the first number."""
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            return np.lib.format.read_array_header_1_0(stream)
        return np.lib.format.read_array_header_2_0(stream)
    except Exception as error:  # it is parsed as Python, whose errors are of all kinds
        said = str(error) or type(error).__name__
        raise ValueError(f"expected {name} in NumPy's format, got something else: {said}") from error


@contextmanager
def _undamaged(name: str) -> Iterator[None]:
    """What a zip archive raises where it is damaged, which is of all kinds, as a sentence."""
    try:
        yield
    except Exception as error:
        said = str(error) or type(error).__name__
        raise ValueError(f"expected a whole array, got {name}, which is damaged: {said}") from error
