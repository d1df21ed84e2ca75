"""Time and memory over those of the baseline, of each variant, beside the paper's."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ordinal_entropy.figures.saving import blank, plain, save
from ordinal_entropy.figures.sweep import LOOKS


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
    names, base, paper = list(summary["methods"]), summary["baseline"], summary.get("paper", {})
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
            name: (_over(own[what][name], own[what][base]), _over(published[what][name], published[what][base]))
            for name in names
            if name != base
        }
        for what in own
    }


def draw(summary: Mapping[str, Any], path: Path, *, title: str) -> None:
    """Draws one row a variant, zero being the baseline: time with its 95% interval on the left, memory on the right.

    Args:
        summary: content of a summary.json.
        path: of the PNG; an SVG is written beside it.
        title: above.
    """
    found = increases(summary)
    rows = list(found["time"])
    figure = blank((8.5, 2.0 + 0.4 * len(rows)))
    figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    colour, marker, _ = LOOKS[0]
    for number, (what, own) in enumerate(found.items()):
        axes = figure.add_subplot(1, 2, number + 1)
        axes.axvline(0, color="0.25", linewidth=1.3, dashes=(6, 3))
        for place, look, label in (
            (0, {"color": colour, "marker": marker}, f"measured on {summary['device']}"),
            (1, {"color": "black", "marker": "*", "markersize": 11}, "the paper"),
        ):
            points = [(own[name][place], row) for row, name in enumerate(rows) if own[name][place] is not None]
            if points:
                once = label if number == 0 else None  # one entry in the legend
                axes.plot(*zip(*points, strict=True), linestyle="none", label=once, **look)
        if what == "time":
            base = summary["methods"][summary["baseline"]]["mean"]
            for row, name in enumerate(rows):
                ends = [summary["paired"][name][end] for end in ("ci_low", "ci_high")]
                if None not in ends:
                    axes.plot([100 * end / base for end in ends], [row, row], color=colour, linewidth=1.8)
        axes.set_yticks(range(len(rows)), rows if number == 0 else [""] * len(rows))
        axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)  # the first on top
        axes.set_xlabel(f"{what}, % over the baseline's")
        plain(axes, axis="x")
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    save(figure, path)


def _over(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else 100 * (value / base - 1)
