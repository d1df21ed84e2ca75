"""The regularizer and its gradient by float64 differences of all pairs, and how large a gradient can be at most.

Independent of the library but for one rule that is stated in its documentation: points closer than 2**-30 of their root
mean square coincide, and rows within 8 roundings of their center lie on it.
"""

from typing import NamedTuple

import torch

SAME = 2.0**-30


class Answer(NamedTuple):
    """Of one call: its value, its gradient at the rows, and what either can be off by."""

    value: torch.Tensor
    gradient: torch.Tensor  # (g, n, d)
    size: float  # the value were all points as far apart as they are large: what its rounding is relative to
    largest: torch.Tensor  # (g, n), the norm that no gradient of a row exceeds
    condition: float  # rounding may be so many times eps times `largest`: one over the smallest relative distance


def unit(x):
    norms = x.norm(dim=-1, keepdim=True)
    return torch.where(norms > 0, x / torch.where(norms > 0, norms, 1), 0)


def grouped(y, grouping):
    """The center of each row: (n,) numbers from 0 on."""
    if grouping == "none":
        return torch.arange(len(y))
    keys = y if grouping == "unique" else torch.floor(y / grouping)
    return torch.unique(keys, dim=0, return_inverse=True)[1]


def one_group(x, y, amount, options, kind):
    """(diversity, tightness, either None if there is none; their sizes; bounds of their gradients (n,); condition)."""
    present = amount > 0
    number = torch.zeros(len(x), dtype=torch.long)
    number[present] = grouped(y[present], options["grouping"])
    m = int(number[present].max()) + 1 if bool(present.any()) else 0
    if m == 0:
        nothing = torch.zeros(len(x), dtype=torch.float64)
        return None, None, 0.0, 0.0, nothing, nothing, 1.0
    cosine, normalize = options["distance"] == "cosine", options["normalize"]
    sphere = cosine or normalize
    first = normalize and options["centers"] == "normalize-first"
    member = torch.zeros(m, len(x), dtype=torch.float64)
    member[number[present], present.nonzero()[:, 0]] = amount[present]
    share = member / member.sum(1, keepdim=True)  # (m, n)
    z = unit(x) if sphere else x
    raw = share @ (unit(x) if first else x)  # (m, d)
    values = share @ y if options["grouping"] != "unique" else y[member.argmax(1)]
    points = unit(raw) if cosine or (normalize and not first) else raw
    none = options["grouping"] == "none"
    copies = member.sum(1) if none else torch.ones(m, dtype=torch.float64)
    single = none or bool((member > 0).sum(1).max() == 1)

    norms = x.detach().norm(dim=1)
    centers = raw.detach().norm(dim=1)
    through = 1 / torch.where(centers > 0, centers, torch.inf) if cosine or (normalize and not first) else torch.ones(m)
    back = 1 / torch.where(norms > 0, norms, torch.inf) if first else torch.ones(len(x))
    condition = 1.0
    if sphere and not (first and not cosine):  # averages that nearly cancel have no direction
        rows = share @ (norms > 0).double() if first else share @ norms
        cancelled = float(torch.where(rows > 0, rows / centers, 1).max())
        condition = max(condition, cancelled if cancelled * 64 * kind.eps < 1 else torch.inf)

    push, push_size, push_bound = None, 0.0, torch.zeros(len(x), dtype=torch.float64)
    total = copies.sum()
    if total > 1 and (m > 1 or none):
        weighting = options["weighting"]
        if callable(weighting):
            weights = whole = weighting(values, values)  # (m, m)
        else:
            gaps = (values[:, None] - values).norm(dim=-1)
            weights = whole = gaps.pow({"l2": 1.0, "squared": 2.0, "sqrt": 0.5, "none": 0.0}[weighting])
        pair = ~torch.eye(m, dtype=torch.bool) | torch.diag(copies > 1)
        if options["weighting"] != "none" and options["rescale"] != "none":
            low, high = weights[pair].min(), weights[pair].max()
            low = low if options["rescale"] == "authors" else 0 * low
            weights, whole = (weights - low) / torch.where(high > 0, high, 1), weights / torch.where(high > 0, high, 1)
        apart = points[:, None] - points
        squares = apart.square().sum(-1)
        zero = 0.5 * (points.detach().norm(dim=1) < 0.5)
        scale = points.detach().square().sum(1).mean().sqrt()
        if cosine:
            distances = squares / 2 + zero[:, None] + zero
        else:
            same = squares.detach() <= (SAME * scale) ** 2
            distances = torch.where(same, 0, torch.where(same, 1, squares).sqrt())
            close = squares.detach().sqrt()[~same]
            if len(close):
                condition = max(condition, float(scale / close.min()))
            if not single and bool((same & ~torch.eye(m, dtype=torch.bool)).any()):
                condition = max(
                    condition, 1 / SAME
                )  # averages that coincide but for their rounding, which has any direction
        pairs = total * (total - 1) / 2
        both = copies[:, None] * copies
        push = (torch.triu(weights * both, 1) * distances).sum() / pairs
        off = 1 - torch.eye(m)
        pull_on = (whole * both * off).sum(1) / pairs * through * (2 if cosine else 1)  # (m,)
        push_size = float((whole * both * off).sum() / pairs * scale)
        if 0 < push_size < kind.tiny / kind.eps:  # too small for the type
            condition = torch.inf
        push_bound = (share * pull_on[:, None]).sum(0) * back

    own = points[number]
    gap = (z - own).square().sum(-1)
    size = z.detach().square().sum(-1)
    apart = gap.detach() > (8 * kind.eps) ** 2 * size
    if single:
        apart = torch.zeros_like(apart)
    if cosine:
        far = 0.5 * (size < 0.5) + 0.5 * (own.detach().norm(dim=1) < 0.5)
        far = torch.where(apart, gap / 2 + far, 0)
    else:
        far = torch.where(apart, torch.where(apart, gap, 1).sqrt(), 0)
        if bool(apart.any()):
            condition = max(condition, float(size.max().sqrt() / gap.detach()[apart].sqrt().min()))
    power = options["tightness_power"]
    counted = torch.where(apart, amount, 0) if options["tightness_over"] == "shared" else amount
    weight = counted / torch.where(counted.sum() > 0, counted.sum(), 1)
    pull = (weight * far**power).sum()
    slope = weight * (1 if power == 1 else 2 * far.detach()) * (2 if cosine else 1)
    by_row = slope / (torch.where(norms > 0, norms, torch.inf) if sphere else 1)
    by_center = (share * ((member > 0).double() @ slope * through)[:, None]).sum(0) * back
    pull_bound = by_row + by_center
    rows = float(size.max().sqrt()) ** power
    if 0 < rows < kind.tiny / kind.eps:  # too small for the type
        condition = torch.inf
    return push, pull, push_size, rows, push_bound, pull_bound, condition


def answer(x, y, amount, strengths, options, kind):
    """The loss of groups of rows (g, n, d), targets (g, n, t) and amounts (g, n), all float64.

    ``kind`` is the ``torch.finfo`` of the type that the library computes in.
    """
    x = x.clone().requires_grad_()
    found = [one_group(*rows, options, kind) for rows in zip(x, y, amount, strict=True)]
    loss, size = 0.0 * x.sum(), 0.0
    largest = torch.zeros(x.shape[:2], dtype=torch.float64)
    for position, strength in enumerate((-strengths[0], strengths[1])):
        there = [k for k, one in enumerate(found) if one[position] is not None]
        for k in there:
            loss = loss + strength * found[k][position] / len(there)
            size += abs(strength) * found[k][2 + position] / len(there)
            largest[k] += abs(strength) * found[k][4 + position] / len(there)
    gradient = torch.autograd.grad(loss, x, allow_unused=True)[0]
    gradient = torch.zeros_like(x) if gradient is None else gradient
    return Answer(loss.detach(), gradient, size, largest, max(one[6] for one in found) if found else 1.0)
