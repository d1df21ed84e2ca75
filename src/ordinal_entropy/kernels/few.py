"""The mean over all pairs of few points: two launches, all arithmetic in float64.

A small problem costs what its launches cost, and leaves most of a GPU idle whatever it computes: so each program takes
some rows with all others, finds norms and weights by itself, and no step waits for another but the last sum.
"""

import functools

import torch
import triton
import triton.language as tl

from ordinal_entropy.kernels.elements import SAME, amounts_of, inverse_of, over_pairs, raised
from ordinal_entropy.kernels.launch import At, Launch, Program

_MOST_ROWS, _MOST_COLUMNS = 128, 256
_ROWS = 16  # of a program
_SOME = 64  # rows that it takes them with at a time
_DEPTH = 64  # columns of a step of the products
_WARPS = 8
_RESCALES = {"none": 0, "max": 1, "authors": 2}

# what a call brings to its program
_POINTS, _VALUES, _AMOUNT, _TIMES, _GRADIENT, _MEANS, _SUMS = map(At, range(7))


@triton.jit
def _target_squares(values, group, m, i, j, there_i, there_j, T: tl.constexpr):
    """Squared distances between the targets of rows ``i`` and ``j``."""
    squares = tl.zeros([i.shape[0], j.shape[0]], tl.float64)
    for c in tl.static_range(T):
        y_i = tl.load(values + (group * m + i) * T + c, there_i, 0.0).to(tl.float64)
        y_j = tl.load(values + (group * m + j) * T + c, there_j, 0.0).to(tl.float64)
        gap = y_i[:, None] - y_j[None, :]
        squares += gap * gap
    return squares


@triton.jit
def _squared_norms(at, there, D: tl.constexpr, DEPTH: tl.constexpr):
    squares = tl.zeros([at.shape[0]], tl.float64)
    for start in range(0, D, DEPTH):
        k = start + tl.arange(0, DEPTH)
        x = tl.load(at[:, None] + k[None, :], there[:, None] & (k < D)[None, :], 0.0).to(tl.float64)
        squares += tl.sum(x * x, 1)
    return squares


