"""The public door of the estimators: what comes in is checked here, once, and turned into float64."""

import torch
from torch import Tensor

# A spread below this share of the features' own size is rounding: the rows count as identical.
ROUNDING = 1e-14


def checked_features(z: Tensor, at_least: int = 2) -> Tensor:
    """Float64 features ``(n, d)``, still part of the graph; raises where they cannot be measured."""
    if not isinstance(z, Tensor):
        raise TypeError(f"expected features as a torch.Tensor, got {type(z).__name__}")
    if not z.is_floating_point():
        raise TypeError(f"expected floating-point features, got {z.dtype}")
    if z.ndim != 2 or z.shape[1] == 0:
        raise ValueError(f"expected features of shape (n, d) with d >= 1, got {tuple(z.shape)}")
    if len(z) < at_least:
        raise ValueError(f"expected at least {at_least} rows of features, got {len(z)}")
    check_finite(z, "features")
    return z.double()


def checked_targets(y: Tensor, n: int) -> Tensor:
    """Float64 targets ``(n, t)`` without a graph, from ``(n,)`` or ``(n, t)``, integers included."""
    if not isinstance(y, Tensor):
        raise TypeError(f"expected targets as a torch.Tensor, got {type(y).__name__}")
    if y.is_complex():
        raise TypeError(f"expected real targets, got {y.dtype}")
    if y.ndim not in (1, 2) or len(y) != n or y.numel() == 0:
        raise ValueError(f"expected targets of shape ({n},) or ({n}, t), got {tuple(y.shape)}")
    check_finite(y, "targets")
    return y.detach().double().reshape(n, -1)


def check_finite(values: Tensor, name: str) -> None:
    """Raises where a value is NaN or infinite, and says how many are."""
    bad = int((~values.detach().isfinite()).sum())
    if bad:
        raise ValueError(f"expected finite {name}, got {bad} NaN or infinite values")


def check_neighbours(k: int) -> None:
    """Raises where the number of neighbours is not a positive integer."""
    if not isinstance(k, int) or k < 1:
        raise ValueError(f"expected k as an integer >= 1, got {k!r}")


def check_floor(floor: float) -> None:
    """Raises where the floor of the distances is not a share of the spread."""
    if not 0 <= floor < 1:
        raise ValueError(f"expected a floor in [0, 1), as a share of the spread, got {floor!r}")


def standardised(z: Tensor) -> tuple[Tensor, Tensor]:
    """Features moved to mean zero and brought to a root-mean-square length of one, and that length.

    Shift and length are constants to autograd. That leaves the gradient of whatever depends on
    differences of rows, times a known power of the length, as it is.

    Args:
        z: ``(n, d)`` features in float64.

    Returns:
        Features ``(n, d)`` and the spread, a scalar: 0 where all rows are the same but for rounding, and
        the features are then all 0.
    """
    # The first row goes first: rows that are all the same then leave exact zeros, whatever their mean.
    offset = z - z[0].detach()
    centered = offset - offset.detach().mean(0)
    spread = _rms_length(centered)
    if spread <= ROUNDING * _rms_length(z):
        return z * 0.0, torch.zeros_like(spread)
    return centered / spread, spread


def _rms_length(z: Tensor) -> Tensor:
    """Root-mean-square length of the rows, without a graph."""
    return z.detach().square().sum(1).mean().sqrt()


def result(value: Tensor, like: Tensor) -> Tensor:
    """The scalar in float64 for float64 input, in float32 for anything smaller."""
    return value.to(torch.float64 if like.dtype == torch.float64 else torch.float32)
