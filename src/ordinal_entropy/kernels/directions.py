"""Points as lengths and directions, for the tensor cores, and the gradient on its way back to the points.

1. ``measure``, ``summarise``: norms, the middle of the points, the range of the targets; sums in float64.
2. ``split``: each row, (divided by its norm and) centered in float64, as a length and a direction, the direction as
   the sum of two float16 numbers (22 bits of mantissa; one alone has 11 bits, like TF32).
   Of a small group both are one kernel, ``prepare``.
3. ``finish``, behind the kernels of pairs: the gradient through the division by the norm, and the mean.
"""

import triton
import triton.language as tl

from ordinal_entropy.kernels.elements import SAME, amounts_of, inverse_of, over_pairs, raised
from ordinal_entropy.kernels.workspace import (
    AMOUNT,
    EXTENT,
    FACTOR,
    FACTS,
    LARGEST,
    LENGTH,
    LIMIT,
    LOW,
    LOWEST,
    MEAN_SQUARE,
    NONZERO,
    NORM,
    NUMBERS,
    ONE_PLACE,
    SIZE,
    SPREAD,
    VALUE,
)

_FLOOR = tl.constexpr(2.0**-10)  # smallest length of a row, in root mean squares


@triton.jit
def measure(
    points, values, amount, double, m, d, rows, width, doubles, repeats,
    PROJECT: tl.constexpr, T: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Of some rows: inverse norms, the sum of the (unit) rows, and what the summary needs."""
    part, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    inverse = double + group * doubles + FACTS + width
    number = inverse + rows + part * (NUMBERS + width)
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
        tl.store(number + NUMBERS + k, column, k < width)


@triton.jit
def summarise(
    double, gap, span, times, rows, width, doubles, parts,
    POWER: tl.constexpr, RESCALE: tl.constexpr, T: tl.constexpr, COLS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """The middle of the points and the facts of a group, out of the parts that ``measure`` left."""
    group = tl.program_id(1).to(tl.int64)
    fact = double + group * doubles
    number = fact + FACTS + width + rows
    count = tl.zeros([PARTS], tl.float64)
    for start in range(0, parts, PARTS):
        b = start + tl.arange(0, PARTS)
        count += tl.load(number + b * (NUMBERS + width), b < parts, 0.0)
    present = tl.maximum(tl.sum(count, 0), 1.0)
    for first in range(tl.program_id(0) * COLS, width, tl.num_programs(0) * COLS):
        k = first + tl.arange(0, COLS)
        total = tl.zeros([COLS], tl.float64)
        for start in range(0, parts, PARTS):
            b = start + tl.arange(0, PARTS)
            column = number + (b * (NUMBERS + width))[:, None] + NUMBERS + k[None, :]
            total += tl.sum(tl.load(column, (b < parts)[:, None] & (k < width)[None, :], 0.0), 0)
        tl.store(fact + FACTS + k, total / present, k < width)
    if tl.program_id(0) == 0:
        copies = tl.zeros([PARTS], tl.float64)
        squares = tl.zeros([PARTS], tl.float64)
        last = tl.zeros([PARTS], tl.float64)
        largest = tl.zeros([PARTS], tl.float64)
        for start in range(0, parts, PARTS):
            b = start + tl.arange(0, PARTS)
            part = number + b * (NUMBERS + width)
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
                part = number + b * (NUMBERS + width) + 5 + 2 * c
                low = tl.minimum(low, tl.load(part, b < parts, float("inf")))
                high = tl.maximum(high, tl.load(part + 1, b < parts, float("-inf")))
            lowest = tl.min(low, 0)
            reach = tl.max(high, 0) - lowest
            extent = tl.maximum(extent, reach * (1.0 * T) ** 0.5)
            tl.store(fact + LOWEST + c, lowest)
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
        tl.store(fact + MEAN_SQUARE, mean_square)
        tl.store(fact + LIMIT, tl.max(last, 0))
        tl.store(fact + LARGEST, tl.where(heaviest > 0, heaviest, 1.0))
        tl.store(fact + EXTENT, extent)
        tl.store(fact + LOW, below)
        factor *= heaviest * heaviest * over_pairs(tl.sum(copies, 0)) + 0.0 * mean_square  # NaN features: a NaN mean
        factor *= times
        tl.store(fact + FACTOR, factor)


@triton.jit
def split(
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
        middle = fact + FACTS
        inv = tl.load(middle + width + i)
        mean_square = tl.load(fact + MEAN_SQUARE)
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
            tl.store(fact + SPREAD, spread)
            tl.store(fact + ONE_PLACE, mean_square * SAME / (spread * spread))
        length = tl.where(present, tl.maximum(tl.sqrt(sizes) / spread, _FLOOR), 1.0)
        scale = (1.0 / (length * spread) * NORM)[:, None]
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
        share = length.to(tl.float32) / NORM
        tl.store(know + rows * SIZE, squares * share * share)
        tl.store(know + rows * LENGTH, length.to(tl.float32))
        tl.store(know + rows * AMOUNT, (a / tl.load(fact + LARGEST)).to(tl.float32))
        tl.store(know + rows * NONZERO, tl.where(inv == 0, 0.0, 1.0))
        extent = tl.load(fact + EXTENT)
        for c in tl.static_range(T):
            y = tl.load(values + (group * m + i) * T + c, present, 0.0).to(tl.float64)
            y = tl.where(present, (y - tl.load(fact + LOWEST + c)) / extent, 0.0)
            tl.store(know + rows * (VALUE + c), y.to(tl.float32))


@triton.jit
def prepare(
    points, values, amount, double, single, halves, gap, span, times, m, d, rows, width, doubles, singles, plane,
    repeats, PROJECT: tl.constexpr, POWER: tl.constexpr, RESCALE: tl.constexpr, HALVES: tl.constexpr, T: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """All of the above, in one program for each group."""
    measure(points, values, amount, double, m, d, rows, width, doubles, repeats, PROJECT, T, ROWS, COLS)
    tl.debug_barrier()
    summarise(double, gap, span, times, rows, width, doubles, 1, POWER, RESCALE, T, COLS, 1)
    tl.debug_barrier()
    split(
        points, values, amount, double, single, halves, m, d, rows, width, doubles, singles, plane,
        HALVES, T, ROWS, COLS,
    )  # fmt: skip


@triton.jit
def finish(
    points, double, single, gradient, means, m, d, rows, width, doubles, singles,
    PROJECT: tl.constexpr, CLOSE: tl.constexpr, GRADIENT: tl.constexpr, T: tl.constexpr, TILE: tl.constexpr,
    BLOCK: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The gradient at the points as they came, and the mean over the pairs."""
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    fact = double + group * doubles
    middle = fact + FACTS
    inverse = middle + width
    know = single + group * singles
    factor = tl.load(fact + FACTOR)
    if block == 0:
        tiles = rows // TILE
        used = (tl.load(fact + LIMIT).to(tl.int32) + TILE - 1) // TILE
        total = tl.zeros([4096], tl.float64)
        for start in range(0, used * tiles, 4096):
            k = start + tl.arange(0, 4096)
            there = (k < used * tiles) & (k % tiles < used) & (k // tiles <= k % tiles)
            total += tl.load(know + (5 + T) * rows + k, there, 0.0).to(tl.float64)
        if CLOSE:
            total *= tl.load(fact + SPREAD)
            for start in range(0, rows // BLOCK, 4096):
                k = start + tl.arange(0, 4096)
                total += tl.load(inverse + rows + k, k < rows // BLOCK, 0.0)
        tl.store(means + group, (tl.sum(total, 0) * factor / 2).to(tl.float32))
    if GRADIENT:
        i = block * ROWS + tl.arange(0, ROWS)
        present = (i < m) & (tl.load(know + rows * AMOUNT + i) != 0)
        strength = tl.load(know + (4 + T) * rows + i, present, 0.0).to(tl.float64)[:, None]
        if CLOSE:
            strength *= 1.0 / tl.load(fact + SPREAD)
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
