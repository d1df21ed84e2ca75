"""Figures of a summary: differences and scores by method, scores against a setting, costs."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ordinal_entropy import comparison
from ordinal_entropy.comparison.text import NONE, count, interval, metric_name, number, probability, times
from ordinal_entropy.comparison.verdicts import unit
from ordinal_entropy.results.figures import (
    MEAN,
    ONE,
    PAPER,
    Axis,
    Figure,
    Level,
    Panel,
    Series,
    scaled,
    style,
)
from ordinal_entropy.results.tables import POINTS, Row, Table, score_name, tuning

_OFFSET = 0.2  # of single runs below their mean


class Difference(NamedTuple):
    """Of a method from what it is held to: at each seed where both have a number, and the mean with its interval."""

    seeds: list[float]
    mean: float
    low: float
    high: float


class Line(NamedTuple):
    """The variants of one line, by rising places, with mean and standard deviation of the scores."""

    names: list[str]
    places: list[float]
    means: list[float]
    stds: list[float]


def paired_differences(summary: Mapping[str, Any]) -> dict[str, Difference]:
    """By method, those whose seeds determine an interval; scores as reported.

    A method that is held to another one than the baseline, by "held_to", is so here.

    Example:
        >>> summary = {
        ...     "baseline": "baseline",
        ...     "methods": {"baseline": {"values": [3.0, 4.0]}, "oe": {"values": [2.0, 2.0]}},
        ...     "paired": {"oe": {"difference": -1.5, "ci_low": -7.9, "ci_high": 4.9}},
        ... }
        >>> paired_differences(summary)
        {'oe': Difference(seeds=[-1.0, -2.0], mean=-1.5, low=-7.9, high=4.9)}
    """
    held_to, found = summary.get("held_to") or {}, {}
    for name, pair in summary["paired"].items():
        if pair["ci_low"] is not None:
            base = summary["methods"][held_to.get(name, _base(summary))]["values"]
            pairs = zip(summary["methods"][name]["values"], base, strict=True)
            seeds = [value - own for value, own in pairs if value is not None and own is not None]
            found[name] = Difference(seeds, pair["difference"], pair["ci_low"], pair["ci_high"])
    return found


def differences(summary: Mapping[str, Any], scale: float) -> Figure | None:
    """A row a method, zero being what it is held to: a ring a seed, the mean and its 95% CI; None without any."""
    found, one = paired_differences(summary), unit(summary)
    if not found:
        return None
    adjusted, holm = comparison.adjusted(summary), " after Holm's correction" if len(summary["paired"]) > 1 else ""
    shown = {name: interval(own.mean, own.low, own.high, scale) for name, own in found.items()}
    covered = {name: NONE if low is None else f"{low} to {high}" for name, (_, low, high) in shown.items()}
    each = [(name, value / scale) for name, own in found.items() for value in own.seeds]
    means = Series(
        "mean and 95% CI",
        MEAN,
        list(found),
        [own.mean / scale for own in found.values()],
        low=[own.low / scale for own in found.values()],
        high=[own.high / scale for own in found.values()],
        texts=[f"mean {shown[n][0]}, 95% CI {covered[n]}, p{holm} {probability(adjusted[n])}" for n in found],
    )
    base = "its baseline" if summary.get("held_to") else _base(summary)
    side = "Left" if summary["lower_is_better"] else "Right"
    n = max(len(own.seeds) for own in found.values())
    panel = Panel(
        Axis(f"{score_name(summary, scale)} minus that of {base}"),
        Axis(""),
        [_in_rows(f"one {one}", ONE, each, sign=True, offset=_OFFSET), means],
        [Level(0.0, base)],
        rows=list(found),
    )
    return Figure(
        f"Differences from {base}, {one} by {one}",
        f"{side} of the line is better. {_over(summary, count(n, one))}",
        [panel],
        Table(f"Differences{times(scale)}", ["mean", "95% CI"], [Row(n, [shown[n][0], covered[n]]) for n in found]),
    )


def scores(summary: Mapping[str, Any], scale: float) -> Figure:
    """A row a method: a ring a run, their mean, and the paper's."""
    methods, paper = summary["methods"], summary.get("paper") or {}
    each = [(n, value / scale) for n, own in methods.items() for value in own["values"] if value is not None]
    means = [(n, own["mean"] / scale) for n, own in methods.items() if own.get("mean") is not None]
    theirs = [(n, paper[n]["mean"] / scale) for n in methods if paper.get(n, {}).get("mean") is not None]
    series = [
        _in_rows("one run", ONE, each, offset=_OFFSET),
        _in_rows("mean", MEAN, means),
        _in_rows(_paper_label(summary), PAPER, theirs),
    ]
    axis = scaled(score_name(summary, scale), [value for _, value in (*each, *theirs)])
    rows = [Row(name, [", ".join(number(value, scale) for value in own["values"])]) for name, own in methods.items()]
    return Figure(
        "Scores, run by run",
        _over(summary, count(max(len(own["values"]) for own in methods.values()), unit(summary))),
        [Panel(axis, Axis(""), [one for one in series if one.x], rows=list(methods))],
        Table(f"Scores of the runs{times(scale)}", [f"one a {unit(summary)}"], rows),
    )


