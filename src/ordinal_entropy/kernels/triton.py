"""The mean over all pairs fused on the tensor cores: no m x m matrix, rows split into two halves of float16.

Kernels follow each other without a look at any value:

1. ``_measure``, ``_summarise``: norms, the middle of the points, the range of the targets; sums in float64.
2. ``_split``: each row, (divided by its norm and) centered in float64, as a length and a direction, the direction as
   the sum of two float16 numbers (22 bits of mantissa; one alone, 11 bits like TF32, where
   ``torch.get_float32_matmul_precision()`` is not "highest", and for features of half precision, which have no more).
   Of a small group both are one kernel, ``_prepare``.
3. ``_pairs``: for a block of pairs, each pair once, three products on the tensor cores give the distances; their sum is
   kept, and what each pair pulls goes to a scratch of fixed size, as two float16 numbers again.
4. ``_pull``: that scratch, and the same turned over, times the directions: the gradient at the centered rows.
5. ``_again``: pairs too close for a product form, in float64. Bits say which they are; a tile that is full of them, or
   has no bits because there are too many pairs, is done again as a whole.
6. ``_finish``: the gradient through the division by the norm, and the mean.

A pair is too close when its squared distance is below 2**-10 of ``|x|^2 + |y|^2``. All others have a squared distance
right to a few 2**-22 of that, hence a distance right to about 2**-12 of itself, and a pull that float16 can hold.
"""

import functools
import itertools
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ordinal_entropy.kernels import few
from ordinal_entropy.kernels.autograd import differentiable
from ordinal_entropy.kernels.choice import MOST_GROUPS, use
from ordinal_entropy.kernels.elements import SAME, amounts_of, inverse_of, over_pairs, raised
from ordinal_entropy.kernels.launch import At, Launch, Program, aligned, current
from ordinal_entropy.kernels.pairs import pair_mean
from ordinal_entropy.kernels.weights import POWERS, smallest_gap

SCRATCH = 2**25  # bytes for the pulls of one block of pairs
# Columns of a block of pairs: tensor cores round their sums down, so that of longer ones the gradient would be off by
# more than 5e-6. With one product it is off by 3e-4 anyway.
LONGEST = {2: 2048, 1: 4096}
BITS = 2**25  # bytes that may say which pairs are close; of more pairs it is known by tiles only
FEW = 2**14  # numbers of a group that one program prepares
_ROWS = 32  # of a program that computes in float64

_CLOSE = tl.constexpr(2.0**-10)
_NORM = tl.constexpr(4096.0)  # length of a stored direction
_FLOOR = tl.constexpr(2.0**-10)  # smallest length of a row, in root mean squares
_CROWD = tl.constexpr(64)  # of so many pairs of a tile one is close: all of its pairs are done again
_MANY = tl.constexpr(16)  # close pairs of a row in a tile: more are done all at once

# Two workspaces, one record a group. In float64: the facts, the middle (width), inverse norms (rows), then for each
# part of ``_measure`` its numbers and its sum of rows (width). In float32: what is known of each row, how hard it is
# pulled (rows), the sum of each tile of pairs and whether it is to be done again (tiles^2 each).
_FACTS = tl.constexpr(64)  # room for the facts
_NUMBERS = tl.constexpr(72)  # room for the numbers of a part: 5 and two for each dimension of the targets
_MEAN_SQUARE = tl.constexpr(0)
_LIMIT = tl.constexpr(1)  # behind it no row counts
_LARGEST = tl.constexpr(2)  # amount
_EXTENT = tl.constexpr(3)  # of the targets
_LOW = tl.constexpr(4)  # taken off the weights
_FACTOR = tl.constexpr(5)  # from the sum to the mean
_SPREAD = tl.constexpr(6)  # root mean square of the centered rows
_ONE_PLACE = tl.constexpr(7)  # rows of such a size, in squared spreads, coincide
_LOWEST = tl.constexpr(8)  # and on: the smallest target, one for each dimension
_SIZE = tl.constexpr(0)  # of a row: |x|^2 in squared spreads
_LENGTH = tl.constexpr(1)
_AMOUNT = tl.constexpr(2)
_NONZERO = tl.constexpr(3)  # whether it has a direction
_VALUE = tl.constexpr(4)  # and on: its target, in parts of the extent


