"""Density maps: every annotated head as a small Gaussian of sum 1, so that a map sums to the number of heads.

The map is a sum of outer products, one of each point, its Gaussian down the rows times its Gaussian along the columns:
that is one product of two matrices, and summing the rows and columns of a cell beforehand gives the map of the cells
themselves, without the full one.
"""

import hashlib
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ordinal_entropy import arrays, runs
from ordinal_entropy.files import on_all_cores
from ordinal_entropy.recipes import cache_folder, lookup

Array = NDArray[Any]
Density = NDArray[np.float32]  # (rows of cells, columns of cells)

CELL = 8  # side of a cell in pixels: the stride of the networks
_VERSION = 1  # of the maps: part of the name of a cached one
_TRUNCATE = 4.0  # a Gaussian ends after so many sigmas
_NEIGHBOURS = 3  # whose distances make a sigma
_BLOCK = 1024  # points at a time


@dataclass(frozen=True)
class DensityOptions:
    """How a density map is made."""

    kernel: Literal["adaptive", "fixed"] = "adaptive"  # sigma of a point from its neighbours, or the same for all
    sigma: float = 15.0  # of the fixed kernel, in pixels
    border: Literal["kept", "lost"] = "kept"  # what of a Gaussian would lie outside: kept inside, or lost (published)
    stride: int = CELL  # side of a cell in pixels; 1: a value of each pixel
    reduce: Literal["sum", "bicubic"] = "sum"  # cells as sums over their pixels, or resized (published)

    def __post_init__(self) -> None:
        """Values that no map can have are refused."""
        for name, choices in (
            ("kernel", ("adaptive", "fixed")),
            ("border", ("kept", "lost")),
            ("reduce", ("sum", "bicubic")),
        ):
            lookup(name, getattr(self, name), dict.fromkeys(choices))
        if not (self.sigma > 0 and math.isfinite(self.sigma)):
            raise ValueError(f"expected a sigma above 0, got {self.sigma}")
        if self.stride < 1:
            raise ValueError(f"expected a stride of at least 1, got {self.stride}")


def density(points: Array, height: int, width: int, options: DensityOptions = DensityOptions()) -> Density:  # noqa: B008
    """The density map of points in an image.

    A Gaussian has its middle in the pixel that its point falls into, and ends after four sigmas; points that coincide
    all count. Pixels belong to cells of ``stride`` x ``stride`` from the upper left corner; where a side is no multiple
    of it, the last cells are cut, and the map is that of the image padded to full cells at the right and below.

    Args:
        points: ``(n, 2)`` as x and y in pixels, pixel k reaching from k to k + 1; n may be 0.
        height: of the image.
        width: of the image.
        options: the kernel, the border, the cells.

    Returns:
        ``(ceil(height / stride), ceil(width / stride))``. With the defaults it sums to n: each Gaussian is divided by
        its sum inside the image, and a point beyond the border counts in the nearest pixel. With ``border="lost"`` it
        sums to less: what lies outside is lost, and so are points beyond the border. With ``reduce="bicubic"`` it is
        the full map, resized to ``(height // stride, width // stride)`` by interpolation between a few pixels in the
        middle of each cell, times the pixels of a cell, and sums to about as much.

    Example:
        >>> points = np.array([[0.5, 0.5], [20.0, 12.0], [20.0, 12.0]])
        >>> cells = density(points, 20, 32)
        >>> cells.shape, round(float(cells.sum()), 5)
        ((3, 4), 3.0)
        >>> round(float(density(points, 20, 32, DensityOptions(border="lost")).sum()), 5) < 3
        True
    """
    points = _checked(points, height, width)
    if options.reduce == "bicubic" and options.stride > 1:
        return _resized(_summed(points, height, width, options, stride=1), options.stride)
    return _summed(points, height, width, options, stride=options.stride)


def sigmas(points: Array, height: int, width: int) -> Array:
    """The geometry-adaptive sigma of each point, ``(n,)``: 0.1 times the distances to its three nearest neighbours.

    With fewer neighbours those that are there count for the missing ones. A single point has a quarter of the mean side
    of the image.

    Example:
        >>> sigmas(np.array([[0.0, 0.0], [10.0, 0.0], [20.0, 0.0], [30.0, 0.0]]), 100, 100)
        array([6., 4., 4., 6.])
    """
    points = _checked(points, height, width)
    if len(points) < 2:
        return np.full(len(points), (height + width) / 8)
    from scipy.spatial import cKDTree

    count = min(_NEIGHBOURS, len(points) - 1)
    distances, _ = cKDTree(points).query(points, k=count + 1)  # (n, 1 + count), the first 0: the point itself
    found: Array = 0.1 * _NEIGHBOURS * distances[:, 1:].mean(axis=1)
    return found