def learning_rates(summary: Mapping[str, Any], scale: float) -> Figure | None:
    """Validation scores against the learning rate, a line for each row of a tuned comparison; None where none is tuned.

    On the common grid of the first tuning; all but the learning rate is at its default.
    """
    rows = summary.get("tuning") or {}
    if not rows:
        return None
    axis = str(summary["tuned"].get("axis", "learning_rate")).replace("_", " ")
    lines = []
    for place, (row, own) in enumerate(rows.items()):
        points = [(value, score / scale) for value, score in own["curve"] if score is not None]
        if not points:  # a row whose learning rate was searched without a grid
            continue
        texts = [f"{row}, {axis} {value:.3g}: {score:.4g}" for value, score in points]
        x, y = ([point[k] for point in points] for k in (0, 1))
        lines.append(Series(row, style(place), [row] * len(points), x, y, texts=texts, line=True))
    metric = f"validation {metric_name(summary['metric'])}{times(scale)}"
    every = [value for one in lines for value in one.x]
    panel = Panel(scaled(axis, every, log_from=2.0), scaled(metric, [y for one in lines for y in one.y]), lines)
    caption = f"Means over the tuning seeds; all but the {axis} is at its default."
    return Figure(f"Against the {axis}", caption, [panel], tuning(summary, scale)[1])


def sweeps(summary: Mapping[str, Any], scale: float) -> list[Figure]:
    """Scores against each key of the recipe that takes three numbers or more."""
    variants, found = summary.get("variants") or {}, []
    keys = list(dict.fromkeys(key for changes in variants.values() for key in changes if key != "method"))
    for key in keys:
        inside = [changes for changes in variants.values() if changes.get(key) is not None]
        values = [changes[key] for changes in inside]
        plain = all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)
        if plain and len(set(values)) >= 3:
            others = [name for name in ("method", *keys) if name != key]
            series = next((name for name in others if len({str(changes.get(name)) for changes in inside}) > 1), None)
            found.append(sweep(summary, scale, key, series=series))
    return found


