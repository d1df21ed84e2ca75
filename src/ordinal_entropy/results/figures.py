"""What a figure is made of: series, axes, panels, words. Drawn by matplotlib for print and by plotly on a page."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ordinal_entropy.results.tables import Table

ACCENT, MUTED, INK = "#0072B2", "#7a7f87", "#1c1e21"

Marker = Literal["circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "x", "star", "ring"]
Dash = Literal["solid", "dash", "dashdot", "dot", "longdash", "longdashdot"]

_LOG_FROM = 20.0  # largest over smallest number from which an axis is logarithmic


@dataclass(frozen=True)
class Style:
    """How a series is told apart: by colour, by marker and by dash."""

    colour: str
    marker: Marker = "circle"
    dash: Dash = "solid"


MEAN, ONE, PAPER = (
    Style(ACCENT),
    Style(MUTED, "ring"),
    Style(INK, "star"),
)  # in rows: a mean, a run, a number of a paper

# Wong's palette; each colour has a marker and a dash of its own.
_STYLES = (
    Style("#0072B2", "circle", "solid"),
    Style("#D55E00", "square", "dash"),
    Style("#009E73", "triangle-up", "dashdot"),
    Style("#CC79A7", "diamond", "dot"),
    Style("#E69F00", "triangle-down", "longdash"),
    Style("#56B4E9", "cross", "longdashdot"),
    Style(INK, "x", "solid"),
)


def style(place: int) -> Style:
    """Of the method at a place among the others; beyond the seventh, colours come back with other markers and dashes.

    Example:
        >>> style(0)
        Style(colour='#0072B2', marker='circle', dash='solid')
        >>> style(7)
        Style(colour='#0072B2', marker='square', dash='dash')
    """
    again, own = divmod(place, len(_STYLES))
    other = _STYLES[(own + again) % len(_STYLES)]
    return replace(other, colour=_STYLES[own].colour)


@dataclass(frozen=True)
class Series:
    """Points of one kind, with what surrounds each: joined by a line with a band, or apart with bars."""

    label: str  # in the legend
    style: Style
    methods: Sequence[str]  # of each point
    x: Sequence[float]
    y: Sequence[float] = ()  # none in rows, where a point lies in the row of its method
    low: Sequence[float | None] = ()  # ends of bands and bars: of y, in rows of x; None: a point without
    high: Sequence[float | None] = ()
    texts: Sequence[str] = ()  # what a point says on a page when it is pointed at; none: its numbers
    line: bool = False
    offset: float = 0.0  # in rows: from the middle of the row, downwards


@dataclass(frozen=True)
class Level:
    """A reference line across the panel; upright in rows."""

    value: float
    label: str
    low: float | None = None  # ends of a band around it
    high: float | None = None
    dash: Dash = "dash"


@dataclass(frozen=True)
class Axis:
    """An axis with its unit; numbers stand at the ticks, if there are any."""

    title: str
    log: bool = False
    ticks: Sequence[float] = ()
    from_zero: bool = False


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    x: Axis
    y: Axis
    series: Sequence[Series]
    levels: Sequence[Level] = ()
    title: str = ""  # among several panels
    rows: Sequence[str] = ()  # names in place of numbers on the vertical axis, the first on top


@dataclass(frozen=True)
class Figure:
    """Panels, side by side in print and one at a time on a page; their words; and the same in numbers."""

    title: str
    caption: str
    panels: Sequence[Panel]
    table: Table
    columns: int = 1  # panels side by side


def scaled(title: str, values: Sequence[float], log_from: float = _LOG_FROM, ends: Sequence[float] = ()) -> Axis:
    """An axis that is logarithmic where its numbers are far apart, with ticks at 1, 2 and 5, or at decades.

    Args:
        title: of the axis.
        values: that are drawn.
        log_from: largest over smallest of them from which the axis is logarithmic; it is not where one is not positive.
        ends: of bands, which may be further apart.

    Example:
        >>> scaled("MSE", [1.0, 30.0]).ticks[:4], scaled("MSE", [1.0, 2.0]).log
        ((1.0, 2.0, 5.0, 10.0), False)
    """
    if not values or min(values) <= 0 or max(values) / min(values) < log_from:
        return Axis(title)
    reach = [*values, *(end for end in ends if end > 0)]
    first, last = (math.floor(math.log10(value)) for value in (min(reach), max(reach)))
    digits = (1,) if last - first > 2 else (1, 2, 5)
    return Axis(title, True, tuple(digit * 10.0**power for power in range(first, last + 2) for digit in digits))


def tick(value: float) -> str:
    """A number on an axis, as short as it can be.

    Example:
        >>> tick(0.5), tick(1e-5), tick(2000.0), tick(2e6)
        ('0.5', '1e-5', '2,000', '2e6')
    """
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:g}"
