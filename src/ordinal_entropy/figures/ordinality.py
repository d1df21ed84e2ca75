"""Feature distance against target distance, over pairs of rows: medians as a line, quartiles as a band."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from ordinal_entropy import estimators
from ordinal_entropy.figures.entropy import LOOKS
from ordinal_entropy.figures.saving import blank, plain, save

Numbers = NDArray[np.floating[Any]]
_PAIRS = 100_000
_BINS = 16


class Course(NamedTuple):
    """Of the pairs in each bin of target distances, bins of about as many pairs: all ``(bins,)``."""

    apart: Numbers  # median target distance
    low: Numbers  # lower quartile, median and upper quartile of the feature distance
    middle: Numbers
    high: Numbers


def course(features: Numbers, targets: Numbers, *, bins: int = _BINS, pairs: int = _PAIRS, seed: int = 0) -> Course:
    """How far apart the features of two rows are, given how far apart their targets are.

    Args:
        features: ``(n, d)``, two rows at least; Euclidean distances as they are.
        targets: ``(n,)`` or ``(n, t)``; Euclidean distances. Where many are equal there are fewer bins.
        bins: at most so many.
        pairs: all pairs up to so many; beyond, as many are drawn with replacement.
        seed: of that draw.

    Example:
        >>> y = np.array([0.0, 1.0, 3.0])
        >>> course(10 * y[:, None], y, bins=3)
        Course(apart=array([1., 2., 3.]), low=array([10., 20., 30.]), middle=..., high=array([10., 20., 30.]))
    """
    count = len(features)
    if features.ndim != 2 or count < 2 or len(targets) != count:
        raise ValueError(
            f"expected features (n, d) with n >= 2 and as many targets, got {features.shape} and {np.shape(targets)}"
        )
    first, second = np.triu_indices(count, 1) if count * (count - 1) // 2 <= pairs else _drawn(count, pairs, seed)
    rows, values = features.astype(np.float64), np.reshape(targets, (count, -1)).astype(np.float64)
    near = np.linalg.norm(rows[first] - rows[second], axis=1)
    apart = np.linalg.norm(values[first] - values[second], axis=1)
    edges = np.unique(np.quantile(apart, np.linspace(0, 1, bins + 1)[1:-1]))
    places = np.searchsorted(edges, apart, side="left")  # an edge belongs to the bin below it
    own = [places == place for place in np.unique(places)]
    quartiles = np.array([np.percentile(near[each], (25, 50, 75)) for each in own])  # (bins, 3)
    return Course(np.array([np.median(apart[each]) for each in own]), *quartiles.T)


def draw(
    features: Mapping[str, Numbers],
    targets: Mapping[str, Numbers],
    path: Path,
    *,
    names: Mapping[str, str],
    unit: str,
    title: str,
) -> None:
    """Draws the course of each method, with its ordinality in the legend; of L2-normalised features.

    Args:
        features: ``(n, d)`` by method.
        targets: ``(n, t)`` by method.
        path: of the PNG; an SVG is written beside it.
        names: of up to seven methods, each with what the legend calls it; those without features are left out.
        unit: of the targets.
        title: above.
    """
    if len(names) > len(LOOKS):
        raise ValueError(f"expected up to {len(LOOKS)} methods, got {len(names)}")
    figure = blank((7, 4.8))
    axes = figure.add_subplot()
    lines: list[Any] = []
    for (name, called), (colour, marker, dash) in zip(names.items(), LOOKS, strict=False):
        if name not in features:
            continue
        z = F.normalize(torch.from_numpy(features[name]).double(), dim=1)
        order = float(estimators.ordinality(z, torch.from_numpy(targets[name])))
        found = course(z.numpy(), targets[name])
        axes.fill_between(found.apart, found.low, found.high, color=colour, alpha=0.13, linewidth=0)
        for edge in (found.low, found.high):
            axes.plot(found.apart, edge, color=colour, linestyle=dash, linewidth=0.6)
        lines += axes.plot(
            found.apart,
            found.middle,
            color=colour,
            linestyle=dash,
            marker=marker,
            markersize=5,
            linewidth=1.6,
            label=f"{called}: ordinality {order:.2f}",
        )
    axes.set_xlim(left=0)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"distance of two targets ({unit})")
    axes.set_ylabel("distance of their features, normalised")
    axes.set_title(f"{title}: median and quartiles", loc="left", fontsize=11)
    plain(axes)
    if lines:
        figure.legend(handles=lines, loc="outside lower center", ncols=2, frameon=False, fontsize=9, handlelength=3.5)
    else:
        axes.text(0.5, 0.5, "no number", ha="center", va="center", transform=axes.transAxes, color="0.4")
    save(figure, path)


def _drawn(count: int, pairs: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Two different rows for each pair."""
    generator = np.random.default_rng(seed)
    first = generator.integers(count, size=pairs)
    return first, (first + generator.integers(1, count, size=pairs)) % count
