"""Task losses of ages, and weights by how often an age occurs. An age is a whole number of years."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy.methods import weighted_mean
from ordinal_entropy.recipes import lookup
from ordinal_entropy.tasks.on_images.columns import column


def age_counts(targets: Tensor) -> Tensor:
    """``(oldest + 1,)``: how many targets there are of each age 0, 1, 2, ...; parts of a year are cut off.

    Args:
        targets: ages of the training set, ``(n,)`` or ``(n, 1)``, at least 0.

    Example:
        >>> age_counts(torch.tensor([1.0, 3.0, 3.5]))
        tensor([0, 1, 0, 2])
    """
    ages = column(targets, "targets")
    wrong = ~((ages >= 0) & torch.isfinite(ages))
    if bool(wrong.any()):
        raise ValueError(
            f"expected ages of at least 0, got {int(wrong.sum())} others, the first {float(ages[wrong][0])}"
        )
    return torch.bincount(ages.long())


def training_counts(targets: Tensor, counts: Tensor) -> Tensor:
    """``(n,)``: how often the age of each target occurs in training; 0 for one that never does.

    Args:
        targets: ages, ``(n,)`` or ``(n, 1)``.
        counts: of each age, by :func:`age_counts` of the training set.

    Example:
        >>> training_counts(torch.tensor([3.0, 2.0, 99.0]), age_counts(torch.tensor([1.0, 3.0, 3.0])))
        tensor([2, 0, 0])
    """
    ages = column(targets, "targets")
    if counts.dim() != 1 or counts.is_floating_point():
        raise ValueError(f"expected counts (ages,) as whole numbers, got {tuple(counts.shape)} of {counts.dtype}")
    inside = (ages >= 0) & (ages < len(counts))  # false for NaN
    if not len(counts):
        return torch.zeros_like(ages, dtype=counts.dtype)
    found = counts.to(ages.device)[torch.where(inside, ages, 0).long()]
    return torch.where(inside, found, 0)


_LOSSES = {
    "l1": F.l1_loss,
    "mse": F.mse_loss,
    "huber": F.smooth_l1_loss,  # beta 1: squared up to an error of one year
}
_WEIGHTS: dict[str, Callable[[Tensor], Tensor]] = {  # of a sample, by how many there are of its age
    "none": torch.ones_like,
    "inverse": lambda count: 1 / count.clamp(5, 1000),
    "sqrt-inverse": lambda count: count.rsqrt(),
}
LOSSES = tuple(_LOSSES)
WEIGHTS = tuple(_WEIGHTS)


def task_loss(
    predictions: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    weights: Tensor | None = None,
    *,
    loss: str = "l1",
) -> Tensor:
    """The mean over the rows of weight times loss; not divided by the sum of the weights.

    Args:
        predictions: ``(n,)`` or ``(n, 1)``.
        targets: likewise.
        mask: boolean, ``(n,)`` or ``(n, 1)``: rows that count; None: all.
        weights: ``(n,)`` or ``(n, 1)``, for example by :func:`sample_weights`; None: all 1.
        loss: "l1", "mse" or "huber" (half the square of an error below 1, else the error less a half).

    Returns:
        Scalar, float32 for half precision. No rows: a zero that is still part of the graph.

    Example:
        >>> task_loss(torch.tensor([[3.0], [0.5]]), torch.tensor([1.0, 1.0]))
        tensor(1.2500)
        >>> weights = torch.tensor([0.5, 2.0])
        >>> task_loss(torch.tensor([[3.0], [0.5]]), torch.tensor([1.0, 1.0]), weights=weights, loss="huber")
        tensor(0.5000)
    """
    function = lookup("loss", loss, _LOSSES)
    predicted = column(predictions, "predictions")
    true = column(targets, "targets", rows=len(predicted))
    if predicted.dtype in (torch.float16, torch.bfloat16):
        predicted = predicted.float()
    losses = function(predicted, true.to(predicted.dtype), reduction="none")  # (n,)
    if mask is not None:
        mask = column(mask, "mask", rows=len(losses))
    if weights is not None:
        weights = column(weights, "weights", rows=len(losses))
    return weighted_mean(losses, mask, weights)


def sample_weights(targets: Tensor, weighting: str = "none") -> Tensor:
    """The weight of each sample of the training set, 1 in the mean over the set.

    Args:
        targets: ages of the whole training set, ``(n,)`` or ``(n, 1)``.
        weighting: "none"; "inverse", 1 / count of the age, which is clipped to 5..1000; or "sqrt-inverse",
            1 / sqrt(count).

    Returns:
        float32 ``(n,)``.

    Example:
        >>> sample_weights(torch.tensor([30.0, 30.0, 30.0, 30.0, 80.0]), "sqrt-inverse")
        tensor([0.8333, 0.8333, 0.8333, 0.8333, 1.6667])
    """
    function = lookup("weighting", weighting, _WEIGHTS)
    weights = function(training_counts(targets, age_counts(targets)).double())
    return (weights / weights.mean()).float()
