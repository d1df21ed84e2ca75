"""Grouping by target and the terms of the groups on a GPU: as in ``centers`` and ``functional``, in few launches.

A small batch on a GPU costs what its launches cost, and grouping by plain operations takes dozens; a large one costs
its passes over the rows. Kernels follow each other without a look at any value:

1. ``_match``, ``_place``: the order of the rows by comparing all pairs of targets, which takes no sort and pays up to
   some thousand rows; then which center each row belongs to.
2. ``_average``: the centers.
3. The kernels of ``kernels.fused``: the mean over the pairs of centers, and its gradient at the centers.
4. ``_tight``: distances of the rows from their centers, and how they pull at the centers.
5. ``_means``: both terms as means over the groups.
6. ``_back``: the gradient of the rows.

That is one function of the rows, so that their gradient takes one pass, and no part of it is added in another. Second
derivatives are for the plain operations.
"""

import functools
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from ordinal_entropy.kernels.elements import amounts_of
from ordinal_entropy.kernels.fused import means_and_gradient
from ordinal_entropy.kernels.launch import At, Launch, Program, aligned, current


class Pairs(NamedTuple):
    """How pairs of centers are weighed and measured; as in ``pairs.pair_mean``."""

    power: float  # of the distance between values
    distance: str
    project: bool
    rescale: str
    times: float
    coarse: bool


class Pull(NamedTuple):
    """How the distances of rows from their centers are measured."""

    unit: bool  # divide the rows by their norms
    unit_centers: bool  # and the centers by theirs
    cosine: bool  # 1 - cos instead of the distance
    shared: bool  # leave out rows that lie where their center does
    power: int  # of the distance, 1 or 2
    times: float  # a factor of the mean


_BLOCK, _SOME = 32, 128  # rows of a program, and how many others it compares them with at a time


@triton.jit
def _key(keys, group, n, i, c, present, T: tl.constexpr):
    """Number ``c`` of the keys of some rows, made to have an order: NaN is the largest, rows not present come last."""
    k = tl.load(keys + (group * n + i) * T + c, i < n, 0.0)
    largest = 1.7976931348623157e308 if k.dtype == tl.float64 else 3.4028234663852886e38
    return tl.where(present, tl.where(k < largest, k, largest), float("inf"))


@triton.jit
def _compare(keys, amount, group, n, i, j, k_i, T: tl.constexpr):
    """Whether the key of row ``j`` is below that of row ``i``, and whether it is the same; behind the last: neither.

    ``k_i`` is the first number of the key of ``i``.
    """
    k_j = _key(keys, group, n, j, 0, amounts_of(amount, group, n, j) > 0, T)
    k_j = tl.where(j < n, k_j, float("nan"))[None, :]
    smaller = k_j < k_i[:, None]
    equal = k_j == k_i[:, None]
    for c in tl.static_range(1, T):
        k_c, k_j = _key(keys, group, n, i, c, i < n, T)[:, None], _key(keys, group, n, j, c, j < n, T)[None, :]
        smaller = smaller | (equal & (k_j < k_c))
        equal = equal & (k_j == k_c)
    return smaller, equal


