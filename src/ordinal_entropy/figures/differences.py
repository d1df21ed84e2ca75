"""Each variant against the baseline: the paired differences of the seeds, their mean and its 95% CI."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ordinal_entropy.figures.saving import blank, plain, save
from ordinal_entropy.figures.sweep import LOOKS


class Difference(NamedTuple):
    """Of a variant from the baseline: at each seed where both have a number, and the mean with its interval."""

    seeds: list[float]
    mean: float
    low: float
    high: float


def differences(summary: Mapping[str, Any]) -> dict[str, Difference]:
    """By variant, those whose seeds determine an interval; scores as reported.

    A variant that is held to another one than the baseline, by "held_to", is so here.

    Example:
        >>> summary = {
        ...     "baseline": "baseline",
        ...     "methods": {"baseline": {"values": [3.0, 4.0]}, "oe": {"values": [2.0, 2.0]}},
        ...     "paired": {"oe": {"difference": -1.5, "ci_low": -7.9, "ci_high": 4.9}},
        ... }
        >>> differences(summary)
        {'oe': Difference(seeds=[-1.0, -2.0], mean=-1.5, low=-7.9, high=4.9)}
    """
    held_to, found = summary.get("held_to", {}), {}
    for name, pair in summary["paired"].items():
        if pair["ci_low"] is not None:
            base = summary["methods"][held_to.get(name, summary["baseline"])]["values"]
            pairs = zip(summary["methods"][name]["values"], base, strict=True)
            seeds = [value - own for value, own in pairs if value is not None and own is not None]
            found[name] = Difference(seeds, pair["difference"], pair["ci_low"], pair["ci_high"])
    return found


def draw(summary: Mapping[str, Any], path: Path, *, title: str) -> None:
    """Draws one row a variant, zero being the baseline.

    Args:
        summary: content of a summary.json.
        path: of the PNG; an SVG is written beside it.
        title: above.
    """
    found = differences(summary)
    figure = blank((7, 1.9 + 0.45 * len(found)))
    axes = figure.add_subplot()
    baseline = "its baseline" if "held_to" in summary else summary["baseline"]
    axes.axvline(0, color="0.25", linewidth=1.3, dashes=(6, 3), label=baseline)
    colour, marker, _ = LOOKS[0]
    for row, own in enumerate(found.values()):
        first = row == 0  # one entry in the legend
        axes.plot(
            own.seeds,
            [row + 0.22] * len(own.seeds),
            linestyle="none",
            marker="o",
            markersize=4,
            fillstyle="none",
            color="0.4",
            label="one seed" if first else None,
        )
        axes.errorbar(
            own.mean,
            row,
            xerr=[[own.mean - own.low], [own.high - own.mean]],
            fmt=marker,
            color=colour,
            linewidth=1.8,
            capsize=4,
            label="mean and 95% CI" if first else None,
        )
    axes.set_yticks(range(len(found)), list(found))
    axes.set_ylim(max(len(found), 1) - 0.5, -0.5)  # the first on top
    better = "left" if summary["lower_is_better"] else "right"
    metric = summary["metric"].upper()
    axes.set_xlabel(f"test {metric} minus that of {baseline}, best on validation; {better} is better")
    count = max((len(own.seeds) for own in found.values()), default=0)
    axes.set_title(f"{title}: paired differences over {count} seeds", loc="left", fontsize=11)
    plain(axes, axis="x")
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    save(figure, path)