def cached(
    points: Array,
    height: int,
    width: int,
    options: DensityOptions = DensityOptions(),  # noqa: B008
    *,
    folder: str | os.PathLike[str] | None = None,
) -> Density:
    """:func:`density`, kept on disk: read where it was made before, else made and written, whole or not at all.

    Args:
        points: as all that follows, as in :func:`density`.
        height: of the image.
        width: of the image.
        options: the name of the file depends on them, on the points and on the size of the image.
        folder: where; without it, ``density`` in the cache of this package.
    """
    points = _checked(points, height, width)
    path = (
        cache_folder() / "density" if folder is None else Path(folder)
    ) / f"{_key(points, height, width, options)}.npy"
    there = _read(path)
    if there is not None:
        return there
    made = density(points, height, width, options)
    with runs.replacing(path) as file:
        np.save(file, made, allow_pickle=False)
    return made


def all_cached(
    points: Sequence[Array],
    sizes: Sequence[tuple[int, int]],
    options: DensityOptions = DensityOptions(),  # noqa: B008
    *,
    folder: str | os.PathLike[str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> list[Density]:
    """:func:`cached` of many images, on all cores.

    Args:
        points: of each image.
        sizes: height and width of each image.
        options: as in :func:`density`.
        folder: as in :func:`cached`.
        progress: is told how many maps are there, and how many there will be.
    """
    from threadpoolctl import threadpool_limits

    def one(index: int) -> Density:
        return cached(points[index], *sizes[index], options, folder=folder)

    if len(points) != len(sizes):
        raise ValueError(f"expected sizes of {len(points)} images, got {len(sizes)}")
    with threadpool_limits(1):  # numpy computes outside the interpreter's lock
        return on_all_cores(one, range(len(points)), progress)


def _checked(points: Array, height: int, width: int) -> Array:
    points = np.asarray(points, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(f"expected points (n, 2), got {points.shape}")
    if height < 1 or width < 1:
        raise ValueError(f"expected an image of at least a pixel, got {width} x {height}")
    strange = int((~np.isfinite(points)).any(axis=1).sum())
    if strange:
        raise ValueError(f"expected finite points, got {strange} others")
    return points


def _summed(points: Array, height: int, width: int, options: DensityOptions, *, stride: int) -> Density:
    """Sums over cells of the full map."""
    found = np.zeros((-(-height // stride), -(-width // stride)))
    kept = options.border == "kept"
    sigma = np.full(len(points), options.sigma) if options.kernel == "fixed" else sigmas(points, height, width)
    pixels = np.floor(points).astype(np.int64)  # (n, 2)
    ends = np.array([width, height]) - 1
    if kept:
        pixels = np.clip(pixels, 0, ends)
    else:
        inside = ((pixels >= 0) & (pixels <= ends)).all(axis=1)
        pixels, sigma = pixels[inside], sigma[inside]
    for start in range(0, len(pixels), _BLOCK):
        some = slice(start, start + _BLOCK)
        columns = _gaussians(pixels[some, 0], sigma[some], width, kept=kept, stride=stride)
        rows = _gaussians(pixels[some, 1], sigma[some], height, kept=kept, stride=stride)
        found += rows.T @ columns
    return found.astype(np.float32)


def _gaussians(middles: Array, sigma: Array, length: int, *, kept: bool, stride: int) -> Array:
    """Gaussians around pixels ``(n,)`` of a side, each of sum 1, summed over cells: ``(n, ceil(length / stride))``."""
    radius = np.floor(_TRUNCATE * sigma + 0.5)[:, None]  # (n, 1)

    def weights(offsets: Array) -> Array:
        exponents = -0.5 * (offsets / np.maximum(sigma, 1e-3)[:, None]) ** 2  # points that coincide have a sigma of 0
        return np.where(np.abs(offsets) <= radius, np.exp(exponents), 0)

    found = weights(np.arange(length) - middles[:, None])  # (n, length)
    side = np.arange(1, int(radius.max()) + 1)[None, :]
    total = found.sum(axis=1) if kept else 1 + 2 * weights(side).sum(axis=1)  # or the middle and both sides
    cells = np.pad(found / total[:, None], [(0, 0), (0, -length % stride)])
    summed: Array = cells.reshape(len(cells), -1, stride).sum(axis=2)
    return summed


def _resized(full: Density, stride: int) -> Density:
    """As published: resized by bicubic interpolation, without smoothing beforehand, times the pixels of a cell."""
    import torch
    from torch.nn.functional import interpolate

    height, width = (side // stride for side in full.shape)
    if not height or not width:
        raise ValueError(f"expected an image of at least {stride} x {stride} to resize, got {full.shape[::-1]}")
    resized = interpolate(torch.from_numpy(full)[None, None], size=(height, width), mode="bicubic", align_corners=False)
    found: Density = (resized[0, 0] * stride**2).numpy()
    return found


def _key(points: Array, height: int, width: int, options: DensityOptions) -> str:
    told = repr((_VERSION, height, width, astuple(options), points.shape)).encode()
    return hashlib.sha256(told + np.ascontiguousarray(points, dtype="<f8").tobytes()).hexdigest()[:32]


def _read(path: Path) -> Density | None:
    """The map in a file; None where there is none, or what is there cannot be one."""
    try:
        found = arrays.npy(path).read()
    except (OSError, ValueError):
        return None
    return found if found.dtype == np.float32 and found.ndim == 2 else None
