"""Euclidean distances between all pairs of rows, for terms that compare rows."""

import torch
from torch import Tensor

_ROUNDINGS = 16  # of the squared lengths of centered rows: a smaller squared distance is none


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
