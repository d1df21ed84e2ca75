"""Means over all pairs of points: one dispatch between a readable kernel and fast ones."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import NamedTuple

import torch
from torch import Tensor

from ordinal_entropy.kernels import blocked, reference, sampled
from ordinal_entropy.kernels.unit import to_one
from ordinal_entropy.kernels.weights import POWERS, Function, checked, extremes, scaled, smallest_gap

NAMES = ("auto", "reference", "blocked", "fused")

# Up to this many pairs the float64 matrices of the reference cost less than a loop over blocks
# (benchmarks/bench_pairwise_cpu.py).
_REFERENCE_PAIRS = 64**2
_MOST_TARGETS = 32  # numbers a target may have in the fused kernel, which goes over them one by one
_MOST_ROWS = 8192  # rows that are grouped by comparing all pairs of targets
MOST_GROUPS = 65535  # in one launch
_HAS_TRITON = find_spec("triton") is not None
_chosen = "auto"
_capabilities: dict[int, int] = {}


class Pairs(NamedTuple):
    """How the fused kernel weighs and measures pairs of points; as in ``pair_mean``."""

    power: float  # of the distance between values
    distance: str
    project: bool
    rescale: str
    times: float
    coarse: bool


class Pull(NamedTuple):
    """How the fused kernels measure the distances of rows from their centers."""

    unit: bool  # divide the rows by their norms
    unit_centers: bool  # and the centers by theirs
    cosine: bool  # 1 - cos instead of the distance
    shared: bool  # leave out rows that lie where their center does
    power: int  # of the distance, 1 or 2
    times: float  # a factor of the mean


@contextmanager
def use(name: str) -> Iterator[None]:
    """Computes with the kernel of that name inside the ``with``; "auto" is the choice by device, dtype and size.

    "fused" where it cannot run is an error; random pairs and functions as weighting have kernels of their own.

    Example:
        >>> with use("reference"):
        ...     describe()["chosen"]
        'reference'
    """
    global _chosen  # noqa: PLW0603
    if name not in NAMES:
        raise ValueError(f"expected kernel to be one of {', '.join(NAMES)}, got {name!r}")
    before, _chosen = _chosen, name
    try:
        yield
    finally:
        _chosen = before


def describe() -> dict[str, str]:
    """The kernel in force, and when each is taken."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    why = unfit(torch.empty(1, 1, 1, device=device), torch.empty(1, 1, 1, device=device))
    highest = torch.get_float32_matmul_precision() == "highest"
    parts = "3 products of float16 halves (1 of half-precision features)" if highest else "1 product"
    return {
        "chosen": _chosen,
        "fused": f"not here: {why}" if why else f"on the tensor cores, {parts}; auto: CUDA tensors but float64",
        "reference": f"float64 matrices of all pairs; auto: otherwise, up to {_REFERENCE_PAIRS} pairs (g m^2)",
        "blocked": "blocks of pairs, any device, gradient in the forward pass; auto: above that",
        "sampled": "random pairs; wherever num_pairs is given",
    }


def unfit(points: Tensor, values: Tensor) -> str:
    """Why the fused kernel cannot take these points and targets; "" if it can."""
    why = _missing(points)
    if not why and points.dtype == torch.float64:
        why = "it computes in float32, got float64"
    if not why and values.shape[-1] > _MOST_TARGETS:
        why = f"it takes targets of up to {_MOST_TARGETS} numbers, got {values.shape[-1]}"
    return why


def _missing(x: Tensor) -> str:
    """What a kernel of Triton lacks where a tensor lies; "" if nothing."""
    if not _HAS_TRITON:
        return "it needs Triton, which is not installed"
    if x.is_cuda:
        if torch.version.hip is not None or _capability(x.get_device()) < 8:
            return "it needs an NVIDIA GPU of compute capability 8.0 or newer"
    elif os.environ.get("TRITON_INTERPRET") != "1":
        return f"it needs a CUDA device, got {x.device}"
    return ""


def _capability(device: int) -> int:
    """The major number of a GPU, asked for once: every step of a training comes by here."""
    if torch.compiler.is_compiling():
        return torch.cuda.get_device_properties(device).major
    if device not in _capabilities:
        _capabilities[device] = torch.cuda.get_device_properties(device).major
    return _capabilities[device]


