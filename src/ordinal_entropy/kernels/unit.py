"""Rows on the unit sphere, of any scale: numbers are brought near 1 by a power of two before they are squared."""

import math

import torch
from torch import Tensor

# Points closer than this part of their root mean square coincide: at distance 0, without a gradient. It is far above
# the rounding of float64, which would decide on the direction between them, and far below that of float32.
SAME = 2.0**-30


def to_one(largest: Tensor) -> Tensor:
    """Powers of two that bring numbers to between 2 and 4; NaN for what is not finite.

    Args:
        largest: at least 0. Below the smallest normal number, and for 0, the power is the largest that there is.

    Example:
        >>> to_one(torch.tensor([1.0, 3e38, 1e-38, 0.0]))
        tensor([2.0000e+00, 1.1755e-38, 1.7014e+38, 1.7014e+38])
    """
    normal = largest.clamp_min(torch.finfo(largest.dtype).tiny)
    return 4 * torch.frexp(normal).mantissa / normal


def inverse_norms(rows: Tensor) -> Tensor:
    """``1 / |row|`` as ``(..., n, 1)`` for rows ``(..., n, d)``; 0 for a zero row.

    Norms below the smallest normal number of the type have the largest number instead. On a CPU, where looking is free,
    rows whose squares are far from both ends of the type are not scaled: that would change no digit.
    """
    if rows.device.type == "cpu" and rows.numel() > 0:
        squares, limits = rows.square().sum(-1, keepdim=True), torch.finfo(rows.dtype)
        least, most = squares.aminmax()
        if float(least) > limits.tiny / limits.eps**2 and float(most) < math.inf:
            return squares.rsqrt_()
    scale = to_one(rows.abs().amax(-1, keepdim=True))
    inverse = (rows * scale).square().sum(-1, keepdim=True).rsqrt()
    return torch.where(inverse.isinf(), 0, scale * inverse).clamp_max(torch.finfo(rows.dtype).max)


def unit_rows(rows: Tensor) -> Tensor:
    """Rows ``(..., n, d)`` divided by their norms, of any size; a zero row stays zero and gets no gradient.

    Example:
        >>> unit_rows(torch.tensor([[3.0, 4.0], [3e30, 4e30], [3e-30, 4e-30], [0.0, 0.0]]))
        tensor([[0.6000, 0.8000],
                [0.6000, 0.8000],
                [0.6000, 0.8000],
                [0.0000, 0.0000]])
    """
    rows = rows * to_one(rows.detach().abs().amax(-1, keepdim=True))
    squares = rows.square().sum(-1, keepdim=True)  # unlike a norm, with derivatives at zero
    return rows * torch.where(squares == 0, math.inf, squares).rsqrt()
