"""Scores during training: the median over runs as a line, their whole range as a band."""

from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from ordinal_entropy.figures.saving import blank, plain, save
from ordinal_entropy.figures.sweep import LOOKS, tick


class Course(NamedTuple):
    """Smallest, median and largest score over the runs, at each step."""

    low: list[float]
    middle: list[float]
    high: list[float]


def course(curves: Mapping[str, Any], variant: str, part: str = "test") -> Course | None:
    """Of one variant of a study's curves.json; None if it is not there. Runs without a number are left out.

    Example:
        >>> curves = {"steps": [0], "runs": [{"variant": "ld", "test": [x]} for x in (3.0, 1.0, 2.0)]}
        >>> course(curves, "ld")
        Course(low=[1.0], middle=[2.0], high=[3.0])
    """
    runs = [run[part] for run in curves["runs"] if run["variant"] == variant and None not in run[part]]
    if not runs:
        return None
    at_steps = list(zip(*runs, strict=True))
    return Course([min(s) for s in at_steps], [median(s) for s in at_steps], [max(s) for s in at_steps])


def draw(
    curves: Mapping[str, Any], path: Path, *, variants: Mapping[str, str], title: str, metric: str = "MSE"
) -> None:
    """Draws the test scores of some variants against the step, the scores on a logarithmic axis.

    Args:
        curves: content of a study's curves.json.
        path: of the PNG; an SVG is written beside it.
        variants: up to four names, each with what the legend calls it; those that are not there are left out.
        title: above.
        metric: name of the score.
    """
    from matplotlib.ticker import FuncFormatter

    if len(variants) > len(LOOKS):
        raise ValueError(f"expected up to {len(LOOKS)} variants, got {len(variants)}")
    figure = blank((7, 4.8))
    axes = figure.add_subplot()
    steps = curves["steps"]
    for (variant, name), (colour, marker, dash) in zip(variants.items(), LOOKS, strict=False):
        found = course(curves, variant)
        if found is None:
            continue
        every = max(1, len(steps) // 8)
        axes.fill_between(steps, found.low, found.high, color=colour, alpha=0.14, linewidth=0)
        axes.plot(
            steps,
            found.middle,
            color=colour,
            linestyle=dash,
            marker=marker,
            markevery=every,
            linewidth=1.6,
            label=name,
        )
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(tick))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_xlabel("step")
    axes.set_ylabel(f"test {metric}")
    axes.set_title(f"{title}: median and range of the runs", loc="left", fontsize=11)
    plain(axes)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    save(figure, path)
