"""The regularizer in plain loops over float64 numbers: slow, obvious, and independent of the library."""

import math

import numpy as np


def unit(vector):
    norm = math.sqrt(sum(v * v for v in vector))
    return vector / norm if norm > 0 else vector * 0.0


def feature_distance(a, b, distance):
    if distance == "cosine":
        return 1.0 - float(np.dot(unit(a), unit(b)))
    return math.sqrt(sum((p - q) ** 2 for p, q in zip(a, b, strict=True)))


def target_distance(a, b, weighting):
    gap = math.sqrt(sum((p - q) ** 2 for p, q in zip(a, b, strict=True)))
    if weighting == "l2":
        return gap
    if weighting == "squared":
        return gap**2
    if weighting == "sqrt":
        return math.sqrt(gap)
    if weighting == "none":
        return 1.0
    both = weighting(a, b), weighting(b, a)  # a function of two targets
    return sum(both) / 2


def terms(
    features,
    targets,
    *,
    weighting="l2",
    distance="l2",
    normalize=True,
    rescale="max",
    grouping="unique",
    centers="normalize-first",
    tightness_over="all",
    tightness_power=1,
):
    """(diversity, tightness) of features (n, d) and targets (n, t); None where there is no pair or no row."""
    features, targets = np.asarray(features, dtype=np.float64), np.asarray(targets, dtype=np.float64)
    members = {}
    for row, target in enumerate(targets):
        if grouping == "unique":
            key = tuple(target + 0.0)
        elif grouping == "none":
            key = row
        else:
            key = tuple(math.floor(v / grouping) for v in target)
        members.setdefault(key, []).append(row)

    points, values, residuals = [], [], []
    for rows in members.values():
        raw = [features[row] for row in rows]
        normal = [unit(z) if normalize else z for z in raw]
        if centers == "normalize-first":
            center = sum(normal) / len(rows)
        else:
            center = sum(raw) / len(rows)
            center = unit(center) if normalize else center
        points.append(center)
        values.append(sum(targets[row] for row in rows) / len(rows))
        residuals += [0.0 if len(rows) == 1 else feature_distance(z, center, distance) for z in normal]

    pairs = [(i, j) for i in range(len(points)) for j in range(len(points)) if i != j]
    diversity = None
    if pairs:
        weights = [target_distance(values[i], values[j], weighting) for i, j in pairs]
        if weighting != "none" and max(weights) > 0:
            if rescale == "max":
                weights = [w / max(weights) for w in weights]
            elif rescale == "authors":
                weights = [(w - min(weights)) / max(weights) for w in weights]
        distances = [feature_distance(points[i], points[j], distance) for i, j in pairs]
        diversity = sum(w * d for w, d in zip(weights, distances, strict=True)) / len(pairs)

    counted = [r for r in residuals if tightness_over == "all" or r > 1e-12]
    tightness = sum(r**tightness_power for r in counted) / len(counted) if counted else (0.0 if residuals else None)
    return diversity, tightness


def mean_of_groups(groups, **options):
    """Mean of each term over the groups [(features, targets), ...] that have it; nothing anywhere: 0."""
    found = [terms(features, targets, **options) for features, targets in groups]
    means = []
    for position in (0, 1):
        there = [pair[position] for pair in found if pair[position] is not None]
        means.append(sum(there) / len(there) if there else 0.0)
    return tuple(means)