def _untraced(x: Tensor) -> bool:
    """Whether a tensor has an address that a kernel can be handed: no trace and no transform holds it."""
    compiling = torch.compiler.is_compiling() or type(x) is not Tensor
    return not compiling and torch._C._functorch.peek_interpreter_stack() is None


def maps_fused(maps: Tensor) -> bool:
    """Whether places of maps, or their gradient, are picked and spread by the fused kernels."""
    return _chosen in ("auto", "fused") and maps.numel() > 0 and _untraced(maps) and not _missing(maps)


def groups_fused(features: Tensor, targets: Tensor) -> bool:
    """Whether rows ``(g, n, d)`` are grouped, and their terms taken, by the fused kernels."""
    if _chosen not in ("auto", "fused") or features.shape[0] > MOST_GROUPS or features.shape[1] > _MOST_ROWS:
        return False
    return _untraced(features) and not unfit(features, targets)


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
    """
    copies = amount.sum(1) if eager and amount is not None else None
    if amount is not None and copies is not None and bool(((copies <= 1) & ((amount > 0).sum(1) > 1)).any()):
        raise ValueError(f"expected sample_weight to count repetitions, got a sum of {float(copies.min())}")
    if (points.is_cuda and _chosen == "auto") or _chosen == "fused":
        usual = not callable(weighting) and num_pairs is None
        why = unfit(points, values) if usual else ""
        if why and _chosen == "fused":
            raise ValueError(f"the fused kernel cannot be used: {why}")
        if usual and not why:
            from ordinal_entropy.kernels import triton

            power = POWERS[str(weighting)]
            means = triton.pair_means(points, values, amount, power, distance, project, rescale, times, coarse)
            if points.dim() == 2 or points.shape[0] == 1:
                return means
            if amount is None:
                return means.mean()
            return means.sum() / (amount.sum(1) > 1).sum().clamp_min(1)

    points = points.unsqueeze(0) if points.dim() == 2 else points
    amount = points.new_ones(points.shape[:2]) if amount is None else amount
    low, high, factor = None, None, None
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
        present = (amount > 0)[..., None]
        safe = values.dtype == torch.float32 and values.device.type != "mps"  # their squares in float64
        values = values if values.device.type == "mps" else values.double()
        values = torch.where(present, values - torch.where(present, values, torch.inf).amin(1, keepdim=True), 0)
        if rescale == "none" or not safe:
            unit = to_one(values.amax((1, 2)))  # (g,)
            values = values * unit[:, None, None]
        if rescale == "none":
            factor = unit.pow(-measure)
        else:
            gap: Tensor | None
            if values.shape[-1] > 1:
                gap, span = extremes(values, amount, 1.0)  # (g,)
            else:
                gap, span = smallest_gap(values, amount) if rescale == "authors" else None, values.amax((1, 2))
            span = torch.where(span > 0, span, 1)
            values = values / span[:, None, None]
            low = None if gap is None else (gap / span).pow(measure).to(points.dtype)
        values = values.to(points.dtype)
    if rescale == "max":
        low = None
    once: Tensor | float = 1.0
    if weighed:
        once = to_one(amount.amax(1)) / 2  # what counts once, counts so much from here on: 1 where nothing counts more
        amount = amount * once[:, None]

    traced = torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None
    small = points.shape[0] * points.shape[1] ** 2 <= _REFERENCE_PAIRS
    plain = _chosen == "reference" or (_chosen != "blocked" and small) or (callable(measure) and traced)
    if num_pairs is not None:
        sums = sampled.pair_sums(points, values, amount, low, measure, distance, project, num_pairs, generator)
    elif plain:
        sums = reference.pair_sums(points, values, amount, low, measure, distance, project)
    else:
        sums = blocked.pair_sums(points, values, amount, low, measure, distance, project)
    copies = amount.sum(1)
    paired = copies > once
    pairs = torch.where(paired, copies * (copies - once) / 2, 0)
    if high is not None:
        pairs = pairs * high
    means = sums / torch.where(pairs > 0, pairs, torch.inf)  # no pair: 0, but NaN stays
    if factor is not None:
        means = (means * factor).to(points.dtype)
    return times * means.sum() / paired.sum().clamp_min(1)
