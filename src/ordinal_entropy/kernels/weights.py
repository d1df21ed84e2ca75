"""Weights of the pairs: a power of the distance between targets, or the user's own function of them."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[[Tensor, Tensor], Tensor]  # targets (a, t) and (b, t) to weights (a, b)
POWERS = {"l2": 1.0, "squared": 2.0, "sqrt": 0.5, "none": 0.0}

_BLOCK = 1024
_WIDE = 32  # above so many numbers a target, differences cost more than products in float64


def distances(left: Tensor, right: Tensor) -> Tensor:
    """Distances ``(..., a, b)`` between targets ``(..., a, t)`` and ``(..., b, t)``; for many t by float64 products."""
    if left.shape[-1] <= _WIDE or left.device.type == "mps":
        return torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist")
    return torch.cdist(left.double(), right.double(), compute_mode="use_mm_for_euclid_dist").to(left.dtype)


def weight_block(left: Tensor, right: Tensor, weighting: float | Function, out: Tensor | None = None) -> Tensor:
    """Weights ``(a, b)`` between targets ``(a, t)`` and ``(b, t)``, in ``out`` where there is one.

    The two orders in which a function can be asked are averaged.
    """
    out = left.new_empty(left.shape[0], right.shape[0]) if out is None else out
    if callable(weighting):
        return out.copy_((weighting(left, right) + weighting(right, left).mT) / 2)
    if weighting == 0:
        return out.fill_(1)
    if left.shape[1] == 1:
        torch.sub(left, right.mT, out=out).abs_()
    else:
        out.copy_(distances(left, right))
    if weighting == 1:
        return out
    return out.square_() if weighting == 2 else out.sqrt_()


def smallest_gap(values: Tensor, amount: Tensor | None) -> Tensor:
    """Smallest distance ``(g,)`` between any two of the scalar values ``(g, m, 1)`` that are present; no pair: 0.

    Amounts ``(g, m)`` say how many there are of each; None: one.
    """
    amount = values.new_ones(values.shape[:2]) if amount is None else amount
    ordered = torch.where(amount > 0, values[..., 0], torch.inf).sort(dim=1).values
    gaps = F.pad(ordered.diff(dim=1), (0, 1), value=torch.inf)
    smallest = torch.where(gaps.isfinite(), gaps, torch.inf).amin(1)
    return torch.where((amount > 1).any(1) | smallest.isinf(), 0, smallest)


def extremes(values: Tensor, amount: Tensor | None, weighting: float | Function) -> tuple[Tensor, Tensor]:
    """Smallest and largest weight ``(g,)`` over all pairs of present values ``(g, m, t)``; no pair: 0 and 0.

    Block by block: m^2 t operations, no m x m matrix. Amounts as in :func:`smallest_gap`.
    """
    g, m, _ = values.shape
    amount = values.new_ones(g, m) if amount is None else amount
    low = values.new_full((g,), torch.inf)
    high = values.new_full((g,), -torch.inf)
    for k in range(g):
        for i in range(0, m, _BLOCK):
            for j in range(i, m, _BLOCK):
                left, right = slice(i, i + _BLOCK), slice(j, j + _BLOCK)
                block = weight_block(values[k, left], values[k, right], weighting)
                pair = (amount[k, left, None] > 0) & (amount[k, None, right] > 0)
                if i == j:  # a point pairs with itself only where it has copies
                    pair = pair & ~torch.diag(amount[k, left] <= 1)
                low[k] = torch.minimum(low[k], torch.where(pair, block, torch.inf).amin())
                high[k] = torch.maximum(high[k], torch.where(pair, block, -torch.inf).amax())
    return torch.where(low.isinf(), 0, low), torch.where(high.isinf(), 0, high)


def checked(weighting: Function, eager: bool) -> Function:
    """The user's function, its answer checked: shape always, sign and NaN where values may be looked at."""

    def function(left: Tensor, right: Tensor) -> Tensor:
        answer = weighting(left, right)
        expected = (left.shape[0], right.shape[0])
        if not isinstance(answer, Tensor) or answer.shape != expected:
            came = tuple(answer.shape) if isinstance(answer, Tensor) else type(answer).__name__
            raise ValueError(f"expected weighting to return weights {expected}, got {came}")
        if eager and not bool((answer >= 0).all()):
            raise ValueError(f"expected weighting to return weights of at least 0, got {float(answer.min())}")
        return answer.detach()

    return function


def scaled(weighting: Function, unit: Tensor) -> Function:
    """The function with its weights times a number that brings the largest of the mean of both orders to below 4.

    Weights of pairs that do not count may be so much larger that they would overflow: they are cut off.
    """
    return lambda left, right: (unit * weighting(left, right)).clamp_max(8)
