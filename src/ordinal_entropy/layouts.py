"""Rows out of any layout: what features, targets and mask look like before any maths."""

import math
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy.kernels.choice import maps_fused
from ordinal_entropy.kernels.sampled import uniform
from ordinal_entropy.kernels.unit import to_one

_WIDE = (torch.float32, torch.float64)
_SHAPES = {
    2: "(n, d) features take (n,) or (n, t)",
    3: "(b, n, d) features take (b, n) or (b, n, t)",
    4: "(b, c, h, w) features take (b, h', w') or (b, t, h', w')",
}


class Rows(NamedTuple):
    """Features and targets as ``g`` groups of ``n`` rows; pairs never cross a group."""

    features: Tensor  # (g, n, d), float32 or float64; rows of amount 0 are zero
    targets: Tensor  # (g, n, t), float32 or float64, no graph; rows of amount 0 are zero
    amount: Tensor | None  # (g, n), how many times a row counts; 0: outside the mask; None: all count once
    eager: bool  # values may be looked at without stalling a device or breaking a trace


def rows(
    features: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    sample_weight: Tensor | None = None,
    *,
    stride: int = 1,
    per: str = "batch",
    check: bool = False,
) -> Rows:
    """Checked rows of any layout.

    Args:
        features: ``(n, d)``, ``(b, n, d)`` or ``(b, c, h, w)``.
        targets: ``(n,)`` or ``(n, t)``; ``(b, n)`` or ``(b, n, t)``; ``(b, h', w')`` or ``(b, t, h', w')``, any
            resolution: the nearest target is taken.
        mask: boolean, in the shape of the targets, with or without their ``t``; a row counts where all of its
            targets do. A map may have a resolution of its own.
        sample_weight: non-negative, one a row, in the shapes of a mask; counts like repetition.
        stride: maps are subsampled (nearest) to ``(h // stride, w // stride)``.
        per: "batch" joins all rows of the batch into one group, "image" makes one group of each ``b``.
        check: look at values (finite features, targets, weights) even where that stalls a device.

    Returns:
        The rows; half precision comes back as float32.

    Example:
        >>> rows(torch.ones(2, 3, 4, 4), torch.ones(2, 8, 8), stride=2).features.shape
        torch.Size([1, 8, 3])
    """
    if not (isinstance(features, Tensor) and isinstance(targets, Tensor)):
        raise TypeError(
            f"expected features and targets to be tensors, got {type(features).__name__} and {type(targets).__name__}"
        )
    if not features.is_floating_point():
        raise TypeError(f"expected floating-point features, got {features.dtype}")
    if targets.is_complex():
        raise TypeError(f"expected real targets, got {targets.dtype}")
    if features.dim() not in _SHAPES:
        raise ValueError(f"expected features (n, d), (b, n, d) or (b, c, h, w), got {tuple(features.shape)}")
    if mask is not None and not (isinstance(mask, Tensor) and mask.dtype == torch.bool):
        raise TypeError(f"expected a boolean mask, got {getattr(mask, 'dtype', type(mask).__name__)}")
    if sample_weight is not None and not (isinstance(sample_weight, Tensor) and not sample_weight.is_complex()):
        raise TypeError(f"expected sample_weight to be a tensor of numbers, got {type(sample_weight).__name__}")

    # a transform of torch.func forbids looking at values, just as a trace does
    eager = check or (
        features.device.type == "cpu"
        and not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
    )
    if (  # rows of which nothing has to be changed: a quick way for these
        mask is None
        and sample_weight is None
        and not check
        and features.dtype in _WIDE
        and targets.dtype in _WIDE
        and features.dim() == 2
        and targets.dim() in (1, 2)
        and len(features) == len(targets)
        and features.device == targets.device
    ):
        column = targets.detach() if targets.dim() == 2 else targets.detach().unsqueeze(1)
        if not eager or math.isfinite(column.sum()):  # else it takes a closer look
            return Rows(features.unsqueeze(0), column.unsqueeze(0), None, eager)

    if not targets.is_floating_point():  # whole numbers stay exact beyond 2**24 where the device can
        targets = targets.to(torch.float32 if targets.device.type == "mps" else torch.float64)
    elif targets.dtype in (torch.float16, torch.bfloat16):
        targets = targets.float()
    dtype = torch.promote_types(features.dtype, torch.float32)
    if sample_weight is not None:
        sample_weight = sample_weight.to(dtype)

    layout = features.dim()
    lead = features.shape[:-1]  # (n,), (b, n) or (b, *grid)
    if layout == 4:
        h, w = features.shape[2:]
        if min(h, w) < stride:
            raise ValueError(f"expected a stride of at most {min(h, w)} for maps of {h} x {w}, got {stride}")
        grid = (h // stride, w // stride)
        lead = torch.Size((features.shape[0], *grid))
    parts: dict[str, Tensor] = {}  # each (*lead, t)
    for name, part in (("targets", targets.detach()), ("mask", mask), ("sample_weight", sample_weight)):
        if part is None:
            continue
        if part.device != features.device:
            raise ValueError(f"expected {name} on {features.device} like the features, got {part.device}")
        if layout == 4:
            fits = part.dim() in (3, 4) and part.shape[0] == lead[0]
        else:
            fits = part.shape[: layout - 1] == lead and part.dim() in (layout - 1, layout)
        if not fits:
            size = f"b={lead[0]} maps" if layout == 4 else " x ".join([f"n={lead[-1]} rows", *map(str, lead[:-1])])
            raise ValueError(f"expected {name} with {size}, got {tuple(part.shape)}: {_SHAPES[layout]}")
        if layout == 4:
            parts[name] = _nearest(part if part.dim() == 4 else part[:, None], grid).permute(0, 2, 3, 1)
        else:
            parts[name] = part if part.dim() == layout else part[..., None]
        widths = {"mask": (1, parts["targets"].shape[-1]), "sample_weight": (1,)}.get(name)
        if widths is not None and parts[name].shape[-1] not in widths:
            raise ValueError(f"expected {name} with the shape of the targets, got {tuple(part.shape)}")
    targets = parts["targets"]

    inside = parts.get("mask")
    if inside is not None:
        inside = inside[..., 0] if inside.shape[-1] == 1 else inside.all(-1)
    amount: Tensor | None = None  # every row counts once
    present = inside
    if "sample_weight" in parts:
        amount = parts["sample_weight"][..., 0].detach()
        amount = amount if inside is None else torch.where(inside, amount, 0)
        present = amount != 0
    elif inside is not None:
        amount = inside.to(dtype)
    if eager:
        strange = ~targets.isfinite().all(-1)
        wrong = int((strange if present is None else strange & present).sum())
        if wrong:
            raise ValueError(f"expected finite targets inside the mask, got {wrong} rows with NaN or infinite values")
        if amount is not None and "sample_weight" in parts and not bool(((amount >= 0) & amount.isfinite()).all()):
            raise ValueError(f"expected finite sample_weight of at least 0, got {float(amount.min())} as the smallest")
    divided = layout == 4 and stride > 1 and h % grid[0] == 0 and w % grid[1] == 0
    if divided and not torch.compiler.is_compiling():  # a compiler joins the steps by itself
        features = _Picked.apply(features, amount, h // grid[0], w // grid[1], dtype)
    else:
        if layout == 4:
            features = _nearest(features, grid).permute(0, 2, 3, 1)
            features = features.to(dtype, memory_format=torch.contiguous_format)
        elif features.dtype != dtype:  # half precision
            features = features.to(dtype)
        features = features if present is None else torch.where(present[..., None], features, 0)
    if check:
        wrong = int((~features.isfinite().all(-1)).sum())
        if wrong:
            raise ValueError(f"expected finite features inside the mask, got {wrong} rows with NaN or infinite values")
    targets = targets if present is None else torch.where(present[..., None], targets, 0)
    g, n = (lead[0], lead[1:].numel()) if layout != 2 and per == "image" else (1, lead.numel())
    return Rows(
        features.reshape(g, n, features.shape[-1]),
        targets.reshape(g, n, targets.shape[-1]),
        None if amount is None else amount.reshape(g, n),
        eager,
    )


def drawn(data: Rows, most: int, generator: torch.Generator | None) -> Rows:
    """So many rows of each group, without replacement; rows of amount 0 last.

    Args:
        data: the rows, more than so many.
        most: how many are drawn.
        generator: for the draw, on the device of the features.

    Example:
        >>> data = rows(torch.arange(12.0).view(6, 2), torch.arange(6))
        >>> drawn(data, 4, torch.Generator().manual_seed(0)).targets.unique().numel()
        4
    """
    x, y, amount, eager = data
    chance = uniform((x.shape[0], x.shape[1]), x.device, generator)
    chance = chance if amount is None else torch.where(amount > 0, chance, -1)
    pick = chance.topk(most, dim=1).indices  # (g, most)
    of_rows = pick[..., None]
    return Rows(
        x.gather(1, of_rows.expand(-1, -1, x.shape[-1])),
        y.gather(1, of_rows.expand(-1, -1, y.shape[-1])),
        None if amount is None else amount.gather(1, pick),
        eager,
    )


def lowered(data: Rows) -> Rows:
    """The same with large amounts lowered by a power of two, so that no sum of them overflows: their ratios count.

    Example:
        >>> data = rows(torch.eye(2), torch.arange(2), sample_weight=torch.tensor([2.0**120, 2.0**121]))
        >>> lowered(data).amount.log2()
        tensor([[64., 65.]])
    """
    if data.amount is None:
        return data
    largest = data.amount.amax(1, keepdim=True)
    return data._replace(amount=data.amount * (2.0**64 * to_one(largest)).clamp_max(1))


class _Picked(torch.autograd.Function):
    """Every so manieth row and column of maps ``(b, c, h, w)``, as ``(b, h', w', c)`` of a type; zero if so masked.

    That is two slices, a copy and a mask, whose gradients torch would spread over the map in four steps. Here it is
    one, on a GPU one kernel.
    """

    generate_vmap_rule = True

    @staticmethod
    def forward(maps: Tensor, amount: Tensor | None, down: int, across: int, dtype: torch.dtype) -> Tensor:
        """Always new memory; ``amount (b, h', w')`` is 0 where nothing is picked."""
        if maps.stride(1) == 1 and maps_fused(maps):
            from ordinal_entropy.kernels.maps import picked as fused

            return fused(maps, amount, down, across, dtype)
        picked = maps.permute(0, 2, 3, 1)[:, ::down, ::across]
        if amount is None:
            return picked.to(dtype, memory_format=torch.contiguous_format, copy=True)
        return torch.where((amount != 0)[..., None], picked, picked.new_zeros(1, dtype=dtype)).contiguous()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """What the way back needs of the maps."""
        maps, amount, ctx.down, ctx.across, _ = inputs
        ctx.save_for_backward(amount)
        ctx.shape, ctx.dtype, ctx.last = maps.shape, maps.dtype, maps.stride(1) == 1

    @staticmethod
    def backward(ctx: Any, by_picked: Tensor) -> tuple[Tensor, None, None, None, None]:
        """Zeros with the gradient in between, laid out in memory as the maps are."""
        b, c, h, w = ctx.shape
        (amount,) = ctx.saved_tensors
        if ctx.last and not torch.is_grad_enabled() and maps_fused(by_picked):
            from ordinal_entropy.kernels.maps import spread as fused

            return fused(by_picked, amount, h, w, ctx.dtype), None, None, None, None
        if amount is not None:
            by_picked = torch.where((amount != 0)[..., None], by_picked, 0)
        if ctx.last:
            spread = by_picked.new_zeros(b, h, w, c, dtype=ctx.dtype)
            spread[:, :: ctx.down, :: ctx.across] = by_picked
            return spread.permute(0, 3, 1, 2), None, None, None, None
        spread = by_picked.new_zeros(b, c, h, w, dtype=ctx.dtype)
        spread[:, :, :: ctx.down, :: ctx.across] = by_picked.permute(0, 3, 1, 2)
        return spread, None, None, None, None


def _nearest(maps: Tensor, grid: tuple[int, int]) -> Tensor:
    """Maps ``(b, c, h, w)`` at the nearest places of a grid; a view where the sizes divide."""
    h, w = maps.shape[2:]
    if (h, w) == grid:
        return maps
    if h % grid[0] == 0 and w % grid[1] == 0:
        return maps[:, :, :: h // grid[0], :: w // grid[1]]
    numbers = maps.float() if maps.dtype == torch.bool else maps
    return F.interpolate(numbers, size=grid, mode="nearest").to(maps.dtype)
