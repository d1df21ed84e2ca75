"""Rank-N-Contrast: of two rows, the one whose target is nearer has the nearer features."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Method, Range, Step, zero
from ordinal_entropy.methods.rows import feature_rows

_ROUNDINGS = 16  # of the squared length of centered features: a smaller squared distance is none


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
        Scalar, at least float32. Computed in float64 with memory for ``(n, n)`` and time for ``n^2 (d + log n)``; the
        gradient at coincident features is 0. Fewer than two rows: a zero that is part of the graph.

    Example:
        >>> features = torch.tensor([[0.0], [1.0], [3.0]])
        >>> rank_n_contrast(features, torch.tensor([0.0, 1.0, 2.0]))
        tensor(0.3726)
    """
    n = len(features)
    if n < 2:
        return zero(features)
    dtype = features.dtype if features.device.type == "mps" else torch.float64
    numbers = targets.detach().to(dtype).reshape(n, -1)
    apart = torch.cdist(numbers, numbers, p=1.0)  # (n, n)
    counts = ~torch.eye(n, dtype=torch.bool, device=features.device)
    if mask is not None:
        counts = counts & mask & mask[:, None]
    apart, order = torch.where(counts, apart, -1).sort(dim=1, descending=True)  # what does not count, last
    similar = -_distances(features.to(dtype)).gather(1, order) / temperature
    log_sums = similar.logcumsumexp(1)
    place = torch.arange(n, device=features.device).expand(n, n)
    differs = apart[:, 1:] != apart[:, :-1]
    ends = torch.where(torch.nn.functional.pad(differs, (0, 1), value=True), place, n)  # of runs of one distance
    ends = ends.flip(1).cummin(1).values.flip(1)
    found = torch.where(counts.gather(1, order), log_sums.gather(1, ends) - similar, 0)
    return (found.sum() / counts.sum().clamp(min=1)).to(torch.promote_types(features.dtype, torch.float32))


def _distances(features: Tensor) -> Tensor:
    """Of all pairs, ``(n, n)``: by products, whose gradient needs no more memory; centered first for precision."""
    centered = features - features.mean(0, keepdim=True)
    squares = centered.square().sum(1)
    lengths = squares[:, None] + squares
    squared = lengths - 2 * (centered @ centered.T)
    there = squared > _ROUNDINGS * torch.finfo(features.dtype).eps * lengths
    return torch.where(there, torch.where(there, squared, 1).sqrt(), 0)


class RankNContrast(Method):
    """Rank-N-Contrast: features as near to each other as their targets are in rank.

    As published, the encoder sees two views of each row and is trained by this term alone, and then a linear head on
    its features: ``views=2, stages=2``. By default it is a term like others, beside the task loss.

    Args:
        temperature: in the unit of the distances of features.
        views: of each row, that a loop with augmentation makes.
        stages: 1, or 2 for the encoder first and the head after it.
        first_stage: share of the epochs that the first of two stages takes.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> step = Step(Batch(None, torch.tensor([0.0, 1.0, 2.0])), torch.tensor([[0.0], [1.0], [3.0]]), None, None)
        >>> RankNContrast().term(step), RankNContrast(stages=2).stages
        (tensor(0.3726), ('encoder', 'head'))
    """

    kind = "term"
    tunable: ClassVar[Mapping[str, Range]] = {"temperature": Range(0.2, 20.0, log=True)}

    def __init__(self, temperature: float = 2.0, views: int = 1, stages: int = 1, first_stage: float = 0.8) -> None:
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
        found, targets, mask = feature_rows(step)
        return rank_n_contrast(found, targets, self.temperature, mask)

    def extra_repr(self) -> str:
        """The options."""
        return f"temperature={self.temperature:g}, views={self.views}, stages={len(self.stages)}"
