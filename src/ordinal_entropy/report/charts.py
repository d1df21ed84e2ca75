"""Charts of a page: plotly's figures as plain dictionaries, made from the numbers of ``figures``.

A trace has in "meta" what the page's script needs to choose among methods: "method" for all of it, or "methods" with
one name a point. A trace with "row" has one row for each method, which the script numbers anew when the choice changes.
"""

import html
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ordinal_entropy import comparison
from ordinal_entropy.comparison.text import NONE, interval, metric_name, number, probability, times
from ordinal_entropy.comparison.verdicts import unit
from ordinal_entropy.figures import cost, differences, entropy, sweep
from ordinal_entropy.figures import curves as training_curves
from ordinal_entropy.results.tables import Row, Table

ACCENT, MUTED, INK = "#0072B2", "#7a7f87", "#1c1e21"  # the page's script has others for them in the dark
_SYMBOLS = {"o": "circle", "s": "square", "^": "triangle-up", "D": "diamond", "v": "triangle-down", "P": "cross"}
_DASHES = ("solid", "dash", "dashdot", "dot", "longdash", "longdashdot")
_MOST_STEPS = 120  # of a curve
_LOG_FROM = 20.0  # largest over smallest number from which an axis is logarithmic; that of curves, which begin high:
_CURVES_LOG_FROM = 5.0
_PARTS = {"test": "test rows", "validation": "validation rows", "train": "training rows"}
_ENTROPY_PARTS = {"test": "test rows", "train": "training rows"}

Trace = dict[str, Any]


class View(NamedTuple):
    """One of several ways to look at a chart."""

    label: str
    traces: list[Trace]
    layout: dict[str, Any]


class Chart(NamedTuple):
    """A figure, and the same as a table."""

    title: str
    caption: str
    views: list[View]
    table: Table


def paired_differences(summary: Mapping[str, Any], scale: float) -> Chart | None:
    """One row a method, zero being what it is held to: a dot a seed, the mean and its 95% CI."""
    found = differences.differences(summary)
    if not found:
        return None
    traces: list[Trace] = []
    adjusted, holm = comparison.adjusted(summary), " after Holm's correction" if len(summary["paired"]) > 1 else ""
    shown = {name: interval(own.mean, own.low, own.high, scale) for name, own in found.items()}
    covered = {name: NONE if low is None else f"{low} to {high}" for name, (_, low, high) in shown.items()}
    for row, (name, own) in enumerate(found.items()):
        values = [value / scale for value in own.seeds]
        said = [f"{_safe(name)}<br>one {unit(summary)}: {number(value, sign=True)}" for value in values]
        traces.append(_dots(name, row, values, said, offset=0.2, name=f"one {unit(summary)}", first=row == 0))
        mean, low, high = (value / scale for value in (own.mean, own.low, own.high))
        p = f"p{holm} {probability(adjusted[name])}"
        said = [f"{_safe(name)}<br>mean {shown[name][0]}, 95% CI {covered[name]}, {p}"]
        trace = _means(name, row, mean, said, name="mean and 95% CI", first=row == 0)
        trace["error_x"] = {
            "type": "data",
            "array": [high - mean],
            "arrayminus": [mean - low],
            "width": 5,
            "thickness": 2,
        }
        trace["error_x"]["color"] = ACCENT
        traces.append(trace)
    base = "its baseline" if summary.get("held_to") else _base(summary)
    side = "left" if summary["lower_is_better"] else "right"
    metric = metric_name(summary["metric"])
    layout = {
        "xaxis": {"title": {"text": f"{_safe(metric)}{times(scale)} minus that of {_safe(base)}"}},
        "shapes": [_zero_line()],
        "meta": {"rows": list(found), "clip": True},
    }
    rows = [Row(name, [shown[name][0], covered[name]]) for name in found]
    caption = f"{side.capitalize()} of the line is better.{_at(summary)}"
    table = Table(f"Differences{times(scale)}", ["mean", "95% CI"], rows)
    return Chart(
        f"Differences from {base}, {unit(summary)} by {unit(summary)}", caption, [View("", traces, layout)], table
    )


