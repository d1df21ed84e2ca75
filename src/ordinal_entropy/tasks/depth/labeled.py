"""The pairs in ``nyu_depth_v2_labeled.mat``, a .mat of version 7.3, which is HDF5; distrusted as image files are."""

import itertools
import math
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ordinal_entropy import files
from ordinal_entropy.files import FileError, shown
from ordinal_entropy.tasks import matlab
from ordinal_entropy.tasks.depth.maps import BLACK, scaled
from ordinal_entropy.tasks.matlab import MatlabError
from ordinal_entropy.vision.images import MAX_PIXELS, ImageError, Pixels

_FILTERS = frozenset({1, 2})  # HDF5's numbers of gzip and shuffle, which MATLAB writes; fletcher32 crashes if damaged
_MAX_SPLITS = 1_000_000  # bytes of splits.mat, packed or not
_LONGEST = 1000  # characters in the name of a scene
DEPTHS = ("rawDepths", "depths")  # as measured, or with its holes filled; the first that is there


class LabeledError(FileError):
    """A .mat that is not to be read."""

    expected = "labelled pairs"


class Contents(NamedTuple):
    """What a .mat holds."""

    n: int  # pairs
    scenes: list[str]  # where each was taken; all empty where that is not told


def contents(path: Path) -> Contents:
    """How many pairs the .mat holds, and where each was taken; no pixel is read.

    Raises:
        LabeledError: not in HDF5, truncated, without images or depths, or with odd ones; its ``reason`` says which.
        ModuleNotFoundError: h5py is not installed.
    """
    h5py = _h5py()
    wrong = files.fault(path)
    if wrong is not None:
        raise LabeledError(path, wrong)
    try:
        with h5py.File(path, "r") as file:
            pictures, depths = _arrays(h5py, path, file)
            sizes = (*pictures.shape[:1], *pictures.shape[2:])  # n, columns, rows: MATLAB's order, turned round
            if pictures.ndim != 4 or pictures.shape[1] != 3 or pictures.dtype != np.uint8:
                raise LabeledError(path, f"expected images (n, 3, w, h) of bytes, got {_told(pictures)}")
            if depths.dtype.kind != "f" or depths.dtype.itemsize > 8 or depths.shape != sizes:
                raise LabeledError(path, f"expected depths {sizes} of floats beside the images, got {_told(depths)}")
            if not all(sizes):
                raise LabeledError(path, "no pairs")
            if sizes[1] * sizes[2] > MAX_PIXELS:
                raise LabeledError(path, f"images larger than {MAX_PIXELS:,} pixels: {sizes[1]:,} x {sizes[2]:,}")
            files.check_unpacked(path, pictures.nbytes + depths.nbytes)
            return Contents(sizes[0], _scenes(h5py, file, sizes[0]))
    except LabeledError:
        raise
    except (ValueError, OverflowError) as error:
        raise LabeledError(path, shown(str(error), 200)) from error
    except (OSError, RuntimeError, KeyError) as error:  # h5py's
        raise LabeledError(path, _unreadable(path, error)) from error


def pair(path: Path, place: int) -> tuple[Pixels, NDArray[np.float32]]:
    """The image ``(h, w, 3)`` and the depth ``(h, w)`` in metres at a place, 0 where there is none.

    The border that the labelled images have is blacked, as in the published test images.

    Raises:
        ImageError: it cannot be read; its ``reason`` says why.
    """
    h5py = _h5py()
    try:
        with h5py.File(path, "r") as file:
            pictures, depths = _arrays(h5py, path, file)
            stored: Pixels = _read(pictures, place).transpose(2, 1, 0)  # (h, w, 3)
            depth: NDArray[np.float32] = _read(depths, place).T.astype(np.float32)
    except LabeledError as error:
        raise ImageError(path, error.reason) from error
    except (OSError, RuntimeError, KeyError, ValueError, IndexError) as error:
        raise ImageError(path, f"pair {place + 1}: {_unreadable(path, error)}") from error
    top, bottom, left, right = scaled(BLACK, *depth.shape)
    image = np.zeros_like(stored, order="C")
    image[top:bottom, left:right] = stored[top:bottom, left:right]
    return image, np.ascontiguousarray(np.where(depth > 0, depth, np.float32(0)))  # 0 for NaN too


