"""Grouping by target and tightness on a GPU: the same as in ``centers`` and ``functional``, in few launches.

A small batch on a GPU costs what its launches cost, and grouping by plain operations takes dozens. Here rows are
matched by comparing all pairs of targets, which takes no sort and no look at a value; that pays up to some thousand
rows. Second derivatives are for the plain operations.
"""

import functools
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from ordinal_entropy.kernels.launch import At, Launch, Program, aligned

_TINY = tl.constexpr(1.1e-19)  # smallest norm of a row that is not zero, as in kernels.unit
_BLOCK, _SOME = 32, 128  # rows of a program, and how many others it compares them with at a time


@triton.jit
def _equal(keys, group, n, i, j, first, present, T: tl.constexpr):
    """Whether row ``i`` has the key of row ``j``; ``first`` is the first number of that of ``i``.

    A row that is not present is like none: its key is taken for NaN.
    """
    equal = first[:, None] == tl.where(present, tl.load(keys + (group * n + j) * T, j < n, 0.0), float("nan"))[None, :]
    for c in tl.static_range(1, T):
        k_i = tl.load(keys + (group * n + i) * T + c, i < n, 0.0)
        k_j = tl.load(keys + (group * n + j) * T + c, j < n, 0.0)
        equal = equal & (k_i[:, None] == k_j[None, :])
    return equal


@triton.jit
def _match(
    keys, targets, amount, lead, total, means, n,
    T: tl.constexpr, BINS: tl.constexpr, BLOCK: tl.constexpr, SOME: tl.constexpr,
):  # fmt: skip
    """Of each row: the first row of the same key, the amount of all of them, and in bins the mean of their targets."""
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = block * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(keys + (group * n + i) * T, i < n, 0.0)
    best = tl.full([BLOCK, SOME], n, tl.int32)
    count = tl.zeros([BLOCK, SOME], tl.float32)
    for start in range(0, n, SOME):
        j = start + tl.arange(0, SOME)
        a = tl.load(amount + group * n + j, j < n, 0.0).to(tl.float32)
        equal = _equal(keys, group, n, i, j, first, a > 0, T)
        best = tl.where(equal, tl.minimum(best, j[None, :]), best)
        count += tl.where(equal, a[None, :], 0.0)
    best, count = tl.min(best, 1), tl.sum(count, 1)
    tl.store(lead + group * n + i, best, i < n)
    tl.store(total + group * n + i, count, i < n)
    if BINS:
        for b in tl.static_range(T):
            mean = tl.zeros([BLOCK, SOME], tl.float64)
            for start in range(0, n, SOME):
                j = start + tl.arange(0, SOME)
                a = tl.load(amount + group * n + j, j < n, 0.0).to(tl.float64)
                equal = _equal(keys, group, n, i, j, first, a > 0, T)
                y = tl.load(targets + (group * n + j) * T + b, j < n, 0.0).to(tl.float64)
                mean += tl.where(equal, (a * y)[None, :], 0.0)
            mean = tl.sum(mean, 1)
            tl.store(means + (group * n + i) * T + b, mean / tl.where(count > 0, count, 1.0), i < n)


@triton.jit
def _place(
    keys, targets, amount, lead, total, slot, share, values, there, n,
    T: tl.constexpr, BLOCK: tl.constexpr, SOME: tl.constexpr,
):  # fmt: skip
    """Of each row: how many keys come before its own, and its part in its center. The first row of a key sets it."""
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = block * BLOCK + tl.arange(0, BLOCK)
    first = group * n
    before = tl.zeros([BLOCK, SOME], tl.int32)
    used = tl.zeros([SOME], tl.int32)
    k_first = tl.load(keys + (first + i) * T, i < n, 0.0)[:, None]
    for start in range(0, n, SOME):
        j = start + tl.arange(0, SOME)
        leads = tl.load(lead + first + j, j < n, -1) == j
        k_j = tl.load(keys + (first + j) * T, j < n, 0.0)
        k_j = tl.where(leads, k_j, float("nan"))[None, :]  # neither smaller nor tied
        smaller = k_j < k_first
        tied = k_j == k_first
        for c in tl.static_range(1, T):
            k_i = tl.load(keys + (first + i) * T + c, i < n, 0.0)[:, None]
            k_j = tl.load(keys + (first + j) * T + c, j < n, 0.0)[None, :]
            smaller = smaller | (tied & (k_j < k_i))
            tied = tied & (k_j == k_i)
        before += tl.where(smaller, 1, 0)
        used += tl.where(leads, 1, 0)
    before, used = tl.sum(before, 1), tl.sum(used, 0)
    a = tl.load(amount + first + i, i < n, 0.0).to(tl.float32)
    count = tl.load(total + first + i, i < n, 1.0)
    tl.store(slot + first + i, tl.where(a > 0, before, 0).to(tl.int64), i < n)
    tl.store(share + first + i, tl.where(a > 0, a / tl.where(a > 0, count, 1.0), 0.0).to(tl.float32), i < n)
    leads = tl.load(lead + first + i, i < n, -1) == i
    empty = (i < n) & (i >= used)
    tl.store(there + first + before, 1.0, leads)
    tl.store(there + first + i, 0.0, empty)
    for c in tl.static_range(T):
        y = tl.load(targets + (first + i) * T + c, i < n, 0.0)
        tl.store(values + (first + before) * T + c, y, leads)
        tl.store(values + (first + i) * T + c, y * 0.0, empty)


