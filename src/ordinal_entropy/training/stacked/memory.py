"""How many runs a stack has at most: what runs keep in memory, by a rough count, held to what there is."""

import math
from collections.abc import Sequence
from typing import TypeVar

import torch

from ordinal_entropy.training.stacked.network import Shape, empty

Item = TypeVar("Item")
CPU_BYTES = 2**32  # of one stack
_GPU_SHARE = 0.5  # of the memory of the device
_COPIES = 7  # of the parameters: these, their gradient, two moments, the ways of a step, the best ones, a checkpoint's


def bytes_of(shape: Shape, rows: int) -> int:
    """Memory of one run in training.

    Each number of a step has a gradient beside it; what autograd keeps of a layer of TabM is taken for eight numbers a
    unit. Temporary tensors of methods and evaluations are not counted.

    Args:
        shape: of its network.
        rows: of a step.

    Example:
        >>> round(bytes_of(Shape(0, 101, hidden=100), rows=1000) / 2**20, 1)
        3.6
    """
    parameters = empty(shape, [(shape.members, shape.outputs)], "meta").flat.numel()
    hidden = shape.layers * shape.hidden * (2 if shape.network == "perceptron" else 8)
    embedding = 2 * shape.numbers * (shape.encoded + shape.embedding_size) if shape.encoded else 0
    of_row = shape.members * (hidden + 2 * shape.outputs) + embedding + 2 * shape.inputs + 2 * shape.first
    return (_COPIES * parameters + rows * of_row) * shape.dtype.itemsize


def limit(device: str) -> float:
    """Bytes that one stack may take: 4 GiB on a CPU, half the memory of a GPU."""
    if torch.device(device).type != "cuda" or not torch.cuda.is_available():  # which is refused where runs begin
        return CPU_BYTES
    return _GPU_SHARE * torch.cuda.get_device_properties(torch.device(device)).total_memory


def stacks(items: Sequence[Item], most: float, available: float) -> list[list[Item]]:
    """Items in their order, as few stacks as fit; all but the last are full, so the rest of some is the same stacks.

    Args:
        items: of the runs.
        most: bytes of the largest run.
        available: bytes of one stack.

    Example:
        >>> stacks("abcdefg", most=10.0, available=35.0)
        [['a', 'b', 'c'], ['d', 'e', 'f'], ['g']]
    """
    count = max(1, math.floor(available / most))
    return [list(items[k : k + count]) for k in range(0, len(items), count)]
