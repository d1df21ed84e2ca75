"""What the kernels of pairs leave for each other: facts of a group, what is known of its rows, which pairs are close.

Two workspaces, one record a group. In float64: the facts, the middle (width), inverse norms (rows), then for each part
of ``directions.measure`` its numbers and its sum of rows (width). In float32: what is known of each row, how hard it is
pulled (rows), the sum of each tile of pairs and whether it is to be done again (tiles^2 each).
"""

import triton
import triton.language as tl

from ordinal_entropy.kernels.elements import raised

NORM = tl.constexpr(4096.0)  # length of a stored direction
FACTS = tl.constexpr(64)  # room for the facts
NUMBERS = tl.constexpr(72)  # room for the numbers of a part: 5 and two for each dimension of the targets
MEAN_SQUARE = tl.constexpr(0)
LIMIT = tl.constexpr(1)  # behind it no row counts
LARGEST = tl.constexpr(2)  # amount
EXTENT = tl.constexpr(3)  # of the targets
LOW = tl.constexpr(4)  # taken off the weights
FACTOR = tl.constexpr(5)  # from the sum to the mean
SPREAD = tl.constexpr(6)  # root mean square of the centered rows
ONE_PLACE = tl.constexpr(7)  # rows of such a size, in squared spreads, coincide
LOWEST = tl.constexpr(8)  # and on: the smallest target, one for each dimension
SIZE = tl.constexpr(0)  # of a row: |x|^2 in squared spreads
LENGTH = tl.constexpr(1)
AMOUNT = tl.constexpr(2)
NONZERO = tl.constexpr(3)  # whether it has a direction
VALUE = tl.constexpr(4)  # and on: its target, in parts of the extent


@triton.jit
def weights_of(know, i, j, rows, below, POWER: tl.constexpr, T: tl.constexpr):
    """Weights of the pairs of rows ``i`` and ``j``, amounts included; a row does not pair with itself."""
    weights = tl.load(know + rows * AMOUNT + i)[:, None] * tl.load(know + rows * AMOUNT + j)[None, :]
    if POWER != 0.0:
        if T == 1:
            y_i, y_j = tl.load(know + rows * VALUE + i), tl.load(know + rows * VALUE + j)
            apart = raised(tl.abs(y_i[:, None] - y_j[None, :]), POWER)
        else:
            squares = weights * 0.0
            for c in tl.static_range(T):
                y_i, y_j = tl.load(know + rows * (VALUE + c) + i), tl.load(know + rows * (VALUE + c) + j)
                gap = y_i[:, None] - y_j[None, :]
                squares += gap * gap
            apart = squares if POWER == 2.0 else raised(tl.sqrt(squares), POWER)
        weights *= apart - below
    return tl.where(i[:, None] == j[None, :], 0.0, weights)


@triton.jit
def packed(near, TILE: tl.constexpr):
    """A tile of truths as whole numbers of 32 bits, ``(TILE, TILE // 32)``."""
    places = tl.reshape(near.to(tl.int32), [TILE, TILE // 32, 32])
    return tl.sum(places << tl.arange(0, 32)[None, None, :], 2)


@triton.jit
def words(bits, group, rows, i, first, TILE: tl.constexpr):
    """Where the bits of rows ``i`` and the columns of a tile lie."""
    return bits + (group * rows + i)[:, None] * (rows // 32) + (first // 32 + tl.arange(0, TILE // 32))[None, :]


@triton.jit
def unpacked(bits, group, rows, i, j, upper):
    """1 where the pair of a row of ``i`` and a row of ``j`` is close; tiles below the diagonal lie turned over."""
    bits += group * rows * (rows // 32)
    first, second = tl.where(upper, i[:, None], j[None, :]), tl.where(upper, j[None, :], i[:, None])
    return (tl.load(bits + first.to(tl.int64) * (rows // 32) + second // 32) >> (second % 32)) & 1
