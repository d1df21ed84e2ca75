"""Perceptrons for tables, many of one shape as one stack: every parameter has the runs as its first dimension.

Numbers may be embedded first, each by a small layer of its own, after Gorishniy et al., "On Embeddings for Numerical
Features in Tabular Deep Learning" (2022): "periodic", sines and cosines of learned frequencies; "piecewise", how far a
number has come through each of the pieces that quantiles of the training rows cut its range into.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

EMBEDDINGS = ("none", "periodic", "piecewise")
FIRST = "0.weight"  # the parameter whose rows are the inputs

Parameters = dict[str, Tensor]


@dataclass(frozen=True)
class Shape:
    """Of one network."""

    numbers: int  # the first inputs
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
    def first(self) -> int:
        """Inputs of the first hidden layer."""
        return self.inputs + (self.embedding_size - 1) * self.numbers if self.encoded else self.inputs


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


def initial(shape: Shape, seed: int) -> Parameters:
    """First parameters of one run, by its seed: uniform in +-1 / sqrt(fan_in) as PyTorch's, frequencies normal.

    Drawn layer by layer, the head last: runs that differ in their outputs only have the same hidden layers. Drawn in
    float32, so that runs of either precision begin alike.

    Example:
        >>> {name: tuple(tensor.shape) for name, tensor in initial(Shape(2, 3, hidden=4, layers=1), seed=0).items()}
        {'0.weight': (3, 4), '0.bias': (1, 4), 'head.weight': (4, 1), 'head.bias': (1, 1)}
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(*size: int, fan_in: int) -> Tensor:
        return torch.empty(size).uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator).to(shape.dtype)

    found: Parameters = {}
    p, e = shape.numbers, shape.embedding_size
    if shape.encoded:
        if shape.embedding == "periodic":
            waves = torch.empty(p, shape.waves).normal_(0, shape.wave_scale, generator=generator)
            found["frequencies"] = waves.to(shape.dtype)
        found["embedding.weight"] = uniform(p, shape.encoded, e, fan_in=shape.encoded)
        found["embedding.bias"] = uniform(p, 1, e, fan_in=shape.encoded)
    fan_in = shape.first
    for layer in range(shape.layers):
        found[f"{layer}.weight"] = uniform(fan_in, shape.hidden, fan_in=fan_in)
        found[f"{layer}.bias"] = uniform(1, shape.hidden, fan_in=fan_in)
        fan_in = shape.hidden
    found["head.weight"] = uniform(fan_in, shape.outputs, fan_in=fan_in)
    found["head.bias"] = uniform(1, shape.outputs, fan_in=fan_in)
    return found


def stacked(runs: Sequence[Parameters]) -> Parameters:
    """Parameters ``(r, ...)``; where runs have fewer inputs than others, rows of zeros stand for these.

    Such inputs are 0 in every row, so the zeros get no gradient and stay.
    """
    most = max(len(own[FIRST]) for own in runs)
    return {name: torch.stack([_padded(own[name], name, most) for own in runs]) for name in runs[0]}


def of_run(parameters: Mapping[str, Tensor], run: int, shape: Shape) -> Parameters:
    """A copy of those of one run, without the rows of zeros."""
    own = {name: tensor[run].detach().clone() for name, tensor in parameters.items()}
    return {**own, FIRST: own[FIRST][: shape.first].clone()}


def _padded(tensor: Tensor, name: str, most: int) -> Tensor:
    return torch.nn.functional.pad(tensor, (0, 0, 0, most - len(tensor))) if name == FIRST else tensor


def forward(parameters: Mapping[str, Tensor], x: Tensor, shape: Shape, pieces: Pieces | None) -> Tensor:
    """Features ``(r, n, hidden)``, of which :func:`outputs` makes outputs.

    Args:
        parameters: of the stack.
        x: rows of each run ``(r, n, inputs)``.
        shape: of the networks.
        pieces: of each run ``(r, p, t)``, for the embedding that asks for them.
    """
    z = x
    if shape.encoded:
        numbers = x[..., : shape.numbers].mT  # (r, p, n)
        z = torch.cat([_embedded(parameters, numbers, pieces), x[..., shape.numbers :]], dim=-1)
    for layer in range(shape.layers):
        z = torch.baddbmm(parameters[f"{layer}.bias"], z, parameters[f"{layer}.weight"]).relu()
    return z


def outputs(parameters: Mapping[str, Tensor], features: Tensor) -> Tensor:
    """Outputs ``(r, n, outputs)`` of the linear heads."""
    return torch.baddbmm(parameters["head.bias"], features, parameters["head.weight"])


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
