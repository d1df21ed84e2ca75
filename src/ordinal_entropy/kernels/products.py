"""Pairs on the tensor cores: distances by products of directions, and how the pairs pull at their points.

``take_pairs`` takes a block of pairs, each pair once: three products give the distances; their sum is kept, and what
each pair pulls goes to a scratch of fixed size, as two float16 numbers again. ``add_pulls`` multiplies that scratch,
and the same turned over, by the directions: the gradient at the centered rows.

A pair is too close when its squared distance is below 2**-10 of ``|x|^2 + |y|^2``. All others have a squared distance
right to a few 2**-22 of that, hence a distance right to about 2**-12 of itself, and a pull that float16 can hold.
"""

import triton
import triton.language as tl

from ordinal_entropy.kernels.workspace import (
    LENGTH,
    LIMIT,
    LOW,
    NONZERO,
    NORM,
    ONE_PLACE,
    SIZE,
    SPREAD,
    packed,
    weights_of,
    words,
)

_CLOSE = tl.constexpr(2.0**-10)
_CROWD = tl.constexpr(64)  # of so many pairs of a tile one is close: all of its pairs are done again


@triton.jit(do_not_specialize=["group0", "across"])
def take_pairs(
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
    limit = tl.load(fact + LIMIT).to(tl.int32)
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
    length_i, length_j = tl.load(know + rows * LENGTH + i)[:, None], tl.load(know + rows * LENGTH + j)[None, :]
    sizes = tl.load(know + rows * SIZE + i)[:, None] + tl.load(know + rows * SIZE + j)[None, :]
    squares = sizes - products * (2.0 / (NORM * NORM)) * length_i * length_j
    weights = weights_of(know, i, j, rows, tl.load(fact + LOW).to(tl.float32), POWER, T)
    if COSINE:
        spread = tl.load(fact + SPREAD).to(tl.float32)
        zero_i = tl.where(tl.load(know + rows * NONZERO + i) == 0, 0.5, 0.0)
        zero_j = tl.where(tl.load(know + rows * NONZERO + j) == 0, 0.5, 0.0)
        distances = squares * (0.5 * spread * spread) + zero_i[:, None] + zero_j[None, :]
        pull = weights
    else:
        close = (length_i * length_i + length_j * length_j) * _CLOSE
        weights = tl.where(sizes <= tl.load(fact + ONE_PLACE).to(tl.float32), 0.0, weights)
        near = (squares <= close) & (weights != 0)
        number = tl.sum(tl.where(near, 1.0, 0.0))
        if bits is None:
            crowded = number > 0
        else:
            crowded = number * _CROWD > TILE * TILE
            if number > 0:
                tl.store(words(bits, group, rows, i, col0 + left * TILE, TILE), packed(near, TILE))
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
def add_pulls(
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
    limit = tl.load(fact + LIMIT).to(tl.int32)
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
    unit = 1.0 / (scale * NORM)
    if COSINE:
        unit *= tl.load(fact + SPREAD).to(tl.float32)
    total *= (-unit / tl.load(know + rows * LENGTH + i))[:, None]
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