def splits(path: Path, count: int) -> list[str | None]:
    """Of each pair "train", "test", or None where splits.mat names it in neither.

    Args:
        path: of splits.mat, with the variables ``trainNdxs`` and ``testNdxs``, counted from 1.
        count: of pairs.

    Raises:
        LabeledError: it cannot be read, or names pairs that are not there, or one twice.
    """
    names = {"train": "trainNdxs", "test": "testNdxs"}
    try:
        found = matlab.read(path, max_bytes=_MAX_SPLITS)
    except MatlabError as error:
        raise LabeledError(path, f"not a .mat that can be read: {error}") from error
    result: list[str | None] = [None] * count
    for split, name in names.items():
        if name not in found:
            raise LabeledError(path, f"expected the variables {', '.join(names.values())}, got no {name}")
        numbers = found[name]
        if not isinstance(numbers, np.ndarray) or not bool(np.isin(numbers, np.arange(1, count + 1)).all()):
            raise LabeledError(path, f"expected {name} from 1 to {count:,}, got others")
        for number in numbers.ravel().astype(int).tolist():
            if result[number - 1] is not None:
                raise LabeledError(path, f"pair {number} is named twice")
            result[number - 1] = split
    return result


def _h5py() -> Any:
    try:
        return import_module("h5py")
    except ModuleNotFoundError as error:
        if error.name != "h5py":
            raise
        sentence = "a .mat of version 7.3 needs h5py, which is not installed: pip install 'ordinal-entropy[train]'"
        raise ModuleNotFoundError(sentence, name="h5py") from None


def _arrays(h5py: Any, path: Path, file: Any) -> tuple[Any, Any]:
    """The images and the depths, both inside of the file itself."""
    name = next((name for name in DEPTHS if name in file), None)
    if "images" not in file or name is None:
        there = ", ".join(shown(str(each), 40) for each in list(file)[:20]) or "nothing"
        raise LabeledError(path, f"expected images and {' or '.join(DEPTHS)}, got {there}")
    for each in ("images", name):
        if not isinstance(file.get(each, getlink=True), h5py.HardLink) or not _inside(h5py, file[each]):
            raise LabeledError(path, f"{each} is not an array inside of the file")
        if not _unpackable(file[each]):
            raise LabeledError(path, f"{each} is packed by other filters than gzip and shuffle")
    return file["images"], file[name]


def _inside(h5py: Any, found: Any) -> bool:
    """Whether it is an array that lies in the file itself."""
    return isinstance(found, h5py.Dataset) and not found.external and not found.is_virtual


def _unpackable(array: Any) -> bool:
    """Whether HDF5 unpacks it without danger: some of its filters crash on what is damaged."""
    stored = array.id.get_create_plist()
    return _FILTERS.issuperset(stored.get_filter(number)[0] for number in range(stored.get_nfilters()))


def _read(array: Any, place: int) -> Any:
    """A row of an array, after a look at its chunks: HDF5 takes those that are not there for zeros."""
    if array.chunks is not None:
        if math.prod(array.chunks) * array.dtype.itemsize > files.MODEST:
            raise OSError(f"a chunk of {array.chunks}")
        starts = [range(0, side, step) for side, step in zip(array.shape[1:], array.chunks[1:], strict=True)]
        for start in itertools.product([place // array.chunks[0] * array.chunks[0]], *starts):
            chunk = array.id.get_chunk_info_by_coord(start)
            if chunk.byte_offset is None or not chunk.size:
                raise OSError("a chunk that is not there")
    return array[place]


def _scenes(h5py: Any, file: Any, count: int) -> list[str]:
    """The names, which are cells: references to arrays of characters."""
    try:
        cells = file["scenes"]
        if _inside(h5py, cells) and _unpackable(cells) and cells.size == count:
            rows = [_read(cells, row) for row in range(cells.shape[0])]
            return [_characters(h5py, file[cell]) for cell in np.concatenate(rows, axis=None)]
    except Exception:  # no scenes, or something else under the name: they only make for a better split
        pass
    return [""] * count


def _characters(h5py: Any, array: Any) -> str:
    if not _inside(h5py, array) or not _unpackable(array) or array.size > _LONGEST:
        raise ValueError("not a name")
    return "".join(chr(_read(array, row).item()) for row in range(array.shape[0]))


def _told(array: Any) -> str:
    return f"{tuple(array.shape)} of {array.dtype}"


def _unreadable(path: Path, error: Exception) -> str:
    said = str(error)
    if "truncated" in said:
        return "truncated"
    try:
        with path.open("rb") as file:
            beginning = file.read(20)
    except OSError as other:
        return f"not readable: {other.strerror or other}"
    if beginning.startswith(b"MATLAB 5.0"):
        return "a .mat of version 5, expected 7.3, which is HDF5"
    if "signature not found" in said:
        return "not a .mat of version 7.3, which is HDF5"
    return f"damaged: {shown(said, 80)}"
