"""Figures of training: scores and entropies of features against steps or epochs."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Any, NamedTuple

from ordinal_entropy.comparison.text import metric_name, number, times
from ordinal_entropy.results.figures import Axis, Figure, Panel, Series, scaled, style
from ordinal_entropy.results.tables import Row, Table

LABELS = {"E1": "E1: meanNN entropy (nats)", "E2": "E2: the same, normalised (nats)", "E3": "E3: diversity"}
PARTS = {"test": "test rows", "validation": "validation rows", "train": "training rows"}
_LOG_FROM = 5.0  # curves begin high
_COLUMNS = 6  # steps in the table of scores


class Band(NamedTuple):
    """Smallest, middle and largest number over the runs, at each step."""

    low: list[float]
    middle: list[float]
    high: list[float]


class Curves(NamedTuple):
    """What a panel of entropies shows."""

    part: str  # "train" or "test"
    estimator: str  # a name in LABELS
    names: Sequence[str]
    title: str


def band(runs: Sequence[Sequence[float | None]], middle: Callable[[Sequence[float]], float]) -> Band | None:
    """Over the runs without a gap; None if there is none.

    Example:
        >>> band([[3.0, 1.0], [1.0, 1.0], [2.0, None], [5.0, 4.0]], median)
        Band(low=[1.0, 1.0], middle=[3.0, 1.0], high=[5.0, 4.0])
    """
    whole = [run for run in runs if None not in run]
    at_steps = list(zip(*whole, strict=True))
    return (
        Band([min(x) for x in at_steps], [middle(x) for x in at_steps], [max(x) for x in at_steps]) if whole else None
    )


def scores(
    content: Mapping[str, Any], names: Mapping[str, str], metric: str, scale: float, parts: Sequence[str] = tuple(PARTS)
) -> Figure | None:
    """Scores during training: the median over the runs as a line, their range as a band; a panel a part.

    Args:
        content: of a study's curves.json.
        names: of variants, each with what the legend calls it; those that are not there are left out.
        metric: name of the score.
        scale: numbers are multiples of it.
        parts: of the rows, "test" first.

    Returns:
        None where no run has numbers of the first part.
    """
    steps, time = content["steps"], at_what(content)
    panels, rows = [], []
    kept = sorted({round(k * (len(steps) - 1) / (_COLUMNS - 1)) for k in range(_COLUMNS)}) if steps else []
    for part in parts:
        whole = all(part in run for run in content["runs"])
        found = {n: _band_of(content, n, lambda run, part=part: run[part], median) for n in names} if whole else {}  # type: ignore[misc]
        series = _series(names, steps, found, scale)
        if not series:
            continue
        title = f"{PARTS[part].removesuffix(' rows').capitalize()} {metric_name(metric)}{times(scale)}"
        ends = [end for own in series for end in (*own.low, *own.high) if end is not None]
        y = scaled(title, [value for own in series for value in own.y if value > 0], _LOG_FROM, ends)
        panels.append(Panel(Axis(time), y, series, title=PARTS[part]))
        if part == parts[0]:
            rows = [Row(name, [number(own.middle[k], scale) for k in kept]) for name, own in found.items() if own]
    if not rows:
        return None
    headings = [f"{time} {steps[k]:,}" for k in kept]
    table = Table(f"Median {parts[0]} score over the runs{times(scale)}", headings, rows)
    return Figure("Scores during training", f"{_of_runs(content, 'Median')}.", panels, table)


def entropies(
    content: Mapping[str, Any],
    names: Mapping[str, str],
    panels: Sequence[Curves] = (),
    *,
    columns: int = 1,
    unit: str = "",
) -> Figure | None:
    """Entropy of the features during training: the mean over the runs as a line, their range as a band.

    Args:
        content: of a study's entropies.json.
        names: of variants, each with what the legend calls it; a variant looks the same in all panels.
        panels: what they show; none: all variants, by every estimator, of test and training rows.
        columns: panels side by side.
        unit: of the targets, and so of E3; "" if they have none.

    Returns:
        None where no run has numbers.
    """
    epochs = content["epochs"]
    time = at_what({"steps": epochs})
    wanted = panels or [
        Curves(part, estimator, list(names), f"{estimator}, {PARTS[part]}")
        for estimator in LABELS
        for part in ("test", "train")
    ]
    drawn = []
    for each in wanted:
        found = {
            n: _band_of(content, n, lambda run, each=each: run[each.part][each.estimator], fmean)  # type: ignore[misc]
            for n in each.names
        }
        of_targets = f" ({unit})" if unit and each.estimator == "E3" else ""
        axis = Axis(LABELS[each.estimator] + of_targets)
        drawn.append(Panel(Axis(time), axis, _series(names, epochs, found, 1.0), title=each.title))
    rows = []
    for name in names:
        ends = [_band_of(content, name, lambda run, e=e: run["test"][e], fmean) for e in LABELS]  # type: ignore[misc]
        if any(ends):
            cells = [f"{number(own.middle[0])} → {number(own.middle[-1])}" if own else "" for own in ends]
            rows.append(Row(name, cells))
    if not any(panel.series for panel in drawn):
        return None
    return Figure(
        "Entropy of the features during training",
        f"{_of_runs(content, 'Mean')}; of the features of fixed rows.",
        [panel for panel in drawn if panel.series or panels],
        Table(f"Test rows, after the first → the last {time}", list(LABELS.values()), rows),
        columns,
    )


def at_what(content: Mapping[str, Any]) -> str:
    """Whether curves count epochs, from 1 on one by one, or steps.

    Example:
        >>> at_what({"steps": [1, 2, 3]}), at_what({"steps": [0, 1000]})
        ('epoch', 'step')
    """
    steps = list(content["steps"])
    return "epoch" if steps == list(range(1, len(steps) + 1)) else "step"


def _of_runs(content: Mapping[str, Any], middle: str) -> str:
    n = len({run["seed"] for run in content["runs"]})
    return f"{middle} and range of {n} runs" if n > 1 else "One run"


def _band_of(
    content: Mapping[str, Any],
    name: str,
    numbers: Callable[[Mapping[str, Any]], Sequence[float | None]],
    middle: Callable[[Sequence[float]], float],
) -> Band | None:
    return band([numbers(run) for run in content["runs"] if run["variant"] == name], middle)


def _series(
    names: Mapping[str, str], steps: Sequence[float], found: Mapping[str, Band | None], scale: float
) -> list[Series]:
    drawn = []
    for place, (name, called) in enumerate(names.items()):
        own = found.get(name)
        if own is not None:
            low, middle, high = ([value / scale for value in values] for values in own)
            drawn.append(Series(called, style(place), [name] * len(steps), list(steps), middle, low, high, line=True))
    return drawn
