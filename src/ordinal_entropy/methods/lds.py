"""Label distribution smoothing: rows of rare targets weigh more in the task loss."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Batch, Method, Range
from ordinal_entropy.methods.density import density_table, joint_density, on_grid
from ordinal_entropy.methods.training_targets import evenly_spread, training_numbers

_ROWS = 2000  # of training targets of several numbers, that their density is a sum over


def density_weights(
    targets: Tensor,
    at: Tensor | None = None,
    *,
    bandwidth: float = 0.02,
    power: float = 0.5,
    clip: float = 10.0,
) -> Tensor:
    """Weights that fall with the density of the targets, smoothed by a Gaussian; their mean over the targets is 1.

    The density is that of continuous targets over their range, relative to what an even distribution would have there,
    so that even targets weigh the same up to both ends. Of single numbers it lies on a fine grid; of several together
    it is a sum over the rows, of more than 2,000 over so many that are evenly spread in their order.

    Args:
        targets: ``(n,)`` or ``(n, t)``, finite, which the density is of.
        at: where the weights are wanted, ``(m,)`` or ``(m, t)``; None: at the targets themselves.
        bandwidth: standard deviation of the Gaussian, as a fraction of the range of the targets; for ``t`` numbers its
            ``t``-th root, so that the Gaussian covers the same part of their box.
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
    found = weights_at(places, weights_of(targets, bandwidth, power, clip), bandwidth, power, clip)
    return found.to(_type(places))


class Weights(NamedTuple):
    """What weights are looked up in."""

    low: Tensor  # (t,), ends of the training targets
    high: Tensor  # (t,)
    table: Tensor  # of one number (1, points), weights on a grid; of several (t, rows), training targets from 0 to 1
    means: Tensor  # (2,), of several: of weights before they are clipped, and after that


def weights_of(targets: Tensor, bandwidth: float, power: float, clip: float) -> Weights:
    """What :func:`weights_at` takes, of training targets; the options are those of :func:`density_weights`."""
    numbers = training_numbers(targets)
    if numbers.shape[1] == 1:
        return _on_a_grid(numbers, bandwidth, power, clip)
    low, high = numbers.amin(0), numbers.amax(0)
    rows = evenly_spread(_in_box(numbers, low, high), _ROWS)
    found = Weights(low, high, rows.T, numbers.new_ones(2))
    for k, most in enumerate((math.inf, clip)):
        found.means[k] = weights_at(rows * (high - low) + low, found, bandwidth, power, most).mean()
    return found


def weights_at(targets: Tensor, found: Weights, bandwidth: float, power: float, clip: float) -> Tensor:
    """The weights ``(...)`` at targets ``(..., t)``; beyond the range that of its ends, some finite one at NaN."""
    numbers = targets.to(found.table.dtype)
    if numbers.shape[-1] == 1:
        (table,) = found.table
        return _between(table, *on_grid(numbers[..., 0], found.low, found.high, len(table)))
    places = _in_box(numbers, found.low, found.high).flatten(0, -2)
    parts = [joint_density(some, found.table.T, bandwidth) for some in places.split(_ROWS)]
    weights = torch.cat(parts).clamp(min=1e-100) ** -power
    weights = (weights / found.means[0]).clamp(1 / clip, clip) / found.means[1]
    return weights.view(numbers.shape[:-1])


def _on_a_grid(numbers: Tensor, bandwidth: float, power: float, clip: float) -> Weights:
    """Of single numbers ``(n, 1)``."""
    low, high, density = density_table(numbers, bandwidth)
    left, share = on_grid(numbers[:, 0], low, high, density.shape[1])
    table = (density[0] / density.amax()).clamp(min=1e-100) ** -power
    for most in (clip, math.inf):
        table = table / _between(table, left, share).mean()
        table = table.clamp(1 / most, most)
    return Weights(low, high, table[None], numbers.new_ones(2))


def _in_box(numbers: Tensor, low: Tensor, high: Tensor) -> Tensor:
    """Each number as a place in its range, 0 to 1."""
    return ((numbers - low) / torch.where(high > low, high - low, 1)).nan_to_num(0.5).clamp(0, 1)


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
            makes two years of a century. For targets of ``t`` numbers its ``t``-th root, for their joint density.
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
    paper = "Yang, Zha, Chen, Wang, Katabi, Delving into Deep Imbalanced Regression, ICML 2021"
    tunable: ClassVar[Mapping[str, Range]] = {
        "bandwidth": Range(0.005, 0.1, log=True, limits=(1e-4, 1.0)),
        "power": Range(0.25, 1.0, limits=(0.05, 2.0)),
    }
    maps = True
    low: Tensor
    high: Tensor
    table: Tensor
    means: Tensor

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
        self.register_buffer("table", torch.zeros(0, 0, dtype=torch.float64))  # as in `Weights`
        self.register_buffer("means", torch.ones(2, dtype=torch.float64))

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the density of the training targets."""
        found = weights_of(targets, self.bandwidth, self.power, self.clip)
        self.low, self.high, self.table, self.means = (each.to(self.table) for each in found)

    def change(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with the weight of each target: ``(n, 1)`` or ``(n, 1, h, w)``; times one that it has."""
        targets, t = batch.targets, len(self.low)
        if t == 0:
            raise ValueError("expected prepare(targets) before the first step, which takes their density")
        along = 1 if targets.dim() == 4 else -1
        numbers = targets[..., None] if t == 1 else targets.movedim(along, -1)  # of one, in any shape
        if numbers.shape[-1] != t:
            raise ValueError(f"expected targets of {t} numbers, as those of training, got {tuple(targets.shape)}")
        found = Weights(self.low, self.high, self.table, self.means)
        weight = weights_at(numbers, found, self.bandwidth, self.power, self.clip)
        weight = weight if t == 1 else weight.unsqueeze(along)
        weight = weight.to(_type(targets))
        return batch._replace(weight=weight if batch.weight is None else batch.weight * weight)

    def extra_repr(self) -> str:
        """The options."""
        return f"bandwidth={self.bandwidth:g}, power={self.power:g}, clip={self.clip:g}"
