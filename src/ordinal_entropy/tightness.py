"""Tightness: how far rows lie from their centers."""

import torch
from torch import Tensor

from ordinal_entropy.centers import Groups
from ordinal_entropy.kernels.unit import unit_rows
from ordinal_entropy.options import Options


def mean_distance(groups: Groups, amount: Tensor, slot: Tensor, options: Options) -> Tensor:
    """Mean distance of the rows from their centers, to the power of the options; over groups the mean of those.

    Args:
        groups: rows ``(g, n, d)`` and their centers ``(g, m, d)``.
        amount: ``(g, n)``, how many times a row counts.
        slot: ``(g, n)``, the center of each row.
        options: of the regularizer.

    Returns:
        Scalar; a zero where no row counts.

    Example:
        >>> from ordinal_entropy.centers import group
        >>> targets, amount = torch.tensor([[[0.0], [3.0], [3.0]]]), torch.ones(1, 3)
        >>> groups = group(torch.eye(3)[None], targets, amount, grouping="unique", unit=True, eager=True)
        >>> mean_distance(groups, amount, groups.slot, Options())  # one row at 0, two at 0.7071
        tensor(0.4714)
    """
    cosine = options.distance == "cosine"
    unit = cosine or options.normalize
    rows = unit_rows(groups.features) if unit and not groups.unit else groups.features
    centers = unit_rows(groups.centers) if cosine or (options.normalize and not groups.unit) else groups.centers
    own = centers.gather(1, slot[..., None].expand_as(rows))  # (g, n, d)
    squares = (rows - own).square().sum(-1)  # (g, n)
    rounding: float | Tensor = (8 * torch.finfo(rows.dtype).eps) ** 2
    rounding = rounding if unit else rounding * rows.detach().square().sum(-1)
    apart = ~(squares.detach() <= rounding)  # or NaN
    if cosine:  # 1 - cos between unit rows; a half more for each zero row
        zero = sum(0.5 * (each.detach().square().sum(-1) < 0.5) for each in (rows, own))
        distances = torch.where(apart, squares / 2 + zero, 0)
    else:
        distances = torch.where(apart, torch.where(apart, squares, 1).sqrt(), 0)
    counted = torch.where(apart, amount, 0) if options.tightness_over == "shared" else amount
    counts = counted.sum(1, keepdim=True)
    means = (counted / torch.where(counts > 0, counts, 1) * distances**options.tightness_power).sum(1)  # (g,)
    return means.reshape(()) if len(means) == 1 else means.sum() / (amount > 0).any(1).sum().clamp_min(1)
