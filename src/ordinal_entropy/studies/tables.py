"""A summary as tables for a terminal; needs the [train] extra (rich)."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from rich import box
from rich.table import Table
from rich.text import Text

from ordinal_entropy import comparison

_POINTS = {"last": "last step", "best_validation": "best on\nvalidation", "best_test": "best on test"}


def point_headings(paper_at: str) -> list[str]:
    """How the three steps are called at which a run is scored, and which of them the paper takes.

    Example:
        >>> [heading.split() for heading in point_headings("best_test")]
        [['last', 'step'], ['best', 'on', 'validation'], ['best', 'on', 'test,', 'as', 'the', 'paper']]
    """
    return [f"{heading},\nas the paper" if at == paper_at else heading for at, heading in _POINTS.items()]


def scores_table(summary: Mapping[str, Any], *, scale: float = 1.0, paper_at: str = "best_test") -> Table:
    """Mean and standard deviation over the runs at three steps, beside the paper's; then rows that are its alone."""
    paper = summary.get("paper", {})
    table = _table()
    for heading in [*point_headings(paper_at), *(["paper"] if paper else [])]:
        table.add_column(heading, justify="right")
    digits = _decimals([score["mean"] / scale for score in paper.values()])
    for name, score in summary["methods"].items():
        row = [mean_and_std(score["at"][at], scale) for at in _POINTS]
        if paper:
            row.append(_published(paper.get(name), scale, digits))
        table.add_row(Text(name), *row)
    for name in [name for name in paper if name not in summary["methods"]]:
        table.add_row(Text(name), *["-"] * len(_POINTS), _published(paper[name], scale, digits), style="dim")
    return table


def details_table(summary: Mapping[str, Any], names: Mapping[str, str]) -> Table | None:
    """Further scores, best on validation: mean and standard deviation over the runs, the paper's in the row below.

    Rows that are the paper's alone come last.

    Args:
        summary: with "details" and, where the paper has any of them, "paper_details".
        names: of the scores, by the headings of their columns.

    Returns:
        The table; None where the runs have none of these scores.
    """
    table = _table()
    for heading in names:
        table.add_column(heading, justify="right")
    paper = summary.get("paper_details", {})
    digits = _decimals([own[name] for own in paper.values() for name in names.values() if name in own])
    details = summary.get("details", {})
    for variant, points in details.items():
        own = points["best_validation"]
        if any(name not in own for name in names.values()):
            return None
        table.add_row(Text(variant), *(mean_and_std(own[name], 1.0, fine=True) for name in names.values()))
        _add_published(table, "  paper", paper.get(variant, {}), names, digits)
    for name in [name for name in paper if details and name not in details]:
        _add_published(table, name, paper[name], names, digits)
    return table if table.row_count else None


def paired_table(summary: Mapping[str, Any], *, scale: float = 1.0) -> Table:
    """Each row's paired difference from the baseline, and the ratio of their standard deviations over runs.

    Of several rows the p-values are those after Holm's adjustment, with the unadjusted ones beside them.
    """
    table = _table()
    adjusted, several = comparison.adjusted(summary), len(summary["paired"]) > 1
    for heading in ("difference", "95% interval", *(["p after\nHolm", "raw p"] if several else ["p"])):
        table.add_column(heading, justify="right")
    for heading in ("std over\nbaseline's", "p of\nthat"):
        table.add_column(heading, justify="right")
    for name, found in summary["paired"].items():
        spread = summary.get("spread", {}).get(name, {})
        table.add_row(
            Text(name),
            *difference_and_interval(found, scale),
            probability(adjusted[name]),
            *([probability(found["p_value"])] if several else []),
            _number(spread.get("ratio"), 1.0),
            probability(spread.get("p_value")),
        )
    return table


def cost_table(summary: Mapping[str, Any]) -> Table:
    """Seconds and megabytes against M, beside the paper's."""
    table = _table()
    for heading in ("seconds", "over the\nbaseline's", "MB", "paper:\nseconds", "over the\nbaseline's", "MB"):
        table.add_column(heading, justify="right")
    paper, base = summary["paper"], summary["methods"][summary["baseline"]]["mean"]
    published_base = paper.get(summary["baseline"], {}).get("seconds")
    for name, score in summary["methods"].items():
        published = paper.get(name, {})
        megabytes = summary["memory_mb"][name]
        seconds = published.get("seconds")
        table.add_row(
            Text(name),
            f"{_seconds(score['mean'])} ± {_seconds(score['std'])}",
            f"{score['mean'] / base:.2f}",
            "-" if megabytes is None else f"{megabytes:,.0f}" if megabytes >= 100 else f"{megabytes:.1f}",
            "-" if seconds is None else f"{seconds:,.0f}",
            f"{seconds / published_base:.2f}" if seconds and published_base else "-",
            f"{published['megabytes']:,.0f}" if published else "-",
        )
    return table


