"""Pairs too close for a product form, once more in float64.

Bits say which they are; a tile that is full of them, or has no bits because there are too many pairs, is done again as
a whole.
"""

import triton
import triton.language as tl

from ordinal_entropy.kernels.elements import SAME
from ordinal_entropy.kernels.workspace import FACTS, LIMIT, LOW, MEAN_SQUARE, SIZE, SPREAD, unpacked, weights_of

_MANY = tl.constexpr(16)  # close pairs of a row in a tile: more are done all at once


@triton.jit
def take_close_pairs(
    points, double, single, bits, gradient, m, d, rows, width, doubles, singles,
    POWER: tl.constexpr, GRADIENT: tl.constexpr, T: tl.constexpr,
    TILE: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Some rows of all tiles that hold a close pair, in float64; the rows are this program's alone.

    Of a tile that is not crowded, the close pairs alone; where a row has few of them, one after the other.
    """
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    fact = double + group * doubles
    inverse = fact + FACTS + width
    limit = tl.load(fact + LIMIT).to(tl.int32)
    total = 0.0 * tl.load(fact + SPREAD)
    if block * ROWS < limit:
        i = block * ROWS + tl.arange(0, ROWS)
        know = single + group * singles
        tiles = rows // TILE
        mine = block * ROWS // TILE
        flags = know + (5 + T) * rows + tiles * tiles
        used = (limit + TILE - 1) // TILE
        below = tl.load(fact + LOW).to(tl.float32)
        for some in range(0, used, 128):
            near = some + tl.arange(0, 128)
            flag = tl.minimum(near, mine).to(tl.int64) * tiles + tl.maximum(near, mine)
            if tl.max(tl.load(flags + flag, near < used, 0.0)) > 0:
                for tile in range(some, tl.minimum(some + 128, used)):
                    kind = tl.load(flags + tl.minimum(tile, mine).to(tl.int64) * tiles + tl.maximum(tile, mine))
                    if kind > 0:
                        j = tile * TILE + tl.arange(0, TILE)
                        weights = weights_of(know, i, j, rows, below, POWER, T)
                        most = TILE
                        if bits is not None:
                            close = tl.where(kind > 1, 1, unpacked(bits, group, rows, i, j, mine <= tile))
                            weights = tl.where(close > 0, weights, 0.0)
                            most = tl.max(tl.sum(close, 1))
                        if most > _MANY:
                            total += _all_again(
                                points, fact, inverse, weights, gradient, group, i, j, m, d, width,
                                GRADIENT, TILE, ROWS, DEPTH,
                            )  # fmt: skip
                        elif most > 0:
                            total += _few_again(
                                points, know, fact, inverse, weights, gradient, group, i, tile, most, m, d, rows,
                                GRADIENT, TILE, ROWS, COLS,
                            )  # fmt: skip
                        tl.debug_barrier()  # the gradient is read by other threads than wrote it
    tl.store(inverse + rows + block, total)  # where the parts of measure were


@triton.jit
def _all_again(
    points, fact, inverse, weights, gradient, group, i, j, m, d, width,
    GRADIENT: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Rows ``i`` with a tile of rows ``j``, by products: the sum of weight times distance. Adds to the gradient."""
    middle = fact + FACTS
    row_i = points + (group * m + i)[:, None] * d
    inv_i, inv_j = tl.load(inverse + i)[:, None], tl.load(inverse + j)
    products = tl.zeros([ROWS, TILE], tl.float64)
    size_i = tl.zeros([ROWS], tl.float64)
    size_j = tl.zeros([TILE], tl.float64)
    for start in range(0, d, DEPTH):
        k = start + tl.arange(0, DEPTH)
        mid = tl.load(middle + k, k < d, 0.0)
        x = tl.load(row_i + k[None, :], (i < m)[:, None] & (k < d)[None, :], 0.0).to(tl.float64)
        x = x * inv_i - mid[None, :]
        y = points + (group * m + j)[None, :] * d + k[:, None]
        y = tl.load(y, (j < m)[None, :] & (k < d)[:, None], 0.0).to(tl.float64)
        y = y * inv_j[None, :] - mid[:, None]
        size_i += tl.sum(x * x, 1)
        size_j += tl.sum(y * y, 0)
        products = tl.dot(x, y, products, out_dtype=tl.float64)
    sizes = size_i[:, None] + size_j[None, :]
    squares = sizes - 2 * products
    apart = squares > tl.maximum(1e-15 * sizes, tl.load(fact + MEAN_SQUARE) * SAME)
    pull = tl.where(apart, weights.to(tl.float64) / tl.sqrt(tl.where(apart, squares, 1.0)), 0.0)
    if GRADIENT:
        strength = tl.sum(pull, 1)
        for start in range(0, d, DEPTH):
            k = start + tl.arange(0, DEPTH)
            mid = tl.load(middle + k, k < d, 0.0)
            inside = (i < m)[:, None] & (k < d)[None, :]
            x = tl.load(row_i + k[None, :], inside, 0.0).to(tl.float64) * inv_i - mid[None, :]
            y = points + (group * m + j)[:, None] * d + k[None, :]
            y = tl.load(y, (j < m)[:, None] & (k < d)[None, :], 0.0).to(tl.float64)
            y = y * inv_j[:, None] - mid[None, :]
            change = strength[:, None] * x - tl.dot(pull, y, out_dtype=tl.float64)
            out = gradient + (group * m + i)[:, None] * d + k[None, :]
            tl.store(out, tl.load(out, inside, 0.0) + change.to(tl.float32), inside)
    return tl.sum(pull * squares)


@triton.jit
def _few_again(
    points, know, fact, inverse, weights, gradient, group, i, tile, most, m, d, rows,
    GRADIENT: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The same by differences: of each row the pairs that have a weight, ``most`` at most, one after the other."""
    column = tl.arange(0, TILE)[None, :]
    inv_i, size_i = tl.load(inverse + i), tl.load(know + rows * SIZE + i)
    spread = tl.load(fact + SPREAD)
    row_i = points + (group * m + i)[:, None] * d
    total = 0.0 * spread
    for _ in range(0, most):
        first = tl.min(tl.where(weights != 0, column, TILE), 1)
        chosen = column == first[:, None]
        weight = tl.sum(tl.where(chosen, weights, 0.0), 1)  # 0 for a row without one
        weights = tl.where(chosen, 0.0, weights)
        j = tile * TILE + tl.where(first < TILE, first, 0)
        inv_j = tl.load(inverse + j)
        row_j = points + (group * m + j)[:, None] * d
        squares = tl.zeros([ROWS], tl.float64)
        for start in range(0, d, COLS):
            k = start + tl.arange(0, COLS)[None, :]
            apart = _difference(row_i + k, row_j + k, inv_i, inv_j, (weight != 0)[:, None] & (k < d))
            squares += tl.sum(apart * apart, 1)
        sizes = (size_i + tl.load(know + rows * SIZE + j)) * spread * spread
        there = squares > tl.maximum(1e-15 * sizes, tl.load(fact + MEAN_SQUARE) * SAME)
        pull = tl.where(there, weight.to(tl.float64) / tl.sqrt(tl.where(there, squares, 1.0)), 0.0)
        total += tl.sum(pull * squares)
        if GRADIENT:
            for start in range(0, d, COLS):
                k = start + tl.arange(0, COLS)[None, :]
                inside = (weight != 0)[:, None] & (k < d)
                change = pull[:, None] * _difference(row_i + k, row_j + k, inv_i, inv_j, inside)
                out = gradient + (group * m + i)[:, None] * d + k
                tl.store(out, tl.load(out, inside, 0.0) + change.to(tl.float32), inside)
    return total


@triton.jit
def _difference(x, y, inv_x, inv_y, inside):
    """Of rows that are multiplied by a number each, in float64."""
    x, y = tl.load(x, inside, 0.0).to(tl.float64), tl.load(y, inside, 0.0).to(tl.float64)
    return x * inv_x[:, None] - y * inv_y[:, None]