@triton.jit
def _match(
    keys, amount, order, zeros, n, d,
    T: tl.constexpr, COPIES: tl.constexpr, BLOCK: tl.constexpr, SOME: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The rows in the order of their keys; rows of one key keep theirs, those not present come last.

    By the way ``zeros`` is filled, for those who add to it later: a launch less.
    """
    tl.static_assert(SOME % BLOCK == 0)
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = block * BLOCK + tl.arange(0, BLOCK)
    for copy in tl.static_range(COPIES):
        row = zeros + ((copy * tl.num_programs(1) + group) * n + i)[:, None] * d
        for start in range(0, d, COLS):
            k = start + tl.arange(0, COLS)
            tl.store(row + k[None, :], tl.zeros([BLOCK, COLS], tl.float32), (i < n)[:, None] & (k < d)[None, :])
    k_i = _key(keys, group, n, i, 0, amounts_of(amount, group, n, i) > 0, T)
    before = tl.zeros([BLOCK, SOME], tl.float32)  # in whole numbers it takes more instructions
    own = block * BLOCK // SOME * SOME
    for start in range(0, own, SOME):
        smaller, equal = _compare(keys, amount, group, n, i, start + tl.arange(0, SOME), k_i, T)
        before += (smaller | equal).to(tl.float32)
    j = own + tl.arange(0, SOME)
    smaller, equal = _compare(keys, amount, group, n, i, j, k_i, T)
    before += (smaller | (equal & (j[None, :] < i[:, None]))).to(tl.float32)
    for start in range(own + SOME, n, SOME):
        smaller, equal = _compare(keys, amount, group, n, i, start + tl.arange(0, SOME), k_i, T)
        before += smaller.to(tl.float32)
    tl.store(order + group * n + tl.sum(before.to(tl.int32), 1), i, i < n)


@triton.jit
def _by_center(x, starts, own, number, leads, present):
    """Of each row that is present: the sum of ``x`` over the rows of its center, which follow each other."""
    tl.store(starts + own, tl.cumsum(x, 0) - x, leads)
    tl.store(starts + number, tl.sum(x, 0))
    tl.debug_barrier()  # read by other threads than wrote it
    sums = tl.load(starts + own + 1, present, 0.0) - tl.load(starts + own, present, 0.0)
    tl.debug_barrier()
    return sums


@triton.jit
def _place(
    keys, targets, amount, order, starts, slot, share, values, there, used, n,
    T: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Of one group: the center of each row and its part in it, and the value of each center, in bins the mean.

    A center begins where the key changes; those behind the last are empty.
    """
    group = tl.program_id(0).to(tl.int64)
    keys, targets, values = keys + group * n * T, targets + group * n * T, values + group * n * T
    order, starts = order + group * n, starts + group * (n + 1)
    slot, share, there = slot + group * n, share + group * n, there + group * n
    p = tl.arange(0, BLOCK)
    i = tl.load(order + p, p < n, 0)
    previous = tl.load(order + p - 1, (p > 0) & (p < n), 0)
    a = tl.where(p < n, amounts_of(amount, group, n, i), 0.0).to(tl.float64)
    present = a > 0
    leads = p == 0
    for c in tl.static_range(T):
        leads = leads | (tl.load(keys + i * T + c, present, 0.0) != tl.load(keys + previous * T + c, present, 0.0))
    leads = leads & present
    own = tl.cumsum(leads.to(tl.int32), 0) - 1
    number = tl.sum(leads.to(tl.int32), 0)
    # differences of sums: beside far larger amounts a small one may be lost, but no row is more than its center
    total = tl.where(present, tl.maximum(_by_center(a, starts, own, number, leads, present), a), 1.0)
    tl.store(slot + i, tl.where(present, own, 0).to(tl.int64), p < n)
    tl.store(share + i, (a / total).to(tl.float32), p < n)  # in float32 a division is not exact: 1 must be 1
    tl.store(used + group, number.to(tl.float32))
    empty = (p >= number) & (p < n)
    tl.store(there + own, 1.0, leads)
    tl.store(there + p, 0.0, empty)
    for c in tl.static_range(T):
        y = tl.load(targets + i * T + c, present, 0.0)
        if BINS:
            lowest = tl.sum(tl.where(p == 0, y, 0.0), 0).to(tl.float64)  # taken off, for sums of small numbers
            mean = _by_center(a * (y.to(tl.float64) - lowest), starts, own, number, leads, present) / total
            y = (lowest + mean).to(y.dtype)
        tl.store(values + own * T + c, y, leads)
        tl.store(values + p * T + c, tl.zeros([BLOCK], y.dtype), empty)


class Places(NamedTuple):
    """Which center each row belongs to. Centers that are used come first, in the order of their values."""

    slot: Tensor  # (g, n), of each row
    share: Tensor  # (g, n), the part of each row in its center
    values: Tensor  # (g, n, t), of each center
    there: Tensor  # (g, n), 1 for each center that is used, 0 for others
    used: Tensor  # (g,), how many are


@functools.lru_cache(maxsize=256)
def _placing(g: int, n: int, t: int, bins: bool, copies: int, d: int, compiled_for: tuple[object, ...]) -> Program:
    keys, targets, amount, order, *rest, zeros = map(At, range(11))
    size = triton.next_power_of_2(n)
    match = keys, amount, order, zeros, n, d, t, copies, _BLOCK, _SOME, min(128, triton.next_power_of_2(d))
    place = keys, targets, amount, order, *rest, n, t, bins, size
    return Program([
        Launch(_match, (triton.cdiv(n, _BLOCK), g, 1), match),
        Launch(_place, (g, 1, 1), place, warps=16 if size > 4096 else max(1, min(8, size // 32))),
    ])  # fmt: skip


def places(targets: Tensor, amount: Tensor | None, width: float, zeros: Tensor | None = None) -> Places:
    """Which center each row belongs to.

    Args:
        targets: ``(g, n, t)``.
        amount: ``(g, n)``; rows of amount 0 belong to none. None: all count once.
        width: of bins ``floor(y / width)``; 0: rows of equal target.
        zeros: ``(c, g, n, d)`` of float32, to be filled with zeros by the way.
    """
    g, n, t = targets.shape
    targets, amount = targets.contiguous(), amount if amount is None else amount.contiguous()
    keys = targets if width == 0 else torch.floor(targets / width)
    device = targets.device
    order = torch.empty(g, n, dtype=torch.int32, device=device)
    starts = torch.empty(g, n + 1, dtype=torch.float64, device=device)
    slot = torch.empty(g, n, dtype=torch.int64, device=device)
    share, there = torch.empty(2, g, n, device=device).unbind()
    used = torch.empty(g, device=device)
    values = torch.empty_like(targets)
    with current(targets):
        compiled_for = device, targets.dtype, None if amount is None else amount.dtype, *aligned(keys, targets, amount)
        copies, d = (0, 1) if zeros is None else (zeros.shape[0], zeros.shape[-1])
        program = _placing(g, n, t, width != 0, copies, d, compiled_for)
        program(device, keys, targets, amount, order, starts, slot, share, values, there, used, zeros)
    return Places(slot, share, values, there, used)


@triton.jit
def _over_norm(row, inside, d, ROWS: tl.constexpr, COLS: tl.constexpr):
    """One over the norms of rows, in two factors, as their product may be beyond float32: a power of two, and the rest.

    The power brings the largest number of a row to between 1 and 2. The rest is 0 for a zero row.
    """
    largest = tl.zeros([ROWS], tl.float32)
    for start in range(0, d, COLS):
        k = start + tl.arange(0, COLS)
        x = tl.load(row + k[None, :], inside[:, None] & (k < d)[None, :], 0.0)
        largest = tl.maximum(largest, tl.max(tl.abs(x), 1))
    exponent = largest.to(tl.int32, bitcast=True) & 0x7F800000
    power = tl.maximum(0x7F000000 - exponent, 0x00800000).to(tl.float32, bitcast=True)
    squares = tl.zeros([ROWS], tl.float32)
    for start in range(0, d, COLS):
        k = start + tl.arange(0, COLS)
        x = tl.load(row + k[None, :], inside[:, None] & (k < d)[None, :], 0.0) * power[:, None]
        squares += tl.sum(x * x, 1)
    zero = squares == 0
    return power, tl.where(zero, 0.0, 1.0 / tl.sqrt(tl.where(zero, 1.0, squares)))


@triton.jit
def _average(
    rows, slot, share, centers, inverse, n, d,
    FIRST: tl.constexpr, UNIT: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Rows (over their norms, if that is to come first) times their shares, added to their centers."""
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = block * ROWS + tl.arange(0, ROWS)
    row = rows + (group * n + i)[:, None] * d
    power, inv = tl.full([ROWS], 1.0, tl.float32), tl.full([ROWS], 1.0, tl.float32)
    if UNIT:
        power, inv = _over_norm(row, i < n, d, ROWS, COLS)
    tl.store(inverse + (group * n + i) * 2, power, i < n)
    tl.store(inverse + (group * n + i) * 2 + 1, inv, i < n)
    part = tl.load(share + group * n + i, i < n, 0.0)
    factor = inv * part if FIRST else part
    own = centers + (group * n + tl.load(slot + group * n + i, i < n, 0))[:, None] * d
    for start in range(0, d, COLS):
        k = start + tl.arange(0, COLS)
        x = tl.load(row + k[None, :], (i < n)[:, None] & (k < d)[None, :], 0.0)
        if FIRST:
            x *= power[:, None]
        tl.atomic_add(own + k[None, :], x * factor[:, None], (part > 0)[:, None] & (k < d)[None, :])


@triton.jit
def _strength(a, far, COSINE: tl.constexpr, POWER: tl.constexpr):
    """How hard rows at some distance from their centers pull, in parts of the difference between the two."""
    if COSINE:
        pull = a if POWER == 1 else 2.0 * far * a
    else:
        pull = a / tl.where(far == 0, 1.0, far) if POWER == 1 else 2.0 * a
    return tl.where(far == 0, 0.0, pull)


@triton.jit
def _tight(
    rows, centers, slot, amount, share, inverse, inverse_center, distance, pulled, sums, n, d,
    UNIT_CENTERS: tl.constexpr, COSINE: tl.constexpr, SHARED: tl.constexpr, POWER: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Distances of the rows from their centers, their sum and how many they are, block by block.

    How the rows pull at their centers is added up, each by its share: the gradient of the centers but for a factor that
    is the group's, and how many times a center counts, so that no amount can overflow.
    """
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = block * ROWS + tl.arange(0, ROWS)
    a = amounts_of(amount, group, n, i)
    power = tl.load(inverse + (group * n + i) * 2, i < n, 0.0)
    inv = tl.load(inverse + (group * n + i) * 2 + 1, i < n, 0.0)
    row = rows + (group * n + i)[:, None] * d
    to = (group * n + tl.load(slot + group * n + i, i < n, 0))[:, None] * d
    power_center, inv_center = tl.full([ROWS], 1.0, tl.float32), tl.full([ROWS], 1.0, tl.float32)
    if UNIT_CENTERS:
        power_center, inv_center = _over_norm(centers + to, i < n, d, ROWS, COLS)
    size = tl.zeros([ROWS], tl.float32)
    squares = tl.zeros([ROWS], tl.float32)
    along = tl.zeros([ROWS], tl.float32)
    for start in range(0, d, COLS):
        k = start + tl.arange(0, COLS)
        inside = (i < n)[:, None] & (k < d)[None, :]
        c = tl.load(centers + to + k[None, :], inside, 0.0) * power_center[:, None] * inv_center[:, None]
        z = tl.load(row + k[None, :], inside, 0.0) * power[:, None] * inv[:, None]
        gap = z - c
        size += tl.sum(z * z, 1)
        squares += tl.sum(gap * gap, 1)
        if UNIT_CENTERS:
            along += tl.sum(c * gap, 1)
    same = squares <= 9.0949470e-13 * size  # but for rounding, (8 eps)^2; False for NaN
    if COSINE:  # a half more for each that is zero
        far = squares / 2 + tl.where(size < 0.5, 0.5, 0.0) + tl.where(inv_center == 0, 0.5, 0.0)
    else:
        far = tl.sqrt(squares)
    far = tl.where(same, 0.0, far)
    counted = tl.where(same, 0.0, a) if SHARED else a
    out = sums + (group * tl.num_programs(0) + block) * 2
    tl.store(out, tl.sum(counted * (far if POWER == 1 else far * far), 0))
    tl.store(out + 1, tl.sum(counted, 0))
    if pulled is not None:
        tl.store(distance + group * n + i, far, i < n)
        tl.store(inverse_center + (group * n + i) * 2, power_center, i < n)
        tl.store(inverse_center + (group * n + i) * 2 + 1, inv_center, i < n)
        pull = _strength(tl.load(share + group * n + i, i < n, 0.0), far, COSINE, POWER)
        for start in range(0, d, COLS):
            k = start + tl.arange(0, COLS)
            inside = (pull != 0)[:, None] & (k < d)[None, :]
            c = tl.load(centers + to + k[None, :], inside, 0.0) * power_center[:, None] * inv_center[:, None]
            gap = tl.load(row + k[None, :], inside, 0.0) * power[:, None] * inv[:, None] - c
            change = (c * along[:, None] - gap) * (pull * inv_center)[:, None] * power_center[:, None]
            tl.atomic_add(pulled + to + k[None, :], change, inside)


@triton.jit
def _means(
    sums, counts, means, used, spread, close, over, times, g, blocks, GROUPS: tl.constexpr, BLOCKS: tl.constexpr
):  # fmt: skip
    """The mean of each term over the groups that have it, and what a group counts in it.

    A group has a term of pairs if it has two centers, one of distances from centers if it has one.
    """
    pairs = tl.zeros([GROUPS], tl.float64)
    some = tl.zeros([GROUPS], tl.float64)
    push = tl.zeros([GROUPS], tl.float64)
    pull = tl.zeros([GROUPS], tl.float64)
    for first in range(0, g, GROUPS):
        group = first + tl.arange(0, GROUPS)
        number = tl.load(used + group, group < g, 0.0)
        pairs += tl.where(number > 1, 1.0, 0.0)
        some += tl.where(number > 0, 1.0, 0.0)
        if means is not None:
            push += tl.load(means + group, group < g, 0.0).to(tl.float64)
        if sums is not None:
            total = tl.zeros([GROUPS, BLOCKS], tl.float64)
            count = tl.zeros([GROUPS, BLOCKS], tl.float64)
            for start in range(0, blocks, BLOCKS):
                block = start + tl.arange(0, BLOCKS)
                inside = (group < g)[:, None] & (block < blocks)[None, :]
                part = sums + (group.to(tl.int64)[:, None] * blocks + block[None, :]) * 2
                total += tl.load(part, inside, 0.0)
                count += tl.load(part + 1, inside, 0.0)
            counted = tl.sum(count, 1)
            counted = tl.where(counted > 0, counted, 1.0)
            pull += tl.sum(total, 1) / counted
            tl.store(counts + group, (1.0 / counted).to(tl.float32), group < g)
    over_pairs, over_some = 1.0 / tl.maximum(tl.sum(pairs, 0), 1.0), times / tl.maximum(tl.sum(some, 0), 1.0)
    tl.store(over, over_pairs.to(tl.float32))
    tl.store(over + 1, over_some.to(tl.float32))
    if means is not None:
        tl.store(spread, (tl.sum(push, 0) * over_pairs).to(tl.float32))
    if sums is not None:
        tl.store(close, (tl.sum(pull, 0) * over_some).to(tl.float32))


@triton.jit
def _at_centers(gradient, pulled, push, pull, to, inside):
    """The gradient of the centers, out of its two parts."""
    change = tl.zeros(inside.shape, tl.float32)
    if gradient is not None:
        change += tl.load(gradient + to, inside, 0.0) * push
    if pulled is not None:
        change += tl.load(pulled + to, inside, 0.0) * pull[:, None]
    return change


@triton.jit
def _back(
    by_spread, by_close, over, counts, rows, slot, share, inverse, gradient, pulled, centers, amount, inverse_center,
    distance, out, n, d,
    FIRST: tl.constexpr, UNIT: tl.constexpr, COSINE: tl.constexpr, POWER: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The gradient of the rows: through the centers that they make up, and by their own distances from them."""
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = block * ROWS + tl.arange(0, ROWS)
    at = (group * n + i)[:, None] * d
    to = (group * n + tl.load(slot + group * n + i, i < n, 0))[:, None] * d
    part = tl.load(share + group * n + i, i < n, 0.0)
    power = tl.load(inverse + (group * n + i) * 2, i < n, 0.0)
    inv = tl.load(inverse + (group * n + i) * 2 + 1, i < n, 0.0)
    push = 1.0
    at_center = part * 0.0
    strength = part * 0.0
    power_center, inv_center = part * 0.0, part * 0.0
    if by_spread is not None:
        push *= tl.load(by_spread)
        if over is not None:
            push *= tl.load(over)
    if pulled is not None:
        # in float64: small where features are small or amounts large, and then multiplied by these
        pull = tl.load(by_close).to(tl.float64) * tl.load(over + 1) * tl.load(counts + group)
        a, far = amounts_of(amount, group, n, i), tl.load(distance + group * n + i, i < n, 0.0)
        strength += _strength((pull * a).to(tl.float32), far, COSINE, POWER) * inv
        at_center += tl.where(part > 0, (pull * (a / tl.where(part > 0, part, 1.0))).to(tl.float32), 0.0)
        power_center += tl.load(inverse_center + (group * n + i) * 2, i < n, 0.0)
        inv_center += tl.load(inverse_center + (group * n + i) * 2 + 1, i < n, 0.0)
    along_change = tl.zeros([ROWS], tl.float32)
    along_gap = tl.zeros([ROWS], tl.float32)
    if UNIT:
        for start in range(0, d, COLS):
            k = start + tl.arange(0, COLS)[None, :]
            inside = (i < n)[:, None] & (k < d)
            z = tl.load(rows + at + k, inside, 0.0) * power[:, None] * inv[:, None]
            if FIRST:
                along_change += tl.sum(z * _at_centers(gradient, pulled, push, at_center, to + k, inside), 1)
            if pulled is not None:
                c = tl.load(centers + to + k, inside, 0.0) * power_center[:, None] * inv_center[:, None]
                along_gap += tl.sum(z * (z - c), 1)
    for start in range(0, d, COLS):
        k = start + tl.arange(0, COLS)[None, :]
        inside = (i < n)[:, None] & (k < d)
        z = tl.load(rows + at + k, inside, 0.0) * power[:, None] * inv[:, None]
        change = _at_centers(gradient, pulled, push, at_center, to + k, inside)
        if FIRST:
            change = (change - z * along_change[:, None]) * inv[:, None] * power[:, None]
        change *= part[:, None]
        if pulled is not None:
            gap = z - tl.load(centers + to + k, inside, 0.0) * power_center[:, None] * inv_center[:, None]
            change += (gap - z * along_gap[:, None]) * strength[:, None] * power[:, None]
        tl.store(out + at + k, change, inside)


def _rows_and_columns(d: int) -> tuple[int, int]:
    """Of a program that goes over features."""
    cols = min(512, triton.next_power_of_2(d))
    return max(1, min(16, 2048 // cols)), cols


def _once(name: str) -> None:
    if torch.is_grad_enabled():
        raise RuntimeError(f"a second derivative of the {name} on a GPU needs ordinal_entropy.kernels.use('reference')")


@functools.lru_cache(maxsize=256)
def _averaging(g: int, n: int, d: int, first: bool, unit: bool, compiled_for: tuple[object, ...]) -> Program:
    some, cols = _rows_and_columns(d)
    arguments = *map(At, range(5)), n, d, first, unit, some, cols
    return Program([Launch(_average, (triton.cdiv(n, some), g, 1), arguments)])


@functools.lru_cache(maxsize=256)
def _finishing(g: int, n: int, d: int, pull: Pull | None, compiled_for: tuple[object, ...]) -> tuple[Program, int]:
    """The kernels for one shape, and how many blocks of rows leave sums of distances."""
    tensors = list(map(At, range(17)))
    some, cols = _rows_and_columns(d)
    blocks = triton.cdiv(n, some)
    wide = min(256, triton.next_power_of_2(blocks))
    many = min(2048 // wide, triton.next_power_of_2(g))
    launches = [Launch(_means, (1, 1, 1), (*tensors[9:], g, blocks, many, wide))]
    if pull is not None:
        options = pull.unit_centers, pull.cosine, pull.shared, pull.power, some, cols
        launches.insert(0, Launch(_tight, (blocks, g, 1), (*tensors[:10], n, d, *options)))
    return Program(launches), blocks


@functools.lru_cache(maxsize=256)
def _returning(
    g: int, n: int, d: int, first: bool, unit: bool, pull: Pull | None, compiled_for: tuple[object, ...]
) -> Program:
    some, cols = _rows_and_columns(d)
    options = first, unit, *((False, 1) if pull is None else (pull.cosine, pull.power)), some, cols
    return Program([Launch(_back, (triton.cdiv(n, some), g, 1), (*map(At, range(15)), n, d, *options))])


class _Terms(torch.autograd.Function):
    """The centers, which have a gradient unless their pairs are taken; the mean over these; that of the distances."""

    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        amount: Tensor | None,
        found: tuple[Places, Tensor],
        first: bool,
        pairs: Pairs | None,
        pull: Pull | None,
        with_gradient: bool,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        rows, amount = rows.contiguous(), amount if amount is None else amount.contiguous()
        (g, n, d), device = rows.shape, rows.device
        (slot, share, values, there, used), zeros = found
        unit = first or (pull is not None and pull.unit)
        inverse, inverse_center = torch.empty(2, g, n, 2, device=device).unbind()  # two factors each
        distance = torch.empty(g, n, device=device)
        centers, pulled = zeros[0], zeros[1] if len(zeros) == 2 else None
        gradient = means = spread = counts = close = over = None
        with current(rows):
            program = _averaging(g, n, d, first, unit, (device, *aligned(rows)))
            program(device, rows, slot, share, centers, inverse)
            if pairs is not None:
                means, gradient = means_and_gradient(centers, values, there, *pairs, with_gradient)
                spread, means = (means, None) if g == 1 else (torch.empty((), device=device), means)
            if pull is not None:
                counts, close = torch.empty(g, device=device), torch.empty((), device=device)
            if means is not None or pull is not None:
                over = torch.empty(2, device=device)
                fixed, times = (None, 1.0) if pull is None else (pull._replace(times=1.0), pull.times)
                compiled_for = device, *aligned(rows, amount, pulled, means, spread)
                program, blocks = _finishing(g, n, d, fixed, compiled_for)
                sums = None if pull is None else torch.empty(g, blocks, 2, dtype=torch.float64, device=device)
                program(
                    device, rows, centers, slot, amount, share, inverse, inverse_center, distance, pulled, sums, counts,
                    means, used, spread, close, over, times,
                )  # fmt: skip
        ctx.set_materialize_grads(False)
        ctx.first, ctx.unit, ctx.pull = first, unit, None if pull is None else pull._replace(times=1.0)
        ctx.save_for_backward(
            over, counts, rows, slot, share, inverse, gradient, pulled, centers, amount, inverse_center, distance
        )
        if pairs is not None:
            ctx.mark_non_differentiable(centers)
        return centers, spread, close

    @staticmethod
    def backward(
        ctx: Any, by_centers: Tensor | None, by_spread: Tensor | None, by_close: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        _once("centers" if ctx.pull is None else "tightness")
        over, counts, rows, slot, share, inverse, gradient, *of_pull = ctx.saved_tensors
        (g, n, d), device = rows.shape, rows.device
        if by_spread is None:
            gradient = None if by_centers is None else by_centers.contiguous()
        if by_close is None:
            of_pull = [None] * 5
        pulled, centers, amount, inverse_center, distance = of_pull
        out = torch.empty_like(rows)
        with current(rows):
            compiled_for = device, *aligned(by_spread, by_close, over, rows, gradient, pulled, amount)
            program = _returning(g, n, d, ctx.first, ctx.unit, ctx.pull, compiled_for)
            program(
                device, by_spread, by_close, over, counts, rows, slot, share, inverse, gradient, pulled, centers,
                amount, inverse_center, distance, out,
            )  # fmt: skip
        return out, *([None] * 6)


class Terms(NamedTuple):
    """What is known of groups of rows."""

    where: Places
    centers: Tensor  # (g, n, d), zero where there is none
    diversity: Tensor | None  # scalar
    tightness: Tensor | None  # scalar


def terms(
    rows: Tensor,
    targets: Tensor,
    amount: Tensor | None,
    *,
    width: float,
    unit: bool,
    pairs: Pairs | None,
    pull: Pull | None,
) -> Terms:
    """The centers of rows that share a target, and means over the groups that have any.

    Args:
        rows: ``(g, n, d)``, float32; those that are not divided by their norms, neither here nor later, not far from 1.
        targets: ``(g, n, t)``.
        amount: ``(g, n)``, how many times a row counts. None: once.
        width: of bins ``floor(y / width)``; 0: rows of equal target.
        unit: divide the rows by their norms before they are averaged.
        pairs: how the pairs of centers are weighed; then the centers have no gradient, the mean over the pairs does.
        pull: how distances from the centers are measured; None: no tightness.
    """
    with_gradient = torch.is_grad_enabled() and rows.requires_grad
    zeros = torch.empty(2 if pull is not None and with_gradient else 1, *rows.shape, device=rows.device)
    where = places(targets, amount, width, zeros)
    return Terms(where, *_Terms.apply(rows, amount, (where, zeros), unit, pairs, pull, with_gradient))
