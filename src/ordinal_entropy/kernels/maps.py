"""Every so manieth row and column of maps on a GPU, in one pass over what is read and one over what is written.

For maps whose channels lie side by side in memory. Plain operations take a pass to pick, one to mask, and on the way
back one to mask, one over the whole map for its zeros, and one to put the gradient between them.
"""

import functools

import torch
import triton
import triton.language as tl
from torch import Tensor

from ordinal_entropy.kernels.launch import At, Launch, Program, aligned, current


@triton.jit
def _pick(
    maps, amount, out, count, high, wide, c, image_step, row_step, column_step,
    ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Some places of the grid with all their channels; zeros where the amount is 0."""
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    image, row, column = i // (high * wide), i // wide % high, i % wide
    start = image.to(tl.int64) * image_step + row.to(tl.int64) * row_step + column.to(tl.int64) * column_step
    there = i < count
    if amount is not None:
        there = there & (tl.load(amount + i, i < count, 0.0) != 0)
    for first in range(0, c, COLS):
        k = first + tl.arange(0, COLS)
        x = tl.load(maps + start[:, None] + k[None, :], there[:, None] & (k < c)[None, :], 0.0)
        to = out + i.to(tl.int64)[:, None] * c + k[None, :]
        tl.store(to, x.to(out.dtype.element_ty), (i < count)[:, None] & (k < c)[None, :])


@triton.jit
def _spread(
    by_picked, amount, out, blocks, h, w, high, wide, c,
    DOWN: tl.constexpr, ACROSS: tl.constexpr, ROWS: tl.constexpr, COLS: tl.constexpr,
):  # fmt: skip
    """Some places of one line of a map with all their channels: zeros, and the gradient at those of the grid."""
    line = tl.program_id(0) // blocks  # among the lines of all maps
    row = line % h
    column = tl.program_id(0) % blocks * ROWS + tl.arange(0, ROWS)
    i = (line // h * high + row // DOWN) * wide + column // ACROSS
    there = (column < tl.where(row % DOWN == 0, w, 0)) & (column % ACROSS == 0)
    if amount is not None:
        there = there & (tl.load(amount + i, there, 0.0) != 0)
    at = (line.to(tl.int64) * w + column)[:, None] * c
    for first in range(0, c, COLS):
        k = first + tl.arange(0, COLS)
        change = tl.load(by_picked + i.to(tl.int64)[:, None] * c + k[None, :], there[:, None] & (k < c)[None, :], 0.0)
        tl.store(out + at + k[None, :], change.to(out.dtype.element_ty), (column < w)[:, None] & (k < c)[None, :])


def _rows_and_columns(c: int) -> tuple[int, int]:
    """Places and channels of a program."""
    cols = min(512, triton.next_power_of_2(c))
    return min(64, 4096 // cols), cols


@functools.lru_cache(maxsize=256)
def _picking(shape: tuple[int, ...], steps: tuple[int, int, int], compiled_for: tuple[object, ...]) -> Program:
    b, high, wide, c = shape
    maps, amount, out = map(At, range(3))
    some, cols = _rows_and_columns(c)
    count = b * high * wide
    sizes = count, high, wide, c, *steps
    arguments = maps, amount, out, *sizes, some, cols
    return Program([Launch(_pick, (triton.cdiv(count, some), 1, 1), arguments)])


@functools.lru_cache(maxsize=256)
def _spreading(shape: tuple[int, ...], grid: tuple[int, int], compiled_for: tuple[object, ...]) -> Program:
    b, h, w, c = shape
    by_picked, amount, out = map(At, range(3))
    some, cols = _rows_and_columns(c)
    blocks = triton.cdiv(w, some)
    sizes = blocks, h, w, *grid, c, h // grid[0], w // grid[1], some, cols
    arguments = by_picked, amount, out, *sizes
    return Program([Launch(_spread, (b * h * blocks, 1, 1), arguments)])


def picked(maps: Tensor, amount: Tensor | None, down: int, across: int, dtype: torch.dtype) -> Tensor:
    """Every ``down``-th row and ``across``-th column of maps ``(b, c, h, w)``, as ``(b, h', w', c)`` of a type.

    Args:
        maps: with ``stride(1) == 1``, not empty.
        amount: ``(b, h', w')``; where it is 0, so is the answer. None: nowhere.
        down: divides ``h``.
        across: divides ``w``.
        dtype: of the answer.
    """
    b, c, h, w = maps.shape
    device = maps.device
    amount = amount if amount is None else amount.contiguous()
    out = torch.empty(b, h // down, w // across, c, dtype=dtype, device=device)
    with current(maps):
        compiled_for = device, dtype, maps.dtype, *aligned(maps, amount)
        steps = maps.stride(0), down * maps.stride(2), across * maps.stride(3)
        program = _picking(tuple(out.shape), steps, compiled_for)
        program(device, maps, amount, out)
    return out


def spread(by_picked: Tensor, amount: Tensor | None, h: int, w: int, dtype: torch.dtype) -> Tensor:
    """The gradient of the maps ``(b, c, h, w)`` from that of what was picked, ``(b, h', w', c)``; channels last."""
    b, high, wide, c = by_picked.shape
    device = by_picked.device
    by_picked, amount = by_picked.contiguous(), amount if amount is None else amount.contiguous()
    out = torch.empty(b, h, w, c, dtype=dtype, device=device)
    with current(out):
        compiled_for = device, dtype, by_picked.dtype, *aligned(by_picked, amount)
        program = _spreading(tuple(out.shape), (high, wide), compiled_for)
        program(device, by_picked, amount, out)
    return out.permute(0, 3, 1, 2)
