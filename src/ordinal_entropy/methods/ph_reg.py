"""PH-Reg: the features have the topology and the intrinsic dimension of the targets."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Method, Range, Step, zero
from ordinal_entropy.methods.distances import accurate, distances, grouped, mean_distance
from ordinal_entropy.methods.rows import feature_groups
from ordinal_entropy.methods.spanning_tree import line_tree, minimum_spanning_tree

_GOLDEN = 0.6180339887498949  # multiples of it, modulo 1, are spread evenly however many there are
_SPREAD = 1e-12  # of the logarithms of sizes: below it they are all one


def ph_reg(
    features: Tensor,
    targets: Tensor,
    topology_weight: float = 1.0,
    dimension_weight: float = 0.1,
    *,
    subsamples: int = 9,
    smallest: float = 0.5,
    mask: Tensor | None = None,
) -> Tensor:
    """The topology term and the dimension term of :func:`topology_and_dimension`, each at its weight.

    Args:
        features: ``(n, d)``, or groups ``(g, n, d)``.
        targets: ``(n,)`` or ``(n, t)``; of groups ``(g, n)`` or ``(g, n, t)``.
        topology_weight: at least 0.
        dimension_weight: at least 0; at 0 the subsamples are not looked at.
        subsamples: as there, and so are the others.
        smallest: of them, as a fraction of the rows.
        mask: boolean ``(n,)`` or ``(g, n)``, rows that count.

    Returns:
        Scalar, at least float32.

    Example:
        >>> features = torch.tensor([[0.0], [1.0], [3.0]])
        >>> ph_reg(features, torch.tensor([0.0, 1.0, 3.0])), ph_reg(features, torch.tensor([0.0, 1.0, 9.0]))
        (tensor(0.), tensor(0.2222))
    """
    sizes = subsamples if dimension_weight else 1
    topology, dimension = topology_and_dimension(features, targets, subsamples=sizes, smallest=smallest, mask=mask)
    return topology_weight * topology + dimension_weight * dimension


def topology_and_dimension(
    features: Tensor, targets: Tensor, *, subsamples: int = 9, smallest: float = 0.5, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """How far the topology of the features is from that of the targets, and their intrinsic dimension likewise.

    With the distances ``Z`` of the features and ``Y`` of the targets, each divided by its mean, the topology term is
    the mean of ``(Z_e - Y_e)^2`` over the edges ``e`` of the minimum spanning tree of the features, and over those of
    the targets' tree: the sum of both. With ``E(n)`` the total length of the spanning tree of ``n`` of the rows, the
    dimension term is the absolute slope of ``log(E_features(n) / E_targets(n))`` against ``log n``, by least squares.

    Args:
        features: ``(n, d)``, or groups ``(g, n, d)``, of which the terms are the means.
        targets: ``(n,)`` or ``(n, t)``; of groups ``(g, n)`` or ``(g, n, t)``. Their unit does not matter.
        subsamples: how many sizes ``n`` there are, in equal steps from the smallest to all rows. The rows of each are
            spread evenly over the batch, and those of a smaller one are in every larger one.
        smallest: of the sizes, as a fraction of the rows.
        mask: boolean ``(n,)`` or ``(g, n)``, rows that count.

    Returns:
        Two scalars, at least float32; computed in float64 with memory for ``subsamples`` matrices ``(n, n)``. Sizes at
        which all features or all targets coincide do not enter the slope; with fewer than two sizes it is 0. Fewer
        than two rows: zeros that are part of the graph.

    Example:
        >>> line = torch.linspace(0, 1, 64)[:, None]
        >>> plane = torch.cartesian_prod(torch.arange(8.0), torch.arange(8.0))
        >>> topology_and_dimension(line, line)
        (tensor(0.), tensor(0.))
        >>> topology_and_dimension(plane, line)[1] > 0.3  # the tree of a line does not grow with the rows, that does
        tensor(True)
    """
    if features.shape[-2] < 2:
        return zero(features), zero(features)
    features, targets, counts = grouped(features, targets, mask)
    of_features, of_targets = distances(accurate(features)), distances(accurate(targets))
    members = _members(counts, subsamples, smallest)  # (g, s, n), the last are all that count
    trees = (
        minimum_spanning_tree(of_features[:, None], members),
        line_tree(targets.mT, members)
        if targets.shape[-1] == 1
        else minimum_spanning_tree(of_targets[:, None], members),
    )
    relative = of_features / mean_distance(of_features, counts) - of_targets / mean_distance(of_targets, counts)
    edges = (counts.sum(-1) - 1).clamp(min=1)
    topology = torch.stack([_lengths(relative, tree[:, -1]).square().sum(-1) / edges for tree in trees]).sum(0)
    totals = [_lengths(own, tree).sum(-1) for own, tree in zip((of_features, of_targets), trees, strict=True)]
    dimension = _slope(members.sum(-1).to(totals[0]), *totals).abs()
    dtype = torch.promote_types(features.dtype, torch.float32)
    return topology.mean().to(dtype), dimension.mean().to(dtype)


def _members(counts: Tensor, subsamples: int, smallest: float) -> Tensor:
    """Which rows are in each subsample, ``(g, s, n)``."""
    place = accurate(counts.cumsum(-1) - 1)  # among those that count
    steps = torch.arange(subsamples, dtype=place.dtype, device=place.device)
    fractions = 1 - (1 - smallest) * steps.flip(0) / max(subsamples - 1, 1)  # up to 1
    return ((place * _GOLDEN % 1)[:, None] < fractions[:, None]) & counts[:, None]


def _lengths(distances: Tensor, edges: Tensor) -> Tensor:
    """Of edges ``(g, ..., n, 2)``, by a matrix ``(g, n, n)``."""
    places = edges[..., 0] * distances.shape[-1] + edges[..., 1]
    return distances.flatten(1).gather(1, places.flatten(1)).view(places.shape)


def _slope(sizes: Tensor, features: Tensor, targets: Tensor) -> Tensor:
    """Of the log ratio of two lengths against the log of the sizes, all ``(g, s)``, over those that have lengths."""
    there = (features > 0) & (targets > 0)
    ratio = torch.where(there, features, 1).log() - torch.where(there, targets, 1).log()
    across = sizes.clamp(min=1).log()
    across = torch.where(there, across - _mean(across, there), 0)
    spread = across.square().sum(-1)
    return torch.where(spread > _SPREAD, (across * ratio).sum(-1) / spread.clamp(min=_SPREAD), 0)


def _mean(values: Tensor, there: Tensor) -> Tensor:
    return (torch.where(there, values, 0).sum(-1) / there.sum(-1).clamp(min=1))[..., None]


class PHReg(Method):
    """PH-Reg: the topology and the intrinsic dimension of the features match those of the targets.

    Args:
        topology_weight: of the difference of the distances on both spanning trees.
        dimension_weight: of the difference of the intrinsic dimensions.
        subsamples: sizes that the intrinsic dimension is estimated from.
        smallest: of these sizes, as a fraction of the rows.
        gather: compare the rows of all ranks.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> step = Step(Batch(None, torch.tensor([0.0, 1.0, 9.0])), torch.tensor([[0.0], [1.0], [3.0]]), None, None)
        >>> PHReg().term(step)
        tensor(0.2222)
    """

    kind = "term"
    tunable: ClassVar[Mapping[str, Range]] = {
        "dimension_weight": Range(0.01, 1.0, log=True),
    }
    cost = "time m^2 (d + subsamples log m), memory subsamples m^2"
    paper = "Zhang, Kawaguchi, Yao, Deep Regression Representation Learning with Topology, ICML 2024"
    over_groups: ClassVar[bool] = True

    def __init__(
        self,
        topology_weight: float = 1.0,
        dimension_weight: float = 0.1,
        subsamples: int = 9,
        smallest: float = 0.5,
        gather: bool = False,
    ) -> None:
        super().__init__()
        for name, weight in (("topology_weight", topology_weight), ("dimension_weight", dimension_weight)):
            if not 0 <= weight < float("inf"):
                raise ValueError(f"expected {name} to be a number from 0 on, got {weight}")
        if isinstance(subsamples, bool) or not isinstance(subsamples, int) or subsamples < 2:
            raise ValueError(f"expected subsamples to be a whole number of at least 2, got {subsamples!r}")
        if not 0 < smallest < 1:
            raise ValueError(f"expected smallest as a fraction of the rows between 0 and 1, got {smallest}")
        self.topology_weight, self.dimension_weight = float(topology_weight), float(dimension_weight)
        self.subsamples, self.smallest, self.gather = subsamples, float(smallest), gather

    def term(self, step: Step) -> Tensor:
        """Both parts, each at its weight."""
        features, targets, counts = feature_groups(step, "ph-reg", gather=self.gather)
        weights = self.topology_weight, self.dimension_weight
        return ph_reg(features, targets, *weights, subsamples=self.subsamples, smallest=self.smallest, mask=counts)

    def terms(self, step: Step) -> tuple[Tensor, Tensor]:
        """The topology term and the dimension term."""
        features, targets, counts = feature_groups(step, "ph-reg", gather=self.gather)
        return topology_and_dimension(
            features, targets, subsamples=self.subsamples, smallest=self.smallest, mask=counts
        )

    def term_weights(self) -> dict[str, float]:
        """Of the topology and the dimension."""
        return {"topology": self.topology_weight, "dimension": self.dimension_weight}

    def extra_repr(self) -> str:
        """The options."""
        return (
            f"topology_weight={self.topology_weight:g}, dimension_weight={self.dimension_weight:g}, "
            f"subsamples={self.subsamples}, smallest={self.smallest:g}, gather={self.gather}"
        )
