"""Errors of counts: how many heads too many or too few, per image."""

from typing import NamedTuple

import torch
from torch import Tensor

from ordinal_entropy.environment import import_torchvision
from ordinal_entropy.tasks.on_images.columns import column

import_torchvision()  # which torchmetrics would import

from torchmetrics import Metric  # noqa: E402


def counts(maps: Tensor) -> Tensor:
    """How many heads each density map says: its sum, in float64, ``(n,)``.

    Args:
        maps: ``(n, 1, h, w)`` or ``(n, h, w)``, any float type.

    Example:
        >>> counts(torch.full((2, 1, 3, 4), 0.25))
        tensor([3., 3.], dtype=torch.float64)
    """
    if maps.dim() not in (3, 4) or (maps.dim() == 4 and maps.shape[1] != 1):
        raise ValueError(f"expected maps (n, h, w) or (n, 1, h, w), got {tuple(maps.shape)}")
    return maps.detach().sum(dim=tuple(range(1, maps.dim())), dtype=torch.float64)


def count_errors(predictions: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Mean absolute error and root of the mean squared error of counts.

    Args:
        predictions: counts, ``(n,)`` or ``(n, 1)``; of density maps, :func:`counts` has them.
        targets: numbers of annotated heads, likewise; not the sum of a density map, which may have lost some.

    Returns:
        float64 scalars "mae" and "rmse" (what the literature of crowds calls MSE); NaN without images.

    Example:
        >>> errors = count_errors(torch.tensor([103.0, 46.0]), torch.tensor([100, 50]))
        >>> {name: round(float(value), 3) for name, value in errors.items()}
        {'mae': 3.5, 'rmse': 3.536}
    """
    return _scores(_sums(predictions, targets))


class CountErrors(Metric):
    """:func:`count_errors` of everything that came in, batch by batch and on all ranks.

    Example:
        >>> metric = CountErrors()
        >>> metric.update(torch.tensor([103.0]), torch.tensor([100]))
        >>> metric.update(torch.tensor([46.0]), torch.tensor([50]))
        >>> round(metric.compute()["rmse"].item(), 3)
        3.536
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    error: Tensor
    squared: Tensor
    number: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name, zero in _sums(torch.zeros(0), torch.zeros(0))._asdict().items():
            self.add_state(name, zero, dist_reduce_fx="sum")

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Adds a batch: ``(n,)`` or ``(n, 1)`` both; n may be 0."""
        for name, own in _sums(predictions, targets)._asdict().items():
            setattr(self, name, getattr(self, name) + own)

    def compute(self) -> dict[str, Tensor]:
        """The scores of :func:`count_errors`."""
        return _scores(_Sums(self.error, self.squared, self.number))


class _Sums(NamedTuple):
    """Over the images."""

    error: Tensor
    squared: Tensor
    number: Tensor


def _sums(predictions: Tensor, targets: Tensor) -> _Sums:
    predicted = column(predictions.detach(), "predictions")
    true = column(targets, "targets", rows=len(predicted))
    error = predicted.double() - true.double()  # (n,)
    number = torch.tensor(len(error), device=error.device)
    return _Sums(error.abs().sum(), error.square().sum(), number)


def _scores(sums: _Sums) -> dict[str, Tensor]:
    return {"mae": sums.error / sums.number, "rmse": (sums.squared / sums.number).sqrt()}