@triton.jit
def _rows_with_all(
    points, values, amount, times, gradient, sums, m,
    POWER: tl.constexpr, COSINE: tl.constexpr, PROJECT: tl.constexpr, RESCALE: tl.constexpr, GRADIENT: tl.constexpr,
    T: tl.constexpr, D: tl.constexpr, ALL: tl.constexpr, ROWS: tl.constexpr, SOME: tl.constexpr, DEPTH: tl.constexpr,
):  # fmt: skip
    """Some rows: their part of the mean, twice, and their gradient; the others come in turns, ``SOME`` at a time.

    The first row is taken off all, so that products of rows that lie close together leave something of their distance.
    The width is a constant: then rows of any multiple of 4 are loaded four numbers at a time, not of 16 alone.
    """
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i, every = block * ROWS + tl.arange(0, ROWS), tl.arange(0, ALL)
    a_i, a_all = amounts_of(amount, group, m, i).to(tl.float64), amounts_of(amount, group, m, every).to(tl.float64)
    there_i, there_all = a_i > 0, a_all > 0
    first = tl.minimum(tl.min(tl.where(there_all, every, m)), m - 1)
    points += group * m * D
    squares_all = _squared_norms(points + every * D, there_all, D, DEPTH)
    inv_all = inverse_of(squares_all, PROJECT)
    inv_i = inverse_of(_squared_norms(points + i * D, there_i, D, DEPTH), PROJECT)
    inv_first = tl.sum(tl.where(every == first, inv_all, 0.0))
    number = tl.maximum(tl.sum(tl.where(there_all, 1.0, 0.0).to(tl.float64)), 1.0)
    mean_square = tl.sum(squares_all * inv_all * inv_all) / number
    factor = over_pairs(tl.sum(a_all)) * times + 0.0 * mean_square  # NaN features: a NaN mean

    low, high = 0.0 * mean_square, 0.0 * mean_square + 1.0
    if POWER != 0.0:
        if RESCALE == 1 and T == 1:
            all_values = tl.load(values + group * m + every, there_all, 0.0).to(tl.float64)
            lowest = tl.min(tl.where(there_all, all_values, float("inf")))
            high = tl.max(tl.where(there_all, all_values, float("-inf"))) - lowest
            high = raised(tl.where(high > 0, high, 1.0), POWER)
        elif RESCALE != 0:
            nearest = tl.full([ROWS, ALL], float("inf"), tl.float64)
            farthest = tl.zeros([ROWS, ALL], tl.float64)
            for start in range(0, m, ROWS):
                r = start + tl.arange(0, ROWS)
                a_r = amounts_of(amount, group, m, r)
                pair = (a_r > 0)[:, None] & there_all[None, :]
                pair = pair & ((r[:, None] != every[None, :]) | (a_r > 1)[:, None])  # with itself where it has copies
                between = _target_squares(values, group, m, r, every, a_r > 0, there_all, T)
                nearest = tl.where(pair, tl.minimum(nearest, between), nearest)
                farthest = tl.where(pair, tl.maximum(farthest, between), farthest)
            if RESCALE == 2:
                low = tl.min(nearest)
                low = raised(tl.sqrt(tl.where(low < float("inf"), low, 0.0)), POWER)
            high = tl.max(farthest)
            high = raised(tl.sqrt(tl.where(high > 0, high, 1.0)), POWER)

    total = 0.0 * mean_square
    out = gradient + (group * m + i)[:, None] * D
    for start_j in range(0, m, SOME):
        j = start_j + tl.arange(0, SOME)
        a_j = amounts_of(amount, group, m, j).to(tl.float64)
        there_j = a_j > 0
        inv_j = inverse_of(_squared_norms(points + j * D, there_j, D, DEPTH), PROJECT)
        products = tl.zeros([ROWS, SOME], tl.float64)
        size_i, size_j = tl.zeros([ROWS], tl.float64), tl.zeros([SOME], tl.float64)
        for start in range(0, D, DEPTH):
            k = start + tl.arange(0, DEPTH)
            off = tl.load(points + first * D + k, k < D, 0.0).to(tl.float64) * inv_first
            y = tl.load(points + j[None, :] * D + k[:, None], there_j[None, :] & (k < D)[:, None], 0.0).to(tl.float64)
            y = y * inv_j[None, :] - off[:, None]
            x = tl.load(points + i[:, None] * D + k[None, :], there_i[:, None] & (k < D)[None, :], 0.0).to(tl.float64)
            x = x * inv_i[:, None] - off[None, :]
            size_i += tl.sum(x * x, 1)
            size_j += tl.sum(y * y, 0)
            products = tl.dot(x, y, products, out_dtype=tl.float64)
        weights = a_i[:, None] * a_j[None, :] * factor  # the mean, not the sum: what is stored on the way is float32
        if POWER != 0.0:
            between = _target_squares(values, group, m, i, j, there_i, there_j, T)
            weights *= (raised(tl.sqrt(between), POWER) - low) / high
        weights = tl.where(i[:, None] == j[None, :], 0.0, weights)
        sizes = size_i[:, None] + size_j[None, :]
        squares = sizes - 2 * products
        if COSINE:
            lost_i, lost_j = tl.where(inv_i == 0, 0.5, 0.0), tl.where(inv_j == 0, 0.5, 0.0)
            distances = squares / 2 + lost_i[:, None] + lost_j[None, :]
            pull = weights
        else:
            apart = squares > tl.maximum(1e-15 * sizes, mean_square * SAME)
            squares = tl.where(apart, squares, 1.0)
            distances = tl.where(apart, tl.sqrt(squares), 0.0)
            pull = tl.where(apart, weights / tl.sqrt(squares), 0.0)
        total += tl.sum(weights * distances)
        if GRADIENT:
            strength = tl.sum(pull, 1)
            for start in range(0, D, DEPTH):
                k = start + tl.arange(0, DEPTH)
                off = tl.load(points + first * D + k, k < D, 0.0).to(tl.float64) * inv_first
                y = tl.load(points + j[:, None] * D + k[None, :], there_j[:, None] & (k < D)[None, :], 0.0)
                y = y.to(tl.float64) * inv_j[:, None] - off[None, :]
                inside = there_i[:, None] & (k < D)[None, :]
                x = tl.load(points + i[:, None] * D + k[None, :], inside, 0.0).to(tl.float64)
                x = x * inv_i[:, None] - off[None, :]
                change = strength[:, None] * x - tl.dot(pull, y, out_dtype=tl.float64)
                if start_j > 0:
                    change += tl.load(out + k[None, :], inside, 0.0).to(tl.float64)
                tl.store(out + k[None, :], change.to(tl.float32), inside)
            tl.debug_barrier()  # the gradient is read by other threads than wrote it
    tl.store(sums + group * tl.num_programs(0) + block, total / 2)

    if GRADIENT:
        along = tl.zeros([ROWS], tl.float64)
        if PROJECT:
            for start in range(0, D, DEPTH):
                k = start + tl.arange(0, DEPTH)
                inside = there_i[:, None] & (k < D)[None, :]
                z = tl.load(points + i[:, None] * D + k[None, :], inside, 0.0).to(tl.float64) * inv_i[:, None]
                along += tl.sum(z * tl.load(out + k[None, :], inside, 0.0), 1)
        tl.debug_barrier()  # no thread may still read what another changes
        for start in range(0, D, DEPTH):
            k = start + tl.arange(0, DEPTH)
            inside = there_i[:, None] & (k < D)[None, :]
            change = tl.load(out + k[None, :], inside, 0.0).to(tl.float64)
            if PROJECT:
                z = tl.load(points + i[:, None] * D + k[None, :], inside, 0.0).to(tl.float64) * inv_i[:, None]
                change -= along[:, None] * z
            change = (change * inv_i[:, None]).to(tl.float32)
            tl.store(out + k[None, :], tl.where(inside, change, 0.0), (i < m)[:, None] & (k < D)[None, :])


