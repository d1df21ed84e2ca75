"""Tests of paired scores: their differences, the signs and the skewness of these, the spread; several tests at once."""

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

LEVEL = 0.05  # of a verdict
_SKEWNESS = {4: 0.987, 5: 1.049, 6: 1.040, 7: 1.020}  # that 10% of normal samples of n exceed, by simulation


class Paired(NamedTuple):
    """Mean of the differences, method minus baseline, with its 95% interval and two-sided p-value."""

    difference: float
    ci_low: float
    ci_high: float
    p_value: float
    n: int


class Spread(NamedTuple):
    """Standard deviation of the method over that of the baseline, with a two-sided p-value for "they are equal"."""

    ratio: float
    p_value: float
    n: int


def paired(values: Sequence[float], baseline: Sequence[float]) -> Paired:
    """Student's t on the differences of pairs: runs of one seed, on the same data, differ by the method alone.

    Args:
        values: scores of a method, one a seed.
        baseline: scores of the baseline for the same seeds, in the same order.

    Returns:
        The comparison. Differences that are all equal have an interval of width 0 and a p-value of 0, or of 1 where
        all are 0.

    Example:
        >>> paired([1.0, 2.0, 3.0], [2.0, 3.5, 3.5])
        Paired(difference=-1.0, ci_low=-2.2420..., ci_high=0.2420..., p_value=0.0741..., n=3)
    """
    n, mean, deviation = differences(values, baseline)
    half = deviation / math.sqrt(n) * float(special_functions().stdtrit(n - 1, 1 - LEVEL / 2))
    return Paired(mean, mean - half, mean + half, _student(n, mean, deviation), n)


def differences(values: Sequence[float], baseline: Sequence[float]) -> tuple[int, float, float]:
    """How many pairs, at least two, and mean and standard deviation of their differences; rounding counts as 0."""
    x, y = checked_pairs(values, baseline, least=2)
    own = [a - b for a, b in zip(x, y, strict=True)]
    return len(own), *mean_and_deviation(own, scale=max(map(abs, x + y)))


def _student(n: int, mean: float, deviation: float) -> float:
    """The two-sided p-value of Student's t; of numbers that are all equal 0, or 1 where all are 0."""
    if deviation == 0:
        return 0.0 if mean else 1.0
    return float(2 * special_functions().stdtr(n - 1, -abs(mean) / (deviation / math.sqrt(n))))


def skewness(values: Sequence[float], baseline: Sequence[float]) -> float:
    """Skewness of the differences: the mean of their cubes over the cube of their standard deviation (with n).

    Args:
        values: scores of a method, one a seed.
        baseline: scores of the baseline for the same seeds, in the same order.

    Returns:
        0 for differences that are symmetric or all equal; positive where the long tail is upwards. Of n differences it
        is at most (n - 2) / sqrt(n - 1).

    Example:
        >>> skewness([1.0, 2.0, 3.0, 9.0], [1.0, 1.0, 1.0, 1.0])
        0.9794...
    """
    n, mean, deviation = differences(values, baseline)
    if deviation == 0:
        return 0.0
    cubes = math.fsum((a - b - mean) ** 3 for a, b in zip(values, baseline, strict=True)) / n
    return cubes / (deviation * math.sqrt((n - 1) / n)) ** 3


def looks_skewed(skewness: float, n: int) -> bool:
    """Whether 10% or fewer of normal samples of n have a skewness so far from 0; never for fewer than four.

    Of eight or more by D'Agostino's normal approximation (Biometrika, 1970).

    Example:
        >>> looks_skewed(1.0, 5), looks_skewed(-1.0, 10)
        (False, True)
    """
    if n < 8:
        return abs(skewness) > _SKEWNESS.get(n, math.inf)
    kurtosis = 3 * (n * n + 27 * n - 70) * (n + 1) * (n + 3) / ((n - 2) * (n + 5) * (n + 7) * (n + 9))
    w = math.sqrt(2 * (kurtosis - 1)) - 1
    standard = abs(skewness) * math.sqrt((n + 1) * (n + 3) / (6 * (n - 2)))
    z = math.asinh(standard / math.sqrt(2 / (w - 1))) / math.sqrt(math.log(w) / 2)
    return z > float(special_functions().ndtri(0.95))


def sign_test(values: Sequence[float], baseline: Sequence[float]) -> float:
    """The two-sided p-value of the sign test: do as many seeds go up as down? Exact, whatever the distribution.

    Args:
        values: scores of a method, one a seed.
        baseline: scores of the baseline for the same seeds, in the same order.

    Returns:
        The p-value; seeds at which both are equal are left out, and where all are it is 1. Of n seeds it is at least
        2 / 2^n: five or fewer cannot bring it below 0.05.

    Example:
        >>> sign_test([1.0, 2.0, 3.0, 4.0], [2.0, 3.5, 3.5, 4.0])  # three go down, one is a tie
        0.25
    """
    x, y = checked_pairs(values, baseline, least=1)
    tie = rounding(max(map(abs, x + y)))
    signs = [a > b for a, b in zip(x, y, strict=True) if abs(a - b) > tie]
    rarer = min(sum(signs), len(signs) - sum(signs))
    return min(1.0, 2 * sum(math.comb(len(signs), k) for k in range(rarer + 1)) / (1 << len(signs)))


def spread(values: Sequence[float], baseline: Sequence[float]) -> Spread:
    """Do the scores of a method vary less from seed to seed? The Brown-Forsythe form of Levene's test, for pairs.

    A paired t-test on the absolute deviations of the scores from their medians, which unlike a test of variances holds
    for scores with heavy or skewed tails (``benchmarks/bench_compare.py``). Five seeds hardly ever show a difference.

    Args:
        values: scores of a method, one a seed.
        baseline: scores of the baseline for the same seeds, in the same order.

    Returns:
        The ratio of the standard deviations (infinite for a baseline that does not vary; NaN where neither does) and
        the p-value.

    Example:
        >>> spread([1.0, 2.0, 3.0, 4.0], [0.0, 5.0, 3.0, 9.0])
        Spread(ratio=0.3419..., p_value=0.1018..., n=4)
    """
    x, y = checked_pairs(values, baseline, least=3)
    scale = max(map(abs, x + y))
    (_, of_x), (_, of_y) = mean_and_deviation(x, scale), mean_and_deviation(y, scale)
    ratio = of_x / of_y if of_y else (math.inf if of_x else math.nan)
    middle, base = median(x), median(y)
    own = [abs(a - middle) - abs(b - base) for a, b in zip(x, y, strict=True)]
    return Spread(ratio, _student(len(own), *mean_and_deviation(own, scale)), len(own))


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's adjustment: the smallest times m, the next times m - 1, ..., never falling; NaN counts as a test.

    Example:
        >>> holm({"ld": 0.01, "oe": 0.03})
        {'ld': 0.02, 'oe': 0.03}
    """
    adjusted, largest = dict(p_values), 0.0
    for rank, name in enumerate(
        sorted((k for k, p in p_values.items() if not math.isnan(p)), key=p_values.__getitem__)
    ):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = largest
    return adjusted


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
