"""Scores as numbers: which are finite, which make a pair, their mean and deviation; SciPy, where it is installed."""

import math
import sys
from collections.abc import Iterable, Sequence
from typing import Any


def special_functions() -> Any:
    """``scipy.special``; an ImportError says how to get it."""
    try:
        from scipy import special
    except ImportError as error:
        raise ImportError("a comparison needs SciPy: pip install 'ordinal-entropy[train]'") from error
    return special


def number(value: float | None) -> float:
    """NaN for what is not finite, and for JSON's null."""
    return float(value) if value is not None and math.isfinite(value) else math.nan


def mean_of(values: Sequence[float]) -> float:
    """The sum, without rounding on the way, over their number."""
    return math.fsum(values) / len(values)


def deviation_of(values: Sequence[float]) -> float:
    """Of a sample: n - 1."""
    mean = mean_of(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def finite(values: Iterable[float]) -> int:
    """How many are."""
    return sum(map(math.isfinite, values))


def both_finite(values: Sequence[float], baseline: Sequence[float]) -> tuple[list[float], list[float]]:
    """The scores of the seeds at which both have one."""
    pairs = [(a, b) for a, b in zip(values, baseline, strict=True) if math.isfinite(a) and math.isfinite(b)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def checked_pairs(values: Sequence[float], baseline: Sequence[float], least: int) -> tuple[list[float], list[float]]:
    """The same as lists of numbers; a ValueError where they are not pairs, not finite, or too few."""
    x, y = [float(value) for value in values], [float(value) for value in baseline]
    if len(x) != len(y):
        raise ValueError(f"expected as many values as the baseline has, {len(y)}, got {len(x)}")
    wrong = len(x) + len(y) - finite(x) - finite(y)
    if wrong:
        raise ValueError(f"expected finite scores, got {wrong} that are NaN or infinite")
    if len(x) < least:
        raise ValueError(f"expected at least {least} pairs of scores, got {len(x)}")
    return x, y


def mean_and_deviation(values: Sequence[float], scale: float) -> tuple[float, float]:
    """Mean and standard deviation of a sample, 0 where they are no more than the rounding of numbers so large."""
    mean, deviation = mean_of(values), deviation_of(values)
    return mean if abs(mean) > rounding(scale) else 0.0, deviation if deviation > rounding(scale) else 0.0


def rounding(scale: float) -> float:
    """What a difference of two numbers so large may be off by."""
    return 4 * sys.float_info.epsilon * scale
