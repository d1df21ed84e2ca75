"""Gradient Aligned Regression: errors, differences between rows, and their shape, joined in a power mean."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Method, Range, Step
from ordinal_entropy.methods.rows import paired, prediction_rows
from ordinal_entropy.methods.training_targets import moments, training_numbers

_SMALLEST = 1e-12  # a smaller loss counts as this, so that its logarithm is finite
_ROUNDINGS = 16  # a standard deviation of fewer of them, in the size of the numbers, is none


def gar(
    predictions: Tensor,
    targets: Tensor,
    alpha: float = 1.0,
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """``alpha log mean_k l_k^(1 / alpha)`` of three losses: the logarithm of their power mean.

    ``l_1`` is the mean absolute error. ``l_2`` is half the mean square of ``(p - mean p) - (y - mean y)``, which is a
    quarter of the mean squared difference between the errors of two rows. ``l_3`` is the same of predictions and
    targets divided by their standard deviations in the batch, which is 1 minus their correlation.

    Args:
        predictions: ``(n,)`` or ``(..., n, t)``; each ``(n, t)`` is a batch of its own.
        targets: of the same shape.
        alpha: small ones take the largest of the losses, 1 their mean, large ones their geometric mean.
        mask: boolean ``(..., n)``, rows that count.
        weight: ``(..., n)``, factor of a row in each of the losses, not in the means that are subtracted.

    Returns:
        Scalar, at least float32: the mean over batches that have rows; a zero that is part of the graph where none
        has. Losses below 1e-12 count as that. Constant numbers have a shape of zeros, without a gradient. Time and
        memory for ``n t`` numbers.

    Example:
        >>> predictions, targets = torch.tensor([0.0, 2.0, 1.0]), torch.tensor([0.0, 1.0, 2.0])
        >>> gar(predictions, targets).exp()  # the mean of 2/3, 1/3 and 1/2
        tensor(0.5000)
    """
    p, y = paired(predictions, targets, mask)
    inside = torch.ones_like(p[..., 0]) if mask is None else mask.to(p.dtype)  # (..., n)
    count = inside.sum(-1)  # (...)
    factor = inside if weight is None else inside * weight.to(p.dtype)
    shares = (inside / count.clamp(min=1)[..., None])[..., None]  # (..., n, 1)

    def loss(errors: Tensor) -> Tensor:
        return (errors.mean(-1) * factor).sum(-1) / count.clamp(min=1)

    away = [inside[..., None] * (each - (shares * each).sum(-2, keepdim=True)) for each in (p, y)]
    shape = [_standardized(own, each, shares) for own, each in zip(away, (p, y), strict=True)]
    losses = [loss((p - y).abs()), *(loss((a - b).square()) / 2 for a, b in (away, shape))]
    logs = torch.stack(losses, -1).clamp(min=_SMALLEST).log()
    values = alpha * ((logs / alpha).logsumexp(-1) - math.log(len(losses)))
    return torch.where(count > 0, values, 0).sum() / (count > 0).sum().clamp(min=1)


def _standardized(away: Tensor, numbers: Tensor, shares: Tensor) -> Tensor:
    """Numbers less their means, divided by their standard deviations; zeros of constant ones."""
    variance = (shares * away.square()).sum(-2, keepdim=True)
    rounding = _ROUNDINGS * torch.finfo(away.dtype).eps
    varies = variance > rounding**2 * (shares * numbers.detach().square()).sum(-2, keepdim=True)
    return torch.where(varies, away / torch.where(varies, variance, 1).sqrt(), 0)


class GAR(Method):
    """Errors, differences between rows and their shape, in place of the task loss (Gradient Aligned Regression).

    The logarithm of a power mean of three losses, of predictions and targets in standard deviations of the training
    targets.

    Args:
        alpha: small ones take the largest of the losses, 1 their mean, large ones their geometric mean.
        gather: compare the rows of all ranks.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> method = GAR()
        >>> method.prepare(torch.tensor([[-1.0], [1.0]]))
        >>> targets, predictions = torch.tensor([[0.0], [1.0], [2.0]]), torch.tensor([[0.0], [2.0], [1.0]])
        >>> method.task_loss(Step(Batch(None, targets), torch.eye(3), predictions, None))  # log 0.5
        tensor(-0.6931)
    """

    kind = "loss"
    tunable: ClassVar[Mapping[str, Range]] = {
        "alpha": Range(0.1, 10.0, log=True),
    }
    paper = "Zhu, Zhang, Yang, Gradient Aligned Regression via Pairwise Losses, ICML 2025"
    maps = True
    over_groups = True
    scale: Tensor

    def __init__(self, alpha: float = 1.0, gather: bool = False) -> None:
        super().__init__()
        if not 0 < alpha < math.inf:
            raise ValueError(f"expected alpha to be a positive number, got {alpha}")
        self.alpha, self.gather = float(alpha), gather
        self.register_buffer("scale", torch.ones(1, dtype=torch.float64))  # (t,)

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the standard deviation of each number of the training targets."""
        self.scale = moments(training_numbers(targets))[1].to(self.scale)

    def task_loss(self, step: Step) -> Tensor:
        """Of the rows of a batch; of maps the mean over them, each of which is a batch of its own."""
        found = prediction_rows(step, gather=self.gather)
        scale = self.scale.to(found.outputs).unsqueeze(-2)  # (1, t), or (g, 1, t) of runs
        p, y = found.outputs / scale, found.targets.to(found.outputs) / scale
        return gar(p, y, self.alpha, mask=found.mask, weight=found.weight)

    def extra_repr(self) -> str:
        """The options."""
        return f"alpha={self.alpha}, gather={self.gather}"