def sweep(
    summary: Mapping[str, Any],
    scale: float,
    key: str,
    *,
    series: str | None = None,
    label: str = "",
    names: Mapping[str, str] | None = None,
) -> Figure:
    """Scores against a key of the recipe: a line with a band for each series, the baseline behind, the paper's on top.

    Args:
        summary: of a study.
        scale: numbers are multiples of it.
        key: on the horizontal axis.
        series: a key whose every value has a line of its own.
        label: of the horizontal axis, where the key is not to stand there.
        names: how the legend calls the values of ``series``, where not by the key and themselves.
    """
    found = lines(summary, key, series)
    base = summary["methods"][_base(summary)]
    positive = [v for own in summary["methods"].values() for v in own.get("values", []) if v is not None and v > 0]
    least = min(positive, default=0.0)
    drawn, rows = [], []
    for place, (of, line) in enumerate(found.items()):
        texts = [f"{number(mean, scale)} ± {number(std, scale)}" for mean, std in zip(*line[2:], strict=True)]
        plain = of if series == "method" else f"{series}={of}"
        drawn.append(
            Series(
                (names or {}).get(of, plain) if series else str(summary["variants"][line.names[0]].get("method", "")),
                style(place),
                line.names,
                line.places,
                [mean / scale for mean in line.means],
                [_below(mean, std, least) / scale for mean, std in zip(*line[2:], strict=True)],
                [(mean + std) / scale for mean, std in zip(*line[2:], strict=True)],
                [f"{name}\n{text}" for name, text in zip(line.names, texts, strict=True)],
                line=True,
            )
        )
        rows += [Row(name, [text]) for name, text in zip(line.names, texts, strict=True)]
    values = [value for own in drawn for value in own.y]
    levels = []
    if base.get("mean") is not None:
        mean, std = base["mean"], base.get("std") or 0.0
        levels.append(Level(mean / scale, _base(summary), _below(mean, std, least) / scale, (mean + std) / scale))
        values.append(mean / scale)
    paper = summary.get("paper") or {}
    if paper.get(_base(summary), {}).get("mean") is not None:
        theirs = paper[_base(summary)]["mean"] / scale
        levels.append(Level(theirs, f"{_paper_label(summary)}: {_base(summary)}", dash="dot"))
    ends = [end for own in drawn for end in (*own.low, *own.high) if end is not None]
    y = scaled(score_name(summary, scale), values, ends=ends)
    places = sorted({place for line in found.values() for place in line.places})
    across = Axis(label or key, bool(places) and places[0] > 0, places)
    panel = Panel(
        across,
        y if y.log else Axis(y.title, from_zero=bool(values) and min(values) >= 0),
        [*drawn, *_paper_points(summary, key, scale)],
        levels,
    )
    n = count(base.get("n") or len(base["values"]), "run")
    table = Table(f"Scores against {key}{times(scale)}", ["mean ± standard deviation"], rows)
    caption = f"Mean and standard deviation. {_over(summary, n)}"
    return Figure(f"Scores against {label or key}", caption, [panel], table)


def lines(summary: Mapping[str, Any], key: str, series: str | None = None) -> dict[str, Line]:
    """One line per value of ``series`` over the variants of a summary that have ``key``; scores as reported.

    Example:
        >>> summary = {
        ...     "variants": {"baseline": {}, "ld strength=1": {"strength": 1.0}, "ld strength=0.1": {"strength": 0.1}},
        ...     "methods": {"ld strength=1": {"mean": 3.0, "std": 1.0}, "ld strength=0.1": {"mean": 2.0, "std": 0.5}},
        ... }
        >>> lines(summary, "strength")[""].places, lines(summary, "strength")[""].means
        ([0.1, 1.0], [2.0, 3.0])
    """
    found: dict[str, list[tuple[float, str, float, float]]] = {}
    for name, changes in summary["variants"].items():
        score = summary["methods"].get(name, {})
        if changes.get(key) is None or score.get("mean") is None:  # no number: a run diverged
            continue
        of = str(changes.get(series)) if series else ""
        found.setdefault(of, []).append((float(changes[key]), name, score["mean"], score.get("std") or 0.0))
    ordered = {of: list(zip(*sorted(points), strict=True)) for of, points in found.items()}
    return {
        of: Line(list(names), list(places), list(means), list(stds))
        for of, (places, names, means, stds) in ordered.items()
    }


def costs(summary: Mapping[str, Any]) -> Figure:
    """Time and memory over the baseline's, in percent: measured, time with its 95% CI, and the paper's."""
    panels, rows = [], []
    base = summary["methods"][summary["baseline"]]["mean"]
    for what, own in increases(summary).items():
        measured = [(name, pair[0]) for name, pair in own.items() if pair[0] is not None]
        theirs = [(name, pair[1]) for name, pair in own.items() if pair[1] is not None]
        ends: list[list[float | None]] = [[], []]
        for name, _ in measured:
            pair = summary["paired"].get(name, {}) if what == "time" and base else {}
            low, high = pair.get("ci_low"), pair.get("ci_high")
            for place, end in enumerate((low, high)):
                ends[place].append(None if None in (low, high) or end is None else 100 * end / base)
        on = f"measured on {summary['device']}" if summary.get("device") else "measured"
        series = [
            _in_rows(on, MEAN, measured, sign=True, behind="%", ends=ends),
            _in_rows("the paper", PAPER, theirs, sign=True, behind="%"),
        ]
        rows += [Row(f"{name}, {what}", [number(value, sign=True) for value in pair]) for name, pair in own.items()]
        if measured or theirs:
            axis = Axis(f"{what}, % over the baseline's")
            shown = [one for one in series if one.x]
            panels.append(Panel(axis, Axis(""), shown, [Level(0.0, summary["baseline"])], what, list(own)))
    n = count(max(len(own.get("values", ())) for own in summary["methods"].values()), "round")
    table = Table("Percent over the baseline's", ["measured", "the paper"], rows)
    caption = f"Left of the line is less. The time with its 95% CI over {n}."
    return Figure("Time and memory over the baseline's", caption, panels, table, columns=2)


