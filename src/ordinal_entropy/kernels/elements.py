"""What the fused kernels have in common, number by number."""

import triton
import triton.language as tl

from ordinal_entropy.kernels import unit

SAME = tl.constexpr(unit.SAME**2)  # squared distances below this part of the mean square are 0


@triton.jit
def raised(x, POWER: tl.constexpr):
    """A distance to the power of 0, 0.5, 1 or 2."""
    if POWER == 0.0:
        return x * 0.0 + 1.0
    elif POWER == 1.0:
        return x
    elif POWER == 2.0:
        return x * x
    else:
        tl.static_assert(POWER == 0.5)
        return tl.sqrt(x)


@triton.jit
def inverse_of(squares, PROJECT: tl.constexpr):
    """What a row of this squared norm is multiplied by: 1 over its norm, 0 for a zero row.

    The squares are sums in float64, which holds the square of any float32.
    """
    tl.static_assert(squares.dtype == tl.float64)
    if PROJECT:
        zero = squares == 0
        return tl.where(zero, 0.0, 1.0 / tl.sqrt(tl.where(zero, 1.0, squares)))
    else:
        return squares * 0.0 + 1.0


@triton.jit
def amounts_of(amount, group, m, i):
    """How many times rows count; without amounts, once."""
    if amount is None:
        return tl.where(i < m, 1.0, 0.0)
    else:
        return tl.load(amount + group * m + i, i < m, 0.0)


@triton.jit
def over_pairs(copies):
    """One over the number of pairs; 0 where there is none."""
    pairs = copies * (copies - 1) / 2
    return tl.where(copies > 1, 1.0 / tl.where(pairs > 0, pairs, 1.0), 0.0)
