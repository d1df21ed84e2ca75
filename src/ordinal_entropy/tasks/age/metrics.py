"""Mean and geometric mean of the absolute errors, over all images and by how often their age occurs in training."""

from typing import NamedTuple

import torch
from torch import Tensor

from ordinal_entropy.environment import import_torchvision
from ordinal_entropy.tasks.age.losses import training_counts
from ordinal_entropy.tasks.on_images.columns import column

import_torchvision()  # which torchmetrics would import

from torchmetrics import Metric  # noqa: E402

SHOTS = ("many", "median", "few")  # training images of the same age: more than 100, 20 to 100, less than 20


def shots(targets: Tensor, counts: Tensor) -> Tensor:
    """The shot of each target: 0, 1 or 2, its place in ``SHOTS``.

    Args:
        targets: ages, ``(n,)`` or ``(n, 1)``.
        counts: of each age in training, by ``age_counts``; an age that never occurs there is "few".

    Returns:
        ``(n,)``.

    Example:
        >>> counts = torch.tensor([0, 101, 100, 20, 19])  # of the ages 0 to 4
        >>> [SHOTS[shot] for shot in shots(torch.arange(6.0), counts)]
        ['few', 'many', 'median', 'median', 'few', 'few']
    """
    count = training_counts(targets, counts)
    return 1 - (count > 100).long() + (count < 20).long()


def shot_errors(predictions: Tensor, targets: Tensor, counts: Tensor) -> dict[str, Tensor]:
    """Mean (MAE) and geometric mean (GM) of the absolute errors, over all images and over those of each shot.

    Args:
        predictions: ``(n,)`` or ``(n, 1)``.
        targets: ages, likewise.
        counts: of each age in training, by ``age_counts``.

    Returns:
        float64 scalars "mae", "mae_many", "mae_median", "mae_few", "gm", "gm_many", "gm_median" and "gm_few".
        An error of exactly 0 makes the GM 0, a shot without images has NaN.

    Example:
        >>> counts = torch.tensor([0, 500, 50])  # of the ages 0, 1 and 2
        >>> errors = shot_errors(torch.tensor([3.0, 9.0, 4.0]), torch.tensor([1.0, 1.0, 2.0]), counts)
        >>> {name: round(float(value), 3) for name, value in errors.items()}
        {'mae': 4.0, 'mae_many': 5.0, 'mae_median': 2.0, 'mae_few': nan,
         'gm': 3.175, 'gm_many': 4.0, 'gm_median': 2.0, 'gm_few': nan}
    """
    return _scores(_sums(predictions, targets, counts))


class ShotErrors(Metric):
    """:func:`shot_errors` of everything that came in, batch by batch and on all ranks.

    Args:
        counts: of each age in training, by ``age_counts``.

    Example:
        >>> metric = ShotErrors(torch.tensor([0, 500, 50]))
        >>> metric.update(torch.tensor([3.0, 9.0]), torch.tensor([1.0, 1.0]))
        >>> metric.update(torch.tensor([4.0]), torch.tensor([2.0]))
        >>> round(metric.compute()["gm"].item(), 3)
        3.175
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    counts: Tensor
    error: Tensor
    log_error: Tensor
    number: Tensor

    def __init__(self, counts: Tensor) -> None:
        super().__init__()
        training_counts(torch.zeros(0), counts)  # checks them
        self.register_buffer("counts", counts, persistent=False)
        for name, zero in _sums(torch.zeros(0), torch.zeros(0), counts.cpu())._asdict().items():
            self.add_state(name, zero, dist_reduce_fx="sum")

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Adds a batch: ``(n,)`` or ``(n, 1)`` both; n may be 0."""
        for name, own in _sums(predictions, targets, self.counts)._asdict().items():
            setattr(self, name, getattr(self, name) + own)

    def compute(self) -> dict[str, Tensor]:
        """The scores of :func:`shot_errors`."""
        return _scores(_Sums(self.error, self.log_error, self.number))


class _Sums(NamedTuple):
    """Over the images of each shot, ``(3,)`` all."""

    error: Tensor
    log_error: Tensor
    number: Tensor


def _sums(predictions: Tensor, targets: Tensor, counts: Tensor) -> _Sums:
    predicted = column(predictions.detach(), "predictions")
    true = column(targets, "targets", rows=len(predicted))
    error = (predicted.double() - true.double()).abs()  # (n,)
    member = shots(targets, counts) == torch.arange(3, device=error.device)[:, None]  # (3, n)
    return _Sums(
        torch.where(member, error, 0).sum(1),
        torch.where(member, error.log(), 0).sum(1),  # -inf for an error of 0
        member.sum(1),
    )


def _scores(sums: _Sums) -> dict[str, Tensor]:
    number = torch.cat([sums.number.sum()[None], sums.number])  # (4,): all, then each shot
    mae = torch.cat([sums.error.sum()[None], sums.error]) / number
    gm = (torch.cat([sums.log_error.sum()[None], sums.log_error]) / number).exp()
    names = [f"{score}{end}" for score in ("mae", "gm") for end in ("", *(f"_{shot}" for shot in SHOTS))]
    return dict(zip(names, torch.cat([mae, gm]), strict=True))