def increases(summary: Mapping[str, Any]) -> dict[str, dict[str, tuple[float | None, float | None]]]:
    """By "time" and "memory" and then by variant: percent over the baseline, measured and in the paper.

    Example:
        >>> summary = {
        ...     "baseline": "baseline",
        ...     "methods": {"baseline": {"mean": 10.0}, "ld": {"mean": 12.5}},
        ...     "memory_mb": {"baseline": None, "ld": None},
        ...     "paper": {"baseline": {"seconds": 100, "megabytes": 50}, "ld": {"seconds": 150, "megabytes": 50}},
        ... }
        >>> increases(summary)
        {'time': {'ld': (25.0, 50.0)}, 'memory': {'ld': (None, 0.0)}}
    """
    names, base, paper = list(summary["methods"]), summary["baseline"], summary.get("paper") or {}
    own = {
        "time": {name: summary["methods"][name]["mean"] for name in names},
        "memory": {name: summary["memory_mb"].get(name) for name in names},
    }
    published = {
        "time": {name: paper.get(name, {}).get("seconds") for name in names},
        "memory": {name: paper.get(name, {}).get("megabytes") for name in names},
    }
    return {
        what: {
            name: (_percent(own[what][name], own[what][base]), _percent(published[what][name], published[what][base]))
            for name in names
            if name != base
        }
        for what in own
    }


def _in_rows(
    label: str,
    style: Any,
    points: Sequence[tuple[str, float]],
    *,
    sign: bool = False,
    behind: str = "",
    offset: float = 0.0,
    ends: Sequence[Sequence[float | None]] = ((), ()),
) -> Series:
    """Numbers by method, each in the row of that method."""
    texts = [f"{label}: {number(value, sign=sign)}{behind}" for _, value in points]
    names, values = [name for name, _ in points], [value for _, value in points]
    return Series(label, style, names, values, low=ends[0], high=ends[1], texts=texts, offset=offset)


def _paper_points(summary: Mapping[str, Any], key: str, scale: float) -> list[Series]:
    variants, paper = summary["variants"], summary.get("paper") or {}
    at = {name: variants.get(name, {}).get(key) for name, own in paper.items() if own.get("mean") is not None}
    names = [name for name, place in at.items() if place is not None]
    if not names:
        return []
    label, means = _paper_label(summary), [paper[name]["mean"] for name in names]
    stds = [paper[name].get("std") for name in names]
    each = list(zip(means, stds, strict=True))
    low, high = ([None if s is None else (m + way * s) / scale for m, s in each] for way in (-1, 1))
    texts = [f"{name}\n{label}: {number(mean, scale)}" for name, mean in zip(names, means, strict=True)]
    return [Series(label, PAPER, names, [at[n] for n in names], [m / scale for m in means], low, high, texts)]


def _paper_label(summary: Mapping[str, Any]) -> str:
    at = (summary.get("shown") or {}).get("paper_at")
    return f"the paper, {POINTS[at]}" if at in POINTS else "the paper"


def _below(mean: float, std: float, least: float) -> float:
    """The lower edge of a band; where it would not be positive, which no error is, the smallest score."""
    return mean - std if mean > std else min(least, mean)


def _base(summary: Mapping[str, Any]) -> str:
    return str(summary.get("baseline") or next(name for name in summary["methods"] if name not in summary["paired"]))


def _over(summary: Mapping[str, Any], counted: str) -> str:
    return f"Over {counted}." if comparison.scored_once(summary) else f"Over {counted}, best on validation."


def _percent(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else 100 * (value / base - 1)
