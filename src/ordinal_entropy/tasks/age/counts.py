"""How often each age occurs in the training set: what shots and weights go by. An age is a whole number of years."""

import torch
from torch import Tensor


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


def column(values: Tensor, name: str, rows: int | None = None) -> Tensor:
    """``(n,)`` out of ``(n,)`` or ``(n, 1)``, of so many rows: ``(n, 1)`` minus ``(n,)`` would be ``(n, n)``."""
    if values.dim() not in (1, 2) or values.shape[1:].numel() != 1:
        raise ValueError(f"expected {name} (n,) or (n, 1), got {tuple(values.shape)}")
    if rows is not None and len(values) != rows:
        raise ValueError(f"expected {name} with n={rows} rows, got {tuple(values.shape)}")
    return values.reshape(-1)
