"""Features and targets in files or in memory, read a block of rows at a time and never unpickled."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ordinal_entropy import arrays, files

_ENDINGS = (".npz", ".npy", ".safetensors")
_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@dataclass(frozen=True)
class RowStream:
    """An array whose rows come in blocks: ``blocks(k)`` yields tensors of ``k`` rows, the last of what is left."""

    shape: tuple[int, ...]
    blocks: Callable[[int], Iterator[Tensor]]


def stream(values: Tensor | np.ndarray | RowStream, name: str) -> RowStream:
    """An array or tensor as :class:`RowStream`; those are returned as they are.

    Args:
        values: numbers, any shape, any device.
        name: of the values, for what is said about them.

    Raises:
        TypeError: neither an array nor a tensor.
        ValueError: what it holds are not real numbers.

    Example:
        >>> [block.tolist() for block in stream(np.arange(3), "targets").blocks(2)]
        [[0.0, 1.0], [2.0]]
    """
    if isinstance(values, RowStream):
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

    return RowStream(tuple(values.shape), blocks)


def read(path: str | os.PathLike[str], targets: str | os.PathLike[str] | None = None) -> tuple[RowStream, RowStream]:
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
        return _stream_of(arrays.npy(file)), _stream_of(arrays.npy(targets))
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


def _npz(file: Path) -> tuple[RowStream, RowStream]:
    _check_names(file, arrays.names(file))
    features, targets = (_stream_of(arrays.npz(file, name)) for name in ("features", "targets"))
    return features, targets


def _stream_of(stored: arrays.Stored) -> RowStream:
    _check_numbers(stored.dtype, stored.name)
    return RowStream(stored.shape, lambda count: map(_tensor, stored.blocks(count)))


def _safetensors(file: Path) -> tuple[RowStream, RowStream]:
    from safetensors import SafetensorError, safe_open

    def stored(name: str) -> RowStream:
        with safe_open(file, framework="pt") as content:
            shape = tuple(content.get_slice(name).get_shape())

        def blocks(count: int) -> Iterator[Tensor]:
            for start in range(0, shape[0], count):
                # opened for each block: what one file handle has mapped stays in memory until it is closed
                with safe_open(file, framework="pt") as content:
                    block = content.get_slice(name)[start : start + count].clone()
                yield block if block.dtype in _FLOATS else block.double()

        return RowStream(shape, blocks)

    files.size(file)  # of what is not there, safetensors says less
    try:
        with safe_open(file, framework="pt") as content:
            _check_names(file, list(content.keys()))
        return stored("features"), stored("targets")
    except SafetensorError as error:
        raise ValueError(f"expected a whole .safetensors file, got {file}, which is damaged: {error}") from error
