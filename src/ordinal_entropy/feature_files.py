"""Features and targets in files or in memory, read a block of rows at a time and never unpickled."""

import math
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

_ENDINGS = (".npz", ".npy", ".safetensors")
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class Rows:
    """An array whose rows come in blocks: ``blocks(k)`` yields tensors of ``k`` rows, the last of what is left."""

    shape: tuple[int, ...]
    blocks: Callable[[int], Iterator[Tensor]]


def rows(values: Tensor | np.ndarray | Rows, name: str) -> Rows:
    """An array or tensor as :class:`Rows`; those are returned as they are.

    Args:
        values: numbers, any shape, any device.
        name: of the values, for what is said about them.

    Raises:
        TypeError: neither an array nor a tensor.
        ValueError: what it holds are not real numbers.

    Example:
        >>> [block.tolist() for block in rows(np.arange(3), "targets").blocks(2)]
        [[0.0, 1.0], [2.0]]
    """
    if isinstance(values, Rows):
        return values
    if not isinstance(values, (Tensor, np.ndarray)):
        raise TypeError(f"expected {name} as a torch.Tensor or a NumPy array, got {type(values).__name__}")
    if isinstance(values, np.ndarray):
        _check_numbers(values.dtype, name)
    elif values.is_complex():
        raise ValueError(f"expected real numbers in {name}, got {values.dtype}")

    def blocks(count: int) -> Iterator[Tensor]:
        for start in range(0, values.shape[0], count):
            block = values[start : start + count]
            yield block.detach().cpu() if isinstance(block, Tensor) else _tensor(block)

    return Rows(tuple(values.shape), blocks)


def read(path: str | os.PathLike[str], targets: str | os.PathLike[str] | None = None) -> tuple[Rows, Rows]:
    """Features and targets of a file, looked at but not loaded.

    Args:
        path: an ``.npz`` or ``.safetensors`` file with ``features`` and ``targets``, or an ``.npy`` file of features.
        targets: the ``.npy`` file of the targets, for the latter.

    Returns:
        ``(features, targets)``. A block is all that is in memory at a time; arrays that were saved column by column
        (Fortran order) are the exception, and are loaded whole.

    Raises:
        ValueError: the file is damaged, is of another kind, or lacks one of the two; object arrays are not unpickled.
        OSError: it cannot be read.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     np.savez(f"{folder}/run.npz", features=np.ones((5, 2)), targets=np.arange(5))
        ...     features, targets = read(f"{folder}/run.npz")
        ...     features.shape, next(targets.blocks(3))
        ((5, 2), tensor([0., 1., 2.], dtype=torch.float64))
    """
    file = Path(path)
    if file.suffix == ".npy":
        if targets is None:
            raise ValueError(f"expected the targets of {file} in a second .npy file (--targets), got none")
        if Path(targets).suffix != ".npy":
            raise ValueError(f"expected the targets of {file} in an .npy file, got {targets}")
        return _npy(file), _npy(Path(targets))
    if file.suffix not in _ENDINGS:
        raise ValueError(f"expected a file that ends in {', '.join(_ENDINGS)}, got {file}")
    if targets is not None:
        raise ValueError(f"expected targets inside {file}, got them in a file of their own too, {targets}")
    return _npz(file) if file.suffix == ".npz" else _safetensors(file)


def _check_numbers(dtype: np.dtype[Any], name: str) -> None:
    if dtype.hasobject:
        raise ValueError(f"expected numbers in {name}, got Python objects, which are never unpickled")
    if dtype.kind not in "fiub":
        raise ValueError(f"expected real numbers in {name}, got {dtype}")


def _tensor(block: np.ndarray) -> Tensor:
    """A copy; float16, float32 and float64 stay, any other kind of number becomes float64."""
    kind = f"=f{block.dtype.itemsize}" if block.dtype.kind == "f" and block.dtype.itemsize <= 8 else "=f8"
    return torch.from_numpy(block.astype(kind))


def _check_names(file: Path, found: list[str]) -> None:
    missing = [name for name in ("features", "targets") if name not in found]
    if missing:
        there = f"only {', '.join(map(repr, found[:8]))}" if found else "nothing"
        raise ValueError(f"expected 'features' and 'targets' in {file}, got no {' and no '.join(missing)}: {there}")


