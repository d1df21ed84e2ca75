"""Perceptrons of one shape as one stack: every parameter has the runs as its first dimension, a product is for all.

The weights of a layer and its bias are one matrix ``(r, fan_in + 1, fan_out)``: rows of inputs that end in 1 need no
more than the product, and the gradient of the bias comes with that of the weights. All parameters lie in one flat
tensor. Forward and backward pass are written out on buffers that are made once, and look at no value on the host; only
embeddings, and what methods do, are differentiated by autograd.

Numbers may be embedded first, each by a small layer of its own, after Gorishniy et al., "On Embeddings for Numerical
Features in Tabular Deep Learning" (2022): "periodic", sines and cosines of learned frequencies; "piecewise", how far a
number has come through each of the pieces that quantiles of the training rows cut its range into.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

EMBEDDINGS = ("none", "periodic", "piecewise")
INITIALS = ("authors", "default", "float32")
FIRST = "0.weight"  # the parameter whose rows are the inputs
_ALIGNED = 8  # numbers: where a GPU reads fastest

Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Shape:
    """Of one network."""

    numbers: int  # the first inputs: those that an embedding takes
    inputs: int  # all of them
    outputs: int = 1
    hidden: int = 128  # width of the hidden layers; the last one's activations are the features
    layers: int = 2  # of them
    embedding: str = "none"
    embedding_size: int = 16  # numbers that one number becomes
    waves: int = 24  # periodic: frequencies of one number
    wave_scale: float = 0.1  # and their standard deviation at first
    pieces: int = 24  # piecewise: of the range of one number, at most
    dtype: torch.dtype = torch.float32  # of all parameters

    @property
    def encoded(self) -> int:
        """Numbers that one number is before its embedding; 0: there is none."""
        return {"none": 0, "periodic": 2 * self.waves, "piecewise": self.pieces}[self.embedding] if self.numbers else 0

    @property
    def embedded(self) -> int:
        """Inputs of the first hidden layer that come out of embeddings."""
        return self.embedding_size * self.numbers if self.encoded else 0

    @property
    def first(self) -> int:
        """Inputs of the first hidden layer."""
        return self.inputs + self.embedded - self.numbers if self.encoded else self.inputs


class Pieces(NamedTuple):
    """Pieces of the range of each number, ``(..., p, t)``; those that are not there encode as 0."""

    start: Tensor
    length: Tensor
    low: Tensor  # the least that a piece encodes as: 0, but of the first none
    high: Tensor  # the most: 1, but of the last none


def pieces_of(numbers: NDArray[Any], count: int) -> Pieces:
    """Pieces between quantiles of training numbers ``(n, p)``, each column for itself; equal quantiles are one.

    Example:
        >>> pieces = pieces_of(np.array([[0.0], [1.0], [2.0], [6.0]]), 3)
        >>> pieces.start, pieces.length
        (tensor([[0., 1., 2.]]), tensor([[1., 1., 4.]]))
    """
    p = numbers.shape[1]
    start, length = torch.zeros(p, count), torch.full((p, count), math.inf)
    low, high = torch.zeros(p, count), torch.ones(p, count)
    for column in range(p):
        edges = np.unique(np.quantile(numbers[:, column], np.linspace(0, 1, count + 1)))
        if len(edges) < 2:  # a constant
            continue
        there = len(edges) - 1
        start[column, :there] = torch.from_numpy(edges[:-1])
        length[column, :there] = torch.from_numpy(np.diff(edges))
        low[column, 0], high[column, there - 1] = -math.inf, math.inf
    return Pieces(start, length, low, high)


def initial(shape: Shape, seed: int, how: str = "float32") -> Parameters:
    """First parameters of one run, by its seed, on the CPU.

    Drawn layer by layer, the head last: runs that differ in their outputs only have the same hidden layers.

    Args:
        shape: of the network.
        seed: of the run.
        how: "default", as ``torch.nn.Linear`` does: all uniform in +-1 / sqrt(fan_in); "float32", the same drawn in
            float32, so that runs of either precision begin alike; or "authors", weights from N(0, 0.001^2) and zero
            biases. Frequencies are normal.

    Example:
        >>> {name: tuple(tensor.shape) for name, tensor in initial(Shape(2, 3, hidden=4, layers=1), seed=0).items()}
        {'0.weight': (3, 4), '0.bias': (1, 4), 'head.weight': (4, 1), 'head.bias': (1, 1)}
    """
    if how not in INITIALS:
        raise ValueError(f"expected initial to be one of {INITIALS}, got {how!r}")
    generator = torch.Generator().manual_seed(seed)
    drawn_in = torch.float32 if how == "float32" else torch.float64

    def uniform(*size: int, fan_in: int) -> Tensor:
        drawn = torch.empty(size, dtype=drawn_in)
        return drawn.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator).to(shape.dtype)

    found: Parameters = {}
    p, e = shape.numbers, shape.embedding_size
    if shape.encoded:
        if shape.embedding == "periodic":
            waves = torch.empty(p, shape.waves).normal_(0, shape.wave_scale, generator=generator)
            found["frequencies"] = waves.to(shape.dtype)
        found["embedding.weight"] = uniform(p, shape.encoded, e, fan_in=shape.encoded)
        found["embedding.bias"] = uniform(p, 1, e, fan_in=shape.encoded)
    for name, fan_in, fan_out in _layers(shape):
        if how == "authors":
            weight = torch.empty(fan_in, fan_out, dtype=drawn_in).normal_(0, 0.001, generator=generator)
            found[f"{name}.weight"], found[f"{name}.bias"] = weight.to(shape.dtype), weight.new_zeros(1, fan_out)
        else:
            found[f"{name}.weight"] = uniform(fan_in, fan_out, fan_in=fan_in)
            found[f"{name}.bias"] = uniform(1, fan_out, fan_in=fan_in)
    return {name: tensor.to(shape.dtype) for name, tensor in found.items()}


class Head(NamedTuple):
    """The output layer ``(runs, hidden + 1, outputs)`` of some runs of a stack."""

    runs: slice
    matrix: Tensor

    @property
    def weight(self) -> Tensor:
        """``(runs, hidden, outputs)``."""
        return self.matrix[:, :-1]


class Views(NamedTuple):
    """What lies in a flat tensor: parameters, their gradient or their moments."""

    flat: Tensor
    embedding: Parameters
    hidden: tuple[Tensor, ...]  # (r, fan_in + 1, fan_out)
    heads: tuple[Head, ...]
    encoder: int  # numbers of the flat tensor that are not of the heads

    def parts(self) -> Iterator[tuple[slice, Tensor]]:
        """Every parameter ``(runs, ...)`` with the runs that it is of."""
        for tensor in (*self.embedding.values(), *self.hidden):
            yield slice(0, len(tensor)), tensor
        yield from self.heads

    def of_run(self, run: int, first: int | None = None) -> Parameters:
        """Those of one run, as views.

        Args:
            run: its place.
            first: inputs of its first layer, where it has fewer than the stack.
        """
        found = {name: tensor[run] for name, tensor in self.embedding.items()}
        head = next(head for head in self.heads if head.runs.start <= run < head.runs.stop)
        layers = {str(k): matrix[run] for k, matrix in enumerate(self.hidden)}
        for name, matrix in (*layers.items(), ("head", head.matrix[run - head.runs.start])):
            rows = first if name == "0" and first is not None else len(matrix) - 1
            found[f"{name}.weight"], found[f"{name}.bias"] = matrix[:rows], matrix[-1:]
        return found


def empty(shape: Shape, heads: Sequence[tuple[int, int]], device: torch.device | str = "cpu") -> Views:
    """Zeros for a stack.

    Args:
        shape: of the networks, the outputs apart.
        heads: ``(runs, outputs)`` of each stretch of runs.
        device: where they lie.

    Example:
        >>> stack = empty(Shape(0, 3, hidden=4), [(2, 1), (1, 7)])
        >>> [tuple(matrix.shape) for matrix in (*stack.hidden, *(head.matrix for head in stack.heads))]
        [(3, 4, 4), (3, 5, 4), (2, 5, 1), (1, 5, 7)]
    """
    r, p, e = sum(runs for runs, _ in heads), shape.numbers, shape.embedding_size
    parts: dict[str, tuple[int, ...]] = {}
    if shape.encoded:
        if shape.embedding == "periodic":
            parts["frequencies"] = (r, p, shape.waves)
        parts |= {"embedding.weight": (r, p, shape.encoded, e), "embedding.bias": (r, p, 1, e)}
    *hidden, (_, width, _) = _layers(shape)
    parts |= {name: (r, fan_in + 1, fan_out) for name, fan_in, fan_out in hidden}
    parts |= {f"head {k}": (runs, width + 1, outputs) for k, (runs, outputs) in enumerate(heads)}
    sizes = [math.prod(size) for size in parts.values()]
    room = [-(-size // _ALIGNED) * _ALIGNED for size in sizes]  # what is between stays zero
    flat = torch.zeros(sum(room), dtype=shape.dtype, device=device)
    each = zip(parts.items(), flat.split(room), sizes, strict=True)
    views = {name: part[:size].view(own) for (name, own), part, size in each}
    starts = np.cumsum([0, *(runs for runs, _ in heads)]).tolist()
    of_heads = [Head(slice(a, b), views[f"head {k}"]) for k, (a, b) in enumerate(pairwise(starts))]
    embedding = {name: views[name] for name in parts if name == "frequencies" or name.startswith("embedding")}
    matrices = tuple(views[name] for name, _, _ in hidden)
    return Views(flat, embedding, matrices, tuple(of_heads), sum(room[: len(room) - len(heads)]))


class Network:
    """The networks of a stack, with buffers for a training step.

    Args:
        shape: of the networks, the outputs apart.
        heads: ``(runs, outputs)`` of each stretch of runs.
        device: that is computed on.
        pieces: of each run ``(r, p, t)``, for the embedding that asks for them.
    """

    def __init__(
        self, shape: Shape, heads: Sequence[tuple[int, int]], device: torch.device, pieces: Pieces | None = None
    ) -> None:
        self.shape, self.pieces, self.device = shape, pieces, device
        self.runs = sum(runs for runs, _ in heads)
        self.active: Sequence[int] = range(len(heads))  # heads that a step computes
        self.parameters, self.gradient = (empty(shape, heads, device) for _ in range(2))
        self._embedding = {name: tensor.detach() for name, tensor in self.parameters.embedding.items()}
        for name, tensor in self._embedding.items():  # leaves of autograd, which adds to their part of the gradient
            tensor.requires_grad_().grad = self.gradient.embedding[name]
        self._embedded: Tensor | None = None  # of this step, with its graph
        self._n = 0

    def _make_room(self, n: int) -> None:
        """Buffers of so many rows, each row followed by a 1."""
        widths = [self.shape.first, *[self.shape.hidden] * self.shape.layers]
        self._rows = [self._rows_with_one(n, width) for width in widths]
        self.by_rows = [torch.zeros_like(z) for z in self._rows[1:]]
        self.outputs = [
            self.parameters.flat.new_empty(len(head.matrix), n, head.matrix.shape[2]) for head in self.parameters.heads
        ]
        self.by_outputs = [torch.zeros_like(z) for z in self.outputs]
        self._n = n

    def _rows_with_one(self, n: int, width: int) -> Tensor:
        rows = self.parameters.flat.new_zeros(self.runs, n, -(-(width + 1) // _ALIGNED) * _ALIGNED)
        rows[..., width] = 1
        return rows

    @property
    def features(self) -> Tensor:
        """Of the last step ``(r, n, hidden)``."""
        return self._rows[-1][..., : self.shape.hidden]

    @property
    def by_features(self) -> Tensor:
        """Gradient at the features, likewise."""
        return self.by_rows[-1][..., : self.shape.hidden]

    def load(self, x: Tensor) -> None:
        """Rows ``(r, n, inputs)`` for the next steps."""
        if x.shape[1] != self._n:
            self._make_room(x.shape[1])
        if self.shape.encoded:
            self._numbers = x[..., : self.shape.numbers].mT  # (r, p, n)
            x = x[..., self.shape.numbers :]
        self._rows[0][..., self.shape.embedded : self.shape.first].copy_(x)

    def load_run(self, run: int, x: Tensor) -> None:
        """Other rows ``(n, inputs)`` of one run."""
        if self.shape.encoded:
            self._numbers = self._numbers.clone()
            self._numbers[run] = x[:, : self.shape.numbers].mT
            x = x[:, self.shape.numbers :]
        self._rows[0][run, :, self.shape.embedded : self.shape.first].copy_(x)

    def forward(self, *, differentiable: bool = True) -> None:
        """Features of the rows that were loaded."""
        if self.shape.encoded:
            with torch.set_grad_enabled(differentiable):
                self._embedded = _embedded(self._embedding, self._numbers, self.pieces)
            self._rows[0][..., : self.shape.embedded].copy_(self._embedded.detach())
        x = self._rows[0]
        for matrix, z in zip(self.parameters.hidden, self._rows[1:], strict=True):
            _, below, width = matrix.shape
            torch.bmm(x[..., :below], matrix, out=z[..., :width])
            x = z.relu_()

    def forward_heads(self) -> None:
        """Outputs of the features, by the linear heads."""
        width = self.shape.hidden + 1
        features, room = self._rows[-1][..., :width], self.by_rows[-1][..., :width]  # until its gradient is there
        for k in self.active:
            runs, matrix = self.parameters.heads[k]
            _product(features[runs], matrix, self.outputs[k], room[runs])

    def backward_heads(self) -> None:
        """Gradients of the heads and at the features, from those at the outputs."""
        width = self.shape.hidden + 1
        features, room = self._rows[-1][..., :width], self.by_rows[-1][..., :width]
        by_features = self.by_features
        for k in self.active:
            head, by_head, by_out = self.parameters.heads[k], self.gradient.heads[k], self.by_outputs[k]
            _product(features[head.runs].mT, by_out, by_head.matrix, room[head.runs].mT)
            if by_out.shape[2] == 1:
                torch.mul(by_out, head.weight.mT, out=by_features[head.runs])
            else:
                torch.bmm(by_out, head.weight.mT, out=by_features[head.runs])

    def backward(self) -> None:
        """Gradients of all that is below the features, from that at the features."""
        for k in reversed(range(self.shape.layers)):
            by_z, matrix = self.by_rows[k], self.parameters.hidden[k]
            torch.ops.aten.threshold_backward.grad_input(by_z, self._rows[k + 1], 0, grad_input=by_z)  # of relu
            by_z = by_z[..., : matrix.shape[2]]
            below = self._rows[k][..., : matrix.shape[1]]
            torch.bmm(below.mT, by_z, out=self.gradient.hidden[k])
            if k > 0:
                torch.bmm(by_z, matrix[:, :-1].mT, out=self.by_rows[k - 1][..., : matrix.shape[1] - 1])
        if self._embedded is not None:
            for tensor in self.gradient.embedding.values():
                tensor.zero_()
            torch.autograd.backward(self._embedded, by_z @ matrix[:, : self.shape.embedded].mT)
            self._embedded = None

    @torch.no_grad()
    def predict(self, x: Tensor, parameters: Views | None = None) -> tuple[Tensor, list[Tensor]]:
        """Features ``(r, n, hidden)``, and for each head the outputs ``(runs, n, outputs)``.

        Args:
            x: rows of each run ``(r, n, inputs)``, or rows that all share ``(n, inputs)``.
            parameters: others than those of now.
        """
        own = self.parameters if parameters is None else parameters
        z = x.expand(self.runs, *x.shape) if x.dim() == 2 else x
        if self.shape.encoded:
            numbers = z[..., : self.shape.numbers].mT
            z = torch.cat([_embedded(own.embedding, numbers, self.pieces), z[..., self.shape.numbers :]], dim=-1)
        for matrix in own.hidden:
            z = torch.baddbmm(matrix[:, -1:], z, matrix[:, :-1]).relu_()
        return z, [torch.baddbmm(head.matrix[:, -1:], z[head.runs], head.weight) for head in own.heads]


def _layers(shape: Shape) -> list[tuple[str, int, int]]:
    """Name, fan-in and fan-out of each, the head last."""
    widths = [shape.first, *[shape.hidden] * shape.layers, shape.outputs]
    names = [*map(str, range(shape.layers)), "head"]
    return list(zip(names, widths[:-1], widths[1:], strict=True))


def _embedded(parameters: Mapping[str, Tensor], numbers: Tensor, pieces: Pieces | None) -> Tensor:
    """Numbers ``(r, p, n)`` as ``(r, n, p * e)``: encoded, then a layer for each number."""
    if pieces is None:
        angles = 2 * math.pi * numbers[..., None] * parameters["frequencies"][:, :, None]  # (r, p, n, w)
        encoded = torch.cat([angles.sin(), angles.cos()], dim=-1)
    else:
        start, length, low, high = (part[:, :, None] for part in pieces)  # (r, p, 1, t)
        encoded = torch.clamp((numbers[..., None] - start) / length, low, high)
    weight, bias = parameters["embedding.weight"], parameters["embedding.bias"]
    r, p, n, _ = encoded.shape
    z = torch.baddbmm(bias.flatten(0, 1), encoded.flatten(0, 1), weight.flatten(0, 1)).relu()  # (r * p, n, e)
    return z.view(r, p, n, -1).permute(0, 2, 1, 3).reshape(r, n, -1)


def _product(a: Tensor, b: Tensor, out: Tensor, room: Tensor) -> None:
    """Products ``(r, n, k)`` with ``(r, k, o)``; on a CPU those with one column as sums, which are faster there.

    Such sums are also the same to the last bit however many runs there are. ``room`` has the shape of ``a``.
    """
    if b.shape[2] == 1 and not b.is_cuda:
        torch.sum(torch.mul(a, b.mT, out=room), 2, keepdim=True, out=out)
    else:
        torch.bmm(a, b, out=out)
