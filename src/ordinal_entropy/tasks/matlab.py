"""Numbers, cells and structs out of a MATLAB file, distrusted: whatever the bytes are, there is a value or an error.

SciPy's reader may end the whole process on a damaged file, and says that it is not made for files one does not trust;
this one reads less, and every byte of it through checks.
"""

import math
import os
import struct
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ordinal_entropy import files

_HEADER = 128  # bytes before the first variable
_ORDERS = {b"IM": "<", b"MI": ">"}  # the last two of them: which byte of a number comes first
_MATRIX, _COMPRESSED = 14, 15  # kinds of elements that hold others
_TYPES = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_CELL, _STRUCT, _NUMBERS = 1, 2, range(6, 16)  # classes of a matrix
_COMPLEX = 0x0800  # a flag beside the class
_DEPTH = 16  # cells and structs inside each other


class MatlabError(ValueError):
    """What is wrong with a file, in a phrase."""


class _Element(NamedTuple):
    kind: int
    data: bytes


def read(path: str | os.PathLike[str], *, max_bytes: int) -> dict[str, Any]:
    """What :func:`variables` finds in a file.

    Args:
        path: of a file of MATLAB 5 to 7.2.
        max_bytes: a larger file is refused before it is read, and one that holds more before it is unpacked.

    Raises:
        MatlabError: as :func:`variables`; also if it is missing, no file, empty, or cannot be read.
    """
    wrong = files.fault(path)
    try:
        size = 0 if wrong else files.size(path)
        wrong = wrong or (None if size else "empty")
        if size > max_bytes:
            wrong = f"larger than {max_bytes:,} bytes: {size:,}"
        if wrong is not None:
            raise MatlabError(wrong)
        content = files.content(path)
    except OSError as error:
        raise MatlabError(f"not readable: {error.strerror or error}") from error
    return variables(content, max_bytes=max_bytes)


def variables(content: bytes, *, max_bytes: int) -> dict[str, Any]:
    """The variables of a MATLAB file by their names.

    Args:
        content: a file of MATLAB 5 to 7.2.
        max_bytes: a file that holds more when it is unpacked is refused before it is.

    Returns:
        Of numbers a float64 array, of a cell a list, of a struct a list with a dictionary for each of its elements;
        None for anything else: text, complex or sparse numbers, objects.

    Raises:
        MatlabError: damaged, too large, nested too deep, or not such a file.
    """
    if content.startswith((b"MATLAB 7.3", b"\x89HDF")):
        raise MatlabError("a MATLAB 7.3 file; save it with -v7")
    order = _ORDERS.get(content[_HEADER - 2 : _HEADER])
    if order is None:
        raise MatlabError("not a MATLAB file (5 to 7.2)")
    found: dict[str, Any] = {}
    left = max_bytes
    for element in _elements(content[_HEADER:], order):
        inside = [element]
        if element.kind == _COMPRESSED:
            data = _unpacked(element.data, left)
            left -= len(data)
            if left < 0:
                raise MatlabError(f"larger than {max_bytes:,} bytes when unpacked")
            inside = list(_elements(data, order))
        for each in inside:
            if each.kind != _MATRIX:
                raise MatlabError(f"damaged: a variable of kind {each.kind}")
            name, value = _matrix(each.data, order, _DEPTH)
            found[name] = value
    return found


def _unpacked(data: bytes, most: int) -> bytes:
    """Not much more than so many bytes."""
    try:
        return zlib.decompressobj().decompress(data, most + 1)
    except zlib.error as error:
        raise MatlabError("damaged: cannot be unpacked") from error


def _elements(data: bytes, order: str) -> Iterator[_Element]:
    """What lies one behind the other: a tag of kind and size, then as many bytes, filled up to a multiple of 8."""
    place = 0
    while place < len(data):
        if place + 8 > len(data):
            raise MatlabError("damaged: cut off")
        kind, size = struct.unpack_from(f"{order}II", data, place)
        start = place + 8
        if kind >> 16:  # up to 4 bytes, inside the tag
            kind, size, start = kind & 0xFFFF, kind >> 16, place + 4
            place += 8
            if size > 4:
                raise MatlabError("damaged: a tag that is none")
        else:
            place = start + size + (-size % 8 if kind != _COMPRESSED else 0)
        if start + size > len(data):
            raise MatlabError("damaged: cut off")
        yield _Element(kind, data[start : start + size])


def _matrix(data: bytes, order: str, depth: int) -> tuple[str, Any]:
    """Name and value."""
    if not data:
        return "", np.zeros((0, 0))
    if not depth:
        raise MatlabError("damaged: nested too deep")
    parts = list(_elements(data, order))
    if len(parts) < 3:
        raise MatlabError("damaged: a variable without a name")
    flags, shape = _numbers(parts[0], order), _numbers(parts[1], order)
    if not len(flags) or len(shape) < 2 or min(shape) < 0:
        raise MatlabError("damaged: a variable without a shape")
    size = math.prod(int(side) for side in shape)
    name, kind, rest = parts[2].data.rstrip(b"\0").decode("latin-1"), int(flags[0]) & 0xFF, parts[3:]
    if kind == _CELL:
        return name, _values(rest, size, order, depth)
    if kind == _STRUCT:
        return name, _structs(rest, size, order, depth)
    if kind not in _NUMBERS or int(flags[0]) & _COMPLEX:
        return name, None
    numbers = _numbers(rest[0], order) if len(rest) == 1 else np.zeros(0)
    if len(rest) > 1 or len(numbers) != size:
        raise MatlabError(f"damaged: {len(numbers):,} numbers for a shape of {size:,}")
    return name, numbers.reshape([int(side) for side in shape], order="F").astype(np.float64)


def _structs(parts: list[_Element], size: int, order: str, depth: int) -> list[dict[str, Any]]:
    if len(parts) < 2:
        raise MatlabError("damaged: a struct without fields")
    length = _numbers(parts[0], order)
    step = int(length[0]) if len(length) == 1 else 0
    if step < 1 or len(parts[1].data) % step:
        raise MatlabError("damaged: a struct without fields")
    starts = range(0, len(parts[1].data), step)
    names = [parts[1].data[start : start + step].split(b"\0")[0].decode("latin-1") for start in starts]
    values = _values(parts[2:], size * len(names), order, depth)
    return [dict(zip(names, values[k * len(names) :], strict=False)) for k in range(size if names else 0)]


def _values(parts: list[_Element], size: int, order: str, depth: int) -> list[Any]:
    if len(parts) != size:
        raise MatlabError(f"damaged: {len(parts):,} values for a shape of {size:,}")
    if any(part.kind != _MATRIX for part in parts):
        raise MatlabError("damaged: a value that is none")
    return [_matrix(part.data, order, depth - 1)[1] for part in parts]


def _numbers(element: _Element, order: str) -> Any:
    if element.kind not in _TYPES:
        raise MatlabError(f"damaged: numbers of kind {element.kind}")
    dtype = np.dtype(order + _TYPES[element.kind])
    if len(element.data) % dtype.itemsize:
        raise MatlabError("damaged: a part of a number")
    return np.frombuffer(element.data, dtype)