def scores(summary: Mapping[str, Any], scale: float) -> Chart:
    """One row a method: a dot a seed, their mean, and the paper's."""
    methods, paper = summary["methods"], summary.get("paper") or {}
    traces: list[Trace] = []
    everything, starred = [], False
    for row, (name, own) in enumerate(methods.items()):
        values = [value / scale for value in own["values"] if value is not None]
        everything += values
        said = [f"{_safe(name)}<br>one run: {number(value)}" for value in values]
        traces.append(_dots(name, row, values, said, offset=0.2, name="one run", first=row == 0))
        if own.get("mean") is not None:
            mean = own["mean"] / scale
            said = [f"{_safe(name)}<br>mean {number(mean)}"]
            traces.append(_means(name, row, mean, said, name="mean", first=row == 0))
        theirs = paper.get(name, {}).get("mean")
        if theirs is not None:
            said = [f"{_safe(name)}<br>the paper: {number(theirs, scale)}"]
            trace = _means(name, row, theirs / scale, said, name="the paper", first=not starred)
            trace["marker"] = {"color": INK, "symbol": "star", "size": 11}
            everything.append(theirs / scale)
            traces.append(trace)
            starred = True
    metric = metric_name(summary["metric"])
    layout = {
        "xaxis": {"title": {"text": f"{_safe(metric)}{times(scale)}"}, **_scaled(everything)},
        "meta": {"rows": list(methods)},
    }
    rows = [Row(name, [", ".join(number(value, scale) for value in own["values"])]) for name, own in methods.items()]
    table = Table(f"Scores of the runs{times(scale)}", ["one a seed"], rows)
    return Chart("Scores, run by run", _at(summary).strip(), [View("", traces, layout)], table)


def sweeps(summary: Mapping[str, Any], scale: float) -> list[Chart]:
    """Scores against each key of the recipe that takes three numbers or more: a line and a band for each series."""
    variants = summary.get("variants") or {}
    found = []
    for key in _numeric_keys(variants):
        others = [name for name in ("method", *_keys(variants)) if name != key]
        inside = [changes for changes in variants.values() if changes.get(key) is not None]
        series = next((name for name in others if len({str(changes.get(name)) for changes in inside}) > 1), None)
        found.append(_sweep(summary, key, series, scale))
    return found


def _sweep(summary: Mapping[str, Any], key: str, series: str | None, scale: float) -> Chart:
    lines = sweep.lines(summary, key, series)
    traces: list[Trace] = []
    rows, levels = [], []
    for place, (of, line) in enumerate(lines.items()):
        names = [_variant(summary, key, value, series, of) for value in line.places]
        label = _safe(of or str(summary["variants"][names[0]].get("method", "")))
        means, spreads = [m / scale for m in line.means], [s / scale for s in line.stds]
        low, high = ([m + way * s for m, s in zip(means, spreads, strict=True)] for way in (-1, 1))
        levels += means
        colour, symbol, dash = _look(place)
        said = [f"{_safe(name)}<br>{number(m)} ± {number(s)}" for name, m, s in zip(names, means, spreads, strict=True)]
        traces.append(_band(line.places, low, high, colour, {"methods": [*names, *reversed(names)]}))
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers",
                "name": label,
                "x": line.places,
                "y": means,
                "hovertext": said,
                "hoverinfo": "text",
                "line": {"color": colour, "dash": dash, "width": 2},
                "marker": {"color": colour, "symbol": symbol, "size": 8},
                "meta": {"methods": names},
            }
        )
        rows += [Row(name, [f"{number(m)} ± {number(s)}"]) for name, m, s in zip(names, means, spreads, strict=True)]
    traces += _paper_points(summary, key, scale)
    shapes = []
    base = summary["methods"][_base(summary)].get("mean")
    if base is not None:
        levels.append(base / scale)
        shapes = [_level(base / scale)]
    metric = metric_name(summary["metric"])
    places = sorted({place for line in lines.values() for place in line.places})
    ticks = {"tickvals": places, "ticktext": [f"{place:g}" for place in places]}
    layout = {
        "xaxis": {"title": {"text": _safe(key)}, **_scaled(places, 1.0), **ticks},
        "yaxis": {"title": {"text": f"{_safe(metric)}{times(scale)}"}, **(_scaled(levels) or _from_zero(levels))},
        "shapes": shapes,
    }  # fmt: skip
    caption = f"Mean and standard deviation over the runs; the dashed line is the baseline.{_at(summary)}"
    table = Table(f"Scores against {key}{times(scale)}", ["mean ± standard deviation"], rows)
    return Chart(f"Scores against {key}", caption, [View("", traces, layout)], table)


