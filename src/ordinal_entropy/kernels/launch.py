"""Launching Triton kernels for less: what is known of their arguments is found once for each shape."""

from typing import Any

import torch
import triton
from torch import Tensor

# Since Triton 3.3 a compiled kernel takes all arguments, constants too.
_DIRECT = tuple(int(part) for part in triton.__version__.split(".")[:2]) >= (3, 3)
_compiled: dict[tuple[Any, ...], dict[Any, Any]] = {}


def aligned(*tensors: Tensor) -> tuple[bool, ...]:
    """Whether each tensor starts where wide loads can; part of a shape, because Triton compiles for it."""
    return tuple(x.data_ptr() % 16 == 0 for x in tensors)


class Launcher:
    """Launches kernels on the current stream; those compiled for the same shape before, with no look at an argument.

    Triton's own way looks at each argument in each launch, which takes longer than many a kernel.

    Args:
        device: the current device.
        shape: everything that Triton could compile differently for: sizes, dtypes, alignment, constants.
    """

    def __init__(self, device: torch.device, *shape: Any) -> None:
        self.compiled = _compiled.setdefault((device.index, *shape), {})
        self.stream = torch._C._cuda_getCurrentRawStream(device.index) if device.type == "cuda" else None

    def __call__(
        self, kernel: Any, grid: tuple[int, int, int], *arguments: Any, variant: Any = None, **options: int
    ) -> None:
        """Launches one.

        Args:
            kernel: decorated by ``triton.jit``.
            grid: numbers of programs.
            arguments: all arguments of the kernel in their order, constants too.
            variant: constants that differ between launches of the same shape.
            options: ``num_warps``, ``num_stages``.
        """
        key = kernel.__name__, variant
        found = self.compiled.get(key)
        if found is None:
            compiled = kernel[grid](*arguments, **options)
            if _DIRECT and compiled is not None:  # the interpreter compiles nothing
                self.compiled[key] = compiled
        else:
            found.run(*grid, self.stream, found.function, found.packed_metadata, None, None, None, *arguments)
