"""Rank-N-Contrast: of two rows, the one whose target is nearer has the nearer features.

The contrast is computed in blocks of anchors, each with all rows, and its gradient with it: what is kept for the
backward pass is one tensor in the shape of the features.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from ordinal_entropy.methods.contract import Method, Range, Step, zero
from ordinal_entropy.methods.distances import accurate, centered, cross_distances
from ordinal_entropy.methods.rows import feature_rows

_PAIRS = 2**20  # at once: 8 MiB a matrix


def rank_n_contrast(features: Tensor, targets: Tensor, temperature: float = 2.0, mask: Tensor | None = None) -> Tensor:
    """The contrast of each pair of rows with all rows at least as far in target, a mean over the pairs.

    With similarities ``s_ij = -|z_i - z_j|`` of the features as they are, and distances ``d_ij`` of the targets, the
    sum of their absolute differences: the mean over all pairs of
    ``log(sum over k with d_ik >= d_ij of exp(s_ik / temperature)) - s_ij / temperature``.

    Args:
        features: ``(n, d)``.
        targets: ``(n,)`` or ``(n, t)``; their unit does not matter, only the order of their distances.
        temperature: in the unit of the distances of features.
        mask: boolean ``(n,)``, rows that count.

    Returns:
        Scalar, at least float32. Computed in float64 with memory for ``n d`` and some matrices of a million numbers,
        and time for ``n^2 (d + log n)``; the gradient at coincident features is 0, and there is no second derivative.
        Fewer than two rows: a zero that is part of the graph.

    Example:
        >>> features = torch.tensor([[0.0], [1.0], [3.0]])
        >>> rank_n_contrast(features, torch.tensor([0.0, 1.0, 2.0]))
        tensor(0.3726)
    """
    n = len(features)
    if n < 2:
        return zero(features)
    counts = torch.ones(n, dtype=torch.bool, device=features.device) if mask is None else mask
    numbers = accurate(targets.detach()).reshape(n, -1)
    total: Tensor = _Contrast.apply(accurate(features), numbers, counts, temperature)
    return total.to(torch.promote_types(features.dtype, torch.float32))


class _Contrast(torch.autograd.Function):
    """The mean contrast, whose gradient is computed on the way."""

    @staticmethod
    def forward(ctx: Any, features: Tensor, targets: Tensor, counts: Tensor, temperature: float) -> Tensor:
        n = len(features)
        z, squares = centered(features)
        own = counts.sum()
        pairs = (own * (own - 1)).clamp(min=1)
        total, gradient = z.new_zeros(()), torch.zeros_like(z)
        for start in range(0, n, max(1, _PAIRS // n)):
            anchors = slice(start, start + max(1, _PAIRS // n))
            others = counts & counts[anchors, None]
            others.diagonal(start).fill_(False)
            near = cross_distances(z[anchors], squares[anchors], z, squares)
            apart = torch.cdist(targets[anchors], targets, p=1.0)
            contrast, slope = _contrast(near, apart, others, temperature)
            total += contrast
            if ctx.needs_input_grad[0]:
                pull = torch.where(near > 0, slope / torch.where(near > 0, near, 1), 0)
                gradient[anchors] += pull.sum(1, keepdim=True) * z[anchors] - pull @ z
                gradient += pull.sum(0)[:, None] * z - pull.T @ z[anchors]
        ctx.save_for_backward(gradient / pairs)
        return total / pairs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, factor: Tensor) -> tuple[Tensor, None, None, None]:
        (gradient,) = ctx.saved_tensors
        return factor * gradient, None, None, None


def _contrast(near: Tensor, apart: Tensor, others: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """The summed contrast of some anchors, and its slope by each distance of features.

    With the others in the order of their targets' distances, farthest first, those at least as far as one are all
    before it, and with it those of the same distance: of one run.

    Args:
        near: ``(m, n)``, distances of the features of m anchors from all rows.
        apart: ``(m, n)``, those of the targets.
        others: ``(m, n)``, which pairs count.
        temperature: as above.
    """
    m, n = near.shape
    apart, order = torch.where(others, apart, -1).sort(dim=1, descending=True)  # what does not count, last
    similar = near.gather(1, order) / -temperature
    place = torch.arange(n, device=near.device).expand(m, n)
    differs = apart[:, 1:] != apart[:, :-1]
    ends = torch.where(pad(differs, (0, 1), value=True), place, n).flip(1).cummin(1).values.flip(1)  # of each run
    starts = torch.where(pad(differs, (1, 0), value=True), place, 0).cummax(1).values
    inside = others.gather(1, order)
    log_sums = similar.logcumsumexp(1).gather(1, ends)
    total = torch.where(inside, log_sums - similar, 0).sum()
    # each row is in the sums of those that are as near or nearer: from the start of its run to the end
    shares = torch.where(inside, -log_sums, -torch.inf).flip(1).logcumsumexp(1).flip(1).gather(1, starts)
    slope = torch.where(inside, (1 - (similar + shares).exp()) / temperature, 0)
    return total, torch.zeros_like(slope).scatter_(1, order, slope)


class RankNContrast(Method):
    """Rank-N-Contrast: features as near to each other as their targets are in rank.

    As published, the encoder sees two views of each row and is trained by this term alone, and then a linear head on
    its features: ``views=2, stages=2``. By default it is a term like others, beside the task loss.

    Args:
        temperature: in the unit of the distances of features.
        views: of each row, that a loop with augmentation makes.
        stages: 1, or 2 for the encoder first and the head after it.
        first_stage: share of the epochs that the first of two stages takes.
        gather: contrast with the rows of all ranks.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> step = Step(Batch(None, torch.tensor([0.0, 1.0, 2.0])), torch.tensor([[0.0], [1.0], [3.0]]), None, None)
        >>> RankNContrast().term(step), RankNContrast(stages=2).stages
        (tensor(0.3726), ('encoder', 'head'))
    """

    kind = "term"
    cost = "time m^2 (d + log m), memory m d"
    paper = (
        "Zha, Cao, Son, Yang, Katabi, Rank-N-Contrast: Learning Continuous Representations for Regression, NeurIPS 2023"
    )
    tunable: ClassVar[Mapping[str, Range]] = {"temperature": Range(0.2, 20.0, log=True)}

    def __init__(
        self,
        temperature: float = 2.0,
        views: int = 1,
        stages: int = 1,
        first_stage: float = 0.8,
        gather: bool = False,
    ) -> None:
        super().__init__()
        if not 0 < temperature < math.inf:
            raise ValueError(f"expected temperature to be a positive number, got {temperature}")
        if isinstance(views, bool) or not isinstance(views, int) or views < 1:
            raise ValueError(f"expected views to be a whole number of at least 1, got {views!r}")
        if stages not in (1, 2):
            raise ValueError(f"expected stages to be 1 or 2, got {stages!r}")
        if not 0 < first_stage < 1:
            raise ValueError(f"expected first_stage as a share of the epochs between 0 and 1, got {first_stage}")
        self.temperature, self.views, self.first_stage = float(temperature), views, float(first_stage)
        self.gather = gather
        if stages == 2:
            self.stages = ("encoder", "head")

    def term(self, step: Step) -> Tensor:
        """The mean over the pairs of rows inside the mask."""
        features = step.features
        if features.dim() != 2:
            raise ValueError(
                f"expected features (n, d) for rank-n-contrast, which compares all pairs of rows, got "
                f"{tuple(features.shape)}: average maps over their places first"
            )
        found, targets, mask = feature_rows(step, gather=self.gather)
        return rank_n_contrast(found, targets, self.temperature, mask)

    def extra_repr(self) -> str:
        """The options."""
        return f"temperature={self.temperature:g}, views={self.views}, stages={len(self.stages)}, gather={self.gather}"