def _seconds(value: float) -> str:
    return f"{value:.1f}" if value < 1000 else f"{value:,.0f}"


def times(scale: float) -> str:
    """How a scale is written behind a metric: " x 1e-3".

    Example:
        >>> times(1e-3), times(1.0)
        (' x 1e-3', '')
    """
    return "" if scale == 1 else f" x {scale:.0e}".replace("e-0", "e-")


def probability(p: float | None) -> str:
    """Two digits, small ones as a bound.

    Example:
        >>> probability(0.0312), probability(1e-7), probability(None)
        ('0.031', '<0.0001', '-')
    """
    if p is None or math.isnan(p):
        return "-"
    return "<0.0001" if p < 1e-4 else f"{p:.2g}"


def difference_and_interval(found: Mapping[str, Any], scale: float = 1.0) -> tuple[str, str]:
    """All three to the second digit of half the interval's width.

    Example:
        >>> difference_and_interval({"difference": -0.0008, "ci_low": -0.0599, "ci_high": 0.0583})
        ('-0.001', '-0.060 to +0.058')
        >>> difference_and_interval({"difference": 2.0, "ci_low": None, "ci_high": None})
        ('+2.00', '- to -')
        >>> difference_and_interval({"difference": 2.0, "ci_low": -math.inf, "ci_high": math.inf})[0]
        '+2.00'
    """
    numbers = [found["difference"], found["ci_low"], found["ci_high"]]
    width = (numbers[2] - numbers[1]) / (2 * scale) if None not in numbers else 0.0
    decimals = max(0, 1 - math.floor(math.log10(width))) if 0 < width < math.inf else math.inf
    if decimals <= _MOST_DECIMALS:
        difference, low, high = (f"{number / scale:+,.{decimals}f}" for number in numbers)
    else:  # no width, no end to it, or one far below the numbers of the table
        difference, low, high = (_number(number, scale, sign=True) for number in numbers)
    return difference, f"{low} to {high}"


_MOST_DECIMALS = 5
_NAME = len("classification")  # a name that is not folded


def plain(*headings: str, justify: Literal["left", "right"] = "right") -> Table:
    """A table without rows: names, then columns under the headings."""
    table = _table()
    for heading in headings:
        table.add_column(heading, justify=justify, overflow="fold")
    return table


def _table() -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("", justify="left", overflow="fold", min_width=_NAME)
    return table


def _add_published(table: Table, title: str, paper: Mapping[str, float], names: Mapping[str, str], digits: int) -> None:
    """A row of the paper's scores, if it has any of them."""
    if any(name in paper for name in names.values()):
        row = [f"{paper[name]:.{digits}f}" if name in paper else "-" for name in names.values()]
        table.add_row(Text(title), *row, style="dim")


def mean_and_std(values: list[float | None], scale: float = 1.0, *, fine: bool = False) -> str:
    """Two decimals; three of means below 1, where these are wanted; one value alone.

    Example:
        >>> mean_and_std([1.0, 3.0, None])
        '2.00 ± 1.41 (1 lost)'
    """
    found = [value / scale for value in values if value is not None]
    if not found:
        return "no number"
    mean = sum(found) / len(found)
    if len(values) == 1:
        return f"{mean:.3f}" if fine and abs(mean) < 1 else _digits(mean)
    std = (sum((value - mean) ** 2 for value in found) / (len(found) - 1)) ** 0.5 if len(found) > 1 else 0.0
    lost = f" ({len(values) - len(found)} lost)" if len(found) < len(values) else ""
    if fine and abs(mean) < 1:
        return f"{mean:.3f} ± {std:.3f}{lost}"
    return f"{_digits(mean)} ± {_digits(std)}{lost}"


def _decimals(numbers: Sequence[float]) -> int:
    """As many as the paper prints of them: one, or two or three if fewer would round any."""
    return next((n for n in (1, 2) if all(abs(number - round(number, n)) < 1e-9 for number in numbers)), 3)


def _published(score: Mapping[str, Any] | None, scale: float, digits: int) -> str:
    if score is None:
        return "-"
    mean = f"{score['mean'] / scale:.{digits}f}"
    return mean if score["std"] is None else f"{mean} ± {score['std'] / scale:.2g}"


def _number(value: float | None, scale: float, *, sign: bool = False) -> str:
    if value is None:
        return "-"
    return _digits(value / scale, sign=sign)


def _digits(value: float, *, sign: bool = False) -> str:
    plus = "+" if sign else ""
    size = abs(value)
    if size and (size < 0.005 or size >= 1e5):
        return f"{value:{plus}.1e}"
    return f"{value:{plus}.2f}" if size < 100 else f"{value:{plus},.0f}"
