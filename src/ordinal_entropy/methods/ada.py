"""Anchor data augmentation: rows move towards the mean of their cluster, or away from it."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Batch, Method, Range
from ordinal_entropy.methods.mixing import floating, host_draws, points_inside, require_inputs

_ROUNDS = 10  # of k-means


def anchored(rows: Tensor, cluster: Tensor, gamma: float, inside: Tensor | None = None) -> Tensor:
    """``(x + (sqrt(gamma) - 1) m) / sqrt(gamma)``, with ``m`` the mean of the rows in the cluster of ``x``.

    The distance of each row from the mean of its cluster is divided by ``sqrt(gamma)``.

    Args:
        rows: ``(n, c)``.
        cluster: ``(n,)``, of each row, below ``n``.
        gamma: above 0; 1 leaves the rows as they are.
        inside: boolean ``(n, c)``, numbers that count in the means; None: all.

    Example:
        >>> anchored(torch.tensor([[0.0], [2.0], [5.0]]), torch.tensor([0, 0, 1]), gamma=4.0)
        tensor([[0.5000],
                [1.5000],
                [5.0000]])
    """
    counts = torch.ones_like(rows) if inside is None else inside.to(rows)
    sums, amount = (torch.zeros_like(rows).index_add(0, cluster, each) for each in (counts * rows, counts))
    mean = (sums / amount.clamp(min=1))[cluster]
    return mean + (rows - mean) / math.sqrt(gamma)


def clusters_of(rows: Tensor, first: Tensor, rounds: int = _ROUNDS) -> Tensor:
    """The cluster of each row ``(n,)``, by so many rounds of Lloyd's k-means.

    Args:
        rows: ``(n, c)``.
        first: ``(k,)``, rows that the clusters begin at. A cluster that loses its rows stays where it is.
        rounds: fixed, so that nothing depends on values.

    Example:
        >>> clusters_of(torch.tensor([[0.0], [9.0], [1.0], [8.0]]), first=torch.tensor([0, 2]))
        tensor([0, 1, 0, 1])
    """
    centers = rows[first]
    for _ in range(rounds):
        nearest = _nearest(rows, centers)
        sums = torch.zeros_like(centers).index_add(0, nearest, rows)
        count = rows.new_zeros(len(first), 1).index_add(0, nearest, torch.ones_like(rows[:, :1]))
        centers = torch.where(count > 0, sums / count.clamp(min=1), centers)
    return _nearest(rows, centers)


def _nearest(rows: Tensor, centers: Tensor) -> Tensor:
    return torch.cdist(rows, centers, compute_mode="donot_use_mm_for_euclid_dist").argmin(1)


class ADA(Method):
    """Moves rows towards the mean of their cluster, or away from it (anchor data augmentation).

    Rows of inputs and targets are clustered together, each column in its standard deviation. In each batch one factor
    gamma is drawn from a grid between ``1 / alpha`` and ``alpha``, and the distances of inputs and targets from the
    means of their cluster are divided by its root. Weights stay those of the row. Inputs are rows ``(n, features)``.

    Args:
        alpha: end of the grid of factors, above 1.
        clusters: of a batch, at most half its rows.
        steps: points of the grid between 1 and alpha; as many lie between 1 and ``1 / alpha``.

    Example:
        >>> batch = Batch(torch.tensor([[0.0], [2.0]]), torch.tensor([[5.0], [6.0]]))
        >>> found = ADA().change(batch, torch.Generator().manual_seed(0))  # both are one cluster
        >>> found.inputs.mean(), found.targets.mean(), torch.equal(found.inputs, batch.inputs)
        (tensor(1.), tensor(5.5000), False)
    """

    kind = "mixing"
    tunable: ClassVar[Mapping[str, Range]] = {
        "alpha": Range(1.1, 4.0, limits=(1.01, 10.0)),
        "clusters": Range(3, 50, log=True, whole=True, limits=(2, 200)),
    }
    paper = "Schneider, Goshtasbpour, Perez-Cruz, Anchor Data Augmentation, NeurIPS 2023"
    needs = frozenset({"tables"})

    def __init__(self, alpha: float = 2.0, clusters: int = 10, steps: int = 5) -> None:
        super().__init__()
        if not 1 < alpha < math.inf:
            raise ValueError(f"expected alpha to be a number above 1, got {alpha}")
        for name, value in (("clusters", clusters), ("steps", steps)):
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ValueError(f"expected {name} to be a whole number of at least 1, got {value!r}")
        self.alpha, self.clusters, self.steps = float(alpha), clusters, steps

    def gammas(self) -> list[float]:
        """The factors, of which each batch draws one."""
        above = [1 + (self.alpha - 1) * step / self.steps for step in range(1, self.steps + 1)]
        return [*(1 / each for each in reversed(above)), 1.0, *above]

    def change(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The moved rows; a batch of a single one as it is."""
        inputs, n = batch.inputs, len(batch.targets)
        require_inputs(inputs, n)
        if not isinstance(inputs, Tensor) or inputs.dim() != 2:
            came = tuple(inputs.shape) if isinstance(inputs, Tensor) else type(inputs).__name__
            raise ValueError(f"expected inputs (n, features) for ada, whose means of rows are no images, got {came}")
        if n < 2:
            return batch
        draws = host_draws(generator)
        first = draws.choice(n, min(self.clusters, n // 2), replace=False)
        gamma = float(draws.choice(self.gammas()))
        targets = floating(batch.targets)
        columns = targets[:, None] if targets.dim() == 1 else targets
        inside = points_inside(columns, batch.mask)[1][..., 0]  # (n, t)
        known = torch.where(inside, columns, 0)
        x, y = (_standardized(each.detach().double(), counts) for each, counts in ((inputs, None), (known, inside)))
        cluster = clusters_of(torch.cat([x, y], 1), torch.from_numpy(first).to(inputs.device))
        moved = torch.where(inside, anchored(known, cluster, gamma, inside), columns).view_as(targets)
        return batch._replace(inputs=anchored(inputs, cluster, gamma), targets=moved)

    def extra_repr(self) -> str:
        """The options."""
        return f"alpha={self.alpha:g}, clusters={self.clusters}, steps={self.steps}"


def _standardized(rows: Tensor, inside: Tensor | None) -> Tensor:
    """Each column in its standard deviation, 0 at its mean and outside the mask."""
    counts = torch.ones_like(rows) if inside is None else inside.to(rows)
    amount = counts.sum(0).clamp(min=1)
    away = counts * (rows - (counts * rows).sum(0) / amount)
    scale: Tensor = (away.square().sum(0) / amount).sqrt()
    return away / torch.where(scale > 0, scale, 1)