def curves(content: Mapping[str, Any], names: Sequence[str], metric: str, scale: float) -> Chart | None:
    """Scores during training, the median over the runs as a line and their range as a band."""
    steps = content["steps"]
    kept = _thinned(len(steps))
    views, rows = [], []
    for part, label in _PARTS.items():
        traces: list[Trace] = []
        levels: list[float] = []
        for place, name in enumerate(names):
            found = training_curves.course(content, name, part) if _has(content, part) else None
            if found is None:
                continue
            low, middle, high = ([values[k] / scale for k in kept] for values in found)
            at = [steps[k] for k in kept]
            levels += [value for value in middle if value > 0]
            traces += _line_with_band(name, place, at, low, middle, high, at_what(content))
            if part == "test":
                few = [kept[round(k * (len(kept) - 1) / 5)] for k in range(6)] if len(kept) > 6 else kept
                rows.append(Row(name, [number(found.middle[k], scale) for k in few]))
                headings = [f"{at_what(content)} {steps[k]:,}" for k in few]
        if traces:
            layout = {
                "xaxis": {"title": {"text": at_what(content)}},
                "yaxis": {
                    "title": {"text": f"{_safe(metric_name(metric))}{times(scale)}"},
                    **_scaled(levels, _CURVES_LOG_FROM),
                },
            }
            views.append(View(label, traces, layout))
    if not rows:
        return None
    table = Table(f"Median test score over the runs{times(scale)}", headings, rows)
    caption = "The line is the median over the runs, the band their range. Drag to zoom, double-click to go back."
    return Chart("Scores during training", caption, views, table)


def entropies(content: Mapping[str, Any], names: Sequence[str]) -> Chart | None:
    """Estimates of the entropy of the features after every epoch: mean over the runs, and their range."""
    epochs, views, rows = content["epochs"], [], []
    time, ends = at_what({"steps": epochs}), []
    for estimator, label in entropy.LABELS.items():
        for part, images in _ENTROPY_PARTS.items():
            traces: list[Trace] = []
            for place, name in enumerate(names):
                found = entropy.band(content, name, part, estimator)
                if found is not None:
                    traces += _line_with_band(name, place, epochs, found.low, found.mean, found.high, time)
                    if part == "test":
                        ends.append((name, estimator, f"{number(found.mean[0])} → {number(found.mean[-1])}"))
            if traces:
                layout = {"xaxis": {"title": {"text": time}}, "yaxis": {"title": {"text": label}}}
                views.append(View(f"{estimator}, {images}", traces, layout))
    for name in dict.fromkeys(name for name, _, _ in ends):
        own = {estimator: text for each, estimator, text in ends if each == name}
        rows.append(Row(name, [own.get(estimator, "") for estimator in entropy.LABELS]))
    if not views:
        return None
    table = Table(f"Test rows, after the first → the last {time}", list(entropy.LABELS.values()), rows)
    caption = "Of the features of fixed rows. The line is the mean over the runs, the band their range."
    return Chart("Entropy of the features during training", caption, views, table)