@triton.jit
def _sum(sums, means, BLOCKS: tl.constexpr):
    """The parts of a mean."""
    group = tl.program_id(0).to(tl.int64)
    total = tl.load(sums + group * BLOCKS)
    for block in tl.static_range(1, BLOCKS):
        total += tl.load(sums + group * BLOCKS + block)
    tl.store(means + group, total.to(tl.float32))


def fits(g: int, m: int, d: int, processors: int) -> bool:
    """Whether points ``(g, m, d)`` are so few that each program finds a processor idle.

    Example:
        >>> fits(1, 100, 100, 132), fits(100, 100, 100, 132)
        (True, False)
    """
    return m <= _MOST_ROWS and d <= _MOST_COLUMNS and g * triton.cdiv(m, _ROWS) <= processors


@functools.lru_cache(maxsize=256)
def program(
    g: int,
    m: int,
    d: int,
    t: int,
    power: float,
    cosine: bool,
    project: bool,
    rescale: str,
    with_amount: bool,
    with_gradient: bool,
    compiled_for: tuple[object, ...],
) -> tuple[Program, int]:
    """The kernels for one shape, and the bytes of their workspace.

    The program takes points, values, amount, times, gradient, means and the workspace.
    """
    blocks = triton.cdiv(m, _ROWS)
    every = max(_ROWS, triton.next_power_of_2(m))
    sums = At(_SUMS.number, 0, torch.float64)
    launches = [
        Launch(_rows_with_all, (blocks, g, 1), (
            _POINTS, _VALUES, _AMOUNT if with_amount else None, _TIMES, _GRADIENT, sums, m,
            power, cosine, project, _RESCALES[rescale], with_gradient, t, d, every, _ROWS, _SOME, _DEPTH,
        ), warps=_WARPS, stages=1),
        Launch(_sum, (g, 1, 1), (sums, _MEANS, blocks), warps=1),
    ]  # fmt: skip
    return Program(launches), 8 * g * blocks