@functools.lru_cache(maxsize=256)
def _placing(g: int, n: int, t: int, bins: bool, compiled_for: tuple[object, ...]) -> Program:
    keys, targets, amount, lead, total, means, slot, share, values, there = map(At, range(10))
    grid = (triton.cdiv(n, _BLOCK), g, 1)
    match = Launch(_match, grid, (keys, targets, amount, lead, total, means, n, t, bins, _BLOCK, _SOME))
    place = (keys, means, amount, lead, total, slot, share, values, there, n, t, _BLOCK, _SOME)
    return Program([match, Launch(_place, grid, place)])


def places(targets: Tensor, amount: Tensor, width: float) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Which center each row belongs to.

    Args:
        targets: ``(g, n, t)``.
        amount: ``(g, n)``; rows of amount 0 belong to none.
        width: of bins ``floor(y / width)``; 0: rows of equal target.

    Returns:
        The slot ``(g, n)`` of each row, its share ``(g, n)`` in its center, and of each slot its value ``(g, n, t)``
        and whether it is used ``(g, n)``, 1 or 0. Used slots come first, in the order of their values.
    """
    g, n, t = targets.shape
    targets, amount = targets.contiguous(), amount.contiguous()
    keys = targets if width == 0 else torch.floor(targets / width)
    device = targets.device
    lead = torch.empty(g, n, dtype=torch.int32, device=device)
    slot = torch.empty(g, n, dtype=torch.int64, device=device)
    total, share, there = torch.empty(3, g, n, device=device).unbind()
    values = torch.empty_like(targets)
    means = targets if width == 0 else torch.empty_like(targets)
    with torch.cuda.device_of(targets):
        compiled_for = device, targets.dtype, amount.dtype, *aligned(keys, targets, amount)
        program = _placing(g, n, t, width != 0, compiled_for)
        program(device, keys, targets, amount, lead, total, means, slot, share, values, there)
    return slot, share, values, there


@triton.jit
def _inverse(squares):
    norms = tl.sqrt(squares)
    return tl.where(norms <= _TINY, 0.0, 1.0 / tl.where(norms <= _TINY, 1.0, norms))


@triton.jit
def _average(
    rows, slot, share, centers, inverse, n, d,
    UNIT: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Rows (over their norms) times their shares, added to their centers."""
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = block * ROWS + tl.arange(0, ROWS)
    row = rows + (group * n + i)[:, None] * d
    inv = tl.full([ROWS], 1.0, tl.float32)
    if UNIT:
        squares = tl.zeros([ROWS], tl.float32)
        for start in range(0, d, COLS):
            k = start + tl.arange(0, COLS)
            x = tl.load(row + k[None, :], (i < n)[:, None] & (k < d)[None, :], 0.0)
            squares += tl.sum(x * x, 1)
        inv = _inverse(squares)
    tl.store(inverse + group * n + i, inv, i < n)
    part = tl.load(share + group * n + i, i < n, 0.0)
    own = centers + (group * n + tl.load(slot + group * n + i, i < n, 0))[:, None] * d
    for start in range(0, d, COLS):
        k = start + tl.arange(0, COLS)
        x = tl.load(row + k[None, :], (i < n)[:, None] & (k < d)[None, :], 0.0)
        tl.atomic_add(own + k[None, :], x * (inv * part)[:, None], (part > 0)[:, None] & (k < d)[None, :])


