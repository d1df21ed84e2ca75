"""Figures of results in print: panels side by side, one legend below."""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordinal_entropy.figures.saving import blank, plain, save
from ordinal_entropy.results.figures import INK, Axis, Figure, Panel, Series, tick

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MARKERS = {
    "circle": "o", "square": "s", "triangle-up": "^", "diamond": "D", "triangle-down": "v", "cross": "P", "x": "X",
    "star": "*", "ring": "o",
}  # fmt: skip
_DASHES: dict[str, Any] = {
    "solid": "-", "dash": "--", "dashdot": "-.", "dot": ":", "longdash": (0, (7, 2)),
    "longdashdot": (0, (3, 1, 1, 1, 1, 1)),
}  # fmt: skip
_GREY = "0.4"
_PER_INCH = 14  # letters of a caption


def draw(figure: Figure, path: Path, *, title: str = "") -> None:
    """Draws all panels of a figure.

    Args:
        figure: what is drawn.
        path: of the PNG; an SVG is written beside it.
        title: above, in place of the figure's own.
    """
    panels, across = figure.panels, min(figure.columns, max(len(figure.panels), 1))
    down, rows = -(-len(panels) // across), max((len(panel.rows) for panel in panels), default=0)
    width = 7.0 if across == 1 else 1 + (3.2 if not rows else 3.75) * across
    height = 2.1 + 0.45 * rows if rows else 5.0 if down == across == 1 else 1.2 + 2.5 * down
    drawn = blank((width, height))
    axes: list[Axes] = []
    for place, panel in enumerate(panels):
        before = panels[place - 1] if place % across else None
        alike = before is not None and _kinds(before) == _kinds(panel)
        own = drawn.add_subplot(down, across, place + 1, sharey=axes[-1] if alike else None)
        axes.append(own)
        _draw_panel(own, panel)
        if len(panels) > 1:
            own.set_title(panel.title, fontsize=10)
        if before is None or before.y.title != panel.y.title:
            own.set_ylabel(panel.y.title)
        if panel.rows and before is not None:
            own.tick_params(labelleft=False)
        if panel.rows or place // across == down - 1:
            own.set_xlabel(panel.x.title)
    caption = textwrap.fill(figure.caption, int(width * _PER_INCH))
    drawn.suptitle(f"{title or figure.title}\n{caption}", fontsize=10, x=0.01, ha="left", linespacing=1.5)
    keys = {text: key for own in axes for key, text in zip(*own.get_legend_handles_labels(), strict=True)}
    if keys:
        columns = min(len(keys), 3 if rows else 2 if across == 1 else 5)
        placed: Any = {"loc": "outside lower center", "ncols": columns, "handlelength": 3.5}
        drawn.legend(list(keys.values()), list(keys), frameon=False, fontsize=9, **placed)
    save(drawn, path)


def _kinds(panel: Panel) -> tuple[str, list[str]]:
    """Of panels that can be compared: what is on the vertical axis, and whose."""
    return panel.y.title, [own.label for own in panel.series]


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    across, along = (axes.axvline, axes.axvspan) if panel.rows else (axes.axhline, axes.axhspan)
    for level in panel.levels:
        if level.low is not None and level.high is not None:
            along(level.low, level.high, color="0.5", alpha=0.18, linewidth=0)
        across(level.value, color=INK, linewidth=1.2, linestyle=_DASHES[level.dash], label=level.label)
    for own in panel.series:
        (_draw_line if own.line else _draw_points)(axes, own, panel.rows)
    if not panel.series:
        axes.text(0.5, 0.5, "no number", ha="center", va="center", transform=axes.transAxes, color=_GREY)
    _scale(axes, "x", panel.x)
    _scale(axes, "y", panel.y)
    if panel.rows:
        axes.set_yticks(range(len(panel.rows)), panel.rows)
        axes.set_ylim(len(panel.rows) - 0.5, -0.5)
    plain(axes, axis="x" if panel.rows else "both")


def _draw_line(axes: "Axes", own: Series, _: Sequence[str]) -> None:
    """A line with its band, whose edges can be told apart in grey as well."""
    look: Any = {"color": own.style.colour, "linestyle": _DASHES[own.style.dash]}
    if own.low:
        axes.fill_between(own.x, own.low, own.high, color=own.style.colour, alpha=0.14, linewidth=0)  # type: ignore[arg-type]
        for edge in (own.low, own.high):
            axes.plot(own.x, edge, linewidth=0.5, **look)  # type: ignore[arg-type]
    axes.plot(
        own.x,
        own.y,
        marker=_MARKERS[own.style.marker],
        markevery=max(1, len(own.x) // 8),
        markersize=5,
        linewidth=1.7,
        label=own.label,
        **look,
    )


def _draw_points(axes: "Axes", own: Series, rows: Sequence[str]) -> None:
    """Points with bars, along the rows if there are such."""
    y = [rows.index(name) + own.offset for name in own.methods] if rows else own.y
    star, ring = own.style.marker == "star", own.style.marker == "ring"
    look: Any = {"color": own.style.colour, "marker": _MARKERS[own.style.marker], "linestyle": "none", "zorder": 5}
    look |= {"markersize": 11 if star else 4 if ring else 6, "fillstyle": "none" if ring else "full"}
    if own.low:
        middle = own.x if rows else own.y
        nothing = float("nan")
        each = list(zip(middle, own.low, own.high, strict=True))
        below = [nothing if low is None else max(value - low, 0.0) for value, low, _ in each]
        above = [nothing if high is None else max(high - value, 0.0) for value, _, high in each]
        look |= {"xerr" if rows else "yerr": [below, above], "capsize": 4, "linewidth": 1.6}
        axes.errorbar(own.x, y, label=own.label, **look)
    else:
        axes.plot(own.x, y, label=own.label, **look)


def _scale(axes: "Axes", which: str, axis: Axis) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    own = axes.xaxis if which == "x" else axes.yaxis
    limit = axes.set_xlim if which == "x" else axes.set_ylim
    if axis.log:
        (axes.set_xscale if which == "x" else axes.set_yscale)("log")
        own.set_minor_formatter(NullFormatter())
    if axis.from_zero:
        limit(0)
    if axis.ticks:
        low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
        own.set_ticks([value for value in axis.ticks if low <= value <= high])
    own.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
