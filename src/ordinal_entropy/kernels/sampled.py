"""An unbiased estimate of the sum over all pairs, from random ones.

An incomplete U-statistic: pairs are drawn with replacement, the first point in proportion to its amount, the second in
proportion to the rest; what that favours is weighted back. Cost and memory grow with the number of pairs alone.
"""

import torch
from torch import Tensor

from ordinal_entropy.kernels.unit import SAME, unit_rows
from ordinal_entropy.kernels.weights import Function, weight_block

_CHUNK = 32  # a function of (a, t) and (b, t) targets is asked for a diagonal, this many pairs at a time


def pair_sums(
    points: Tensor,
    values: Tensor,
    amount: Tensor | None,
    low: Tensor | None,
    weighting: float | Function,
    distance: str,
    project: bool,
    num_pairs: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    """An estimate of what ``pairs.pair_sums`` returns, from ``num_pairs`` pairs a group.

    With ``project`` the drawn points are divided by their norms. Distances are exact differences: close pairs lose
    nothing.

    Example:
        >>> x, y = torch.tensor([[[0.0], [3.0]]]), torch.tensor([[[0.0], [2.0]]])
        >>> pair_sums(x, y, None, None, 1.0, "l2", False, 4)  # one pair, drawn four times
        tensor([6.])
    """
    g, m, d = points.shape
    dtype = torch.float32 if points.device.type == "mps" else torch.float64
    copies = points.new_ones(g, m, dtype=dtype) if amount is None else amount.to(dtype)
    end = copies.cumsum(1)  # (g, m), point i owns the interval [end - copies, end)
    total = end[:, -1:]
    chance = uniform((2, g, num_pairs), points.device, generator, dtype)
    i = torch.searchsorted(end, chance[0] * total, right=True).clamp_max(m - 1)  # (g, k)
    skipped = copies.gather(1, i)
    at = chance[1] * (total - skipped)
    at = torch.where(at >= end.gather(1, i) - skipped, at + skipped, at)  # jump over the interval of i
    j = torch.searchsorted(end, at, right=True).clamp_max(m - 1)

    few = 2 * num_pairs < m
    flat = (unit_rows(points) if project and not few else points).reshape(g * m, d)
    first = m * torch.arange(g, device=points.device)[:, None]  # row of a group's first point in flat
    x, y = (flat.index_select(0, (first + at).flatten()).view(g, num_pairs, d) for at in (i, j))
    if project and few:
        x, y = unit_rows(x), unit_rows(y)
    distances: Tensor = torch.linalg.vector_norm(x - y, dim=-1)
    size = 1.0 if project else points.detach().square().sum(-1).mean(1, keepdim=True).sqrt()
    distances = torch.where(distances <= SAME * size, 0, distances)  # they coincide: no gradient
    if distance == "cosine":
        zero_x, zero_y = (0.5 * (z.detach().square().sum(-1) < 0.5) for z in (x, y))
        distances = distances.square() / 2 + zero_x + zero_y
    left, right = (values.gather(1, at[..., None].expand(-1, -1, values.shape[-1])) for at in (i, j))
    if callable(weighting):
        weights = torch.stack(
            [
                torch.cat(
                    [
                        weight_block(a, b, weighting).diagonal()
                        for a, b in zip(u.split(_CHUNK), v.split(_CHUNK), strict=True)
                    ]
                )
                for u, v in zip(left, right, strict=True)
            ]
        )
    else:
        weights = (left - right).square().sum(-1).sqrt().pow(weighting)
    if low is not None:
        weights = weights - low[:, None]
    weights = torch.where(i == j, 0, weights * (total - skipped))  # i == j: only where there is no second point
    return (total[:, 0] / 2 * (weights * distances).mean(1)).to(points.dtype)


def uniform(
    size: tuple[int, ...], device: torch.device, generator: torch.Generator | None, dtype: torch.dtype | None = None
) -> Tensor:
    """Random numbers from 0 to 1.

    ``torch.compile`` refuses ``generator``, even None, for sizes that change between calls, as that of a last batch.

    Example:
        >>> uniform((2, 3), torch.device("cpu"), None).shape
        torch.Size([2, 3])
    """
    if generator is None:
        return torch.rand(size, dtype=dtype, device=device)
    return torch.rand(size, dtype=dtype, device=device, generator=generator)
