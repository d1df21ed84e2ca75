"""Numbers as a reader meets them."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

NONE = "–"
_MOST_DECIMALS = 5
_SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: float | None, scale: float = 1.0, *, sign: bool = False) -> str:
    """Three digits that count, in multiples of the scale; a dash for what is no number.

    Example:
        >>> number(-0.00123, 1e-3), number(0.5, sign=True), number(12345.6), number(4e-9), number(None)
        ('−1.23', '+0.50', '12,346', '4 × 10⁻⁹', '–')
    """
    if value is None or not math.isfinite(value) or not math.isfinite(value / scale):
        return NONE
    value /= scale
    size, plus = abs(value), "+" if sign and value else ""
    if size and (size < 5e-4 or size >= 1e6):
        mantissa, exponent = f"{value:{plus}.2e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
        return f"{mantissa} × 10{str(int(exponent)).translate(_SUPERSCRIPT)}".replace("-", "−", 1)
    decimals = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 0.1 or not size else 3 if size >= 0.01 else 4
    return f"{value:{plus},.{decimals}f}".replace("-", "−")


def times(scale: float) -> str:
    """How a scale is written behind a name or a number.

    Example:
        >>> times(1e-3), times(1.0)
        (' × 10⁻³', '')
    """
    return "" if scale == 1 else f" × 10{str(round(math.log10(scale))).translate(_SUPERSCRIPT)}"


def published(value: float | None, scale: float = 1.0) -> str:
    """With all digits that were printed.

    Example:
        >>> published(0.502), published(3e-3, 1e-3), published(None)
        ('0.502', '3.00', '–')
    """
    short = number(value, scale)
    if value is None or not math.isfinite(value):
        return short
    exact = f"{value / scale:.6g}"
    return exact.replace("-", "−") if "." in exact and len(exact) > len(short) else short


def mean_and_std(values: Sequence[float | None], scale: float = 1.0) -> str:
    """Of a sample, to the second digit of the latter; one value alone; how many are no number.

    Example:
        >>> mean_and_std([1.0, 3.0, None]), mean_and_std([2.0]), mean_and_std([None])
        ('2.0 ± 1.4 (1 lost)', '2.00', 'no number')
        >>> mean_and_std([0.588, 0.592])
        '0.5900 ± 0.0028'
    """
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return "no number"
    lost = f" ({len(values) - len(finite)} lost)" if len(finite) < len(values) else ""
    mean, std = fmean(finite) / scale, stdev(finite) / scale if len(finite) > 1 else 0.0
    decimals = 1 - math.floor(math.log10(std)) if std else 0
    if not std:
        return f"{number(mean)}{f' ± {number(0.0)}' if len(finite) > 1 else ''}{lost}"
    if decimals > _MOST_DECIMALS or abs(mean) >= 1e6:
        return f"{number(mean)} ± {number(std)}{lost}"
    return f"{mean:,.{max(decimals, 0)}f} ± {std:,.{max(decimals, 0)}f}{lost}".replace("-", "−")


def probability(p: float | None) -> str:
    """Two digits, a small one as a bound.

    Example:
        >>> probability(0.0312), probability(1e-7), probability(None)
        ('0.031', '< 0.0001', '–')
    """
    if p is None or not math.isfinite(p):
        return NONE
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}"


def p_equals(p: float) -> str:
    """As in a sentence.

    Example:
        >>> p_equals(0.0041), p_equals(1e-7)
        ('p = 0.004', 'p < 0.001')
    """
    return "p < 0.001" if p < 1e-3 else f"p = {p:.3f}"


def count(n: int, one: str, many: str = "") -> str:
    """A number with its noun.

    Example:
        >>> count(1, "seed"), count(12000, "seed"), count(2, "study", "studies")
        ('1 seed', '12,000 seeds', '2 studies')
    """
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def metric_name(metric: str) -> str:
    """Abbreviations in capitals.

    Example:
        >>> metric_name("mse"), metric_name("seconds for 50000 steps")
        ('MSE', 'seconds for 50000 steps')
    """
    return metric.upper() if metric.isalpha() and len(metric) <= 4 else metric
