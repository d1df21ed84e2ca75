"""Which kernel computes: the choice by hand, and what each of them can take."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec

import torch
from torch import Tensor

NAMES = ("auto", "reference", "blocked", "fused")

# Up to this many pairs the float64 matrices of the reference cost less than a loop over blocks
# (benchmarks/bench_pairwise_cpu.py).
REFERENCE_PAIRS = 64**2
MOST_GROUPS = 65535  # in one launch
_MOST_TARGETS = 32  # numbers a target may have in the fused kernel, which goes over them one by one
_MOST_ROWS = 8192  # rows that are grouped by comparing all pairs of targets
_HAS_TRITON = find_spec("triton") is not None
_MAJORS: dict[int, int] = {}  # of the compute capability of each GPU that was asked for it

chosen = "auto"


@contextmanager
def use(name: str) -> Iterator[None]:
    """Computes with the kernel of that name inside the ``with``; "auto" is the choice by device, dtype and size.

    "fused" where it cannot run is an error; random pairs and functions as weighting have kernels of their own.

    Example:
        >>> with use("reference"):
        ...     describe()["chosen"]
        'reference'
    """
    global chosen  # noqa: PLW0603
    if name not in NAMES:
        raise ValueError(f"expected kernel to be one of {', '.join(NAMES)}, got {name!r}")
    before, chosen = chosen, name
    try:
        yield
    finally:
        chosen = before


def describe() -> dict[str, str]:
    """The kernel in force, and when each is taken."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    why = unfit(torch.empty(1, 1, 1, device=device), torch.empty(1, 1, 1, device=device))
    highest = torch.get_float32_matmul_precision() == "highest"
    parts = "3 products of float16 halves (1 of half-precision features)" if highest else "1 product"
    return {
        "chosen": chosen,
        "fused": f"not here: {why}" if why else f"on the tensor cores, {parts}; auto: CUDA tensors but float64",
        "reference": f"float64 matrices of all pairs; auto: otherwise, up to {REFERENCE_PAIRS} pairs (g m^2)",
        "blocked": "blocks of pairs, any device, gradient in the forward pass; auto: above that",
        "sampled": "random pairs; wherever num_pairs is given",
    }


def unfit(points: Tensor, values: Tensor) -> str:
    """Why the fused kernel cannot take these points and targets; "" if it can."""
    why = missing(points)
    if not why and points.dtype == torch.float64:
        why = "it computes in float32, got float64"
    if not why and values.shape[-1] > _MOST_TARGETS:
        why = f"it takes targets of up to {_MOST_TARGETS} numbers, got {values.shape[-1]}"
    return why


def missing(x: Tensor) -> str:
    """What a kernel of Triton lacks where a tensor lies; "" if nothing."""
    if not _HAS_TRITON:
        return "it needs Triton, which is not installed"
    if not x.is_cuda:
        return "" if os.environ.get("TRITON_INTERPRET") == "1" else f"it needs a CUDA device, got {x.device}"
    device = x.get_device()
    if torch.compiler.is_compiling():
        major = torch.cuda.get_device_properties(device).major
    else:  # asked for once: every step of a training comes by here
        if device not in _MAJORS:
            _MAJORS[device] = torch.cuda.get_device_properties(device).major
        major = _MAJORS[device]
    if torch.version.hip is not None or major < 8:
        return "it needs an NVIDIA GPU of compute capability 8.0 or newer"
    return ""


def is_traced() -> bool:
    """Whether a trace or a transform is in force: then no value may be looked at, and no kernel handed an address."""
    return torch.compiler.is_compiling() or torch._C._functorch.peek_interpreter_stack() is not None


def maps_fused(maps: Tensor) -> bool:
    """Whether places of maps, or their gradient, are picked and spread by the fused kernels."""
    if chosen not in ("auto", "fused") or maps.numel() == 0 or type(maps) is not Tensor:  # a fake tensor, say
        return False
    return not is_traced() and not missing(maps)


def groups_fused(features: Tensor, targets: Tensor) -> bool:
    """Whether rows ``(g, n, d)`` are grouped, and their terms taken, by the fused kernels."""
    return (
        chosen in ("auto", "fused")
        and features.shape[0] <= MOST_GROUPS
        and features.shape[1] <= _MOST_ROWS
        and targets.shape[-1] <= _MOST_TARGETS
        and features.dtype != torch.float64
        and type(features) is Tensor
        and not torch.compiler.is_compiling()
        and torch._C._functorch.peek_interpreter_stack() is None
        and not missing(features)
    )