@contextmanager
def _explained(file: Path) -> Iterator[None]:
    """What can be wrong with a file, as a sentence."""
    try:
        yield
    except (FileNotFoundError, IsADirectoryError) as error:
        there = "a folder" if isinstance(error, IsADirectoryError) else "nothing"
        raise OSError(f"expected a file at {file}, got {there}") from error
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"expected a whole file, got {file}, which is damaged: {error}") from error
    except (NotImplementedError, RuntimeError) as error:  # zip: encrypted, or packed in a way Python does not know
        raise ValueError(f"expected a plain .npz file, got {file}: {error}") from error


def _npy(file: Path) -> Rows:
    return _array(file, str(file), lambda: file.open("rb"), file.stat().st_size if file.exists() else 0)


def _npz(file: Path) -> tuple[Rows, Rows]:
    with _explained(file), zipfile.ZipFile(file) as archive:
        sizes = {entry.filename.removesuffix(".npy"): entry.file_size for entry in archive.infolist()}
    _check_names(file, list(sizes))

    @contextmanager
    def member(name: str) -> Iterator[IO[bytes]]:
        with zipfile.ZipFile(file) as archive, archive.open(f"{name}.npy") as stream:
            yield stream

    features, targets = (
        _array(file, f"{name} of {file}", partial(member, name), sizes[name]) for name in ("features", "targets")
    )
    return features, targets


class _Header(NamedTuple):
    shape: tuple[int, ...]
    by_columns: bool
    dtype: np.dtype[Any]


def _header(stream: IO[bytes], name: str) -> _Header:
    """Of an .npy stream, which then stands at the first number."""
    try:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            return _Header(*np.lib.format.read_array_header_1_0(stream))
        return _Header(*np.lib.format.read_array_header_2_0(stream))
    except ValueError as error:
        raise ValueError(f"expected {name} in NumPy's format, got something else: {error}") from error


def _array(file: Path, name: str, opened: Callable[[], Any], size: int) -> Rows:
    """Rows of an .npy stream of ``size`` bytes, which ``opened`` opens anew."""
    with _explained(file), opened() as stream:
        shape, by_columns, dtype = _header(stream, name)
        begin = stream.tell()
    _check_numbers(dtype, name)
    expected = begin + math.prod(shape) * dtype.itemsize
    if size < expected:
        raise ValueError(f"expected {expected:,} bytes in {name}, as its header says, got {size:,}: it is damaged")
    width = math.prod(shape[1:])

    def blocks(count: int) -> Iterator[Tensor]:
        with _explained(file), opened() as stream:
            _header(stream, name)
            if by_columns:
                whole = np.frombuffer(stream.read(), dtype).reshape(shape, order="F")
                yield from rows(whole, name).blocks(count)
                return
            for start in range(0, shape[0], count):
                here = min(count, shape[0] - start)
                content = stream.read(here * width * dtype.itemsize)
                yield _tensor(np.frombuffer(content, dtype).reshape(here, *shape[1:]))

    return Rows(shape, blocks)


def _safetensors(file: Path) -> tuple[Rows, Rows]:
    from safetensors import SafetensorError, safe_open

    def stored(name: str) -> Rows:
        with safe_open(file, framework="pt") as content:
            shape = tuple(content.get_slice(name).get_shape())

        def blocks(count: int) -> Iterator[Tensor]:
            for start in range(0, shape[0], count):
                # opened for each block: what one file handle has mapped stays in memory until it is closed
                with safe_open(file, framework="pt") as content:
                    block = content.get_slice(name)[start : start + count].clone()
                yield block if block.dtype in _FLOATS else block.double()

        return Rows(shape, blocks)

    with _explained(file):
        file.open("rb").close()  # of what is not there, safetensors says less
    try:
        with safe_open(file, framework="pt") as content:
            _check_names(file, list(content.keys()))
        return stored("features"), stored("targets")
    except SafetensorError as error:
        raise ValueError(f"expected a whole .safetensors file, got {file}, which is damaged: {error}") from error
