"""Quantile regression: several quantiles of each target by the pinball loss; the median is the prediction."""

import re
from collections.abc import Sequence

import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Method, Step, weighted_mean
from ordinal_entropy.methods.rows import output_rows, paired


def pinball(
    predictions: Tensor,
    targets: Tensor,
    quantiles: Sequence[float],
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """The mean of ``max(q e, (q - 1) e)`` over errors ``e = y - p`` and quantiles ``q``.

    Args:
        predictions: ``(..., n, t, q)``, of each quantile.
        targets: ``(..., n, t)``.
        quantiles: ``q`` levels between 0 and 1.
        mask: boolean ``(..., n)``, rows that count.
        weight: ``(..., n)``, factor of a row's loss.

    Returns:
        Scalar, at least float32; without rows, a zero that is part of the graph.

    Example:
        >>> pinball(torch.zeros(1, 1, 2), torch.tensor([[4.0]]), [0.25, 0.5])  # 4 times 0.25 and 0.5
        tensor(1.5000)
    """
    if predictions.shape != (*targets.shape, len(quantiles)):
        came = f"{tuple(predictions.shape)} for targets {tuple(targets.shape)} and {len(quantiles)} quantiles"
        raise ValueError(f"expected predictions (..., n, t, q), got {came}")
    found, wanted = paired(predictions, targets[..., None].expand_as(predictions), _of_numbers(mask))
    errors = (wanted - found).unbind(-1)
    losses = [torch.maximum(level * e, (level - 1) * e) for level, e in zip(quantiles, errors, strict=True)]
    return weighted_mean(torch.stack(losses, -1).mean((-2, -1)), mask, weight)


def _of_numbers(mask: Tensor | None) -> Tensor | None:
    """Of rows ``(..., n)`` as of their numbers ``(..., n, 1)``."""
    return None if mask is None else mask[..., None]


class Quantile(Method):
    """Pinball loss of several quantiles, the median as the prediction, in place of the task loss.

    Args:
        quantiles: levels between 0 and 1, ascending, with 0.5 among them; as a text, ``"0.1 0.5 0.9"``.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> method = Quantile()
        >>> outputs = torch.tensor([[1.0, 5.0, 4.0]])
        >>> method.decode(outputs), method.intervals(outputs)
        (tensor([[4.]]), tensor([[[1., 4., 5.]]]))
        >>> method.task_loss(Step(Batch(None, torch.tensor([[2.0]])), torch.eye(1), outputs, None))  # .1, 1.5 and .2
        tensor(0.6000)
    """

    kind = "head"
    paper = "Koenker, Bassett, Regression Quantiles, Econometrica 1978"
    maps = True
    over_groups = True

    def __init__(self, quantiles: Sequence[float] | str = (0.1, 0.5, 0.9)) -> None:
        super().__init__()
        if isinstance(quantiles, str):
            quantiles = [float(each) for each in re.split(r"[\s,;]+", quantiles.strip())]
        levels = tuple(float(each) for each in ([quantiles] if isinstance(quantiles, int | float) else quantiles))
        if sorted(set(levels)) != list(levels) or not all(0 < each < 1 for each in levels) or 0.5 not in levels:
            raise ValueError(f"expected ascending quantiles between 0 and 1 with 0.5 among them, got {quantiles}")
        self.quantiles = levels

    def outputs(self, t: int) -> int:
        """One for each quantile of each number."""
        return t * len(self.quantiles)

    def task_loss(self, step: Step) -> Tensor:
        """The mean over rows, and over the numbers of a target and their quantiles."""
        q = len(self.quantiles)
        outputs, targets = step.outputs, step.batch.targets
        t = 1
        if isinstance(outputs, Tensor) and targets.dim() == outputs.dim():
            t = targets.shape[1 if targets.dim() == 4 else -1]
        found = output_rows(step, t * q, t)
        predictions = found.outputs.unflatten(-1, (t, q))
        return pinball(predictions, found.targets, self.quantiles, mask=found.mask, weight=found.weight)

    def intervals(self, outputs: Tensor) -> Tensor:
        """The quantiles in ascending order, so that none crosses another: ``(..., q)`` behind what ``decode`` gives."""
        along = 1 if outputs.dim() == 4 else -1
        q = len(self.quantiles)
        if outputs.dim() not in (2, 3, 4) or outputs.shape[along] % q:
            raise ValueError(f"expected outputs with {q} quantiles of each number, got {tuple(outputs.shape)}")
        values = outputs if outputs.dtype == torch.float64 else outputs.float()
        ordered: Tensor = values.movedim(along, -1).unflatten(-1, (-1, q)).sort(-1).values  # (..., t, q)
        return ordered.movedim(-2, along) if outputs.dim() == 4 else ordered

    def decode(self, outputs: Tensor) -> Tensor:
        """The medians ``(n, t)``, ``(b, n, t)`` or ``(b, t, h, w)``."""
        return self.intervals(outputs)[..., self.quantiles.index(0.5)]

    def extra_repr(self) -> str:
        """The options."""
        return f"quantiles={self.quantiles}"
