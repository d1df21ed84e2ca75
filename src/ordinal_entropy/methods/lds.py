"""Label distribution smoothing: rows of rare targets weigh more in the task loss."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy.methods.contract import Batch, Method, Range

_STEPS = 10  # of the grid in one bandwidth
_REACH = 5  # bandwidths of the kernel on both sides


def density_weights(
    targets: Tensor,
    at: Tensor | None = None,
    *,
    bandwidth: float = 0.02,
    power: float = 0.5,
    clip: float = 10.0,
) -> Tensor:
    """Weights that fall with the density of the targets, smoothed by a Gaussian; their mean over the targets is 1.

    The density is that of continuous targets on a fine grid over their range, relative to what an even distribution
    would have there, so that even targets weigh the same up to both ends.

    Args:
        targets: ``(n,)`` or ``(n, t)``, finite, which the density is of. The weight of several numbers is the mean of
            the weights of each.
        at: where the weights are wanted, ``(m,)`` or ``(m, t)``; None: at the targets themselves.
        bandwidth: standard deviation of the Gaussian, as a fraction of the range of the targets.
        power: of the inverse density: 1, or 0.5 for its square root.
        clip: weights are at most this many times their mean and at least the inverse, and then scaled to a mean of 1.

    Returns:
        ``(m,)``, in the type of the targets, at least float32.

    Example:
        >>> density_weights(torch.tensor([0.0, 0.0, 0.0, 0.0, 5.0]), power=1.0)
        tensor([0.6250, 0.6250, 0.6250, 0.6250, 2.5000])
    """
    numbers = targets.flatten(1) if targets.dim() > 1 else targets[:, None]
    places = numbers if at is None else at.flatten(1) if at.dim() > 1 else at[:, None]
    if at is not None and places.shape[1:] != numbers.shape[1:]:
        raise ValueError(f"expected at of {numbers.shape[1]} numbers a row, like the targets, got {tuple(at.shape)}")
    found = weights_at(places, *weight_table(numbers, bandwidth, power, clip))
    return found.to(_type(places))


def weight_table(targets: Tensor, bandwidth: float, power: float, clip: float) -> tuple[Tensor, Tensor, Tensor]:
    """What :func:`density_weights` looks weights up in: the ends ``(t,)`` and ``(t,)`` of a grid, and ``(t, points)``.

    Args:
        targets: ``(n, t)``.
        bandwidth: as there.
        power: as there.
        clip: as there.
    """
    numbers = targets.double()
    if not (len(numbers) and bool(numbers.isfinite().all())):
        raise ValueError(f"expected finite training targets, at least one, got {tuple(targets.shape)}")
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
        left, share = _place(column, smallest, largest, points)
        counts = numbers.new_zeros(points).index_add(0, left, 1 - share).index_add(0, left + 1, share)
        density = F.conv1d(counts[None, None], kernel, padding=reach) / even
        table = (density[0, 0] / density.amax()).clamp(min=1e-100) ** -power
        for most in (clip, math.inf):
            table = table / _between(table, left, share).mean()
            table = table.clamp(1 / most, most)
        tables.append(table)
    return low, high, torch.stack(tables)


def weights_at(targets: Tensor, low: Tensor, high: Tensor, table: Tensor) -> Tensor:
    """The weights ``(...)`` at targets ``(..., t)``; beyond the grid that of its ends, some finite one at NaN."""
    columns = targets.to(table.dtype).unbind(-1)
    found = [
        _between(row, *_place(column, smallest, largest, len(row)))
        for column, smallest, largest, row in zip(columns, low, high, table, strict=True)
    ]
    return torch.stack(found).mean(0)


def _place(targets: Tensor, low: Tensor, high: Tensor, points: int) -> tuple[Tensor, Tensor]:
    """The point of the grid left of each target, and how far to the next one it is, 0 to 1."""
    span = torch.where(high > low, high - low, 1)
    place = ((targets - low) / span).nan_to_num(0.5).clamp(0, 1) * (points - 1)
    left = place.floor().clamp(max=points - 2)
    return left.long(), place - left


def _type(targets: Tensor) -> torch.dtype:
    """Of weights: float64 for such targets, else float32."""
    return torch.float64 if targets.dtype == torch.float64 else torch.float32


def _between(table: Tensor, left: Tensor, share: Tensor) -> Tensor:
    return torch.lerp(table[left], table[left + 1], share)


class LDS(Method):
    """Weights the task loss by the inverse density of the targets, smoothed (label distribution smoothing).

    With mixed batches, the weight is that at the mixed target.

    Args:
        bandwidth: standard deviation of the Gaussian, as a fraction of the range of the training targets; the default
            makes two years of a century.
        power: of the inverse density: 1, or 0.5 for its square root, the default, which is what the age benchmarks
            use: milder, and less of a gamble where the rarest targets are hundreds of times rarer.
        clip: no weight is further than this factor from the mean, before they are scaled to a mean of 1.

    Example:
        >>> method = LDS(power=1.0)
        >>> method.prepare(torch.tensor([[0.0], [0.0], [0.0], [0.0], [5.0]]))
        >>> method.change(Batch(None, torch.tensor([[0.0], [5.0]]))).weight
        tensor([[0.6250],
                [2.5000]])
    """

    kind = "weights"
    tunable: ClassVar[Mapping[str, Range]] = {
        "bandwidth": Range(0.005, 0.1, log=True, limits=(1e-4, 1.0)),
        "power": Range(0.25, 1.0, limits=(0.05, 2.0)),
    }
    maps = True
    low: Tensor
    high: Tensor
    table: Tensor

    def __init__(self, bandwidth: float = 0.02, power: float = 0.5, clip: float = 10.0) -> None:
        super().__init__()
        if not 1e-4 <= bandwidth <= 1:
            raise ValueError(f"expected bandwidth as a fraction of the range from 0.0001 to 1, got {bandwidth}")
        if not 0 < power < math.inf:
            raise ValueError(f"expected power to be a positive number, as 0.5 or 1, got {power}")
        if not clip >= 1:
            raise ValueError(f"expected clip to be a factor of at least 1, got {clip}")
        self.bandwidth, self.power, self.clip = float(bandwidth), float(power), float(clip)
        for name in ("low", "high"):  # (t,), ends of the grid; empty before `prepare`
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64))
        self.register_buffer("table", torch.zeros(0, 0, dtype=torch.float64))  # (t, points)

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the density of the training targets."""
        found = weight_table(targets.flatten(1), self.bandwidth, self.power, self.clip)
        self.low, self.high, self.table = (each.to(self.table) for each in found)

    def change(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with the weight of each target: ``(n, 1)`` or ``(n, 1, h, w)``; times one that it has."""
        targets, t = batch.targets, len(self.low)
        if t == 0:
            raise ValueError("expected prepare(targets) before the first step, which takes their density")
        along = 1 if targets.dim() == 4 else -1
        numbers = targets[..., None] if t == 1 else targets.movedim(along, -1)  # of one, in any shape
        if numbers.shape[-1] != t:
            raise ValueError(f"expected targets of {t} numbers, as those of training, got {tuple(targets.shape)}")
        weight = weights_at(numbers, self.low, self.high, self.table)
        weight = weight if t == 1 else weight.unsqueeze(along)
        weight = weight.to(_type(targets))
        return batch._replace(weight=weight if batch.weight is None else batch.weight * weight)

    def extra_repr(self) -> str:
        """The options."""
        return f"bandwidth={self.bandwidth:g}, power={self.power:g}, clip={self.clip:g}"
