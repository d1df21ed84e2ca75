"""Rows drawn without replacement in one walk through all of them, and intervals from subsamples of those."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ordinal_entropy.feature_files import RowStream

LEAST_ROWS = 8
LEAST_FOR_INTERVALS = 16
SUBSAMPLES = 32
SUBSAMPLE_ROWS = 512  # at most, else half of the rows
STUDENT = 2.0395  # 97.5% quantile of Student's distribution with SUBSAMPLES - 1 degrees of freedom

BLOCK = 2**22  # numbers read at once

Sample = tuple[RowStream, RowStream]  # features, targets


class Drawn(NamedTuple):
    """Features ``(n, d)`` and targets ``(n, t)`` in float64 and random order, and what they were drawn from."""

    features: Tensor
    targets: Tensor
    counts: tuple[int, int, int, int]  # rows, rows left out, those for their features, those for their targets


def width(samples: Sequence[Sample]) -> int:
    """The most numbers that a row of any of these has."""
    return max(math.prod(array.shape[1:]) for sample in samples for array in sample)


def number_of_blocks(samples: Sequence[Sample]) -> int:
    """Into how many the walk divides the rows."""
    return len(_starts(samples))


def _starts(samples: Sequence[Sample]) -> range:
    """First rows of the blocks."""
    return range(0, samples[0][0].shape[0], max(1, BLOCK // width(samples)))


def draw(samples: Sequence[Sample], most: int, seed: int, counted: Callable[[int], None]) -> list[Drawn]:
    """The same rows of each sample: at most ``most``, drawn without replacement among those that are finite in all.

    Every row has a random key; those with the smallest keys among the rows seen so far are kept.

    Args:
        samples: features and targets, all with the same number of rows.
        most: rows.
        seed: of the places: the same for the same number of rows.
        counted: called with the number of blocks just read.
    """
    n = samples[0][0].shape[0]
    place = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    kept = place[:0]
    held: list[Tensor] = []
    left_out, by_array = 0, [0] * (2 * len(samples))
    starts = _starts(samples)
    for start, blocks in zip(starts, _side_by_side(samples, starts.step), strict=True):
        bad = [_not_finite(block) for block in blocks]
        by_array = [count + int(rows.sum()) for count, rows in zip(by_array, bad, strict=True)]
        out = torch.stack(bad).any(0)
        left_out += int(out.sum())
        here = place[start : start + starts.step]
        wanted = ~out & (here < kept[-1]) if len(kept) == most else ~out
        kept, order = torch.cat([kept, here[wanted]]).sort()
        kept, order = kept[:most], order[:most]
        new = [block[wanted] for block in blocks]
        held = [torch.cat(both)[order] for both in zip(held or [x[:0] for x in new], new, strict=True)]
        counted(len(samples))
    if len(kept) < LEAST_ROWS:
        raise ValueError(
            f"expected at least {LEAST_ROWS} rows without NaN or infinite numbers, got {len(kept)} among {n:,}"
        )
    return [
        Drawn(held[i].double(), held[i + 1].double(), (n, left_out, by_array[i], by_array[i + 1]))
        for i in range(0, len(held), 2)
    ]


def _side_by_side(samples: Sequence[Sample], count: int) -> Iterator[list[Tensor]]:
    """Blocks ``(count, width)`` of the same rows: features and targets of the first pair, of the second."""
    for blocks in zip(*(array.blocks(count) for sample in samples for array in sample), strict=True):
        yield [block.reshape(len(block), -1) for block in blocks]


def _not_finite(block: Tensor) -> Tensor:
    """Which rows ``(b,)`` hold a NaN or an infinite number; looked for where the sum is not finite, which is rare."""
    bad = ~block.sum(1).isfinite()
    if bad.any():
        bad[bad.clone()] = ~block[bad].isfinite().all(1)
    return bad


def equal(a: RowStream, b: RowStream) -> bool:
    """Whether two arrays hold the same numbers; ``(n,)`` may equal ``(n, 1)``, and NaN equals NaN."""
    if a.shape[0] != b.shape[0] or math.prod(a.shape) != math.prod(b.shape):
        return False
    step = _starts([(a, b)]).step
    return all(bool(((x == y) | (x.isnan() & y.isnan())).all()) for x, y in _side_by_side([(a, b)], step))


def subsample_size(n: int) -> int:
    """Rows of a subsample of ``n``."""
    return min(n // 2, SUBSAMPLE_ROWS)


def interval(value: float, draws: Sequence[float], n: int, size: int) -> tuple[float, float]:
    """95% interval of an estimate at ``n`` rows, from estimates at ``size`` of them drawn without replacement.

    At n rows an estimate varies by about ``s / sqrt(n)``. Subsamples of the same n rows share some: they vary by
    ``s sqrt(1 / size - 1 / n)``. The ratio of the two is ``sqrt(size / (n - size))``. The spread is taken around the
    subsamples' own mean, so that a bias which depends on the number of rows is no part of it.

    Returns:
        ``(low, high)``; NaN without draws, or where one of the numbers is not finite.

    Example:
        >>> low, high = interval(1.0, [0.9, 1.0, 1.1], n=200, size=100)
        >>> print(f"{low:.3f} {high:.3f}")
        0.796 1.204
    """
    if not draws or not math.isfinite(value) or not all(map(math.isfinite, draws)):
        return math.nan, math.nan
    error = STUDENT * float(np.std(draws, ddof=1)) * math.sqrt(size / (n - size))
    return value - error, value + error
