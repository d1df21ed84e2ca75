"""Launching Triton kernels for less: what is known of their arguments is found once for each shape."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

# The launcher of a compiled kernel is not a public name of Triton: it is called in these versions alone, in which it
# takes all arguments, constants too. Kernels of others are launched the public way, which costs the host more.
_FIRST, _BEYOND = (3, 3), (3, 10)


def has_known_launcher(version: str) -> bool:
    """Whether compiled kernels of this version of Triton may be called directly.

    Example:
        >>> has_known_launcher("3.6.0"), has_known_launcher("3.10.0"), has_known_launcher("4.0.0")
        (True, False, False)
    """
    return _FIRST <= tuple(int(part) for part in version.split(".")[:2]) < _BEYOND


_DIRECT = has_known_launcher(triton.__version__)


def aligned(*tensors: Tensor | None) -> tuple[bool | None, ...]:
    """Of each tensor, whether it is there and starts where wide loads can: Triton compiles for it, as for a shape."""
    return tuple([None if x is None else x.data_ptr() % 16 == 0 for x in tensors])


def current(x: Tensor) -> AbstractContextManager[None]:
    """Makes the device of a tensor the current one inside the ``with``, for launches; mostly it is that already."""
    if not x.is_cuda or x.get_device() == torch.cuda.current_device():
        return nullcontext()
    return torch.cuda.device(x.device)


class At(NamedTuple):
    """An argument that a call brings: the number of its tensor, and for a part of it, where and as what."""

    number: int
    offset: int = 0  # in bytes, a multiple of 16
    dtype: torch.dtype | None = None


class Launch(NamedTuple):
    """A kernel decorated by ``triton.jit``, its grid and all its arguments, constants too."""

    kernel: Any
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]  # numbers, None, or ``At``
    warps: int = 4
    stages: int = 3


class Program:
    """Kernels that follow each other on the current stream, for one device and one shape of everything.

    The first call goes through Triton, which looks at each argument and compiles. Later calls hand the compiled kernels
    their addresses: to look again would take longer than many a kernel.
    """

    def __init__(self, launches: Sequence[Launch]) -> None:
        self.launches = launches
        self.ready: list[tuple[Any, ...]] | None = None

    def __call__(self, device: torch.device, *brought: Tensor | float | None) -> None:
        """Launches all.

        Args:
            device: the current device.
            brought: what ``At`` counts: tensors, or numbers; None is None in every call.
        """
        if self.ready is None:
            compiled = [
                kernel[grid](*_tensors(arguments, brought), num_warps=warps, num_stages=stages)
                for kernel, grid, arguments, warps, stages in self.launches
            ]
            if _DIRECT and all(one is not None for one in compiled):  # the interpreter compiles nothing
                self.ready = [_prepared(*both, brought) for both in zip(compiled, self.launches, strict=True)]
            return
        stream = torch._C._cuda_getCurrentRawStream(device.index)
        addresses = [x.data_ptr() if isinstance(x, Tensor) else x for x in brought]
        for run, x, y, z, function, metadata, constants, places in self.ready:
            arguments = constants.copy()  # other threads may be here too
            for index, number, offset in places:
                arguments[index] = addresses[number] + offset
            run(x, y, z, stream, function, metadata, None, None, None, *arguments)


def _tensors(arguments: tuple[Any, ...], brought: tuple[Tensor | float | None, ...]) -> list[Any]:
    """The arguments as Triton wants to see them."""
    filled = []
    for argument in arguments:
        value = brought[argument.number] if isinstance(argument, At) else argument
        if isinstance(argument, At) and isinstance(value, Tensor) and argument.dtype is not None:
            value = value.view(torch.uint8)[argument.offset :]
            value = value[: len(value) // argument.dtype.itemsize * argument.dtype.itemsize].view(argument.dtype)
        filled.append(value)
    return filled


def _prepared(compiled: Any, launch: Launch, brought: tuple[Tensor | float | None, ...]) -> tuple[Any, ...]:
    given = [(k, x) for k, x in enumerate(launch.arguments) if isinstance(x, At) and brought[x.number] is not None]
    places = [(k, x.number, x.offset) for k, x in given]
    constants = [None if isinstance(x, At) else x for x in launch.arguments]
    return compiled.run, *launch.grid, compiled.function, compiled.packed_metadata, constants, places
