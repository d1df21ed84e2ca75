"""The diversity of few rows in two halves: weights that depend on the targets alone, and a sum over features.

The same numbers as :func:`ordinal_entropy.functional.diversity` with ``grouping="none"``. The weights of many steps are
found at once, ahead of them, and runs that differ in weighting, rescaling or strength share one sum: a step of a stack
has few and small operations.
"""

import torch
from torch import Tensor

from ordinal_entropy.kernels.unit import unit_rows
from ordinal_entropy.kernels.weights import POWERS


def pair_weights(targets: Tensor, weighting: str, rescale: str) -> Tensor:
    """Weights ``(..., m, m)`` above the diagonal, divided by the number of pairs.

    Args:
        targets: ``(..., m, 1)`` with ``m`` of at least 2.
        weighting: a key of ``POWERS``.
        rescale: "max", "authors" or "none".

    Example:
        >>> pair_weights(torch.tensor([[0.0], [1.0], [3.0]]), "l2", "max")  # 1/3, 3/3 and 2/3 of 3 pairs
        tensor([[0.0000, 0.1111, 0.3333],
                [0.0000, 0.0000, 0.2222],
                [0.0000, 0.0000, 0.0000]])
    """
    m = targets.shape[-2]
    weights = (targets - targets.mT).abs().pow(POWERS[weighting])
    if rescale != "none" and weighting != "none":
        largest = weights.amax((-2, -1), keepdim=True)
        itself = torch.eye(m, dtype=torch.bool, device=targets.device)
        smallest = weights.masked_fill(itself, torch.inf).amin((-2, -1), keepdim=True)
        weights = (weights - smallest if rescale == "authors" else weights) / torch.where(largest > 0, largest, 1)
    return weights.triu(1) / (m * (m - 1) / 2)


def weighted_distances(features: Tensor, weights: Tensor, distance: str, normalize: bool) -> Tensor:
    """Sum of weight times distance over all pairs of all groups, a scalar.

    Args:
        features: ``(g, m, d)``.
        weights: ``(g, m, m)``.
        distance: "l2" (coincident rows get no gradient) or "cosine", at which a zero row is at 1 from all.
        normalize: divide the rows by their norms first; "cosine" always does.
    """
    rows = unit_rows(features) if normalize or distance == "cosine" else features
    if distance == "cosine":
        return (weights * (1 - rows @ rows.mT)).sum()
    return (weights * torch.cdist(rows, rows, compute_mode="donot_use_mm_for_euclid_dist")).sum()
