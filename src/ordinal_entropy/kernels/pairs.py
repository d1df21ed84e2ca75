"""The mean over all pairs: weights made of targets, the choice of a kernel, and the sum as one reads it.

That sum is matrices of all pairs, in float64 where the device has it, by plain differentiable operations: higher
derivatives, ``torch.func`` and any backend of ``torch.compile`` work. In float64 the product form of a distance loses
pairs closer than about 1e-7 of the spread of the points, which float32 inputs can hardly hold. Points closer than
``unit.SAME`` of their root mean square coincide, as in every kernel.
"""

import math

import torch
from torch import Tensor

from ordinal_entropy.kernels import choice, sampled
from ordinal_entropy.kernels.unit import SAME, to_one, unit_rows
from ordinal_entropy.kernels.weights import POWERS, Function, checked, extremes, scaled, smallest_gap
from ordinal_entropy.kernels.weights import distances as distances_between


def pair_mean(
    points: Tensor,
    values: Tensor,
    amount: Tensor | None,
    *,
    weighting: str | Function,
    distance: str,
    rescale: str,
    project: bool,
    num_pairs: int | None,
    generator: torch.Generator | None,
    eager: bool,
    times: float = 1.0,
    coarse: bool = False,
    weighed: bool = True,
) -> Tensor:
    """Mean over all pairs of weight times distance, averaged over the groups that have a pair; no pair: 0.

    Targets and amounts are brought near 1 by powers of two before anything is squared, and so are the weights of a
    function, so that no number is lost whatever their units.

    Args:
        points: ``(g, m, d)``, or ``(m, d)`` for one group; those that are not projected not far from 1.
        values: ``(g, m, t)`` targets of the points.
        amount: ``(g, m)``, how many copies of a point there are; copies pair with each other at distance 0. None: one
            of each.
        weighting: "l2", "squared", "sqrt" or "none" of the distance between values, or a function.
        distance: "l2" or "cosine".
        rescale: "max", "authors" or "none", by the extremes of all pairs, drawn or not.
        project: divide the points by their norms first; the cosine distance asks for it.
        num_pairs: draw so many pairs instead of using all.
        generator: for the draw.
        eager: values may be looked at.
        times: a factor of the result.
        coarse: the points were computed in half precision, so that half precision will do for their products.
        weighed: amounts may be any numbers; False: 0 and 1 only.

    Example:
        >>> x, y = torch.tensor([[[0.0], [3.0], [4.0]]]), torch.tensor([[[0.0], [1.0], [2.0]]])
        >>> options = {"weighting": "l2", "distance": "l2", "project": False, "num_pairs": None, "generator": None}
        >>> pair_mean(x, y, None, rescale="max", eager=True, **options)  # (0.5 * 3 + 1 * 4 + 0.5 * 1) / 3
        tensor(2.)
    """
    if amount is not None and eager and weighed:
        copies = amount.sum(1)
        if bool(((copies <= 1) & ((amount > 0).sum(1) > 1)).any()):
            raise ValueError(f"expected sample_weight to count repetitions, got a sum of {float(copies.min())}")
    named = not callable(weighting) and num_pairs is None
    if choice.chosen == "fused" or (points.is_cuda and choice.chosen == "auto"):
        why = choice.unfit(points, values) if named else ""
        if why and choice.chosen == "fused":
            raise ValueError(f"the fused kernel cannot be used: {why}")
        if named and not why:
            from ordinal_entropy.kernels import fused

            power = POWERS[str(weighting)]
            means = fused.pair_means(points, values, amount, power, distance, project, rescale, times, coarse)
            if points.dim() == 2 or points.shape[0] == 1:
                return means
            if amount is None:
                return means.mean()
            return means.sum() / (amount.sum(1) > 1).sum().clamp_min(1)

    points = points.unsqueeze(0) if points.dim() == 2 else points
    g, m, _ = points.shape
    low, high, factor = None, None, None  # taken off the weights, the largest of them, and what the means are times
    measure: float | Function
    if callable(weighting):
        measure = checked(weighting, eager)
        if rescale != "none":
            low, high = extremes(values, amount, measure)
            unit = to_one(high.amax())
            low, high, measure = low * unit, high * unit, scaled(measure, unit)
    else:
        measure = POWERS[weighting]
    if not callable(measure) and measure != 0:
        # only differences count: from the smallest target on they survive float32 best
        on_mps = values.device.type == "mps"
        safe = values.dtype == torch.float32 and not on_mps  # their squares in float64
        values = values if on_mps else values.double()
        if amount is None:
            values = values - values.amin(1, keepdim=True)
        else:
            present = (amount > 0)[..., None]
            values = torch.where(present, values - torch.where(present, values, torch.inf).amin(1, keepdim=True), 0)
        if rescale == "none" or not safe:
            unit = to_one(values.amax((1, 2), keepdim=True))  # (g, 1, 1)
            values = values * unit
        if rescale == "none":
            factor = unit.flatten().pow(-measure)
        else:
            gap: Tensor | None
            if values.shape[-1] > 1:
                gap, span = extremes(values, amount, 1.0)  # (g,)
            else:
                gap, span = smallest_gap(values, amount) if rescale == "authors" else None, values.amax((1, 2))
            span = span.masked_fill(span == 0, 1)
            values = values / span[:, None, None]
            low = None if gap is None else (gap / span).pow(measure).to(points.dtype)
        values = values.to(points.dtype)
    if rescale == "max":
        low = None
    once: Tensor | float = 1.0
    if amount is not None and weighed:
        once = to_one(amount.amax(1)) / 2  # what counts once, counts so much from here on: 1 where nothing counts more
        amount = amount * once[:, None]

    small = g * m**2 <= choice.REFERENCE_PAIRS
    if num_pairs is not None:
        sums = sampled.pair_sums(points, values, amount, low, measure, distance, project, num_pairs, generator)
    elif (
        choice.chosen == "reference"
        or (choice.chosen != "blocked" and small)
        or (callable(measure) and choice.is_traced())  # no operator takes a function
    ):
        sums = pair_sums(points, values, amount, low, measure, distance, project)
    else:
        from ordinal_entropy.kernels import blocked  # which takes its second derivative from here

        sums = blocked.pair_sums(points, values, amount, low, measure, distance, project)
    if amount is None and high is None and factor is None:  # all groups have as many pairs
        return sums.sum() * (times / (g * m * (m - 1) / 2) if m > 1 else 0.0)  # no pair: 0, but NaN stays
    copies = sums.new_full((g,), float(m)) if amount is None else amount.sum(1)
    paired = copies > once
    pairs = torch.where(paired, copies * (copies - once) / 2, 0)
    if high is not None:
        pairs = pairs * high
    means = sums / torch.where(pairs > 0, pairs, torch.inf)  # likewise
    if factor is not None:
        means = (means * factor).to(points.dtype)
    return times * means.sum() / paired.sum().clamp_min(1)


