"""RankSim: the neighbours of a row in the same order among features as among targets."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy.kernels.unit import unit_rows
from ordinal_entropy.methods.contract import Method, Range, Step, zero
from ordinal_entropy.methods.rows import feature_rows


def ranksim(features: Tensor, targets: Tensor, interpolation: float = 2.0, mask: Tensor | None = None) -> Tensor:
    """The squared differences between ranks of similar features and ranks of similar targets.

    Of the rows of one target, the first alone takes part. Of those ``m`` rows, the sum over ``i`` of

        mean over j of (r_ij - q_ij)^2,    m r_i = ranks of cos(z_i, z_j),    m q_i = ranks of -|y_i - y_j|

    where the largest number has the rank 1, and equal numbers share the mean of their ranks. Ranks are constant almost
    everywhere. The gradient is that of black-box solvers (Vlastelica et al., ICLR 2020): the cosines are moved by
    ``interpolation`` times the gradient of the loss by ``r``, and the change of ``r`` is divided by it.

    Args:
        features: ``(n, d)``, of any length.
        targets: ``(n,)`` or ``(n, t)``, whose distances are Euclidean; their unit does not matter.
        interpolation: positive; how far the surrogate gradient looks ahead.
        mask: boolean ``(n,)``, rows that count.

    Returns:
        Scalar, at least float32; fewer than two distinct targets: a zero that is part of the graph. Memory for
        ``(n, n)``, time for ``n^2 (d + log n)``.

    Example:
        >>> features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
        >>> ranksim(features, torch.tensor([0.0, 3.0, 1.0]))  # the order of the targets
        tensor(0.)
        >>> ranksim(features, torch.tensor([0.0, 1.0, 3.0]))
        tensor(0.2222)
    """
    n = len(features)
    if n < 2:
        return zero(features)
    z = unit_rows(features.to(torch.promote_types(features.dtype, torch.float32)))
    y = targets.detach().to(torch.promote_types(targets.dtype, torch.float32)).reshape(n, -1)
    counts = torch.ones(n, dtype=torch.bool, device=features.device) if mask is None else mask
    apart = torch.cdist(y, y, compute_mode="donot_use_mm_for_euclid_dist")
    counts = counts & ~((apart == 0) & counts).tril(-1).any(1)  # no earlier row that counts has this target
    number = counts.sum().clamp(min=1)
    similar = z @ z.T  # (n, n)

    def shares(scores: Tensor) -> Tensor:
        """Ranks divided by their number; those that do not count are behind all others."""
        return ranks(torch.where(counts, scores, -math.inf)).to(z.dtype) / number

    now = shares(similar.detach())
    by_ranks = torch.where(counts & counts[:, None], now - shares(-apart), 0)
    loss = by_ranks.square().sum() / number
    by_ranks = 2 * by_ranks / number
    by_cosines = (shares(similar.detach() + interpolation * by_ranks) - now) / interpolation
    by_cosines = torch.where(counts & counts[:, None], by_cosines, 0)
    return loss + (by_cosines * (similar - similar.detach())).sum()  # the value of one, the gradient of the other


def ranks(scores: Tensor) -> Tensor:
    """Ranks along the last dimension, from 1 for the largest; equal numbers share the mean of their ranks.

    Args:
        scores: ``(..., n)``.

    Example:
        >>> ranks(torch.tensor([0.5, 0.9, 0.5, 0.1]))
        tensor([2.5000, 1.0000, 2.5000, 4.0000])
    """
    ordered, order = scores.sort(dim=-1, descending=True)
    n = scores.shape[-1]
    place = torch.arange(n, device=scores.device).expand_as(ordered)
    changes = ordered[..., 1:] != ordered[..., :-1]
    first = torch.where(F.pad(changes, (1, 0), value=True), place, 0).cummax(-1).values  # of a run of equal numbers
    last = torch.where(F.pad(changes, (0, 1), value=True), place, n).flip(-1).cummin(-1).values.flip(-1)
    return torch.zeros_like(scores).scatter(-1, order, (1 + (first + last) / 2).to(scores.dtype))


class RankSim(Method):
    """RankSim: neighbours in one order among features as among targets (a patent application covers it).

    The published code is under CC BY-NC-SA 4.0, and there is a US patent application (US 2023/0214651). This is
    written from the formula; check your rights before you use it.

    Args:
        interpolation: how far the surrogate gradient of the ranks looks ahead. In published training it also sees the
            strength: 2 at a strength of 100 there is 200 at a strength of 100 here.
        gather: rank rows of all ranks of a distributed run.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
        >>> RankSim().term(Step(Batch(None, torch.tensor([0.0, 1.0, 3.0])), features, None, None))
        tensor(0.2222)
    """

    kind = "term"
    cost = "time m^2 (d + log m), memory m^2"
    paper = "Gong, Mori, Tung, RankSim: Ranking Similarity Regularization for Deep Imbalanced Regression, ICML 2022"
    tunable: ClassVar[Mapping[str, Range]] = {"interpolation": Range(0.5, 200.0, log=True)}
    exact_gradient: ClassVar[bool] = False
    notes = (
        "the published code of RankSim is under CC BY-NC-SA 4.0, and there is a US patent application "
        "(US 2023/0214651); this is written from the formula: check your rights before you use it",
    )

    def __init__(self, interpolation: float = 2.0, gather: bool = False) -> None:
        super().__init__()
        if not 0 < interpolation < math.inf:
            raise ValueError(f"expected interpolation to be a positive number, got {interpolation}")
        self.interpolation, self.gather = float(interpolation), gather

    def term(self, step: Step) -> Tensor:
        """The differences of ranks of the rows inside the mask."""
        features = step.features
        if features.dim() != 2:
            raise ValueError(
                f"expected features (n, d) for ranksim, which ranks all pairs of rows, got {tuple(features.shape)}"
            )
        found, targets, mask = feature_rows(step, gather=self.gather)
        return ranksim(found, targets, self.interpolation, mask)

    def extra_repr(self) -> str:
        """The options."""
        return f"interpolation={self.interpolation:g}, gather={self.gather}"