@triton.jit
def _average_back(
    by_centers, rows, slot, share, inverse, out, n, d, UNIT: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr
):  # fmt: skip
    """The gradient of the rows from that of their centers."""
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = block * ROWS + tl.arange(0, ROWS)
    at = (group * n + i)[:, None] * d
    part = tl.load(share + group * n + i, i < n, 0.0)
    inv = tl.load(inverse + group * n + i, i < n, 0.0)
    own = by_centers + (group * n + tl.load(slot + group * n + i, i < n, 0))[:, None] * d
    along = tl.zeros([ROWS], tl.float32)
    if UNIT:
        for start in range(0, d, COLS):
            k = start + tl.arange(0, COLS)
            inside = (i < n)[:, None] & (k < d)[None, :]
            x = tl.load(rows + at + k[None, :], inside, 0.0)
            along += tl.sum(x * inv[:, None] * tl.load(own + k[None, :], inside, 0.0), 1)
    for start in range(0, d, COLS):
        k = start + tl.arange(0, COLS)
        inside = (i < n)[:, None] & (k < d)[None, :]
        change = tl.load(own + k[None, :], inside, 0.0)
        if UNIT:
            change -= tl.load(rows + at + k[None, :], inside, 0.0) * (inv * along)[:, None]
        tl.store(out + at + k[None, :], change * (inv * part)[:, None], inside)


