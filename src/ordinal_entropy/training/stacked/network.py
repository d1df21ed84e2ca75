"""Networks of one shape as one stack: every parameter has the runs as its first dimension, a product is for all.

The weights of a layer of a perceptron and its bias are one matrix ``(r, fan_in + 1, fan_out)``: rows of inputs that end
in 1 need no more than the product, and the gradient of the bias comes with that of the weights. All parameters lie in
one flat tensor. Forward and backward pass are written out on buffers that are made once, and look at no value on the
host; only embeddings of numbers (``models/embeddings.py``), the layers of TabM (``tabm.py``), and what methods do, are
differentiated by autograd.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ordinal_entropy.models.embeddings import Pieces, embedded
from ordinal_entropy.models.tabm import first_scaling

INITIALS = ("authors", "default", "float32")
FIRST = "0.weight"  # the parameter whose rows are the inputs
SCALING = "0.r"  # the parameter of TabM whose columns are
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
    network: str = "perceptron"  # or, after "tabm" or "tabm-mini", members that share weights
    members: int = 1  # of them; a perceptron is one
    dropout: float = 0.0  # share of the activations of each hidden layer that a step leaves out
    dtype: torch.dtype = torch.float32  # of all parameters

    def __post_init__(self) -> None:
        """Members that no network can have."""
        if self.network == "perceptron" and self.members != 1:
            raise ValueError(f"expected one member of a perceptron, got {self.members}")

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


def initial(shape: Shape, seed: int, how: str = "float32") -> Parameters:
    """First parameters of one run, by its seed, on the CPU.

    Drawn layer by layer, the head last: runs that differ in their outputs only have the same hidden layers.

    Args:
        shape: of the network.
        seed: of the run.
        how: "default", as ``torch.nn.Linear`` does: all uniform in +-1 / sqrt(fan_in); "float32", the same drawn in
            float32, so that runs of either precision begin alike; or "authors", weights from N(0, 0.001^2) and zero
            biases. Frequencies are normal. Of members, all begin with the same biases and, but for the inputs, with
            no scaling.

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
        each = (shape.members,) if name == "head" and shape.members > 1 else ()
        if how == "authors":
            weight = torch.empty(*each, fan_in, fan_out, dtype=drawn_in).normal_(0, 0.001, generator=generator)
            found[f"{name}.weight"], found[f"{name}.bias"] = weight, weight.new_zeros(*each, 1, fan_out)
        else:
            found[f"{name}.weight"] = uniform(*each, fan_in, fan_out, fan_in=fan_in)
            found[f"{name}.bias"] = uniform(*each, 1, fan_out, fan_in=fan_in)
    for name, size in _of_members(shape).items():
        found[name] = found[name].expand(size).clone() if name in found else torch.ones(size)
    if SCALING in found:
        of_table = shape.first - shape.embedded
        count, width = (shape.numbers, shape.embedding_size) if shape.encoded else (0, 1)
        found[SCALING] = first_scaling(shape.members, of_table, generator, embedded=count, width=width)
    return {name: tensor.to(shape.dtype) for name, tensor in found.items()}


class Head(NamedTuple):
    """The output layer ``(runs, hidden + 1, outputs)`` of some runs of a stack; each of several members counts."""

    runs: slice
    matrix: Tensor

    @property
    def weight(self) -> Tensor:
        """``(runs, hidden, outputs)``."""
        return self.matrix[:, :-1]


