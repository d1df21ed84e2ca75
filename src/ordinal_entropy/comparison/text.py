"""Numbers as a reader meets them."""

import math
import re
from collections.abc import Sequence
from statistics import fmean, stdev

NONE = "-"
_MOST_DECIMALS = 5


def number(value: float | None, scale: float = 1.0, *, sign: bool = False) -> str:
    """Three digits that count, in multiples of the scale; a dash for what is no number.

    Example:
        >>> number(-0.00123, 1e-3), number(0.5, sign=True), number(12345.6), number(4e-9), number(None)
        ('-1.23', '+0.50', '12,346', '4e-9', '-')
    """
    if value is None or not math.isfinite(value) or not math.isfinite(value / scale):
        return NONE
    value /= scale
    size, plus = abs(value), "+" if sign and value else ""
    if size and (size < 5e-4 or size >= 1e6):
        mantissa, exponent = f"{value:{plus}.2e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".")
        return f"{mantissa}e{int(exponent)}"
    decimals = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 0.1 or not size else 3 if size >= 0.01 else 4
    return f"{value:{plus},.{decimals}f}"


def times(scale: float) -> str:
    """How a scale is written behind a name or a number.

    Example:
        >>> times(1e-3), times(1.0)
        (' x 1e-3', '')
    """
    return "" if scale == 1 else f" x 1e{round(math.log10(scale))}"


def decimals(values: Sequence[float | None], scale: float = 1.0) -> int:
    """As many as published numbers were printed with, most likely: one, or two or three if fewer would round any.

    Example:
        >>> decimals([65.6, 105.0]), decimals([0.502, 0.49]), decimals([])
        (1, 3, 1)
    """
    numbers = [value / scale for value in values if value is not None and math.isfinite(value)]
    return next((n for n in (1, 2) if all(abs(each - round(each, n)) < 1e-9 for each in numbers)), 3)


def published(value: float | None, scale: float, decimals: int) -> str:
    """A number of a paper with that number of decimals.

    Example:
        >>> published(0.502, 1.0, 3), published(3e-3, 1e-3, 2), published(None, 1.0, 1)
        ('0.502', '3.00', '-')
    """
    return NONE if value is None or not math.isfinite(value) else f"{value / scale:,.{decimals}f}"


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
    return f"{mean:,.{max(decimals, 0)}f} ± {std:,.{max(decimals, 0)}f}{lost}"


def interval(
    difference: float, low: float | None, high: float | None, scale: float = 1.0
) -> tuple[str, str | None, str | None]:
    """A difference and its limits, all to the second digit of half the width; None for limits that are none.

    Example:
        >>> interval(-0.0008, -0.0599, 0.0583), interval(2.0, None, None)
        (('-0.001', '-0.060', '+0.058'), ('+2.00', None, None))
        >>> interval(-9e-4, -1.75e-3, -4.7e-5, 1e-3)
        ('-0.90', '-1.75', '-0.05')
    """
    if low is None or high is None or not (math.isfinite(low) and math.isfinite(high)):
        return number(difference, scale, sign=True), None, None
    width = (high - low) / (2 * scale)
    decimals = max(0, 1 - math.floor(math.log10(width))) if width > 0 else math.inf
    if decimals > _MOST_DECIMALS or max(abs(low), abs(high)) / scale >= 1e6:
        first, start, end = (number(each, scale, sign=True) for each in (difference, low, high))
    else:
        first, start, end = (f"{each / scale:+,.{decimals}f}" for each in (difference, low, high))
    return first, start, end


def share(part: float, whole: float) -> str:
    """A part of a whole in percent; "" of nothing.

    Example:
        >>> share(-0.5, 4.0), share(1.0, 0.0)
        ('-12.5%', '')
    """
    return f"{part / abs(whole):+.1%}" if whole and math.isfinite(part / whole) else ""


def probability(p: float | None) -> str:
    """Two digits, a small one as a bound.

    Example:
        >>> probability(0.0312), probability(1e-7), probability(None)
        ('0.031', '< 0.0001', '-')
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


def duration(seconds: float) -> str:
    """In words, to the two largest units.

    Example:
        >>> duration(0.42), duration(95), duration(3 * 3600 + 125), duration(math.nan)
        ('0.4 s', '1 min 35 s', '3 h 2 min', '-')
    """
    if not math.isfinite(seconds):
        return NONE
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def parsed_duration(text: str) -> float:
    """The seconds of a duration as people type it.

    Example:
        >>> parsed_duration("20m"), parsed_duration("1h30m"), parsed_duration("90s"), parsed_duration("45")
        (1200.0, 5400.0, 90.0, 45.0)
        >>> parsed_duration("soon")
        Traceback (most recent call last):
        ValueError: expected a duration like 20m, 90s or 1h30m, got 'soon'
    """
    parts = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?", text.strip().lower())
    if parts is None or not any(parts.groups()):
        raise ValueError(f"expected a duration like 20m, 90s or 1h30m, got {text!r}")
    hours, minutes, seconds = (float(each or 0) for each in parts.groups())
    return 3600 * hours + 60 * minutes + seconds