def _rows_and_columns(d: int) -> tuple[int, int]:
    """Of a program that goes over features."""
    cols = min(512, triton.next_power_of_2(d))
    return max(1, min(16, 2048 // cols)), cols


def _once(name: str) -> None:
    if torch.is_grad_enabled():
        raise RuntimeError(f"a second derivative of the {name} on a GPU needs ordinal_entropy.kernels.use('reference')")


@functools.lru_cache(maxsize=256)
def _averaging(g: int, n: int, d: int, unit: bool, back: bool, compiled_for: tuple[object, ...]) -> Program:
    some, cols = _rows_and_columns(d)
    kernel, tensors = (_average_back, 6) if back else (_average, 5)
    return Program([Launch(kernel, (triton.cdiv(n, some), g, 1), (*map(At, range(tensors)), n, d, unit, some, cols))])


class _Centers(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, slot: Tensor, share: Tensor, unit: bool) -> Tensor:
        rows = rows.contiguous()
        g, n, d = rows.shape
        centers = torch.zeros_like(rows)
        inverse = torch.empty_like(share)
        with torch.cuda.device_of(rows):
            program = _averaging(g, n, d, unit, False, (rows.device, *aligned(rows, slot, share)))
            program(rows.device, rows, slot, share, centers, inverse)
        ctx.save_for_backward(rows, slot, share, inverse)
        ctx.unit = unit
        return centers

    @staticmethod
    def backward(ctx: Any, by_centers: Tensor) -> tuple[Tensor, None, None, None]:
        _once("centers")
        rows, slot, share, inverse = ctx.saved_tensors
        by_centers = by_centers.contiguous()
        g, n, d = rows.shape
        out = torch.empty_like(rows)
        with torch.cuda.device_of(rows):
            program = _averaging(g, n, d, ctx.unit, True, (rows.device, *aligned(by_centers, rows, slot, share)))
            program(rows.device, by_centers, rows, slot, share, inverse, out)
        return out, None, None, None


def centers(rows: Tensor, slot: Tensor, share: Tensor, unit: bool) -> Tensor:
    """Sums of the rows ``(g, n, d)``, over their norms if so asked, times their shares, by slot; ``(g, n, d)``."""
    out: Tensor = _Centers.apply(rows, slot, share, unit)
    return out


@triton.jit
def _tight(
    rows, centers, slot, amount, distance, known, sums, n, d,
    UNIT: tl.constexpr, UNIT_CENTERS: tl.constexpr, COSINE: tl.constexpr, SHARED: tl.constexpr, POWER: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Distances of the rows from their centers, their sum and how many they are, block by block."""
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = block * ROWS + tl.arange(0, ROWS)
    a = tl.load(amount + group * n + i, i < n, 0.0)
    row = rows + (group * n + i)[:, None] * d
    own = centers + (group * n + tl.load(slot + group * n + i, i < n, 0))[:, None] * d
    x_squares = tl.zeros([ROWS], tl.float32)
    c_squares = tl.zeros([ROWS], tl.float32)
    for start in range(0, d, COLS):
        k = start + tl.arange(0, COLS)
        inside = (i < n)[:, None] & (k < d)[None, :]
        x, c = tl.load(row + k[None, :], inside, 0.0), tl.load(own + k[None, :], inside, 0.0)
        x_squares += tl.sum(x * x, 1)
        c_squares += tl.sum(c * c, 1)
    inv = _inverse(x_squares) if UNIT else tl.full([ROWS], 1.0, tl.float32)
    inv_center = _inverse(c_squares) if UNIT_CENTERS else tl.full([ROWS], 1.0, tl.float32)
    squares = tl.zeros([ROWS], tl.float32)
    for start in range(0, d, COLS):
        k = start + tl.arange(0, COLS)
        inside = (i < n)[:, None] & (k < d)[None, :]
        x, c = tl.load(row + k[None, :], inside, 0.0), tl.load(own + k[None, :], inside, 0.0)
        gap = x * inv[:, None] - c * inv_center[:, None]
        squares += tl.sum(gap * gap, 1)
    size = x_squares * inv * inv
    apart = squares > 9.0949470e-13 * size  # more than rounding: (8 eps)^2
    if COSINE:
        center_size = c_squares * inv_center * inv_center  # a half more for each that is zero
        far = squares / 2 + tl.where(size < 0.5, 0.5, 0.0) + tl.where(center_size < 0.5, 0.5, 0.0)
    else:
        far = tl.sqrt(squares)
    far = tl.where(apart, far, 0.0)
    counted = tl.where(apart, a, 0.0) if SHARED else a
    tl.store(distance + group * n + i, far, i < n)
    at = known + group * 2 * n + i
    tl.store(at, inv, i < n)
    tl.store(at + n, inv_center, i < n)
    out = sums + (group * tl.num_programs(0) + block) * 2
    tl.store(out, tl.sum(counted * (far if POWER == 1 else far * far), 0))
    tl.store(out + 1, tl.sum(counted, 0))


@triton.jit
def _tight_mean(sums, means, counts, blocks, BLOCK: tl.constexpr):
    group = tl.program_id(0).to(tl.int64)
    total = tl.zeros([BLOCK], tl.float64)
    count = tl.zeros([BLOCK], tl.float64)
    for start in range(0, blocks, BLOCK):
        b = start + tl.arange(0, BLOCK)
        part = sums + (group * blocks + b) * 2
        total += tl.load(part, b < blocks, 0.0).to(tl.float64)
        count += tl.load(part + 1, b < blocks, 0.0).to(tl.float64)
    number = tl.sum(count, 0)
    number = tl.where(number > 0, number, 1.0)
    tl.store(means + group, (tl.sum(total, 0) / number).to(tl.float32))
    tl.store(counts + group, (1.0 / number).to(tl.float32))


@triton.jit
def _tight_back(
    by_means, rows, centers, slot, amount, distance, known, counts, by_rows, by_centers, n, d,
    UNIT: tl.constexpr, UNIT_CENTERS: tl.constexpr, COSINE: tl.constexpr, POWER: tl.constexpr,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """The gradient of the rows, and that of the centers, added up."""
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = block * ROWS + tl.arange(0, ROWS)
    a = tl.load(amount + group * n + i, i < n, 0.0)
    far = tl.load(distance + group * n + i, i < n, 0.0)
    inv = tl.load(known + group * 2 * n + i, i < n, 0.0)
    inv_center = tl.load(known + (group * 2 + 1) * n + i, i < n, 0.0)
    pull = tl.load(by_means + group) * tl.load(counts + group) * a
    if COSINE:
        pull *= 1.0 if POWER == 1 else 2.0 * far
        pull = tl.where(far > 0, pull, 0.0)
    else:
        pull = tl.where(far > 0, pull / tl.where(far > 0, far, 1.0), 0.0) if POWER == 1 else pull * 2.0
        pull = tl.where(far > 0, pull, 0.0)
    at = (group * n + i)[:, None] * d
    to = (group * n + tl.load(slot + group * n + i, i < n, 0))[:, None] * d
    along = tl.zeros([ROWS], tl.float32)
    along_center = tl.zeros([ROWS], tl.float32)
    for start in range(0, d, COLS):
        k = start + tl.arange(0, COLS)
        inside = (i < n)[:, None] & (k < d)[None, :]
        z = tl.load(rows + at + k[None, :], inside, 0.0) * inv[:, None]
        c = tl.load(centers + to + k[None, :], inside, 0.0) * inv_center[:, None]
        along += tl.sum(z * (z - c), 1)
        along_center += tl.sum(c * (z - c), 1)
    along = along if UNIT else along * 0.0
    along_center = along_center if UNIT_CENTERS else along_center * 0.0
    for start in range(0, d, COLS):
        k = start + tl.arange(0, COLS)
        inside = (i < n)[:, None] & (k < d)[None, :]
        z = tl.load(rows + at + k[None, :], inside, 0.0) * inv[:, None]
        c = tl.load(centers + to + k[None, :], inside, 0.0) * inv_center[:, None]
        tl.store(by_rows + at + k[None, :], (z - c - z * along[:, None]) * (pull * inv)[:, None], inside)
        change = (c * along_center[:, None] - (z - c)) * (pull * inv_center)[:, None]
        tl.atomic_add(by_centers + to + k[None, :], change, inside & (pull != 0)[:, None])


@functools.lru_cache(maxsize=256)
def _tightening(
    g: int,
    n: int,
    d: int,
    unit: bool,
    unit_centers: bool,
    cosine: bool,
    shared: bool,
    power: int,
    back: bool,
    compiled_for: tuple[object, ...],
) -> Program:
    some, cols = _rows_and_columns(d)
    blocks = triton.cdiv(n, some)
    if back:
        rest = n, d, unit, unit_centers, cosine, power, some, cols
        return Program([Launch(_tight_back, (blocks, g, 1), (*map(At, range(10)), *rest))])
    rows, centers, slot, amount, distance, known, sums, means, counts = map(At, range(9))
    options = unit, unit_centers, cosine, shared, power, some, cols
    tight = Launch(
        _tight, (blocks, g, 1), (rows, centers, slot, amount, distance, known, sums, n, d, *options)
    )  # fmt: skip
    return Program([tight, Launch(_tight_mean, (g, 1, 1), (sums, means, counts, blocks, 256))])


class _Tightness(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows: Tensor,
        centers: Tensor,
        slot: Tensor,
        amount: Tensor,
        unit: bool,
        unit_centers: bool,
        cosine: bool,
        shared: bool,
        power: int,
    ) -> Tensor:
        rows, centers, amount = rows.contiguous(), centers.contiguous(), amount.contiguous()
        g, n, d = rows.shape
        blocks = triton.cdiv(n, _rows_and_columns(d)[0])
        distance, known = rows.new_empty(g, n), rows.new_empty(g, 2, n)
        sums, (means, counts) = rows.new_empty(g, blocks, 2), rows.new_empty(2, g).unbind()
        ctx.options = unit, unit_centers, cosine, shared, power
        with torch.cuda.device_of(rows):
            compiled_for = rows.device, *aligned(rows, centers, slot, amount)
            program = _tightening(g, n, d, *ctx.options, False, compiled_for)
            program(rows.device, rows, centers, slot, amount, distance, known, sums, means, counts)
        ctx.save_for_backward(rows, centers, slot, amount, distance, known, counts)
        return means

    @staticmethod
    def backward(ctx: Any, by_means: Tensor) -> tuple[Tensor | None, ...]:
        _once("tightness")
        rows, centers, slot, amount, distance, known, counts = ctx.saved_tensors
        by_means = by_means.contiguous()
        g, n, d = rows.shape
        by_rows, by_centers = torch.empty_like(rows), torch.zeros_like(rows)
        with torch.cuda.device_of(rows):
            compiled_for = rows.device, *aligned(by_means, rows, centers, slot, amount)
            program = _tightening(g, n, d, *ctx.options, True, compiled_for)
            program(
                rows.device, by_means, rows, centers, slot, amount, distance, known, counts, by_rows, by_centers
            )  # fmt: skip
        return by_rows, by_centers, *([None] * 7)


def tightness(
    rows: Tensor,
    centers: Tensor,
    slot: Tensor,
    amount: Tensor,
    *,
    unit: bool,
    unit_centers: bool,
    cosine: bool,
    shared: bool,
    power: int,
) -> Tensor:
    """Mean distance of rows from the centers in their slots, one a group ``(g,)``.

    Args:
        rows: ``(g, n, d)``.
        centers: ``(g, n, d)``.
        slot: ``(g, n)``.
        amount: ``(g, n)``, how many times a row counts.
        unit: divide the rows by their norms.
        unit_centers: divide the centers by theirs.
        cosine: 1 - cos instead of the distance.
        shared: leave out rows where their center is.
        power: of the distance, 1 or 2.
    """
    out: Tensor = _Tightness.apply(rows, centers, slot, amount, unit, unit_centers, cosine, shared, power)
    return out
