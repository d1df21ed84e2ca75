"""Entropy of the features that is left once the target is known, up to a bin."""

import warnings
from typing import Literal

import torch
from torch import Tensor

from ordinal_entropy.estimators._inputs import (
    check_floor,
    check_neighbours,
    checked_features,
    checked_targets,
    result,
    standardised,
)
from ordinal_entropy.estimators.knn import checked_dimension, standardised_entropy

# Share of rows in bins too small to measure from which the caller is told.
LEFT_OUT = 0.1


def conditional_entropy(
    z: Tensor,
    y: Tensor,
    bins: int | Literal["unique"] = 10,
    *,
    bin_width: float | None = None,
    k: int = 3,
    dimension: float | None = None,
    floor: float = 1e-9,
) -> Tensor:
    """Entropy of the features given the bin of their target, in nats: how loose each target's cluster is.

    ``H(Z | Y) = sum over b of p_b H(Z | y in bin b)``, each by `knn_entropy`, ``p_b`` the share of rows in b.

    Args:
        z: ``(n, d)`` features, any floating type; computed in float64.
        y: ``(n,)`` or ``(n, t)`` targets.
        bins: a number of bins of equal counts (rows with equal targets stay together), scalar targets
            only; or ``"unique"``: one bin per distinct target.
        bin_width: takes the place of ``bins``: uniform bins ``floor(y / bin_width)``, a grid for ``t > 1``.
        k: which neighbour, as in `knn_entropy`. Bins of ``k`` rows or fewer are left out, the shares of the
            others adjusted; a warning says so where they held more than a tenth of the rows.
        dimension: as in `knn_entropy`.
        floor: as in `knn_entropy`, as a share of the spread of *all* the features: a bin that has collapsed
            to one point counts with a finite, very low entropy.

    Returns:
        Scalar, float64 for float64 features, else float32; may be negative. ``-inf`` with a zero gradient
        where all rows of the features are the same. Differentiable in ``z``, neighbours held fixed.

    Example:
        >>> z = torch.rand(2000, 1, generator=torch.Generator().manual_seed(0))
        >>> y = (10 * z).floor()  # knowing y leaves an interval of length 0.1: log 0.1 = -2.3
        >>> print(f"{conditional_entropy(z, y, bins='unique'):.1f}")
        -2.3
    """
    check_neighbours(k)
    check_floor(floor)
    features = checked_features(z, at_least=k + 1)
    dimension = checked_dimension(dimension, features.shape[1])
    cell = _cells(checked_targets(y, len(z)), bins, bin_width)  # (n,)

    members = torch.split(cell.argsort(stable=True), cell.bincount().tolist())
    kept = [rows for rows in members if len(rows) > k]
    measured = sum(len(rows) for rows in kept)
    if not kept:
        raise ValueError(f"expected a bin with more than k={k} rows, got {len(members)} bins for {len(z)} rows")
    if measured < (1 - LEFT_OUT) * len(z):
        warnings.warn(
            f"{len(z) - measured} of {len(z)} rows are in bins of k={k} rows or fewer and were left out",
            stacklevel=2,
        )

    features, spread = standardised(features)
    if spread == 0:
        return result(features.sum() - torch.inf, z)
    entropies = [len(rows) * standardised_entropy(features[rows], k, dimension, floor) for rows in kept]
    return result(torch.stack(entropies).sum() / measured + dimension * spread.log(), z)


def _cells(targets: Tensor, bins: int | Literal["unique"], bin_width: float | None) -> Tensor:
    """Bin number ``(n,)`` of each row of ``targets (n, t)``, from 0 without gaps."""
    n, t = targets.shape
    if bin_width is not None:
        if not bin_width > 0:
            raise ValueError(f"expected a bin width above 0, got {bin_width!r}")
        cell = (targets / bin_width).floor()
    elif bins == "unique":
        cell = targets
    elif not isinstance(bins, int) or bins < 1:
        raise ValueError(f'expected bins as an integer >= 1 or "unique" (a width goes to bin_width), got {bins!r}')
    elif t > 1:
        raise ValueError(f'expected bins="unique" or a bin_width for targets of {t} columns, got bins={bins}')
    else:
        edges = targets[:, 0].sort().values[torch.arange(1, bins, device=targets.device) * n // bins]
        cell = torch.searchsorted(edges, targets.contiguous(), right=True)
    index: Tensor = torch.unique(cell, dim=0, return_inverse=True)[1]
    return index
