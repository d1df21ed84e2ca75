"""Entropies of features during training: the mean over runs as a line, their whole range as a band."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from ordinal_entropy.figures.saving import blank, plain, save
from ordinal_entropy.figures.sweep import LOOKS as FIRST_LOOKS

LOOKS = (*FIRST_LOOKS, ("#E69F00", "v", (0, (7, 2))), ("#56B4E9", "P", (0, (3, 1, 1, 1, 1, 1))), ("#000000", "X", "-"))
LABELS = {"E1": "E1: meanNN entropy (nats)", "E2": "E2: the same, normalised (nats)", "E3": "E3: diversity"}


class Panel(NamedTuple):
    """What is drawn against the epochs."""

    title: str
    part: str  # "train" or "test"
    estimator: str  # a name in LABELS
    variants: Sequence[str]


class Band(NamedTuple):
    """Smallest, mean and largest entropy over the runs, at each epoch."""

    low: list[float]
    mean: list[float]
    high: list[float]


def band(content: Mapping[str, Any], variant: str, part: str, estimator: str) -> Band | None:
    """Of one variant of a study's entropies.json; None if it is not there. Runs without a number are left out.

    Example:
        >>> content = {"runs": [{"variant": "ld", "test": {"E1": [x, 2 * x]}} for x in (3.0, 1.0, 5.0)]}
        >>> band(content, "ld", "test", "E1")
        Band(low=[1.0, 2.0], mean=[3.0, 6.0], high=[5.0, 10.0])
    """
    found = [run[part][estimator] for run in content["runs"] if run["variant"] == variant]
    runs = [values for values in found if None not in values]
    if not runs:
        return None
    at_epochs = list(zip(*runs, strict=True))
    return Band([min(x) for x in at_epochs], [fmean(x) for x in at_epochs], [max(x) for x in at_epochs])


def draw(
    content: Mapping[str, Any],
    path: Path,
    *,
    rows: Sequence[Sequence[Panel]],
    variants: Mapping[str, str],
    title: str,
    unit: str = "m",
    time: str = "epoch",
) -> None:
    """Draws panels in rows and columns, with one legend below.

    Args:
        content: of a study's entropies.json.
        path: of the PNG; an SVG is written beside it.
        rows: panels, as many in each row; neighbours of one estimator and the same variants have one scale.
        variants: up to seven names, each with what the legend calls it; a variant looks the same in all panels.
        title: above.
        unit: of the targets, and so of E3; "" if they have none.
        time: what the entropies are drawn against.
    """
    from matplotlib.ticker import MaxNLocator

    if len(variants) > len(LOOKS):
        raise ValueError(f"expected up to {len(LOOKS)} variants, got {len(variants)}")
    looks = dict(zip(variants, LOOKS, strict=False))
    down, across = len(rows), len(rows[0])
    size = (7, 4.8) if down == across == 1 else (1 + 3.2 * across, 1 + 2.5 * down)
    figure = blank(size)
    every = max(1, len(content["epochs"]) // 8)
    lines = {}
    axes: Any = None
    for place, panel in enumerate(each for row in rows for each in row):
        row, column = divmod(place, across)
        before = rows[row][column - 1] if column else None
        alike = before is not None and (before.estimator, before.variants) == (panel.estimator, panel.variants)
        axes = figure.add_subplot(down, across, place + 1, sharey=axes if alike else None)
        for variant in panel.variants:
            found = band(content, variant, panel.part, panel.estimator)
            if found is None:
                continue
            colour, marker, dash = looks[variant]
            axes.fill_between(content["epochs"], found.low, found.high, color=colour, alpha=0.14, linewidth=0)
            (lines[variant],) = axes.plot(
                content["epochs"],
                found.mean,
                color=colour,
                linestyle=dash,
                marker=marker,
                markevery=every,
                markersize=5,
                linewidth=1.6,
            )
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.set_title(panel.title, fontsize=10)
        plain(axes)
        if before is None or before.estimator != panel.estimator:
            of_targets = f" ({unit})" if unit and panel.estimator == "E3" else ""
            axes.set_ylabel(LABELS[panel.estimator] + of_targets)
        if row == down - 1:
            axes.set_xlabel(time)
    runs = len({run["seed"] for run in content["runs"]})
    spread = f"mean and range of {runs} runs" if runs > 1 else "one run"
    figure.suptitle(f"{title}: {spread}", fontsize=11, x=0.01, ha="left")
    drawn = [variant for variant in variants if variant in lines]
    names = [variants[variant] for variant in drawn]
    columns = 2 if across == 1 else 5
    figure.legend(
        [lines[variant] for variant in drawn],
        names,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        fontsize=9,
        handlelength=3.5,
    )
    save(figure, path)
