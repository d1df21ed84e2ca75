"""Figures of results on a page: plotly's traces and layouts as plain dictionaries, a view a panel.

A trace has in "meta" what the page's script needs to choose among methods: "method" for all of it, or "methods" with
one name a point. A trace with "row" lies in the row of its method; the script renumbers rows when the choice
changes.
"""

import html
from collections.abc import Sequence
from typing import Any

from ordinal_entropy.results.figures import INK, Axis, Figure, Level, Panel, Series, tick

_MOST_STEPS = 120  # of a curve
_MOST_MARKERS = 20  # of a curve
_BAR = 5  # half the width of an end

Trace = dict[str, Any]


def views(figure: Figure) -> list[dict[str, Any]]:
    """Traces and layout of each panel."""
    return [_view(panel) for panel in figure.panels]


def _view(panel: Panel) -> dict[str, Any]:
    traces: list[Trace] = []
    for own in panel.series:
        if panel.rows:
            traces += _in_rows(own)
        elif own.line:
            traces += _line(own, panel.x)
        else:
            traces.append(_points(own))
    levels = [shape for level in panel.levels for shape in _shapes(level, bool(panel.rows))]
    layout: dict[str, Any] = {"xaxis": _axis(panel.x), "yaxis": _axis(panel.y), "shapes": levels}
    if panel.rows:
        del layout["yaxis"]
        layout["meta"] = {"rows": list(panel.rows), "clip": any(own.low for own in panel.series)}
    return {"traces": [*traces, *map(_key, panel.levels)], "layout": layout}


def _in_rows(own: Series) -> list[Trace]:
    """A trace a method, since methods are chosen by rows."""
    found = []
    for name in dict.fromkeys(own.methods):
        places = [k for k, method in enumerate(own.methods) if method == name]
        at = {"x": [own.x[k] for k in places], "y": [own.offset] * len(places)}  # the script adds the row
        trace = _marked(own) | at | {"hovertext": [_safe(f"{name}\n{own.texts[k]}") for k in places]}
        if own.low:
            x, low, high = [own.x[k] for k in places], [own.low[k] for k in places], [own.high[k] for k in places]
            trace["error_x"] = _bars(x, low, high, own.style.colour)
        found.append(trace | {"meta": {"method": name, "row": True, "offset": own.offset}})
    return found


def _points(own: Series) -> Trace:
    trace = _marked(own) | {"x": list(own.x), "y": list(own.y), "hovertext": [_safe(text) for text in own.texts]}
    if own.low:
        trace["error_y"] = _bars(own.y, own.low, own.high, own.style.colour)
    return trace | {"meta": {"methods": list(own.methods)}}


def _line(own: Series, x: Axis) -> list[Trace]:
    """A line, above its band if it has one; long ones are thinned."""
    kept = _thinned(len(own.x))
    at, middle = ([values[k] for k in kept] for values in (own.x, own.y))
    names, style = [own.methods[k] for k in kept], own.style
    one = len(set(names)) == 1
    if own.texts:
        said: Trace = {"hovertext": [_safe(own.texts[k]) for k in kept], "hoverinfo": "text"}
    else:
        numbers = f"{_safe(x.title)} %{{x:,.3~g}}" if x.from_zero else f"{_safe(x.title)} %{{x:,}}"
        said = {"hovertemplate": f"%{{fullData.name}}<br>{numbers}: %{{y:.3g}}<extra></extra>"}
    line = {
        "type": "scatter",
        "mode": "lines+markers" if own.texts or len(at) <= _MOST_MARKERS else "lines",
        "name": _safe(own.label),
        "x": at,
        "y": _rounded(middle),
        "line": {"color": style.colour, "dash": style.dash, "width": 2},
        "marker": {"color": style.colour, "symbol": style.marker, "size": 8 if own.texts else 6},
        "meta": {"method": names[0]} if one else {"methods": names},
    }
    if not own.low:
        return [line | said]
    low, high = ([values[k] for k in kept] for values in (own.low, own.high))
    band = {
        "type": "scatter",
        "mode": "lines",
        "x": [*at, *reversed(at)],
        "y": _rounded([*high, *reversed(low)]),
        "fill": "toself",
        "fillcolor": style.colour,
        "opacity": 0.15,
        "line": {"width": 0, "color": style.colour},
        "hoverinfo": "skip",
        "meta": {**({"method": names[0]} if one else {"methods": [*names, *reversed(names)]}), "band": True},
    }
    return [band, line | said]


def _marked(own: Series) -> Trace:
    """Points apart from each other."""
    colour, symbol = own.style.colour, own.style.marker
    if symbol == "ring":
        marker: Trace = {"color": "rgba(0,0,0,0)", "size": 7, "line": {"color": colour, "width": 1.3}}
    else:
        marker = {"color": colour, "symbol": symbol, "size": 11 if symbol == "star" else 10}
    return {"type": "scatter", "mode": "markers", "name": _safe(own.label), "hoverinfo": "text", "marker": marker}


def _bars(
    middle: Sequence[float], low: Sequence[float | None], high: Sequence[float | None], colour: str
) -> dict[str, Any]:
    return {
        "type": "data",
        "array": [None if end is None else end - value for value, end in zip(middle, high, strict=True)],
        "arrayminus": [None if end is None else value - end for value, end in zip(middle, low, strict=True)],
        "width": _BAR,
        "thickness": 2,
        "color": colour,
    }


def _shapes(level: Level, upright: bool) -> list[dict[str, Any]]:
    """A line across everything, behind it its band."""
    at, along = ("x", "y") if upright else ("y", "x")
    across = {f"{along}0": 0, f"{along}1": 1, f"{along}ref": "paper", "layer": "below"}
    line = {"color": INK, "width": 1.3, "dash": level.dash}
    found = [{"type": "line", f"{at}0": level.value, f"{at}1": level.value, "line": line, **across}]
    if level.low is not None:
        ends = {f"{at}0": level.low, f"{at}1": level.high}
        found.append({"type": "rect", **ends, "fillcolor": INK, "opacity": 0.08, "line": {"width": 0}, **across})
    return found


def _key(level: Level) -> Trace:
    """What stands in the legend for a line that is a shape: a trace without points."""
    line, nothing = {"color": INK, "dash": level.dash, "width": 1.3}, {"x": [None], "y": [None], "hoverinfo": "skip"}
    trace = {"type": "scatter", "mode": "lines", "name": _safe(level.label), "line": line, "marker": {"color": INK}}
    return trace | nothing | {"meta": {"key": True}}


def _axis(axis: Axis) -> dict[str, Any]:
    found: dict[str, Any] = {"title": {"text": _safe(axis.title)}, "tickformat": ","}
    if axis.log:
        found["type"] = "log"
    if axis.ticks:
        found |= {"tickvals": list(axis.ticks), "ticktext": [tick(value) for value in axis.ticks]}
    if axis.from_zero:
        found["rangemode"] = "tozero"
    return found


def _safe(text: str) -> str:
    """Plotly reads tags in texts."""
    return html.escape(text, quote=False).replace("\n", "<br>")


def _thinned(length: int) -> list[int]:
    """Evenly spaced places, the first and the last among them, no more than a page draws."""
    if length <= _MOST_STEPS:
        return list(range(length))
    return [round(k * (length - 1) / (_MOST_STEPS - 1)) for k in range(_MOST_STEPS)]


def _rounded(values: Sequence[Any]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
