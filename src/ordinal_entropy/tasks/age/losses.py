"""The benchmark's task losses, and its weights against the long tail of ages."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy.methods import weighted_mean
from ordinal_entropy.recipes import lookup
from ordinal_entropy.tasks.age.counts import age_counts, column, training_counts

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
