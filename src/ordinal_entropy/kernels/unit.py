"""Rows on the unit sphere."""

import math

import torch
from torch import Tensor


def inverse_norms(rows: Tensor) -> Tensor:
    """``1 / |row|`` as ``(..., n, 1)`` for rows ``(..., n, d)``; 0, without any derivative, for a zero row."""
    squares = rows.square().sum(-1, keepdim=True)  # unlike a norm, with derivatives at zero
    return torch.where(squares > torch.finfo(rows.dtype).tiny, squares, math.inf).rsqrt()


def unit_rows(rows: Tensor) -> Tensor:
    """Rows ``(..., n, d)`` divided by their norms; a zero row stays zero and gets no gradient.

    Example:
        >>> unit_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    return rows * inverse_norms(rows)