class Views(NamedTuple):
    """What lies in a flat tensor: parameters, their gradient or their moments."""

    flat: Tensor
    named: Parameters  # (r, ...), those that autograd differentiates
    hidden: tuple[Tensor, ...]  # (r, fan_in + 1, fan_out), of perceptrons
    heads: tuple[Head, ...]
    encoder: int  # numbers of the flat tensor that are not of the heads
    members: int  # of each run

    def parts(self, stage: str = "joint") -> Iterator[tuple[slice, Tensor]]:
        """Every parameter ``(runs, ...)`` that a stage trains, with the runs that it is of."""
        if stage != "head":
            for tensor in (*self.named.values(), *self.hidden):
                yield slice(0, len(tensor)), tensor
        k = self.members
        for head in () if stage == "encoder" else self.heads:
            yield slice(head.runs.start // k, head.runs.stop // k), head.matrix.unflatten(0, (-1, k))

    def head_of(self, place: int) -> tuple[Tensor, Tensor]:
        """Weight ``(hidden, outputs)`` and bias ``(1, outputs)`` of one member of a run, as views."""
        head = next(head for head in self.heads if head.runs.start <= place < head.runs.stop)
        matrix = head.matrix[place - head.runs.start]
        return matrix[:-1], matrix[-1:]

    def of_run(self, run: int, first: int | None = None) -> Parameters:
        """Those of one run, as views.

        Args:
            run: its place.
            first: inputs of its first layer, where it has fewer than the stack.
        """
        found = {name: tensor[run] for name, tensor in self.named.items()}
        for k, matrix in enumerate(self.hidden):
            found[f"{k}.weight"], found[f"{k}.bias"] = matrix[run, :-1], matrix[run, -1:]
        found[FIRST] = found[FIRST][:first]
        if SCALING in found:
            found[SCALING] = found[SCALING][:, :first]
        k = self.members
        head = next(head for head in self.heads if head.runs.start <= k * run < head.runs.stop)
        start = k * run - head.runs.start
        matrix = head.matrix[start] if k == 1 else head.matrix[start : start + k]
        return {**found, "head.weight": matrix[..., :-1, :], "head.bias": matrix[..., -1:, :]}


def empty(shape: Shape, heads: Sequence[tuple[int, int]], device: torch.device | str = "cpu") -> Views:
    """Zeros for a stack.

    Args:
        shape: of the networks, the outputs apart.
        heads: ``(runs, outputs)`` of each stretch of runs; each of several members counts.
        device: where they lie.

    Example:
        >>> stack = empty(Shape(0, 3, hidden=4), [(2, 1), (1, 7)])
        >>> [tuple(matrix.shape) for matrix in (*stack.hidden, *(head.matrix for head in stack.heads))]
        [(3, 4, 4), (3, 5, 4), (2, 5, 1), (1, 5, 7)]
    """
    r, p, e = sum(runs for runs, _ in heads) // shape.members, shape.numbers, shape.embedding_size
    parts: dict[str, tuple[int, ...]] = {}
    if shape.encoded:
        if shape.embedding == "periodic":
            parts["frequencies"] = (r, p, shape.waves)
        parts |= {"embedding.weight": (r, p, shape.encoded, e), "embedding.bias": (r, p, 1, e)}
    *hidden, (_, width, _) = _layers(shape)
    if shape.network == "perceptron":
        parts |= {name: (r, fan_in + 1, fan_out) for name, fan_in, fan_out in hidden}
    else:
        parts |= {f"{name}.weight": (r, fan_in, fan_out) for name, fan_in, fan_out in hidden}
        parts |= {name: (r, *size) for name, size in _of_members(shape).items()}
    parts |= {f"head {k}": (runs, width + 1, outputs) for k, (runs, outputs) in enumerate(heads)}
    sizes = [math.prod(size) for size in parts.values()]
    room = [-(-size // _ALIGNED) * _ALIGNED for size in sizes]  # what is between stays zero
    flat = torch.zeros(sum(room), dtype=shape.dtype, device=device)
    each = zip(parts.items(), flat.split(room), sizes, strict=True)
    views = {name: part[:size].view(own) for (name, own), part, size in each}
    starts = np.cumsum([0, *(runs for runs, _ in heads)]).tolist()
    of_heads = [Head(slice(a, b), views[f"head {k}"]) for k, (a, b) in enumerate(pairwise(starts))]
    matrices = {name for name, _, _ in hidden}
    named = {name: view for name, view in views.items() if name not in matrices and not name.startswith("head ")}
    of_perceptrons = tuple(view for name, view in views.items() if name in matrices)
    encoder = sum(room[: len(room) - len(heads)])
    return Views(flat, named, of_perceptrons, tuple(of_heads), encoder, shape.members)


class Network(ABC):
    """The networks of a stack: their heads, with buffers for a training step. A subclass is what is below the features.

    To what is behind the features, each of several members of a run is a run of its own.

    Args:
        shape: of the networks, the outputs apart.
        heads: ``(runs, outputs)`` of each stretch of runs; each of several members counts.
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
        self._named = {name: tensor.detach() for name, tensor in self.parameters.named.items()}
        for name, tensor in self._named.items():  # leaves of autograd, which adds to their part of the gradient
            tensor.requires_grad_().grad = self.gradient.named[name]
        self._n = 0

    def _make_room(self, n: int) -> None:
        """Buffers of so many rows, each row followed by a 1."""
        self._rows = [self._rows_with_one(n, self.shape.hidden) for _ in range(self._layers_with_room())]
        self.by_rows = [torch.zeros_like(z) for z in self._rows]
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

    @torch.no_grad()
    def predict(self, x: Tensor, parameters: Views | None = None) -> tuple[Tensor, list[Tensor]]:
        """Features ``(r, n, hidden)``, and for each head the outputs ``(runs, n, outputs)``.

        Args:
            x: rows of each run ``(r, n, inputs)``, or rows that all share ``(n, inputs)``.
            parameters: others than those of now.
        """
        own = self.parameters if parameters is None else parameters
        z = self._features(own, x.expand(self.runs // own.members, *x.shape) if x.dim() == 2 else x)
        return z, [torch.baddbmm(head.matrix[:, -1:], z[head.runs], head.weight) for head in own.heads]

    @abstractmethod
    def load(self, x: Tensor) -> None:
        """Rows ``(r, n, inputs)`` of the runs for the next steps."""

    @abstractmethod
    def load_run(self, run: int, x: Tensor) -> None:
        """Other rows ``(n, inputs)`` of one run."""

    @abstractmethod
    def forward(self, *, differentiable: bool = True, seeds: Sequence[int] = ()) -> None:
        """Features of the rows that were loaded.

        Args:
            differentiable: a backward pass follows.
            seeds: of what is left out of the activations of each run; none: nothing is.
        """

    @abstractmethod
    def backward(self) -> None:
        """Gradients of all that is below the features, from that at the features."""

    @abstractmethod
    def _layers_with_room(self) -> int:
        """Hidden layers whose activations, and the gradients there, have a buffer; the last ones."""

    @abstractmethod
    def _features(self, own: Views, x: Tensor) -> Tensor:
        """Of rows ``(r, n, inputs)``, by some parameters."""

    def _dropped(self, seeds: Sequence[int], *sizes: int) -> list[Tensor]:
        """Factors ``(r, ..., n, hidden)`` of the activations of each hidden layer: 0, or what keeps their mean."""
        kept = 1 - self.shape.dropout
        room = self.parameters.flat.new_empty(self.shape.layers, len(seeds), *sizes, self.shape.hidden)
        for run, seed in enumerate(seeds):
            generator = torch.Generator(self.device).manual_seed(seed)
            for layer in room:
                layer[run].bernoulli_(kept, generator=generator)
        return list(room.div_(kept))


class Perceptron(Network):
    """Perceptrons, with their forward and backward pass written out."""

    _embedded: Tensor | None = None  # of this step, with its graph
    _scale = 1.0  # of the activations that were kept in this step

    def _make_room(self, n: int) -> None:
        super()._make_room(n)
        self._inputs = self._rows_with_one(n, self.shape.first)

    def load(self, x: Tensor) -> None:
        """Rows ``(r, n, inputs)`` for the next steps."""
        if x.shape[1] != self._n:
            self._make_room(x.shape[1])
        if self.shape.encoded:
            self._numbers = x[..., : self.shape.numbers].mT  # (r, p, n)
            x = x[..., self.shape.numbers :]
        self._inputs[..., self.shape.embedded : self.shape.first].copy_(x)

    def load_run(self, run: int, x: Tensor) -> None:
        """Other rows ``(n, inputs)`` of one run."""
        if self.shape.encoded:
            self._numbers = self._numbers.clone()
            self._numbers[run] = x[:, : self.shape.numbers].mT
            x = x[:, self.shape.numbers :]
        self._inputs[run, :, self.shape.embedded : self.shape.first].copy_(x)

    def forward(self, *, differentiable: bool = True, seeds: Sequence[int] = ()) -> None:
        """Features of the rows that were loaded."""
        if self.shape.encoded:
            with torch.set_grad_enabled(differentiable):
                self._embedded = embedded(self._named, self._numbers, self.pieces)
            self._inputs[..., : self.shape.embedded].copy_(self._embedded.detach())
        x, factors = self._inputs, self._dropped(seeds, self._n) if seeds else []
        self._scale = 1 / (1 - self.shape.dropout) if seeds else 1.0
        for k, (matrix, z) in enumerate(zip(self.parameters.hidden, self._rows, strict=True)):
            _, below, width = matrix.shape
            torch.bmm(x[..., :below], matrix, out=z[..., :width])
            x = z.relu_()
            if factors:
                z[..., :width].mul_(factors[k])

    def backward(self) -> None:
        """Gradients of all that is below the features, from that at the features."""
        for k in reversed(range(self.shape.layers)):
            by_z, matrix = self.by_rows[k], self.parameters.hidden[k]
            torch.ops.aten.threshold_backward.grad_input(by_z, self._rows[k], 0, grad_input=by_z)  # of relu
            by_z = by_z[..., : matrix.shape[2]]
            if self._scale != 1:  # what was left out has no gradient already: it is 0
                by_z.mul_(self._scale)
            below = (self._rows[k - 1] if k else self._inputs)[..., : matrix.shape[1]]
            torch.bmm(below.mT, by_z, out=self.gradient.hidden[k])
            if k > 0:
                torch.bmm(by_z, matrix[:, :-1].mT, out=self.by_rows[k - 1][..., : matrix.shape[1] - 1])
        if self._embedded is not None:
            for tensor in self.gradient.named.values():
                tensor.zero_()
            torch.autograd.backward(self._embedded, by_z @ matrix[:, : self.shape.embedded].mT)
            self._embedded = None

    def _layers_with_room(self) -> int:
        return self.shape.layers

    def _features(self, own: Views, x: Tensor) -> Tensor:
        z = first_inputs(self.shape, own.named, x, self.pieces)
        for matrix in own.hidden:
            z = torch.baddbmm(matrix[:, -1:], z, matrix[:, :-1]).relu_()
        return z


def first_inputs(shape: Shape, parameters: Mapping[str, Tensor], x: Tensor, pieces: Pieces | None) -> Tensor:
    """Inputs ``(r, n, first)`` of the first hidden layer: rows ``(r, n, inputs)`` with their numbers embedded."""
    if not shape.encoded:
        return x
    numbers = x[..., : shape.numbers].transpose(-2, -1)  # ONNX has no mT
    return torch.cat([embedded(parameters, numbers, pieces), x[..., shape.numbers :]], dim=-1)


def _layers(shape: Shape) -> list[tuple[str, int, int]]:
    """Name, fan-in and fan-out of each, the head last."""
    widths = [shape.first, *[shape.hidden] * shape.layers, shape.outputs]
    names = [*map(str, range(shape.layers)), "head"]
    return list(zip(names, widths[:-1], widths[1:], strict=True))


def _of_members(shape: Shape) -> dict[str, tuple[int, int]]:
    """Parameters of the hidden layers of TabM beside their weights, each with its size in one run."""
    if shape.network == "perceptron":
        return {}
    found = {}
    for name, fan_in, fan_out in _layers(shape)[:-1]:
        whole = shape.network == "tabm"
        found[f"{name}.bias"] = (shape.members if whole else 1, fan_out)
        if whole or name == "0":
            found[f"{name}.r"] = (shape.members, fan_in)
        if whole:
            found[f"{name}.s"] = (shape.members, fan_out)
    return found


def _product(a: Tensor, b: Tensor, out: Tensor, room: Tensor) -> None:
    """Products ``(r, n, k)`` with ``(r, k, o)``; on a CPU those with one column as sums, which are faster there.

    Such sums are also the same to the last bit however many runs there are. ``room`` has the shape of ``a``.
    """
    if b.shape[2] == 1 and not b.is_cuda:
        torch.sum(torch.mul(a, b.mT, out=room), 2, keepdim=True, out=out)
    else:
        torch.bmm(a, b, out=out)
