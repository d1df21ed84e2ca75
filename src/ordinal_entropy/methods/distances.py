"""Euclidean distances between all pairs of rows, for terms that compare rows."""

import torch
from torch import Tensor

_ROUNDINGS = 16  # of the squared lengths of centered rows: a smaller squared distance is none


def grouped(features: Tensor, targets: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
    """Rows, or groups of rows, as groups: features, targets without a graph, and which rows count.

    Args:
        features: ``(n, d)`` or ``(g, n, d)``.
        targets: ``(n,)`` or ``(n, t)``; of groups ``(g, n)`` or ``(g, n, t)``.
        mask: boolean ``(n,)`` or ``(g, n)``.

    Returns:
        ``(g, n, d)``, ``(g, n, t)`` and ``(g, n)``; without groups, g is 1.

    Example:
        >>> [tuple(each.shape) for each in grouped(torch.ones(3, 2), torch.ones(3))]
        [(1, 3, 2), (1, 3, 1), (1, 3)]
    """
    features = features if features.dim() == 3 else features[None]
    shape = features.shape[:2]
    counts = torch.ones(shape, dtype=torch.bool, device=features.device) if mask is None else mask.reshape(shape)
    return features, targets.detach().reshape(*shape, -1), counts


def accurate(rows: Tensor) -> Tensor:
    """The rows in float64, where the device has it: products lose half of the digits of close pairs.

    Example:
        >>> accurate(torch.ones(2, 3, dtype=torch.float16)).dtype
        torch.float64
    """
    return rows.to(torch.promote_types(rows.dtype, torch.float32) if rows.device.type == "mps" else torch.float64)


def centered(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Rows ``(..., n, d)`` around their mean, which distances do not depend on, and their squared lengths ``(..., n)``.

    Example:
        >>> centered(torch.tensor([[1.0], [3.0]]))[1]
        tensor([1., 1.])
    """
    rows = rows - rows.mean(-2, keepdim=True)
    return rows, rows.square().sum(-1)


def cross_distances(some: Tensor, some_squares: Tensor, all_of_them: Tensor, squares: Tensor) -> Tensor:
    """Distances ``(..., m, n)`` of some centered rows from others, by products, without a tensor of m x n x d numbers.

    Args:
        some: ``(..., m, d)``.
        some_squares: ``(..., m)``, their squared lengths.
        all_of_them: ``(..., n, d)``.
        squares: ``(..., n)``, likewise.

    Returns:
        Distances; 0, with a gradient of 0, where the squared distance is no larger than rounding.
    """
    lengths = some_squares[..., :, None] + squares[..., None, :]
    squared = lengths - 2 * (some @ all_of_them.mT)
    there = squared > _ROUNDINGS * torch.finfo(some.dtype).eps * lengths
    return torch.where(there, torch.where(there, squared, 1).sqrt(), 0)


def distances(rows: Tensor) -> Tensor:
    """Distances of all pairs.

    Args:
        rows: ``(..., n, d)``.

    Returns:
        ``(..., n, n)`` of the same type, best float64; coincident rows have the distance 0 and no gradient.

    Example:
        >>> distances(torch.tensor([[0.0, 0.0], [3.0, 4.0]]))
        tensor([[0., 5.],
                [5., 0.]])
    """
    rows, squares = centered(rows)
    diagonal = torch.eye(rows.shape[-2], dtype=torch.bool, device=rows.device)
    return cross_distances(rows, squares, rows, squares).masked_fill(diagonal, 0)


def mean_distance(distances: Tensor, counts: Tensor) -> Tensor:
    """The mean over all pairs of rows that count, ``(..., 1, 1)``; 1 where it is 0, or there is no pair.

    Args:
        distances: ``(..., n, n)``.
        counts: boolean ``(..., n)``.

    Example:
        >>> mean_distance(torch.tensor([[0.0, 2.0], [2.0, 0.0]]), torch.tensor([True, True]))
        tensor([[2.]])
    """
    own = counts.sum(-1)
    total = torch.where(counts[..., :, None] & counts[..., None, :], distances, 0).sum((-2, -1))
    mean = (total / (own * (own - 1)).clamp(min=1))[..., None, None]
    return torch.where(mean > 0, mean, 1)