def costs(summary: Mapping[str, Any]) -> Chart:
    """Time and memory over the baseline's, in percent, beside the paper's."""
    views, rows = [], []
    for what, own in cost.increases(summary).items():
        traces: list[Trace] = []
        told = [False, False]
        for row, (name, pair) in enumerate(own.items()):
            for place, label in enumerate(("measured", "the paper")):
                value = pair[place]
                if value is None:
                    continue
                said = [f"{_safe(name)}<br>{label}: {number(value, sign=True)}%"]
                trace = _means(name, row, value, said, name=label, first=not told[place])
                if place:
                    trace["marker"] = {"color": INK, "symbol": "star", "size": 11}
                traces.append(trace)
                told[place] = True
            rows.append(Row(f"{name}, {what}", [number(value, sign=True) for value in pair]))
        layout = {
            "xaxis": {"title": {"text": f"{what}, % over the baseline's"}},
            "shapes": [_zero_line()],
            "meta": {"rows": list(own)},
        }
        if traces:
            views.append(View(what, traces, layout))
    table = Table("Percent over the baseline's", ["measured", "the paper"], rows)
    return Chart("Time and memory over the baseline's", "", views, table)


def at_what(content: Mapping[str, Any]) -> str:
    """Whether curves count epochs, from 1 on one by one, or steps.

    Example:
        >>> at_what({"steps": [1, 2, 3]}), at_what({"steps": [0, 1000]})
        ('epoch', 'step')
    """
    steps = list(content["steps"])
    return "epoch" if steps == list(range(1, len(steps) + 1)) else "step"


def colour(place: int) -> str:
    """Of the method at a place among the others, in all figures that tell methods apart by colours.

    Example:
        >>> colour(0), colour(0) == colour(7)
        ('#0072B2', True)
    """
    return _look(place)[0]


def _safe(text: str) -> str:
    """Plotly reads tags in texts."""
    return html.escape(text, quote=False)


def _look(place: int) -> tuple[str, str, str]:
    own, marker, _ = entropy.LOOKS[place % len(entropy.LOOKS)]
    return own if own != "#000000" else INK, _SYMBOLS.get(marker, "x"), _DASHES[place % len(_DASHES)]


def line(name: str, place: int, x: Sequence[float], y: Sequence[float], said: Sequence[str]) -> Trace:
    """Points of a method joined by a line, in the look of its place."""
    own, symbol, dash = _look(place)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": list(x),
        "y": list(y),
        "name": _safe(name),
        "hovertext": [f"{_safe(name)}<br>{each}" for each in said],
        "hoverinfo": "text",
        "line": {"color": own, "dash": dash, "width": 2},
        "marker": {"color": own, "symbol": symbol, "size": 7},
        "meta": {"method": name},
    }


def _dots(
    method: str, row: int, values: list[float], said: list[str], *, offset: float, name: str, first: bool
) -> Trace:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "showlegend": first,
        "legendgroup": name,
        "x": values,
        "y": [row + offset] * len(values),
        "hovertext": said,
        "hoverinfo": "text",
        "marker": {"color": "rgba(0,0,0,0)", "size": 7, "line": {"color": MUTED, "width": 1.3}},
        "meta": {"method": method, "row": True, "offset": offset},
    }


def _means(method: str, row: int, value: float, said: list[str], *, name: str, first: bool) -> Trace:
    trace = _dots(method, row, [value], said, offset=0.0, name=name, first=first)
    return trace | {"marker": {"color": ACCENT, "size": 10}}


def _line_with_band(
    name: str,
    place: int,
    at: Sequence[float],
    low: Sequence[float],
    middle: Sequence[float],
    high: Sequence[float],
    counted: str,
) -> list[Trace]:
    colour, symbol, dash = _look(place)
    line = {
        "type": "scatter",
        "mode": "lines" if len(at) > 20 else "lines+markers",
        "name": _safe(name),
        "x": list(at),
        "y": _rounded(middle),
        "hovertemplate": f"%{{fullData.name}}<br>{counted} %{{x:,}}: %{{y:.3g}}<extra></extra>",
        "line": {"color": colour, "dash": dash, "width": 2},
        "marker": {"color": colour, "symbol": symbol, "size": 6},
        "meta": {"method": name},
    }
    return [_band(at, low, high, colour, {"method": name}), line]


