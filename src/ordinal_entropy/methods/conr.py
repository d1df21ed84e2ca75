"""ConR: contrast where predictions are close although targets are not."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordinal_entropy.kernels.unit import unit_rows
from ordinal_entropy.methods.contract import Method, Range, Step, zero
from ordinal_entropy.methods.rows import feature_rows


def conr(
    features: Tensor,
    targets: Tensor,
    predictions: Tensor,
    window: float | Tensor,
    *,
    slope: float | Tensor = 0.0,
    temperature: float = 0.07,
    weight: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """Supervised contrast of normalised features, against rows that the predictions confuse.

    Rows ``j`` whose targets are at most ``window`` from those of row ``i`` are its positives, ``P_i``; other rows whose
    predictions are at most ``window`` from its own are its negatives, ``N_i``. With cosines ``s_ij`` divided by the
    temperature, and distances of targets ``d_ij``, the mean over all rows of

        -mean over j in P_i of log(e^s_ij / (sum over P_i of e^s_ik + sum over N_i of weight_i e^(slope d_ik) e^s_ik))

    where rows without a positive or without a negative have no loss.

    Args:
        features: ``(n, d)``, of any length.
        targets: ``(n,)`` or ``(n, t)``, whose distances are Euclidean.
        predictions: likewise, in the same unit; without gradient.
        window: in the unit of the targets.
        slope: growth of the push with the distance of the targets, by their unit.
        temperature: of the cosines.
        weight: ``(n,)``, positive, of the push from each row; None for 1.
        mask: boolean ``(n,)``, rows that count.

    Returns:
        Scalar, at least float32; 0 where no row has a positive and a negative. Memory for ``(n, n)``.

    Example:
        >>> features, targets = torch.eye(3), torch.tensor([0.0, 0.0, 9.0])
        >>> conr(features, targets, torch.tensor([0.0, 0.0, 0.0]), 1.0)  # log 2, for two of three rows
        tensor(0.4621)
        >>> conr(features, targets, targets, 1.0)
        tensor(0.)
    """
    n = len(features)
    if n < 3:
        return zero(features)
    z = unit_rows(features.to(torch.promote_types(features.dtype, torch.float32)))
    there = ~torch.eye(n, dtype=torch.bool, device=features.device)
    if mask is not None:
        there = there & mask & mask[:, None]
    apart = _distances(targets.detach())
    positive = there & (apart <= window)
    negative = there & (apart > window) & (_distances(predictions.detach()) <= window)
    anchors = positive.any(1) & negative.any(1)

    similar = z @ z.T / temperature  # (n, n)
    push = (slope * apart).to(similar.dtype)
    if weight is not None:
        push = push + weight.detach().to(similar.dtype).clamp_min(torch.finfo(similar.dtype).tiny).log()[:, None]
    rivals = torch.where(positive, similar, torch.where(negative, similar + push, -math.inf))
    rivals = torch.where(anchors[:, None], rivals, 0)  # nowhere infinities alone, whose gradient is NaN
    attracted = torch.where(positive, similar, 0).sum(1) / positive.sum(1).clamp(min=1)
    losses = torch.where(anchors, rivals.logsumexp(1) - attracted, 0)
    return losses.sum() / (n if mask is None else mask.sum().clamp(min=1))


def _distances(values: Tensor) -> Tensor:
    """Of all pairs, ``(n, n)``, each computed from its difference."""
    rows = values.to(torch.promote_types(values.dtype, torch.float32)).reshape(len(values), -1)
    return torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")


class ConR(Method):
    """ConR: features of rows that predictions confuse pushed apart, those of similar targets pulled together.

    It needs the predictions of each step. Where rows are weighted, as by ``lds``, rows of rare targets push harder.

    Args:
        window: distance up to which targets, or predictions, are similar, in standard deviations of the training
            targets.
        slope: growth of the push with the distance of the targets, by a standard deviation.
        temperature: of the cosines.
        gather: contrast rows of all ranks.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> method = ConR(window=0.5, slope=0.0)
        >>> method.prepare(torch.tensor([[-2.0], [2.0]]))  # a standard deviation of 2
        >>> batch = Batch(None, torch.tensor([[0.0], [0.0], [9.0]]))
        >>> method.term(Step(batch, torch.eye(3), torch.zeros(3, 1), None))
        tensor(0.4621)
    """

    kind = "term"
    cost = "time m^2 d, memory m^2"
    paper = "Keramati, Meng, Evans, ConR: Contrastive Regularizer for Deep Imbalanced Regression, ICLR 2024"
    tunable: ClassVar[Mapping[str, Range]] = {
        "window": Range(0.02, 0.5, log=True),
        "temperature": Range(0.02, 1.0, log=True),
    }
    needs: ClassVar[frozenset[str]] = frozenset({"predictions"})
    spread: Tensor

    def __init__(
        self, window: float = 0.1, slope: float = 0.2, temperature: float = 0.07, gather: bool = False
    ) -> None:
        super().__init__()
        for name, value in (("window", window), ("temperature", temperature)):
            if not 0 < value < math.inf:
                raise ValueError(f"expected {name} to be a positive number, got {value}")
        if not 0 <= slope < math.inf:
            raise ValueError(f"expected slope to be a number from 0 on, got {slope}")
        self.window, self.slope, self.temperature = float(window), float(slope), float(temperature)
        self.gather = gather
        self.register_buffer("spread", torch.ones((), dtype=torch.float64))  # of the training targets

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the standard deviation of the training targets; of several numbers, of their distance to the mean."""
        numbers = targets.flatten(1).double()
        if not (len(numbers) and bool(numbers.isfinite().all())):
            raise ValueError(f"expected finite training targets, at least one, got {tuple(targets.shape)}")
        spread = numbers.var(0, unbiased=False).sum().sqrt()
        self.spread = torch.where(spread > 0, spread, 1).to(self.spread)

    def term(self, step: Step) -> Tensor:
        """The contrast of the rows inside the mask."""
        features, batch = step.features, step.batch
        if features.dim() != 2:
            raise ValueError(
                f"expected features (n, d) for conr, which compares all pairs of rows, got {tuple(features.shape)}"
            )
        beside = step.outputs.detach()
        if batch.weight is not None:
            weight = batch.weight.to(beside).expand_as(batch.targets)
            weight = weight[:, None] if weight.dim() == 1 else weight
            beside = torch.cat([beside, weight.mean(1, keepdim=True)], 1)
        found, numbers, mask = feature_rows(step._replace(outputs=beside), gather=self.gather, predictions=True)
        t, spread = step.outputs.shape[1], self.spread.to(numbers)
        return conr(
            found,
            numbers[:, :t],
            numbers[:, t : 2 * t],
            self.window * spread,
            slope=self.slope / spread,
            temperature=self.temperature,
            weight=None if batch.weight is None else numbers[:, -1],
            mask=mask,
        )