@triton.jit
def _measure(
    points, values, amount, double, m, d, rows, width, doubles, repeats,
    PROJECT: tl.constexpr, T: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Of some rows: inverse norms, the sum of the (unit) rows, and what the summary needs."""
    part, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    inverse = double + group * doubles + _FACTS + width
    number = inverse + rows + part * (_NUMBERS + width)
    first = part * repeats * ROWS
    count = tl.zeros([ROWS], tl.float64)
    copies = tl.zeros([ROWS], tl.float64)
    total = tl.zeros([ROWS], tl.float64)
    largest = tl.zeros([ROWS], tl.float64)
    last = tl.zeros([ROWS], tl.int32)
    for r in range(0, repeats):
        i = first + r * ROWS + tl.arange(0, ROWS)
        a = amounts_of(amount, group, m, i).to(tl.float64)
        present = a > 0
        squares = tl.zeros([ROWS], tl.float64)
        for start in range(0, d, COLS):
            k = start + tl.arange(0, COLS)
            x = tl.load(points + (group * m + i)[:, None] * d + k[None, :], (i < m)[:, None] & (k < d)[None, :], 0.0)
            x = x.to(tl.float64)
            squares += tl.sum(x * x, 1)
        inv = inverse_of(squares, PROJECT)
        tl.store(inverse + i, inv, i < rows)
        count += tl.where(present, 1.0, 0.0).to(tl.float64)
        copies += a
        total += tl.where(present, squares * inv * inv if PROJECT else squares, 0.0)
        largest = tl.maximum(largest, a)
        last = tl.maximum(last, tl.where(present, i + 1, 0))
    tl.store(number, tl.sum(count, 0))
    tl.store(number + 1, tl.sum(copies, 0))
    tl.store(number + 2, tl.sum(total, 0))
    tl.store(number + 3, tl.max(last, 0).to(tl.float64))
    tl.store(number + 4, tl.max(largest, 0))
    for c in tl.static_range(T):
        low = tl.full([ROWS], float("inf"), tl.float64)
        high = tl.full([ROWS], float("-inf"), tl.float64)
        for r in range(0, repeats):
            i = first + r * ROWS + tl.arange(0, ROWS)
            present = amounts_of(amount, group, m, i) > 0
            y = tl.load(values + (group * m + i) * T + c, i < m, 0.0).to(tl.float64)
            low = tl.where(present, tl.minimum(low, y), low)
            high = tl.where(present, tl.maximum(high, y), high)
        tl.store(number + 5 + 2 * c, tl.min(low, 0))
        tl.store(number + 6 + 2 * c, tl.max(high, 0))
    tl.debug_barrier()  # the inverse norms are read by other threads than wrote them
    for start in range(0, width, COLS):
        k = start + tl.arange(0, COLS)
        column = tl.zeros([COLS], tl.float64)
        for r in range(0, repeats):
            i = first + r * ROWS + tl.arange(0, ROWS)
            present = amounts_of(amount, group, m, i) > 0
            x = tl.load(points + (group * m + i)[:, None] * d + k[None, :], present[:, None] & (k < d)[None, :], 0.0)
            inv = tl.load(inverse + i, i < rows, 0.0)
            column += tl.sum(x.to(tl.float64) * inv[:, None], 0)
        tl.store(number + _NUMBERS + k, column, k < width)


@triton.jit
def _summarise(
    double, gap, span, times, rows, width, doubles, parts,
    POWER: tl.constexpr, RESCALE: tl.constexpr, T: tl.constexpr, COLS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The middle of the points and the facts of a group, out of the parts that ``_measure`` left."""
    group = tl.program_id(1).to(tl.int64)
    fact = double + group * doubles
    number = fact + _FACTS + width + rows
    count = tl.zeros([PARTS], tl.float64)
    for start in range(0, parts, PARTS):
        b = start + tl.arange(0, PARTS)
        count += tl.load(number + b * (_NUMBERS + width), b < parts, 0.0)
    present = tl.maximum(tl.sum(count, 0), 1.0)
    for first in range(tl.program_id(0) * COLS, width, tl.num_programs(0) * COLS):
        k = first + tl.arange(0, COLS)
        total = tl.zeros([COLS], tl.float64)
        for start in range(0, parts, PARTS):
            b = start + tl.arange(0, PARTS)
            column = number + (b * (_NUMBERS + width))[:, None] + _NUMBERS + k[None, :]
            total += tl.sum(tl.load(column, (b < parts)[:, None] & (k < width)[None, :], 0.0), 0)
        tl.store(fact + _FACTS + k, total / present, k < width)
    if tl.program_id(0) == 0:
        copies = tl.zeros([PARTS], tl.float64)
        squares = tl.zeros([PARTS], tl.float64)
        last = tl.zeros([PARTS], tl.float64)
        largest = tl.zeros([PARTS], tl.float64)
        for start in range(0, parts, PARTS):
            b = start + tl.arange(0, PARTS)
            part = number + b * (_NUMBERS + width)
            copies += tl.load(part + 1, b < parts, 0.0)
            squares += tl.load(part + 2, b < parts, 0.0)
            last = tl.maximum(last, tl.load(part + 3, b < parts, 0.0))
            largest = tl.maximum(largest, tl.load(part + 4, b < parts, 0.0))
        extent = 0.0 * present  # no two targets are farther apart
        for c in tl.static_range(T):
            low = tl.full([PARTS], float("inf"), tl.float64)
            high = tl.full([PARTS], float("-inf"), tl.float64)
            for start in range(0, parts, PARTS):
                b = start + tl.arange(0, PARTS)
                part = number + b * (_NUMBERS + width) + 5 + 2 * c
                low = tl.minimum(low, tl.load(part, b < parts, float("inf")))
                high = tl.maximum(high, tl.load(part + 1, b < parts, float("-inf")))
            lowest = tl.min(low, 0)
            reach = tl.max(high, 0) - lowest
            extent = tl.maximum(extent, reach * (1.0 * T) ** 0.5)
            tl.store(fact + _LOWEST + c, lowest)
        extent = tl.where((extent > 0) & (extent < float("inf")), extent, 1.0)
        factor = 1.0 + 0.0 * extent
        below = 0.0 * extent
        if POWER != 0.0:
            if RESCALE:
                if span is not None:
                    longest = tl.load(span + group).to(tl.float64)
                    factor = raised(extent / tl.where(longest > 0, longest, extent), POWER)
                if gap is not None:
                    below = raised(tl.load(gap + group).to(tl.float64) / extent, POWER)
            else:
                factor = raised(extent, POWER)
        heaviest = tl.max(largest, 0)
        mean_square = tl.sum(squares, 0) / present
        tl.store(fact + _MEAN_SQUARE, mean_square)
        tl.store(fact + _LIMIT, tl.max(last, 0))
        tl.store(fact + _LARGEST, tl.where(heaviest > 0, heaviest, 1.0))
        tl.store(fact + _EXTENT, extent)
        tl.store(fact + _LOW, below)
        factor *= heaviest * heaviest * over_pairs(tl.sum(copies, 0)) + 0.0 * mean_square  # NaN features: a NaN mean
        factor *= times
        tl.store(fact + _FACTOR, factor)


@triton.jit
def _split(
    points, values, amount, double, single, halves, m, d, rows, width, doubles, singles, plane,
    PARTS: tl.constexpr, T: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Rows as lengths and directions, the directions in one or two parts of float16; padding is zero."""
    group = tl.program_id(1).to(tl.int64)
    for block in range(tl.program_id(0), rows // ROWS, tl.num_programs(0)):
        i = block * ROWS + tl.arange(0, ROWS)
        a = amounts_of(amount, group, m, i).to(tl.float64)
        present = a > 0
        row = points + (group * m + i)[:, None] * d
        fact = double + group * doubles
        middle = fact + _FACTS
        inv = tl.load(middle + width + i)
        mean_square = tl.load(fact + _MEAN_SQUARE)
        sizes = tl.zeros([ROWS], tl.float64)
        offset = tl.zeros([COLS], tl.float64)
        for start in range(0, d, COLS):
            k = start + tl.arange(0, COLS)
            x = tl.load(row + k[None, :], present[:, None] & (k < d)[None, :], 0.0).to(tl.float64)
            mid = tl.load(middle + k, k < d, 0.0)
            x = x * inv[:, None] - mid[None, :]
            sizes += tl.sum(x * x, 1)
            offset += mid * mid
        spread = tl.sqrt(tl.maximum(mean_square - tl.sum(offset, 0), 1e-14 * mean_square))
        spread = tl.where(spread > 0, spread, 1.0)
        if block == 0:
            tl.store(fact + _SPREAD, spread)
            tl.store(fact + _ONE_PLACE, mean_square * SAME / (spread * spread))
        length = tl.where(present, tl.maximum(tl.sqrt(sizes) / spread, _FLOOR), 1.0)
        scale = (1.0 / (length * spread) * _NORM)[:, None]
        squares = tl.zeros([ROWS], tl.float32)
        for start in range(0, width, COLS):
            k = start + tl.arange(0, COLS)
            there = present[:, None] & (k < d)[None, :]
            x = tl.load(row + k[None, :], there, 0.0).to(tl.float64)
            mid = tl.load(middle + k, k < d, 0.0)
            u = tl.where(there, (x * inv[:, None] - mid[None, :]) * scale, 0.0).to(tl.float32)
            high = u.to(tl.float16)
            out = halves + (group * rows + i)[:, None] * width + k[None, :]
            kept = (k < width)[None, :]
            tl.store(out, high, kept)
            stored = high.to(tl.float32)
            if PARTS == 2:
                low = (u - stored).to(tl.float16)
                tl.store(out + plane, low, kept)
                stored += low.to(tl.float32)
            squares += tl.sum(stored * stored, 1)
        know = single + group * singles + i
        share = length.to(tl.float32) / _NORM
        tl.store(know + rows * _SIZE, squares * share * share)
        tl.store(know + rows * _LENGTH, length.to(tl.float32))
        tl.store(know + rows * _AMOUNT, (a / tl.load(fact + _LARGEST)).to(tl.float32))
        tl.store(know + rows * _NONZERO, tl.where(inv == 0, 0.0, 1.0))
        extent = tl.load(fact + _EXTENT)
        for c in tl.static_range(T):
            y = tl.load(values + (group * m + i) * T + c, present, 0.0).to(tl.float64)
            y = tl.where(present, (y - tl.load(fact + _LOWEST + c)) / extent, 0.0)
            tl.store(know + rows * (_VALUE + c), y.to(tl.float32))


@triton.jit
def _prepare(
    points, values, amount, double, single, halves, gap, span, times, m, d, rows, width, doubles, singles, plane,
    repeats, PROJECT: tl.constexpr, POWER: tl.constexpr, RESCALE: tl.constexpr, HALVES: tl.constexpr, T: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """All of the above, in one program for each group."""
    _measure(points, values, amount, double, m, d, rows, width, doubles, repeats, PROJECT, T, ROWS, COLS)
    tl.debug_barrier()
    _summarise(double, gap, span, times, rows, width, doubles, 1, POWER, RESCALE, T, COLS, 1)
    tl.debug_barrier()
    _split(
        points, values, amount, double, single, halves, m, d, rows, width, doubles, singles, plane,
        HALVES, T, ROWS, COLS,
    )  # fmt: skip


@triton.jit
def _weights(know, i, j, rows, below, POWER: tl.constexpr, T: tl.constexpr):
    """Weights of the pairs of rows ``i`` and ``j``, amounts included; a row does not pair with itself."""
    weights = tl.load(know + rows * _AMOUNT + i)[:, None] * tl.load(know + rows * _AMOUNT + j)[None, :]
    if POWER != 0.0:
        if T == 1:
            y_i, y_j = tl.load(know + rows * _VALUE + i), tl.load(know + rows * _VALUE + j)
            apart = raised(tl.abs(y_i[:, None] - y_j[None, :]), POWER)
        else:
            squares = weights * 0.0
            for c in tl.static_range(T):
                y_i, y_j = tl.load(know + rows * (_VALUE + c) + i), tl.load(know + rows * (_VALUE + c) + j)
                gap = y_i[:, None] - y_j[None, :]
                squares += gap * gap
            apart = squares if POWER == 2.0 else raised(tl.sqrt(squares), POWER)
        weights *= apart - below
    return tl.where(i[:, None] == j[None, :], 0.0, weights)


@triton.jit
def _packed(near, TILE: tl.constexpr):
    """A tile of truths as whole numbers of 32 bits, ``(TILE, TILE // 32)``."""
    places = tl.reshape(near.to(tl.int32), [TILE, TILE // 32, 32])
    return tl.sum(places << tl.arange(0, 32)[None, None, :], 2)


@triton.jit
def _words(bits, group, rows, i, first, TILE: tl.constexpr):
    """Where the bits of rows ``i`` and the columns of a tile lie."""
    return bits + (group * rows + i)[:, None] * (rows // 32) + (first // 32 + tl.arange(0, TILE // 32))[None, :]


@triton.jit(do_not_specialize=["group0", "across"])
def _pairs(
    halves, double, single, bits, scratch, pulls, group0, row0, col0, across,
    rows, width, doubles, singles, plane, side, part, scale,
    POWER: tl.constexpr, COSINE: tl.constexpr, PARTS: tl.constexpr, GRADIENT: tl.constexpr, T: tl.constexpr,
    TILE: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """One tile of pairs: the sum of weight times distance, and how hard each pair is pulled, into the scratch.

    Distances are in spreads, those of the cosine in ones.
    """
    up, left = tl.program_id(0) // across, tl.program_id(0) % across
    local = tl.program_id(1).to(tl.int64)
    group = group0 + local
    fact = double + group * doubles
    limit = tl.load(fact + _LIMIT).to(tl.int32)
    if (row0 + up * TILE >= limit) | (col0 + left * TILE >= limit) | (row0 + up * TILE > col0 + left * TILE):
        return
    i = row0 + up * TILE + tl.arange(0, TILE)
    j = col0 + left * TILE + tl.arange(0, TILE)
    k = tl.arange(0, DEPTH)
    a = halves + (group * rows + i)[:, None] * width + k[None, :]
    b = halves + (group * rows + j)[None, :] * width + k[:, None]
    products = tl.zeros([TILE, TILE], tl.float32)
    for _ in range(0, width, DEPTH):
        a_high, b_high = tl.load(a), tl.load(b)
        if PARTS == 2:
            a_low, b_low = tl.load(a + plane), tl.load(b + plane)
            products = tl.dot(a_low, b_high, products)
            products = tl.dot(a_high, b_low, products)
        products = tl.dot(a_high, b_high, products)
        a += DEPTH
        b += DEPTH

    know = single + group * singles
    tiles = rows // TILE
    tile = know + (5 + T) * rows + (row0 // TILE + up).to(tl.int64) * tiles + col0 // TILE + left
    length_i, length_j = tl.load(know + rows * _LENGTH + i)[:, None], tl.load(know + rows * _LENGTH + j)[None, :]
    sizes = tl.load(know + rows * _SIZE + i)[:, None] + tl.load(know + rows * _SIZE + j)[None, :]
    squares = sizes - products * (2.0 / (_NORM * _NORM)) * length_i * length_j
    weights = _weights(know, i, j, rows, tl.load(fact + _LOW).to(tl.float32), POWER, T)
    if COSINE:
        spread = tl.load(fact + _SPREAD).to(tl.float32)
        zero_i = tl.where(tl.load(know + rows * _NONZERO + i) == 0, 0.5, 0.0)
        zero_j = tl.where(tl.load(know + rows * _NONZERO + j) == 0, 0.5, 0.0)
        distances = squares * (0.5 * spread * spread) + zero_i[:, None] + zero_j[None, :]
        pull = weights
    else:
        close = (length_i * length_i + length_j * length_j) * _CLOSE
        weights = tl.where(sizes <= tl.load(fact + _ONE_PLACE).to(tl.float32), 0.0, weights)
        near = (squares <= close) & (weights != 0)
        number = tl.sum(tl.where(near, 1.0, 0.0))
        if bits is None:
            crowded = number > 0
        else:
            crowded = number * _CROWD > TILE * TILE
            if number > 0:
                tl.store(_words(bits, group, rows, i, col0 + left * TILE, TILE), _packed(near, TILE))
        tl.store(tile + tiles * tiles, tl.where(crowded, 2.0, tl.minimum(number, 1.0)))
        weights = tl.where(crowded, 0.0, tl.where(near, 0.0, weights))
        squares = tl.maximum(squares, close)
        inverse = tl.rsqrt(squares)
        distances = squares * inverse  # in spreads, as all here
        pull = weights * inverse
    below_diagonal = row0 + up * TILE != col0 + left * TILE  # its pairs (j, i) are not visited
    tl.store(tile, tl.sum(weights * distances) * tl.where(below_diagonal, 2.0, 1.0))
    if GRADIENT:
        row, col = up * TILE + tl.arange(0, TILE), left * TILE + tl.arange(0, TILE)
        mine = pulls + local * (side // TILE) * side
        tl.store(mine + left * side + row, tl.sum(pull, 1))
        turned = tl.where(row0 == col0, 0, tl.num_programs(1).to(tl.int64) * (side // TILE) * side)
        if below_diagonal:
            tl.store(mine + turned + up * side + col, tl.sum(pull, 0))
        pull *= length_i * length_j * scale
        high = pull.to(tl.float16)
        low = (pull - high.to(tl.float32)).to(tl.float16)
        out = scratch + (local * side + row)[:, None] * side + col[None, :]
        tl.store(out, high)
        if PARTS == 2:
            tl.store(out + part, low)
        if (row0 == col0) & below_diagonal:
            out = scratch + (local * side + col)[:, None] * side + row[None, :]
            tl.store(out, tl.trans(high))
            if PARTS == 2:
                tl.store(out + part, tl.trans(low))


@triton.jit
def _times(
    a, b, step_a, step_b, part, plane, used,
    TURNED: tl.constexpr, PARTS: tl.constexpr, TILE: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """The product of a strip of pulls, as it lies or turned over, with directions."""
    total = tl.zeros([TILE, WIDTH], tl.float32)
    for _ in range(0, used, DEPTH):
        a_high, b_high = tl.load(a), tl.load(b)
        a_high = tl.trans(a_high) if TURNED else a_high
        if PARTS == 2:
            a_low, b_low = tl.load(a + part), tl.load(b + plane)
            a_low = tl.trans(a_low) if TURNED else a_low
            total = tl.dot(a_low, b_high, total)
            total = tl.dot(a_high, b_low, total)
        total = tl.dot(a_high, b_high, total)
        a += step_a
        b += step_b
    return total


@triton.jit(do_not_specialize=["group0"])
def _pull(
    halves, double, single, scratch, pulls, gradient, group0, row0, col0,
    m, d, rows, width, doubles, singles, plane, side, part, scale,
    COSINE: tl.constexpr, PARTS: tl.constexpr, T: tl.constexpr,
    TILE: tl.constexpr, WIDTH: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Some columns of ``- sum_j pull_ij x_j`` for a tile of rows, added to what other blocks of pairs gave.

    For a block of pairs off the diagonal the rows are those of the block and, turned over, its columns.
    """
    across = width // WIDTH
    up, left = tl.program_id(0) // across, tl.program_id(0) % across
    local = tl.program_id(1).to(tl.int64)
    turned = tl.program_id(2)
    group = group0 + local
    fact = double + group * doubles
    limit = tl.load(fact + _LIMIT).to(tl.int32)
    mine0 = tl.where(turned == 1, col0, row0)  # of the rows that get a gradient
    other0 = tl.where(turned == 1, row0, col0)
    if (mine0 + up * TILE >= limit) | (other0 >= limit):
        return
    used = tl.minimum(side, (limit - other0 + TILE - 1) // TILE * TILE)
    row, col, k = up * TILE + tl.arange(0, TILE), left * WIDTH + tl.arange(0, WIDTH), tl.arange(0, DEPTH)
    a = scratch + local * side * side
    b = halves + (group * rows + other0 + k)[:, None] * width + col[None, :]
    if turned == 1:
        a_turned = a + k[:, None] * side + row[None, :]
        total = _times(
            a_turned, b, DEPTH * side, DEPTH * width, part, plane, used, True, PARTS, TILE, WIDTH, DEPTH
        )  # fmt: skip
    else:
        a_plain = a + row[:, None] * side + k[None, :]
        total = _times(a_plain, b, DEPTH, DEPTH * width, part, plane, used, False, PARTS, TILE, WIDTH, DEPTH)
    i = mine0 + row
    know = single + group * singles
    unit = 1.0 / (scale * _NORM)
    if COSINE:
        unit *= tl.load(fact + _SPREAD).to(tl.float32)
    total *= (-unit / tl.load(know + rows * _LENGTH + i))[:, None]
    out = gradient + (group * m + i)[:, None] * d + col[None, :]
    inside = (i < m)[:, None] & (col < d)[None, :]
    later = tl.where(turned == 1, row0, row0 + col0) > 0  # than the first block of pairs that these rows are in
    if later:
        total += tl.load(out, inside, 0.0)
    tl.store(out, total, inside)
    if left == 0:
        pulled = know + (4 + T) * rows + i
        strength = tl.zeros([TILE], tl.float32)
        if later:
            strength += tl.load(pulled)
        part_of = pulls + (turned * tl.num_programs(1).to(tl.int64) + local) * (side // TILE) * side + row
        for tile in range(0, used // TILE):
            strength += tl.load(part_of + tile * side)
        tl.store(pulled, strength)


@triton.jit
def _again(
    points, double, single, bits, gradient, m, d, rows, width, doubles, singles,
    POWER: tl.constexpr, GRADIENT: tl.constexpr, T: tl.constexpr,
    TILE: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Some rows of all tiles that hold a close pair, in float64; the rows are this program's alone.

    Of a tile that is not crowded, the close pairs alone; where a row has few of them, one after the other.
    """
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    fact = double + group * doubles
    inverse = fact + _FACTS + width
    limit = tl.load(fact + _LIMIT).to(tl.int32)
    total = 0.0 * tl.load(fact + _SPREAD)
    if block * ROWS < limit:
        i = block * ROWS + tl.arange(0, ROWS)
        know = single + group * singles
        tiles = rows // TILE
        mine = block * ROWS // TILE
        flags = know + (5 + T) * rows + tiles * tiles
        used = (limit + TILE - 1) // TILE
        below = tl.load(fact + _LOW).to(tl.float32)
        for some in range(0, used, 128):
            near = some + tl.arange(0, 128)
            flag = tl.minimum(near, mine).to(tl.int64) * tiles + tl.maximum(near, mine)
            if tl.max(tl.load(flags + flag, near < used, 0.0)) > 0:
                for tile in range(some, tl.minimum(some + 128, used)):
                    kind = tl.load(flags + tl.minimum(tile, mine).to(tl.int64) * tiles + tl.maximum(tile, mine))
                    if kind > 0:
                        j = tile * TILE + tl.arange(0, TILE)
                        weights = _weights(know, i, j, rows, below, POWER, T)
                        most = TILE
                        if bits is not None:
                            close = tl.where(kind > 1, 1, _unpacked(bits, group, rows, i, j, mine <= tile))
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
    tl.store(inverse + rows + block, total)  # where the parts of _measure were


@triton.jit
def _unpacked(bits, group, rows, i, j, upper):
    """1 where the pair of a row of ``i`` and a row of ``j`` is close; tiles below the diagonal lie turned over."""
    bits += group * rows * (rows // 32)
    first, second = tl.where(upper, i[:, None], j[None, :]), tl.where(upper, j[None, :], i[:, None])
    return (tl.load(bits + first.to(tl.int64) * (rows // 32) + second // 32) >> (second % 32)) & 1


@triton.jit
def _all_again(
    points, fact, inverse, weights, gradient, group, i, j, m, d, width,
    GRADIENT: tl.constexpr, TILE: tl.constexpr, ROWS: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Rows ``i`` with a tile of rows ``j``, by products: the sum of weight times distance. Adds to the gradient."""
    middle = fact + _FACTS
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
    apart = squares > tl.maximum(1e-15 * sizes, tl.load(fact + _MEAN_SQUARE) * SAME)
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
    inv_i, size_i = tl.load(inverse + i), tl.load(know + rows * _SIZE + i)
    spread = tl.load(fact + _SPREAD)
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
        sizes = (size_i + tl.load(know + rows * _SIZE + j)) * spread * spread
        there = squares > tl.maximum(1e-15 * sizes, tl.load(fact + _MEAN_SQUARE) * SAME)
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


@triton.jit
def _finish(
    points, double, single, gradient, means, m, d, rows, width, doubles, singles,
    PROJECT: tl.constexpr, CLOSE: tl.constexpr, GRADIENT: tl.constexpr, T: tl.constexpr, TILE: tl.constexpr,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The gradient at the points as they came, and the mean over the pairs."""
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    fact = double + group * doubles
    middle = fact + _FACTS
    inverse = middle + width
    know = single + group * singles
    factor = tl.load(fact + _FACTOR)
    if block == 0:
        tiles = rows // TILE
        used = (tl.load(fact + _LIMIT).to(tl.int32) + TILE - 1) // TILE
        total = tl.zeros([4096], tl.float64)
        for start in range(0, used * tiles, 4096):
            k = start + tl.arange(0, 4096)
            there = (k < used * tiles) & (k % tiles < used) & (k // tiles <= k % tiles)
            total += tl.load(know + (5 + T) * rows + k, there, 0.0).to(tl.float64)
        if CLOSE:
            total *= tl.load(fact + _SPREAD)
            for start in range(0, rows // BLOCK, 4096):
                k = start + tl.arange(0, 4096)
                total += tl.load(inverse + rows + k, k < rows // BLOCK, 0.0)
        tl.store(means + group, (tl.sum(total, 0) * factor / 2).to(tl.float32))
    if GRADIENT:
        i = block * ROWS + tl.arange(0, ROWS)
        present = (i < m) & (tl.load(know + rows * _AMOUNT + i) != 0)
        strength = tl.load(know + (4 + T) * rows + i, present, 0.0).to(tl.float64)[:, None]
        if CLOSE:
            strength *= 1.0 / tl.load(fact + _SPREAD)
        inv = tl.load(inverse + i)[:, None]
        row = (group * m + i)[:, None] * d
        along = tl.zeros([ROWS], tl.float64)
        if PROJECT:
            # what points along a row z is lost in the division by its norm: so instead of x = z - middle the part
            # -middle will do
            for start in range(0, d, COLS):
                k = start + tl.arange(0, COLS)
                there = present[:, None] & (k < d)[None, :]
                mid = tl.load(middle + k, k < d, 0.0)
                z = tl.load(points + row + k[None, :], there, 0.0).to(tl.float64) * inv
                done = tl.load(gradient + row + k[None, :], there, 0.0).to(tl.float64) - strength * mid[None, :]
                along += tl.sum(z * done, 1)
        for start in range(0, d, COLS):
            k = start + tl.arange(0, COLS)
            there = present[:, None] & (k < d)[None, :]
            mid = tl.load(middle + k, k < d, 0.0)
            x = tl.load(points + row + k[None, :], there, 0.0).to(tl.float64)
            done = tl.load(gradient + row + k[None, :], there, 0.0).to(tl.float64) - strength * mid[None, :]
            if PROJECT:
                done -= x * inv * along[:, None]
            else:
                done += strength * x
            done = tl.where(there, done * (inv * factor), 0.0).to(tl.float32)
            tl.store(gradient + row + k[None, :], done, (i < m)[:, None] & (k < d)[None, :])


@triton.jit
def _extremes(values, amount, smallest, largest, m, T: tl.constexpr, TILE: tl.constexpr):
    """Of the pairs of some rows with all: the smallest and the largest squared distance between targets."""
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = block * TILE + tl.arange(0, TILE)
    a = tl.load(amount + group * m + i, i < m, 0.0)
    low = tl.full([TILE, TILE], float("inf"), tl.float64)
    high = tl.full([TILE, TILE], float("-inf"), tl.float64)
    for start in range(0, m, TILE):
        j = start + tl.arange(0, TILE)
        pair = (a > 0)[:, None] & (tl.load(amount + group * m + j, j < m, 0.0) > 0)[None, :]
        pair = pair & ((i[:, None] != j[None, :]) | (a > 1)[:, None])  # with itself only where it has copies
        squares = tl.zeros([TILE, TILE], tl.float64)  # of any float32
        for c in tl.static_range(T):
            y_i = tl.load(values + (group * m + i) * T + c, i < m, 0.0).to(tl.float64)
            y_j = tl.load(values + (group * m + j) * T + c, j < m, 0.0).to(tl.float64)
            gap = y_i[:, None] - y_j[None, :]
            squares += gap * gap
        low = tl.where(pair, tl.minimum(low, squares), low)
        high = tl.where(pair, tl.maximum(high, squares), high)
    tl.store(smallest + group * tl.num_programs(0) + block, tl.min(low))
    tl.store(largest + group * tl.num_programs(0) + block, tl.max(high))


def _ceil(n: int, size: int) -> int:
    return -(-n // size) * size


def extremes(values: Tensor, amount: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest distance ``(g,)`` between present values ``(g, m, t)``; no pair: 0 and 0."""
    g, m, t = values.shape
    blocks = _ceil(m, 64) // 64
    low, high = torch.empty(2, g, blocks, dtype=torch.float64, device=values.device).unbind()
    _extremes[(blocks, g)](values, amount, low, high, m, T=t, TILE=64)
    low, high = low.amin(1), high.amax(1)
    none = low.isinf()
    return torch.where(none, 0, low).sqrt(), torch.where(none, 0, high).sqrt()


def blocks_of_pairs(g: int, rows: int, width: int, tile: int, parts: int, processors: int) -> tuple[int, int]:
    """How many groups, and how many rows and columns of pairs, the scratch holds at a time.

    As many as leave the fewest processors idle, but of more than 1024 rows never all pairs.

    Example:
        >>> blocks_of_pairs(1, 16384, 512, 128, 2, 132), blocks_of_pairs(8, 3584, 128, 128, 2, 132)
        ((1, 2048), (8, 896))
    """
    pairs = SCRATCH // (2 * parts)
    groups = max(1, min(g, pairs // min(rows, 1024) ** 2))
    tiles, deep = rows // tile, max(1, width // 128)
    most = min(math.isqrt(pairs // groups), LONGEST[parts]) // tile
    most = max(1, min(most, tiles if rows <= 1024 else -(-tiles // 2)))

    def rounds(number: int) -> int:
        return -(-number * groups // processors)

    def time(side: int) -> float:
        """In products of tiles; what follows those of a tile of pairs counts for 3, a pair of launches for 24."""
        number = -(-tiles // side)
        turned = rounds(side * deep * 2) if 2 * side * deep * groups > processors else 0.6
        alone = rounds(side * deep) if 2 * side * deep * groups > processors else 0.6
        off = rounds(side * side) * (deep + 3) + turned * side + 24
        return number * (rounds(side * (side + 1) // 2) * (deep + 3) + alone * side + 24 + (number - 1) / 2 * off)

    return groups, tile * min(range(most, 0, -1), key=time)


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _tile_and_warps(m: int, d: int) -> tuple[int, int]:
    """Of the pairs; small tiles, where large ones would leave most processors idle."""
    tile = 64 if m <= 512 else 128
    return tile, tile // 16


@functools.cache
def _depth_and_stages(device: torch.device, tile: int, parts: int) -> tuple[int, int]:
    """Depth of a step of the products, and how many steps are loaded ahead, for the shared memory of the device."""
    if device.type != "cuda":
        return 32, 1  # the interpreter
    room = torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # type: ignore[attr-defined]
    depth = 64 if room >= 160 * 1024 else 32
    return depth, max(1, min(4 if tile == 128 else 2, room // (2 * parts * 2 * tile * depth)))


# what a call brings to its program
_POINTS, _VALUES, _AMOUNT_OF, _GAP, _SPAN, _TIMES, _GRADIENT, _MEANS, _WORKSPACE = map(At, range(9))


@functools.lru_cache(maxsize=256)
def _program(
    g: int,
    m: int,
    d: int,
    t: int,
    power: float,
    cosine: bool,
    project: bool,
    rescaled: bool,
    with_amount: bool,
    with_gap: bool,
    with_span: bool,
    with_gradient: bool,
    parts: int,
    device: torch.device,
    compiled_for: tuple[object, ...],
) -> tuple[Program, int]:
    """The kernels for one shape, and the bytes of their workspace."""
    processors = _processors(device)
    tile, warps = _tile_and_warps(m, d)
    rows, width = _ceil(m, tile), (64 if d <= 64 else _ceil(d, 128))
    tiles = rows // tile
    cols = min(512, triton.next_power_of_2(d))
    most = min(64, 4096 // cols)  # rows of a program that goes over the features
    some = min(most, triton.next_power_of_2(max(1, g * rows // (2 * processors))))
    blocks = rows // some
    repeats = triton.cdiv(blocks, 256)
    measured = triton.cdiv(blocks, repeats)
    doubles = _FACTS.value + width + rows + measured * (_NUMBERS.value + width)
    singles = (5 + t) * rows + 2 * tiles * tiles
    groups, side = blocks_of_pairs(g, rows, width, tile, parts, processors)
    plane, part = g * rows * width, groups * side * side
    depth, stages = _depth_and_stages(device, tile, parts)
    # so that no pull is beyond float16: lengths are at most sqrt(m), and 32 times the distance
    scale = 2.0**15 / max(m, 128) if cosine else 2.0**10 / math.sqrt(max(m, 128))

    by_bits = 0 if cosine or g * rows * rows // 8 > BITS else g * rows * rows // 8
    by_pulls = 8 * groups * (side // tile) * side
    sizes = 8 * g * doubles, 4 * g * singles, by_pulls, by_bits, 2 * parts * plane, 2 * parts * part
    starts = [0, *itertools.accumulate(_ceil(size, 256) for size in sizes)]
    dtypes = torch.float64, torch.float32, torch.float32, torch.int32, torch.float16, torch.float16
    double, single, pulls, all_bits, halves, scratch = (
        At(_WORKSPACE.number, start, dtype) for start, dtype in zip(starts, dtypes, strict=False)
    )
    bits = all_bits if by_bits else None
    amount, gap, span = (
        at if there else None for at, there in ((_AMOUNT_OF, with_amount), (_GAP, with_gap), (_SPAN, with_span))
    )
    if rows * width <= FEW:  # one launch costs less than three
        whole = min(rows & -rows, FEW // cols)  # the largest power of two that divides the rows
        launches = [Launch(_prepare, (1, g, 1), (
            _POINTS, _VALUES, amount, double, single, halves, gap, span, _TIMES, m, d, rows, width, doubles,
            singles, plane, rows // whole, project, power, rescaled, parts, t, whole, cols,
        ), warps=16)]  # fmt: skip
    else:
        launches = [
            Launch(_measure, (measured, g, 1), (
                _POINTS, _VALUES, amount, double, m, d, rows, width, doubles, repeats, project, t, some, cols,
            )),
            Launch(_summarise, (triton.cdiv(width, 64), g, 1), (
                double, gap, span, _TIMES, rows, width, doubles, measured, power, rescaled, t, 64, 64,
            )),
            Launch(_split, (blocks, g, 1), (
                _POINTS, _VALUES, amount, double, single, halves, m, d, rows, width, doubles, singles, plane,
                parts, t, some, cols,
            )),
        ]  # fmt: skip
    for group, row in itertools.product(range(0, g, groups), range(0, rows, side)):
        now = min(groups, g - group)
        for col in range(row, rows, side):
            down, across = (min(side, rows - start) // tile for start in (row, col))
            launches.append(Launch(_pairs, (down * across, now, 1), (
                halves, double, single, bits, scratch, pulls, group, row, col, across, rows, width, doubles, singles,
                plane, side, part, scale, power, cosine, parts, with_gradient, t, tile, depth,
            ), warps, min(stages, width // depth)))  # fmt: skip
            if with_gradient:
                ways = 1 if row == col else 2
                crowded = 2 * down * (width // 128) * now * ways > processors
                slab = tile if crowded else 64  # smaller tiles keep more processors busy
                launches.append(Launch(_pull, (down * (width // slab), now, ways), (
                    halves, double, single, scratch, pulls, _GRADIENT, group, row, col, m, d, rows, width, doubles,
                    singles, plane, side, part, scale, cosine, parts, t, tile, slab, depth,
                ), warps, stages))  # fmt: skip
    if not cosine:
        launches.append(Launch(_again, (rows // _ROWS, g, 1), (
            _POINTS, double, single, bits, _GRADIENT, m, d, rows, width, doubles, singles, power, with_gradient, t,
            tile, _ROWS, 16, min(64, cols),
        ), warps=8))  # fmt: skip
    launches.append(Launch(_finish, (blocks if with_gradient else 1, g, 1), (
        _POINTS, double, single, _GRADIENT, _MEANS, m, d, rows, width, doubles, singles, project, not cosine,
        with_gradient, t, tile, _ROWS, some, cols,
    ), warps=8))  # fmt: skip
    return Program(launches), starts[6] if with_gradient else starts[5]


def means_and_gradient(
    points: Tensor,
    values: Tensor,
    amount: Tensor | None,
    power: float,
    distance: str,
    project: bool,
    rescale: str,
    times: float,
    coarse: bool,
    with_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """Mean over all pairs of weight times distance, one a group, and its gradient in the shape of the points.

    Args:
        points: ``(g, m, d)``, or ``(m, d)`` for one group; float32, bfloat16 or float16.
        values: ``(g, m, t)`` targets.
        amount: ``(g, m)``, how many copies of a point there are; None: one of each.
        power: of the distance between targets: 0, 0.5, 1 or 2.
        distance: "l2" or "cosine" (with ``project``).
        project: divide the points by their norms first.
        rescale: "max", "authors" or "none".
        times: a factor of the means.
        coarse: one product will do; the same for half-precision points.
        with_gradient: compute the gradient too; without, it is empty.

    Returns:
        Both in float32; the means ``(g,)``, of one group a scalar.
    """
    coarse = coarse or points.dtype in (torch.float16, torch.bfloat16)
    points, values = points.float().contiguous(), values.contiguous()
    amount = amount if amount is None else amount.contiguous()
    (g, m, d), t, device = (1, *points.shape)[-3:], values.shape[-1], points.device
    if g > MOST_GROUPS:
        amounts = [None] * -(-g // MOST_GROUPS) if amount is None else amount.split(MOST_GROUPS)
        inputs = zip(points.split(MOST_GROUPS), values.split(MOST_GROUPS), amounts, strict=True)
        options = power, distance, project, rescale, times, coarse, with_gradient
        done = [means_and_gradient(x, y, a, *options) for x, y, a in inputs]
        return torch.cat([means.reshape(-1) for means, _ in done]), torch.cat([gradient for _, gradient in done])
    cosine = distance == "cosine"
    seen = (points, values) if amount is None else (points, values, amount)
    with current(points):
        compiled_for = device, *(x.dtype for x in seen), *aligned(*seen)
        gradient = torch.empty_like(points) if with_gradient else torch.empty(0, device=device)
        means = torch.empty(() if g == 1 else (g,), device=device)
        if few.fits(g, m, d, _processors(device)):
            program, room = few.program(
                g, m, d, t, power, cosine, project, rescale, amount is not None, with_gradient, compiled_for
            )
            workspace = torch.empty(room, dtype=torch.uint8, device=device)
            program(device, points, values, amount, float(times), gradient, means, workspace)
            return means, gradient
        gap = span = None
        rescaled = rescale != "none" and power != 0
        if rescaled and t > 1:
            gap, span = extremes(values, points.new_ones(g, m) if amount is None else amount)
            gap = gap if rescale == "authors" else None
        elif rescaled and rescale == "authors":
            gap = smallest_gap(values, points.new_ones(g, m) if amount is None else amount)
        parts = 1 if coarse or torch.get_float32_matmul_precision() != "highest" else 2
        program, room = _program(
            g, m, d, t, power, cosine, project, rescaled, amount is not None, gap is not None, span is not None,
            with_gradient, parts, device, compiled_for,
        )  # fmt: skip
        workspace = torch.empty(room, dtype=torch.uint8, device=device)
        program(device, points, values, amount, gap, span, float(times), gradient, means, workspace)
    return means, gradient


def _plain(
    points: Tensor,
    values: Tensor,
    amount: Tensor | None,
    power: float,
    distance: str,
    project: bool,
    rescale: str,
    times: float,
    coarse: bool,
) -> Tensor:
    """The same means by plain operations."""
    points = points.float() if points.dim() == 3 else points.float()[None]
    amount = points.new_ones(points.shape[:2]) if amount is None else amount
    weighting = next(name for name, value in POWERS.items() if value == power)
    with use("reference"):
        means = [
            pair_mean(
                *(x[k : k + 1] for x in (points, values, amount)),
                weighting=weighting,
                distance=distance,
                rescale=rescale,
                project=project,
                num_pairs=None,
                generator=None,
                eager=False,
                times=times,
            )
            for k in range(len(points))
        ]
    return torch.stack(means)


operator, pair_means = differentiable(
    "pair_means",
    "(Tensor points, Tensor values, Tensor? amount, float power, str distance, bool project, str rescale, "
    "float times, bool coarse, bool with_gradient) -> (Tensor, Tensor)",
    means_and_gradient,
    _plain,
    tensors=3,
    scalar=True,
)