def _band(at: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str, meta: dict[str, Any]) -> Trace:
    return {
        "type": "scatter",
        "mode": "lines",
        "x": [*at, *reversed(at)],
        "y": _rounded([*high, *reversed(low)]),
        "fill": "toself",
        "fillcolor": colour,
        "opacity": 0.15,
        "line": {"width": 0, "color": colour},
        "hoverinfo": "skip",
        "showlegend": False,
        "meta": {**meta, "band": True},
    }


def _paper_points(summary: Mapping[str, Any], key: str, scale: float) -> list[Trace]:
    variants, paper = summary["variants"], summary.get("paper") or {}
    at = {name: variants.get(name, {}).get(key) for name, own in paper.items() if own.get("mean") is not None}
    names = [name for name, place in at.items() if place is not None]
    if not names:
        return []
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "the paper",
            "x": [at[name] for name in names],
            "y": [paper[name]["mean"] / scale for name in names],
            "hovertext": [f"{_safe(name)}<br>the paper: {number(paper[name]['mean'], scale)}" for name in names],
            "hoverinfo": "text",
            "marker": {"color": INK, "symbol": "star", "size": 11},
            "meta": {"methods": names},
        }
    ]


def _variant(summary: Mapping[str, Any], key: str, value: float, series: str | None, of: str) -> str:
    """The name of the variant at a place of a line."""
    for name, changes in summary["variants"].items():
        there = changes.get(key) is not None and float(changes[key]) == value
        if there and (not series or str(changes[series]) == of):
            return str(name)
    raise KeyError(f"{key}={value}")


def _keys(variants: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return list(dict.fromkeys(key for changes in variants.values() for key in changes if key != "method"))


def _numeric_keys(variants: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Those with three numbers or more."""
    found = []
    for key in _keys(variants):
        values = [changes[key] for changes in variants.values() if changes.get(key) is not None]
        plain = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
        if plain and len(set(values)) >= 3:
            found.append(key)
    return found


def _scaled(values: Sequence[float], log_from: float = _LOG_FROM) -> dict[str, Any]:
    """A logarithmic axis where the numbers ask for one, with ticks at 1, 2 and 5 or, over many decades, at 1."""
    if not values or min(values) <= 0 or max(values) / min(values) < log_from:
        return {}
    first, last = (math.floor(math.log10(value)) for value in (min(values), max(values)))
    digits = (1,) if last - first > 2 else (1, 2, 5)
    ticks = [digit * 10.0**power for power in range(first, last + 2) for digit in digits]
    return {"type": "log", "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _from_zero(values: Sequence[float]) -> dict[str, Any]:
    """An axis that begins at zero where the numbers are not all far from it."""
    return {"rangemode": "tozero"} if values and 0 <= min(values) < max(values) / 2 else {}


def _zero_line() -> dict[str, Any]:
    line = {"color": INK, "width": 1.3, "dash": "dash"}
    return {"type": "line", "x0": 0, "x1": 0, "y0": 0, "y1": 1, "yref": "paper", "line": line, "layer": "below"}


def _level(value: float) -> dict[str, Any]:
    line = {"color": INK, "width": 1.3, "dash": "dash"}
    return {"type": "line", "x0": 0, "x1": 1, "xref": "paper", "y0": value, "y1": value, "line": line, "layer": "below"}


def _base(summary: Mapping[str, Any]) -> str:
    return str(summary.get("baseline") or next(name for name in summary["methods"] if name not in summary["paired"]))


def _at(summary: Mapping[str, Any]) -> str:
    return "" if comparison.scored_once(summary) else " Best on validation."


def _has(content: Mapping[str, Any], part: str) -> bool:
    return all(part in run for run in content["runs"])


def _thinned(length: int) -> list[int]:
    """At most so many places, the first and the last among them."""
    if length <= _MOST_STEPS:
        return list(range(length))
    return [round(k * (length - 1) / (_MOST_STEPS - 1)) for k in range(_MOST_STEPS)]


def _rounded(values: Sequence[float]) -> list[float]:
    return [float(f"{value:.4g}") for value in values]
