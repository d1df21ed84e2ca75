"""Feature centers: the rows of one target, averaged."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy.kernels.unit import unit_rows

_NEAR_ONE = 2.0**-40, 2.0**60  # norms whose squares lose nothing in any type


class Groups(NamedTuple):
    """Rows and the centers they belong to, ``m`` slots a group of rows; unused slots have amount 0."""

    features: Tensor  # (g, n, d), the rows that were averaged
    centers: Tensor  # (g, m, d)
    values: Tensor  # (g, m, t), the target each center stands for
    amount: Tensor | None  # (g, m), how many times a center counts in the pairs; None: each once
    slot: Tensor | None  # (g, n), the center of each row; None: each row is its own
    unit: bool  # centers are averages of rows of norm 1 (or 0)


def group(
    features: Tensor,
    targets: Tensor,
    amount: Tensor | None,
    *,
    grouping: str | float,
    unit: bool,
    eager: bool,
) -> Groups:
    """Rows grouped by target, with static shapes: sorted, cut where the target changes, summed by segment.

    Args:
        features: ``(g, n, d)``.
        targets: ``(g, n, t)``.
        amount: ``(g, n)``; rows of amount 0 belong to no center. None: all rows count once.
        grouping: "unique" targets, or the width of bins ``floor(y / width)``.
        unit: divide the rows by their norms before averaging; a zero row stays zero and gets no gradient.
        eager: drop the unused slots, which takes a look at the values. Where each row turns out to be alone, the rows
            come back as they are.

    Example:
        >>> targets = torch.tensor([[[5.0], [1.0], [5.0]]])
        >>> g = group(2 * torch.eye(3)[None], targets, None, grouping="unique", unit=True, eager=True)
        >>> g.values.flatten(), g.slot
        (tensor([1., 5.]), tensor([[1, 0, 1]]))
        >>> g.centers
        tensor([[[0.0000, 1.0000, 0.0000],
                 [0.5000, 0.0000, 0.5000]]])
    """
    g, n, t = targets.shape
    width = 0.0 if isinstance(grouping, str) else float(grouping)
    keys = targets if width == 0 else torch.floor(targets / width)  # (g, n, t)
    rank = keys[..., 0] if t == 1 else row_hash(keys)
    present = None if amount is None else amount > 0
    if present is not None:  # the others come last
        last = torch.finfo(rank.dtype).max if rank.is_floating_point() else torch.iinfo(rank.dtype).max
        rank = torch.where(present, rank, last)
    ordered, order = rank.sort(dim=1, stable=True)
    if t == 1 and present is None:
        in_order = ordered[..., None]
        new = ordered[:, 1:] != ordered[:, :-1]
    else:
        in_order = keys.gather(1, order[..., None].expand(g, n, t))
        new = (in_order[:, 1:] != in_order[:, :-1]).any(-1)
    if eager and bool(new.all()) and (present is None or bool(present.all())):
        return Groups(features, features, targets, None, None, False)

    place = F.pad(new.cumsum(1), (1, 0))  # (g, n), the slot of the row that comes there in order
    slot = torch.empty_like(order).scatter(1, order, place)
    slot = slot if present is None else torch.where(present, slot, 0)
    m = int(slot.max()) + 1 if eager else n
    flat = (slot if g == 1 else slot + m * torch.arange(g, device=slot.device)[:, None]).flatten()  # into (g * m,)
    copies = features.new_ones(g * n) if amount is None else amount.flatten()
    total = copies.new_zeros(g * m).index_add(0, flat, copies)
    if unit:
        norms = torch.linalg.vector_norm(features, dim=-1, keepdim=True)
        plain = False
        if eager:
            least, most = norms.detach().aminmax()
            plain = _NEAR_ONE[0] < float(least) and float(most) < _NEAR_ONE[1]
        features = features / norms if plain else unit_rows(features)
    share = (copies / (total if amount is None else torch.where(total > 0, total, 1)).index_select(0, flat))[:, None]
    means = features.new_zeros(g * m, features.shape[-1]).index_add(0, flat, features.flatten(0, 1) * share)
    if width == 0:  # rows that are not present have places behind those of the others
        values = in_order[:, -1:].expand(g, n, t).scatter(1, place[..., None].expand(g, n, t), in_order)[:, :m]
    else:
        values = targets.new_zeros(g * m, t).index_add(0, flat, targets.flatten(0, 1) * share.to(targets.dtype))
        values = values.view(g, m, t)
    there = None if eager and g == 1 else (total > 0).to(copies.dtype).view(g, m)
    return Groups(features, means.view(g, m, -1), values, there, slot, unit)


def row_hash(keys: Tensor) -> Tensor:
    """64-bit numbers ``(g, n)`` that are equal where the rows of ``keys (g, n, t)`` are.

    Wrapping integer sums do not depend on their order, so equal rows give equal numbers on every device; rows that
    differ share a number with a chance of about 2**-64.
    """
    mantissa, exponent = torch.frexp(keys)  # keys = mantissa * 2**exponent, 0.5 <= |mantissa| < 1
    bits = (mantissa * 2.0**53).long() ^ (exponent.long() << 54)
    for shift, factor in ((30, -0x40A7B892E31B1A47), (27, -0x6B2FB644ECCEEE15)):
        bits = (bits ^ ((bits >> shift) & ((1 << (64 - shift)) - 1))) * factor
    column = torch.arange(1, keys.shape[-1] + 1, device=keys.device)
    odd = (column * -0x61C8864680B583EB) ^ (column << 17) | 1
    mixed = bits * odd
    return (mixed ^ ((mixed >> 31) & ((1 << 33) - 1))).sum(-1)
