"""Feature distance against target distance, over pairs of rows: medians as a line, quartiles as a band."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from ordinal_entropy import estimators
from ordinal_entropy.comparison.text import number
from ordinal_entropy.results.figures import Axis, Figure, Panel, Series, style
from ordinal_entropy.results.tables import Row, Table

Numbers = NDArray[np.floating[Any]]
_NUM_PAIRS = 100_000
_BINS = 16


class Profile(NamedTuple):
    """Of the pairs in each bin of target distances; bins hold about the same number of pairs: all ``(bins,)``."""

    targets: Numbers  # median target distance
    low: Numbers  # lower quartile, median and upper quartile of the feature distance
    middle: Numbers
    high: Numbers


def profile(
    features: Numbers, targets: Numbers, *, bins: int = _BINS, num_pairs: int = _NUM_PAIRS, seed: int = 0
) -> Profile:
    """How far apart the features of two rows are, given how far apart their targets are.

    Args:
        features: ``(n, d)``, two rows at least; Euclidean distances as they are.
        targets: ``(n,)`` or ``(n, t)``; Euclidean distances. Where many are equal there are fewer bins.
        bins: how many at most.
        num_pairs: all pairs up to this number; beyond it, that many drawn with replacement.
        seed: of that draw.

    Example:
        >>> y = np.array([0.0, 1.0, 3.0])
        >>> profile(10 * y[:, None], y, bins=3)
        Profile(targets=array([1., 2., 3.]), low=array([10., 20., 30.]), middle=..., high=array([10., 20., 30.]))
    """
    n = len(features)
    if features.ndim != 2 or n < 2 or len(targets) != n:
        raise ValueError(
            f"expected features (n, d) with n >= 2 and as many targets, got {features.shape} and {np.shape(targets)}"
        )
    first, second = np.triu_indices(n, 1) if n * (n - 1) // 2 <= num_pairs else _drawn(n, num_pairs, seed)
    rows, values = features.astype(np.float64), np.reshape(targets, (n, -1)).astype(np.float64)
    of_features = np.linalg.norm(rows[first] - rows[second], axis=1)
    of_targets = np.linalg.norm(values[first] - values[second], axis=1)
    edges = np.unique(np.quantile(of_targets, np.linspace(0, 1, bins + 1)[1:-1]))
    places = np.searchsorted(edges, of_targets, side="left")  # an edge belongs to the bin below it
    own = [places == place for place in np.unique(places)]
    quartiles = np.array([np.percentile(of_features[each], (25, 50, 75)) for each in own])  # (bins, 3)
    return Profile(np.array([np.median(of_targets[each]) for each in own]), *quartiles.T)


def ordinality(
    features: Mapping[str, Numbers], targets: Mapping[str, Numbers], *, names: Mapping[str, str], unit: str = ""
) -> Figure:
    """The profile of each method, with its ordinality in the legend; of L2-normalised features.

    Args:
        features: ``(n, d)`` by method.
        targets: ``(n, t)`` by method.
        names: of methods, each with what the legend calls it; those without features are left out.
        unit: of the targets; "" if they have none.
    """
    series, rows = [], []
    for place, (name, called) in enumerate(names.items()):
        if name in features:
            z = F.normalize(torch.from_numpy(features[name]).double(), dim=1)
            y = torch.from_numpy(targets[name]).reshape(len(z), -1)
            found, order = profile(z.numpy(), targets[name]), number(float(estimators.ordinality(z, y)))
            at, low, middle, high = (values.tolist() for values in found)
            label = f"{called}: ordinality {order}"
            series.append(Series(label, style(place), [name] * len(at), at, middle, low, high, line=True))
            rows.append(Row(name, [order]))
    across = Axis(f"distance of two targets{f' ({unit})' if unit else ''}", from_zero=True)
    panel = Panel(across, Axis("distance of their features, normalised", from_zero=True), series)
    table = Table("Rank correlation of the two distances", ["ordinality"], rows)
    return Figure("Distances of features against targets", "Median and quartiles of the pairs.", [panel], table)


def _drawn(n: int, num_pairs: int, seed: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Two different rows for each pair."""
    generator = np.random.default_rng(seed)
    first = generator.integers(n, size=num_pairs)
    return first, (first + generator.integers(1, n, size=num_pairs)) % n
