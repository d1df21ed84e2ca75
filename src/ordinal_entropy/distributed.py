"""All ranks' rows on every rank, with the gradient that makes data parallelism exact.

Every rank computes the same loss on the joined batch. ``DistributedDataParallel`` then averages the ranks' gradients,
each of which knows only the rank's own rows: the average is the gradient of the joined batch divided by the number of
ranks. The backward pass of the gather multiplies by that number, so that loss and gradient equal those of one process.
This asks of the caller what data parallelism asks anyway: that all ranks add the loss with the same strength, and that
gradients are averaged, not summed.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from ordinal_entropy.layouts import Rows


def join(
    data: Rows, generator: torch.Generator | None = None, *, along: str = "rows"
) -> tuple[Rows, torch.Generator | None]:
    """The rows of all ranks, in the order of the ranks, and a generator that draws the same on each.

    Args:
        data: this rank's rows; their numbers may differ between ranks, and may be 0.
        generator: rank 0's decides the draws.
        along: "rows" joins one group of rows, "groups" keeps the groups of the ranks apart.

    Returns:
        Both unchanged where no process group of several ranks is initialised.
    """
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return data, generator
    device = data.features.device
    seed = torch.randint(2**62, (1,), device=device, generator=generator)
    dist.broadcast(seed, 0)
    own = data.features.new_ones(data.features.shape[:2]) if data.amount is None else data.amount
    size = torch.tensor(own.shape, device=device)  # (g, n)
    sizes = [torch.empty_like(size) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, size)
    shapes = [(int(g), int(n)) for g, n in torch.stack(sizes).tolist()]
    features = _Gather.apply(data.features, shapes, along)
    targets = _gather(data.targets, shapes, along)
    amount = _gather(own[..., None], shapes, along)[..., 0]
    shared = torch.Generator(device).manual_seed(int(seed))
    return Rows(features, targets, amount, data.eager), shared


def _gather(x: Tensor, shapes: list[tuple[int, int]], along: str) -> Tensor:
    """All ranks' ``x (g, n, c)``, padded with zeros for the way (and, along groups, for good)."""
    most_groups, most_rows = (max(sizes) for sizes in zip(*shapes, strict=True))
    g, n, c = x.shape
    padded = x.new_zeros(most_groups, most_rows, c)
    padded[:g, :n] = x
    parts = [torch.empty_like(padded) for _ in shapes]
    dist.all_gather(parts, padded)
    if along == "rows":
        return torch.cat([part[:, :rows] for part, (_, rows) in zip(parts, shapes, strict=True)], dim=1)
    return torch.cat([part[:groups] for part, (groups, _) in zip(parts, shapes, strict=True)])


class _Gather(torch.autograd.Function):
    """``_gather`` whose gradient is this rank's part, times the number of ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, shapes: list[tuple[int, int]], along: str) -> Tensor:
        rank = dist.get_rank()
        ctx.shape, ctx.along, ctx.ranks = x.shape, along, len(shapes)
        ctx.start = sum(shape[along == "rows"] for shape in shapes[:rank])
        return _gather(x.detach(), shapes, along)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        g, n, _ = ctx.shape
        rows = gradient[:, ctx.start : ctx.start + n]
        groups = gradient[ctx.start : ctx.start + g, :n]
        return (rows if ctx.along == "rows" else groups) * ctx.ranks, None, None
