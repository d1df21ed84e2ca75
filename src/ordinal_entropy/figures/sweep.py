"""Scores against a setting: a line with a band for each series, the baseline behind it, the paper's points on top."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ordinal_entropy.figures.saving import blank, plain, save

# Wong's palette, in order; every series has a marker and a dash of its own as well.
LOOKS = (("#0072B2", "o", "-"), ("#D55E00", "s", "--"), ("#009E73", "^", "-."), ("#CC79A7", "D", ":"))
_LOG_FROM = 20.0  # largest over smallest score from which the scores' axis is logarithmic


class Line(NamedTuple):
    """Mean and standard deviation of the scores at each place, places rising."""

    places: list[float]
    means: list[float]
    stds: list[float]


def lines(summary: Mapping[str, Any], key: str, series: str | None = None) -> dict[str, Line]:
    """One line per value of ``series`` over the variants of a summary that have ``key``; scores as reported.

    Example:
        >>> summary = {
        ...     "variants": {"baseline": {}, "ld strength=1": {"strength": 1.0}, "ld strength=0.1": {"strength": 0.1}},
        ...     "methods": {"ld strength=1": {"mean": 3.0, "std": 1.0}, "ld strength=0.1": {"mean": 2.0, "std": 0.5}},
        ... }
        >>> lines(summary, "strength")
        {'': Line(places=[0.1, 1.0], means=[2.0, 3.0], stds=[0.5, 1.0])}
    """
    found: dict[str, list[tuple[float, float, float]]] = {}
    for name, changes in summary["variants"].items():
        score = summary["methods"].get(name, {})
        if changes.get(key) is None or score.get("mean") is None:  # no number: a run diverged
            continue
        of = str(changes[series]) if series else ""
        found.setdefault(of, []).append((float(changes[key]), score["mean"], score["std"] or 0.0))
    return {of: Line(*(list(column) for column in zip(*sorted(points), strict=True))) for of, points in found.items()}


def sweep(
    summary: Mapping[str, Any],
    path: Path,
    *,
    key: str,
    label: str,
    title: str,
    series: str | None = None,
    series_names: Mapping[str, str] | None = None,
    scale: float = 1.0,
) -> None:
    """Draws the scores of a summary against a key of the recipe, both axes as their numbers ask for.

    Args:
        summary: content of a study's summary.json.
        path: of the PNG; an SVG is written beside it.
        key: on the horizontal axis, logarithmic.
        label: of that axis.
        title: above.
        series: a key whose every value has a line of its own.
        series_names: how the legend calls those values.
        scale: scores are drawn in multiples of it.
    """
    from matplotlib.ticker import FuncFormatter, NullFormatter

    figure = blank((7, 4.8))
    axes = figure.add_subplot()
    drawn = lines(summary, key, series)
    base = summary["methods"][summary["baseline"]]
    least = min(_numbers(summary)) / scale if _numbers(summary) else 0.0
    if base.get("mean") is not None:
        level, spread = base["mean"] / scale, (base["std"] or 0.0) / scale
        axes.axhspan(_below(level, spread, least), level + spread, color="0.5", alpha=0.18, linewidth=0)
        axes.axhline(level, color="0.25", linewidth=1.3, dashes=(6, 3), label="baseline")
    for (of, line), (colour, marker, dash) in zip(drawn.items(), LOOKS, strict=False):
        means = [mean / scale for mean in line.means]
        low = [_below(mean, std / scale, least) for mean, std in zip(means, line.stds, strict=True)]
        high = [mean + std / scale for mean, std in zip(means, line.stds, strict=True)]
        name = (series_names or {}).get(of, of) or str(next(iter(_methods(summary, key)), ""))
        axes.fill_between(line.places, low, high, color=colour, alpha=0.16, linewidth=0)
        axes.plot(line.places, low, color=colour, linestyle=dash, linewidth=0.6)
        axes.plot(line.places, high, color=colour, linestyle=dash, linewidth=0.6)
        axes.plot(line.places, means, color=colour, marker=marker, linestyle=dash, linewidth=1.8, label=name)
    _draw_paper(axes, summary, key, scale)
    axes.set_xscale("log")
    places = sorted({place for line in drawn.values() for place in line.places})
    if places:
        axes.set_xticks(places)
        axes.xaxis.set_major_formatter(FuncFormatter(tick))
        axes.xaxis.set_minor_formatter(NullFormatter())
    levels = [mean / scale for line in drawn.values() for mean in line.means]
    if levels and min(levels) > 0 and max(levels) / min(levels) > _LOG_FROM:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(tick))
    else:
        axes.set_ylim(bottom=0)
    runs = base.get("n") or len(base["values"])
    power = f" x {scale:.0e}".replace("e-0", "e-") if scale != 1 else ""
    axes.set_xlabel(label)
    axes.set_ylabel(f"test {summary['metric'].upper()}{power}, best on validation")
    axes.set_title(f"{title}: mean and standard deviation of {runs} runs", loc="left", fontsize=11)
    plain(axes)
    figure.legend(loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    save(figure, path)


def _draw_paper(axes: Any, summary: Mapping[str, Any], key: str, scale: float) -> None:
    points = [
        (summary["variants"][name][key], score["mean"] / scale, score["std"])
        for name, score in summary.get("paper", {}).items()
        if summary["variants"].get(name, {}).get(key) is not None
    ]
    if points:
        x, y, std = zip(*points, strict=True)
        errors = [(value or 0.0) / scale for value in std]
        axes.errorbar(x, y, yerr=errors, fmt="k*", markersize=11, capsize=3, zorder=5, label="the paper, best on test")
    base = summary.get("paper", {}).get(summary["baseline"])
    if base is not None:
        axes.axhline(
            base["mean"] / scale,
            color="black",
            linewidth=0.9,
            linestyle=":",
            label="the paper's baseline, best on test",
        )


def _below(mean: float, std: float, least: float) -> float:
    """The lower edge of a band; where it would not be positive, which no error is, the smallest score."""
    return mean - std if mean > std else min(least, mean)


def tick(value: float, _: object) -> str:
    """A number on an axis, as short as it can be."""
    return f"{value:g}" if 1e-3 <= value < 1e5 else f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def _numbers(summary: Mapping[str, Any]) -> list[float]:
    return [v for score in summary["methods"].values() for v in score.get("values", []) if v is not None and v > 0]


def _methods(summary: Mapping[str, Any], key: str) -> list[str]:
    return [changes["method"] for changes in summary["variants"].values() if changes.get(key) is not None]
