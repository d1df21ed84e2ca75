"""Squared distances between all rows, a few rows at a time: never an ``(n, n)`` matrix."""

from collections.abc import Iterator

import torch
from torch import Tensor

# Distances held at once. In float64 this is 16 MiB per temporary, and there are a handful of them.
BLOCK_ELEMENTS = 2**21

# Below this share of the two squared lengths the product form has lost five digits: see below.
CLOSE = 1e-4


def squared_distances(a: Tensor, b: Tensor, own: int | None = None) -> Tensor:
    """Squared Euclidean distances ``(p, q)`` between the rows of ``a (p, d)`` and ``b (q, d)``.

    With ``own``, row i of ``a`` is row ``own + i`` of ``b``, and infinitely far from itself.

    ``|a|^2 + |b|^2 - 2ab`` is fast and loses close pairs to cancellation. Columns that hold a close pair
    are therefore computed again from differences, so that the relative error stays below 1e-10 for
    every pair in float64, and rows that are equal are at distance 0 exactly.
    """
    size = a.square().sum(1, keepdim=True) + b.square().sum(1)  # (p, q)
    squared = torch.addmm(size, a, b.T, alpha=-2)
    if own is not None:
        squared.diagonal(offset=own).fill_(torch.inf)  # not a close pair, which would be computed again
    close = (squared <= CLOSE * size).any(0)  # (q,)
    if close.any():
        exact = torch.cdist(a, b[close], compute_mode="donot_use_mm_for_euclid_dist")
        squared[:, close] = exact.square_()
        if own is not None:
            squared.diagonal(offset=own).fill_(torch.inf)
    return squared


def distance_rows(z: Tensor) -> Iterator[tuple[slice, Tensor]]:
    """Yields ``(rows, squared)``: distances ``(b, n)`` of a few rows to all rows, to themselves infinite.

    The rows of a block depend on ``n`` alone, so that two sets of features can be walked side by side.
    """
    n = len(z)
    step = max(1, BLOCK_ELEMENTS // n)
    for start in range(0, n, step):
        rows = slice(start, min(start + step, n))
        yield rows, squared_distances(z[rows], z, own=start)


@torch.no_grad()
def kth_neighbour(z: Tensor, k: int) -> Tensor:
    """Index ``(n,)`` of the k-th nearest other row of each row of ``z (n, d)``."""
    index = [squared.topk(k, dim=1, largest=False).indices[:, -1] for _, squared in distance_rows(z)]
    return torch.cat(index)
