"""Kernel densities of training targets: of single numbers on a grid, of several together as a sum over rows."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

_STEPS = 10  # of the grid in one bandwidth
_REACH = 5  # bandwidths of the kernel on both sides


def density_table(numbers: Tensor, bandwidth: float, *, whole: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """The density of each number over its range, smoothed by a Gaussian.

    Args:
        numbers: ``(n, t)``, finite, in float64.
        bandwidth: standard deviation of the Gaussian, as a fraction of the range.
        whole: near the ends of the range, the Gaussian of each row has its whole mass inside, so that shares of the
            rows are right; else the density is relative to that of even numbers, so that these have the same up to
            both ends.

    Returns:
        The ends ``(t,)`` and ``(t,)`` of the grids, and the densities ``(t, points)`` up to a factor of each number.

    Example:
        >>> low, high, density = density_table(torch.linspace(0, 1, 101)[:, None].double(), bandwidth=0.1)
        >>> bool((density / density.mean() - 1).abs().max() < 0.05)
        True
    """
    low, high = numbers.amin(0), numbers.amax(0)
    points = math.ceil(_STEPS / bandwidth) + 1
    sigma = bandwidth * (points - 1)  # in steps of the grid
    reach = min(math.ceil(_REACH * sigma), points - 1)
    kernel = torch.exp(-0.5 * (torch.arange(-reach, reach + 1).to(numbers) / sigma).square())[None, None]
    even = numbers.new_ones(1, 1, points)
    even[..., [0, -1]] = 0.5  # even targets give half as much to the ends
    even = F.conv1d(even, kernel, padding=reach)
    tables = []
    for column, smallest, largest in zip(numbers.T, low, high, strict=True):
        left, share = on_grid(column, smallest, largest, points)
        counts = numbers.new_zeros(points).index_add(0, left, 1 - share).index_add(0, left + 1, share)
        counts = counts / even[0, 0] if whole else counts
        smoothed = F.conv1d(counts[None, None], kernel, padding=reach)
        tables.append((smoothed if whole else smoothed / even)[0, 0])
    return low, high, torch.stack(tables)


def on_grid(numbers: Tensor, low: Tensor, high: Tensor, points: int) -> tuple[Tensor, Tensor]:
    """The point of the grid left of each number, and how far to the next one it is, 0 to 1."""
    span = torch.where(high > low, high - low, 1)
    place = ((numbers - low) / span).nan_to_num(0.5).clamp(0, 1) * (points - 1)
    left = place.floor().clamp(max=points - 2)
    return left.long(), place - left


def joint_density(places: Tensor, rows: Tensor, bandwidth: float) -> Tensor:
    """The density of several numbers together, smoothed by a Gaussian, relative to that of even rows in a unit box.

    Args:
        places: where it is wanted, ``(m, t)``, in the box.
        rows: that it is the density of, ``(n, t)``, each number from 0 to 1.
        bandwidth: of one number. The standard deviation for ``t`` of them is its ``t``-th root, so that the Gaussian
            covers the same part of the box whatever their number.

    Returns:
        ``(m,)``. Time and memory for ``(m, n)``.

    Example:
        >>> corners = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
        >>> joint_density(corners, corners[:3], bandwidth=0.01).round()  # none of the rows is in the last corner
        tensor([21., 21., 21., 0.])
    """
    t = rows.shape[1]
    width = bandwidth ** (1 / t)
    squares = torch.cdist(places, rows, compute_mode="donot_use_mm_for_euclid_dist").square()
    inside = torch.special.ndtr((1 - places) / width) - torch.special.ndtr(-places / width)  # of the Gaussian
    whole = inside.prod(1) * (width * math.sqrt(2 * math.pi)) ** t
    density: Tensor = torch.exp(-0.5 * squares / width**2).mean(1) / whole
    return density