def pair_sums(
    points: Tensor,
    values: Tensor,
    amount: Tensor | None,
    low: Tensor | None,
    weighting: float | Function,
    distance: str,
    project: bool = False,
) -> Tensor:
    """``sum_{i<j} a_i a_j (w_ij - low) dist_ij``, one a group.

    Args:
        points: ``(g, m, d)``.
        values: ``(g, m, t)`` targets.
        amount: ``(g, m)``, the a_i, or None: all are 1.
        low: ``(g,)`` taken off the weights, or None.
        weighting: a power of the distance between values, or a function.
        distance: "l2" (coincident points get no gradient) or "cosine" (with ``project``; zero rows are at 1 from all).
        project: divide the points by their norms first.

    Returns:
        ``(g,)`` in the dtype of the points.

    Example:
        >>> x, y = torch.tensor([[[0.0], [3.0], [4.0]]]), torch.tensor([[[0.0], [1.0], [2.0]]])
        >>> pair_sums(x, y, None, None, 1.0, "l2")  # 1 * 3 + 2 * 4 + 1 * 1
        tensor([12.])
    """
    dtype = torch.float32 if points.device.type == "mps" else torch.float64
    x = points.to(dtype)
    if project and points.dtype == dtype:
        x = unit_rows(x)
    elif project:  # the square of any number can be held
        squares = x.square().sum(-1, keepdim=True)
        x = x * squares.masked_fill(squares == 0, math.inf).rsqrt()
    unit = x.detach()
    x = x - x.mean(1, keepdim=True)  # (g, m, d)
    sizes = x.square().sum(-1)
    sizes = sizes[:, :, None] + sizes[:, None]  # (g, m, m), |x_i|^2 + |x_j|^2
    squares = torch.baddbmm(sizes, x, x.mT, alpha=-2)
    if callable(weighting):
        weights = torch.stack([(weighting(v, v) + weighting(v, v).mT) / 2 for v in values])
    elif values.shape[-1] == 1:
        weights = (values - values.mT).abs()
        weights = weights if weighting == 1 else weights.pow(weighting)
    else:
        weights = distances_between(values, values).pow(weighting)
    if low is not None:
        weights = weights - low[:, None, None]
    if amount is not None:
        weights = weights * amount[:, :, None] * amount[:, None]
    weights = weights.triu(1)
    if distance == "cosine":
        zero = 0.5 * (unit.square().sum(-1) < 0.5)
        distances = squares / 2 + zero[:, :, None] + zero[:, None]  # 1 - cos = |x_i - x_j|^2 / 2 between unit rows
    else:
        mean_square = 1.0 if project else unit.square().sum(-1).mean(1)[:, None, None]
        least = (4 * torch.finfo(dtype).eps * sizes.detach()).clamp_min(SAME**2 * mean_square)
        same = squares.detach() <= least  # False for NaN
        weights = weights.masked_fill(same, 0)
        distances = squares.masked_fill(same, 1).sqrt()
    return (weights * distances).sum((1, 2)).to(points.dtype)
