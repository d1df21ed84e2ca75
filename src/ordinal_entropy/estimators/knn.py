"""Kozachenko-Leonenko entropy, from the distance of each row to its k-th neighbour."""

import math

import torch
from torch import Tensor

from ordinal_entropy.estimators._distances import kth_neighbour
from ordinal_entropy.estimators._inputs import (
    check_floor,
    check_neighbours,
    checked_features,
    result,
    standardised,
)


def knn_entropy(z: Tensor, k: int = 3, *, dimension: float | None = None, floor: float = 1e-9) -> Tensor:
    """Kozachenko-Leonenko estimate of the differential entropy of the features, in nats.

    With ``e_i`` the Euclidean distance from row ``i`` to its k-th nearest other row, and ``c_D`` the volume
    of the unit ball in ``D`` dimensions::

        H = psi(N) - psi(k) + log c_D + D / N * sum over i of log e_i

    Args:
        z: ``(n, d)`` features, ``n > k``, any floating type; computed in float64.
        k: which neighbour; larger is smoother and more biased.
        dimension: ``D`` of the formula, ``d`` unless given. Features that fill a surface only have entropy
            ``-inf`` in the space around it; the dimension of the surface gives their entropy on it: ``d - 1``
            for L2-normalised features.
        floor: distances below this share of the spread (root-mean-square distance of the rows to their
            mean) count as that share and pass no gradient. So rows with k duplicates pull the value down
            by a finite amount; 0 gives ``-inf`` for any of them.

    Returns:
        Scalar, float64 for float64 features, else float32; may be negative. ``-inf`` with a zero gradient
        where all rows are the same. Differentiable through the distances, the choice of neighbours held
        fixed. Neighbours are chosen from distances exact to 1e-10, then measured by differences.

    Example:
        >>> z = torch.rand(2000, 2, generator=torch.Generator().manual_seed(0))
        >>> print(f"{knn_entropy(10 * z):.1f}")  # a square of side 10: log 100 = 4.6
        4.6
    """
    check_neighbours(k)
    check_floor(floor)
    features = checked_features(z, at_least=k + 1)
    dimension = checked_dimension(dimension, features.shape[1])
    features, spread = standardised(features)
    if spread == 0:
        return result(features.sum() - torch.inf, z)
    return result(standardised_entropy(features, k, dimension, floor) + dimension * spread.log(), z)


def standardised_entropy(z: Tensor, k: int, dimension: float, floor: float) -> Tensor:
    """The estimate for float64 features ``(n, d)``, the floor being a distance."""
    n = len(z)
    neighbour = z[kth_neighbour(z.detach(), k)]  # (n, d)
    squared = (z - neighbour).square().sum(1)
    squared = torch.where(squared > floor**2, squared, floor**2)
    return digamma(n) - digamma(k) + log_ball_volume(dimension) + dimension * squared.log().mean() / 2


def checked_dimension(dimension: float | None, d: int) -> float:
    """The dimension asked for, ``d`` by default; raises where it is not positive."""
    if dimension is None:
        return float(d)
    if not 0 < dimension <= d:
        raise ValueError(f"expected a dimension above 0 and at most d={d}, got {dimension!r}")
    return float(dimension)


def log_ball_volume(dimension: float) -> float:
    """Log volume of the unit ball in ``dimension`` dimensions: ``pi^(D/2) / Gamma(D/2 + 1)``."""
    return dimension / 2 * math.log(math.pi) - math.lgamma(dimension / 2 + 1)


def digamma(count: int) -> float:
    """Psi of a positive integer."""
    return torch.digamma(torch.tensor(float(count), dtype=torch.float64)).item()
