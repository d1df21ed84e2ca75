"""Many multilayer perceptrons of one shape as one stack: matrices ``(r, fan_in + 1, fan_out)``, a product for all runs.

The last row of a matrix is the bias: a row of inputs that ends in 1 needs no more than the product, and the gradient of
the bias comes with that of the weights.

Runs may differ in the number of their outputs: the hidden layers are one stack, the output layers one stack for each
stretch of runs with the same number.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

INITIALS = ("authors", "default")


class Layer(NamedTuple):
    """Matrices ``(r, fan_in + 1, fan_out)`` of some runs of a stack."""

    runs: slice
    matrix: Tensor

    @property
    def weight(self) -> Tensor:
        """``(r, fan_in, fan_out)``."""
        return self.matrix[:, :-1]

    @property
    def bias(self) -> Tensor:
        """``(r, 1, fan_out)``."""
        return self.matrix[:, -1:]


class Stack(NamedTuple):
    """The parameters of all runs: one flat tensor, and the layers as views of it."""

    flat: Tensor
    hidden: tuple[Layer, ...]  # of all runs
    heads: tuple[Layer, ...]  # in the order of the runs, each of as many runs as have the same number of outputs


def empty(inputs: int, hidden: int, heads: Sequence[tuple[int, int]], *, dtype: torch.dtype, device: str) -> Stack:
    """A stack of zeros: ``inputs -> hidden -> hidden -> outputs``.

    Args:
        inputs: numbers that a row of the input has.
        hidden: width of both hidden layers.
        heads: ``(runs, outputs)`` of each stretch of runs.
        dtype: of the parameters.
        device: where they lie.

    Example:
        >>> stack = empty(3, 4, [(2, 1), (1, 7)], dtype=torch.float32, device="cpu")
        >>> [tuple(layer.matrix.shape) for layer in (*stack.hidden, *stack.heads)]
        [(3, 4, 4), (3, 5, 4), (2, 5, 1), (1, 5, 7)]
    """
    r = sum(runs for runs, _ in heads)
    shapes = [(slice(0, r), inputs, hidden), (slice(0, r), hidden, hidden)]
    start = 0
    for runs, outputs in heads:
        shapes.append((slice(start, start + runs), hidden, outputs))
        start += runs
    sizes = [(runs.stop - runs.start) * (i + 1) * o for runs, i, o in shapes]
    room = [-(-size // 8) * 8 for size in sizes]  # a part begins where a GPU reads fastest; what is between stays zero
    flat = torch.zeros(sum(room), dtype=dtype, device=device)
    parts = zip(flat.split(room), sizes, shapes, strict=True)
    layers = [Layer(runs, part[:size].view(-1, i + 1, o)) for part, size, (runs, i, o) in parts]
    return Stack(flat, tuple(layers[:2]), tuple(layers[2:]))


def like(stack: Stack) -> Stack:
    """A stack of zeros of the same shape, for gradients."""
    heads = [(layer.runs.stop - layer.runs.start, layer.matrix.shape[2]) for layer in stack.heads]
    _, inputs, hidden = stack.hidden[0].weight.shape
    return empty(inputs, hidden, heads, dtype=stack.flat.dtype, device=str(stack.flat.device))


def initial(sizes: Sequence[int], seed: int, how: str = "authors") -> list[tuple[Tensor, Tensor]]:
    """Weight ``(fan_in, fan_out)`` and bias ``(fan_out,)`` of each layer of one run, in float64 on the CPU.

    Drawn layer by layer: runs of one seed that differ in their outputs have the same hidden layers.

    Args:
        sizes: numbers of inputs, of each hidden layer, of outputs.
        seed: of the run.
        how: "authors", weights from N(0, 0.001^2) and zero biases; or "default", as ``torch.nn.Linear`` does: all
            uniform between ``+-1 / sqrt(fan_in)``.

    Example:
        >>> [(tuple(weight.shape), tuple(bias.shape)) for weight, bias in initial((3, 4, 1), seed=0)]
        [((3, 4), (4,)), ((4, 1), (1,))]
    """
    if how not in INITIALS:
        raise ValueError(f"expected initial to be one of {INITIALS}, got {how!r}")
    generator = torch.Generator().manual_seed(seed)
    layers = []
    for fan_in, fan_out in pairwise(sizes):
        weight, bias = (torch.zeros(shape, dtype=torch.float64) for shape in ((fan_in, fan_out), (fan_out,)))
        if how == "authors":
            weight.normal_(0, 0.001, generator=generator)
        else:
            for part in (weight, bias):
                part.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator)
        layers.append((weight, bias))
    return layers


def fill(stack: Stack, seeds: Sequence[int], initials: Sequence[str]) -> None:
    """Gives each run of the stack its first parameters, which do not depend on the other runs."""
    _, inputs, hidden = stack.hidden[0].weight.shape
    for head in stack.heads:
        for run in range(head.runs.start, head.runs.stop):
            made = initial((inputs, hidden, hidden, head.weight.shape[2]), seeds[run], initials[run])
            for layer, (weight, bias) in zip((*stack.hidden, head), made, strict=True):
                layer.weight[run - layer.runs.start].copy_(weight)
                layer.bias[run - layer.runs.start, 0].copy_(bias)


def of_run(stack: Stack, run: int) -> list[tuple[Tensor, Tensor]]:
    """Weight ``(fan_in, fan_out)`` and bias ``(fan_out,)`` of each layer of one run, as views."""
    layers = [layer for layer in (*stack.hidden, *stack.heads) if layer.runs.start <= run < layer.runs.stop]
    return [(layer.weight[run - layer.runs.start], layer.bias[run - layer.runs.start, 0]) for layer in layers]


def forward(stack: Stack, x: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Features ``(r, n, hidden)``, and for each head the outputs ``(runs, n, outputs)``.

    Args:
        stack: the parameters.
        x: rows of each run ``(r, n, inputs)``, or rows that all share ``(n, inputs)``.
    """
    z = x.expand(len(stack.hidden[0].matrix), *x.shape) if x.dim() == 2 else x
    for layer in stack.hidden:
        z = torch.baddbmm(layer.bias, z, layer.weight).relu_()
    return z, [torch.baddbmm(head.bias, z[head.runs], head.weight) for head in stack.heads]
