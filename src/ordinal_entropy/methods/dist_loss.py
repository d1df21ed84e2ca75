"""Dist Loss: predictions as near to their targets as to the distribution of these."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Method, Range, Step, weighted_mean
from ordinal_entropy.methods.density import density_table
from ordinal_entropy.methods.rows import paired, prediction_rows
from ordinal_entropy.methods.training_targets import training_numbers

_LOWER = 1e-6  # by which levels are lowered: what so many rows are exactly below falls to one side in every precision


class Distribution(NamedTuple):
    """Distributions of ``t`` numbers, as the share of each that lies below each point of a grid."""

    low: Tensor  # (..., t), the first point of the grid
    high: Tensor  # (..., t), the last
    below: Tensor  # (..., t, points), from 0 to 1


def distribution_of(targets: Tensor, bandwidth: float) -> Distribution:
    """The kernel density of each number of targets ``(n,)`` or ``(n, t)``, over its range.

    Args:
        targets: finite.
        bandwidth: standard deviation of the Gaussian kernel, as a fraction of the range.

    Example:
        >>> distribution_of(torch.tensor([0.0, 1.0, 4.0]), bandwidth=0.05).below[:, [0, 100, 200]].round(decimals=4)
        tensor([[0.0000, 0.6667, 1.0000]], dtype=torch.float64)
    """
    low, high, density = density_table(training_numbers(targets), bandwidth, whole=True)
    below = torch.cumulative_trapezoid(density, dim=-1)
    below = torch.nn.functional.pad(below / below[:, -1:], (1, 0))
    return Distribution(low, high, below)


def quantiles_at(levels: Tensor, distribution: Distribution) -> Tensor:
    """The number below which such shares of a distribution lie, linear between the points of its grid.

    Args:
        levels: ``(..., n, t)``, from 0 to 1.
        distribution: of ``t`` numbers.

    Example:
        >>> even = Distribution(torch.zeros(1), torch.full((1,), 2.0), torch.tensor([[0.0, 0.5, 1.0]]))
        >>> quantiles_at(torch.tensor([[0.25], [1.0]]), even)
        tensor([[0.5000],
                [2.0000]])
    """
    low, high, below = (each.to(levels) for each in distribution)
    wanted = levels.mT.contiguous()  # (..., t, n)
    below = below.expand(*wanted.shape[:-1], -1).contiguous()
    last = below.shape[-1] - 1
    right = torch.searchsorted(below, wanted - _LOWER).clamp(1, last)
    before, after = below.gather(-1, right - 1), below.gather(-1, right)
    rise = after - before
    share = torch.where(rise > 0, (wanted - before) / torch.where(rise > 0, rise, 1), 0.5).clamp(0, 1)
    place = (right - 1 + share) / last
    return low.unsqueeze(-2) + (high - low).unsqueeze(-2) * place.mT


def dist_loss(
    predictions: Tensor,
    targets: Tensor,
    distribution: Distribution,
    distance_weight: float = 1.0,
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """The mean of ``|p - y| + distance_weight * |p - q(r)|``: ``q(r)`` is the target quantile at the rank of ``p``.

    The ``k``-th smallest of ``n`` predictions is held against the quantile at ``(k - 1/2) / n``; the mean of these is
    the Wasserstein distance between the predictions and ``n`` quantiles.

    Args:
        predictions: ``(n,)`` or ``(..., n, t)``; each number of each ``(n, t)`` is ranked by itself.
        targets: of the same shape.
        distribution: of each number, as :func:`distribution_of` gives it.
        distance_weight: of the distance between the distributions.
        mask: boolean ``(..., n)``, rows that count.
        weight: ``(..., n)``, factor of a row's loss.

    Returns:
        Scalar, at least float32. Ranks have no gradient: that of the loss exists where no two predictions are equal;
        equal ones are ranked in their order. Time for ``n t log n``. Without rows, a zero that is part of the graph.

    Example:
        >>> even = Distribution(torch.zeros(1), torch.full((1,), 2.0), torch.tensor([[0.0, 1.0]]))
        >>> dist_loss(torch.tensor([1.0, 0.0]), torch.tensor([1.0, 0.0]), even)  # quantiles 1.5 and 0.5
        tensor(0.5000)
    """
    p, y = paired(predictions, targets, mask)
    order = p.detach() if mask is None else torch.where(mask[..., None], p.detach(), math.inf)
    rank = order.argsort(dim=-2, stable=True).argsort(dim=-2)
    count = p.shape[-2] if mask is None else mask.sum(-1)[..., None, None].clamp(min=1)
    levels = ((rank + 0.5).to(p.dtype) / count).clamp(max=1)
    losses = (p - y).abs() + distance_weight * (p - quantiles_at(levels, distribution)).abs()
    return weighted_mean(losses.mean(-1), mask, weight)


class DistLoss(Method):
    """Absolute error, and distance of sorted predictions to the quantiles of the training targets (Dist Loss).

    Args:
        distance_weight: of the distance between the distributions, beside the error.
        bandwidth: standard deviation of the kernel of the density, as a fraction of the range of the training targets.
        gather: sort the predictions of all ranks.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> method = DistLoss()
        >>> method.prepare(torch.linspace(0, 2, 201)[:, None])
        >>> both = torch.tensor([[1.0], [0.0]])
        >>> method.task_loss(Step(Batch(None, both), torch.eye(2), both, None))  # quantiles 1.5 and 0.5
        tensor(0.5000)
    """

    kind = "loss"
    tunable: ClassVar[Mapping[str, Range]] = {
        "distance_weight": Range(0.05, 5.0, log=True),
    }
    paper = "Nie, Tang, Hong, Dist Loss: Enhancing Regression in Few-Shot Region, ICLR 2025"
    over_groups = True
    low: Tensor
    high: Tensor
    below: Tensor

    def __init__(self, distance_weight: float = 1.0, bandwidth: float = 0.005, gather: bool = False) -> None:
        super().__init__()
        if not 0 <= distance_weight < math.inf:
            raise ValueError(f"expected distance_weight to be a number from 0 on, got {distance_weight}")
        if not 1e-4 <= bandwidth <= 1:
            raise ValueError(f"expected bandwidth as a fraction of the range from 0.0001 to 1, got {bandwidth}")
        self.distance_weight, self.bandwidth, self.gather = float(distance_weight), float(bandwidth), gather
        for name in ("low", "high"):  # (t,), of the training targets; empty before `prepare`
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64))
        self.register_buffer("below", torch.zeros(0, 0, dtype=torch.float64))  # (t, points)

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the distribution of each number of the training targets."""
        self.low, self.high, self.below = (each.to(self.low) for each in distribution_of(targets, self.bandwidth))

    def task_loss(self, step: Step) -> Tensor:
        """The mean over rows, and over the numbers of a target."""
        if not self.low.numel():
            raise ValueError("expected prepare(targets) before the first step, which takes their distribution")
        found = prediction_rows(step, gather=self.gather)
        known = Distribution(self.low, self.high, self.below)
        return dist_loss(
            found.outputs, found.targets, known, self.distance_weight, mask=found.mask, weight=found.weight
        )

    def extra_repr(self) -> str:
        """The options."""
        return f"distance_weight={self.distance_weight}, bandwidth={self.bandwidth}, gather={self.gather}"
