"""Rows drawn for the regularizer: a function of seed, step and row, whatever else trains beside, on any device.

A hash of (seed, step, row) in whole numbers orders the rows; the first ones are taken. So a run draws the same rows
alone and in a stack, on a CPU and on a GPU, and after it went on from a checkpoint.
"""

import torch
from torch import Tensor

_GOLDEN = -0x61C8864680B583EB  # 2**64 / golden ratio, odd, as a signed number


def drawn_rows(seeds: Tensor, steps: Tensor, rows: int, count: int) -> Tensor:
    """Different rows ``(s, r, count)`` for each step and run, each set as likely as any other.

    Args:
        seeds: ``(r,)`` whole numbers, one a run.
        steps: ``(s,)`` whole numbers.
        rows: how many there are to draw from.
        count: how many to draw, without replacement; all of them come in their order.

    Example:
        >>> drawn_rows(torch.tensor([0, 1]), torch.tensor([5]), rows=100, count=3)
        tensor([[[11, 87,  6],
                 [39, 65, 42]]])
    """
    row = torch.arange(rows, device=seeds.device)
    if count >= rows:
        return row.expand(len(steps), len(seeds), rows)
    stream = _mixed(_mixed(seeds) + steps[:, None])  # (s, r)
    keys = _mixed(stream[..., None] + _GOLDEN * row)  # (s, r, rows)
    low_bits = (1 << (rows - 1).bit_length()) - 1
    keys = (keys & ~low_bits) | row  # no two are equal, so there is one order
    return keys.topk(count, dim=-1).indices


def _mixed(x: Tensor) -> Tensor:
    """The finaliser of SplitMix64: whole numbers that look random, one for each."""
    x = x + _GOLDEN
    x = (x ^ _shifted(x, 30)) * -0x40A7B892E31B1A47
    x = (x ^ _shifted(x, 27)) * -0x6B2FB644ECCEEE15
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    """To the right, with zeros from the left: torch's own shift keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)
