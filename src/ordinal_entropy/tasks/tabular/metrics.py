"""Errors of predictions in the unit of the targets."""

from typing import NamedTuple

import torch
from torch import Tensor

NAMES = ("rmse", "mae", "r2")


class Errors(NamedTuple):
    """One number a run, each ``(r,)``."""

    rmse: Tensor
    mae: Tensor
    r2: Tensor  # 1 - squared error / variance of the targets; NaN where these are all equal


def errors(predictions: Tensor, targets: Tensor, mask: Tensor) -> Errors:
    """Root mean squared error, mean absolute error and coefficient of determination of each run.

    Args:
        predictions: ``(r, n)``.
        targets: ``(r, n)``.
        mask: ``(r, n)``, which rows count: runs may have different numbers of them.

    Example:
        >>> y = torch.tensor([[1.0, 2.0, 3.0, 0.0]])
        >>> errors(y + 0.5, y, torch.tensor([[True, True, True, False]]))
        Errors(rmse=tensor([0.5000]), mae=tensor([0.5000]), r2=tensor([0.6250]))
    """
    count = mask.sum(1)
    offset = torch.where(mask, predictions - targets, 0)
    mean = torch.where(mask, targets, 0).sum(1) / count
    spread = torch.where(mask, targets - mean[:, None], 0).square().sum(1)
    squares = offset.square().sum(1)
    r2 = torch.where(spread > 0, 1 - squares / spread, torch.nan)
    return Errors((squares / count).sqrt(), offset.abs().sum(1) / count, r2)
