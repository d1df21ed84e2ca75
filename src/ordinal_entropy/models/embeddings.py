"""Embeddings of numbers: each column by a small layer of its own.

After Gorishniy et al., "On Embeddings for Numerical Features in Tabular Deep Learning" (2022): "periodic", sines and
cosines of learned frequencies; "piecewise", how far a number has come through each of the pieces that quantiles of the
training rows cut its range into.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

EMBEDDINGS = ("none", "periodic", "piecewise")


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


def embedded(parameters: Mapping[str, Tensor], numbers: Tensor, pieces: Pieces | None) -> Tensor:
    """Numbers ``(r, p, n)`` as ``(r, n, p * e)``: encoded, then a layer for each number.

    Args:
        parameters: "embedding.weight" ``(r, p, c, e)`` and "embedding.bias" ``(r, p, 1, e)`` behind an encoding of
            ``c`` numbers; of periodic ones "frequencies" ``(r, p, c / 2)`` too.
        numbers: of ``r`` networks.
        pieces: ``(r, p, c)`` of each network; None: periodic.

    Example:
        >>> pieces = Pieces(*(part[None] for part in pieces_of(np.array([[0.0], [1.0], [2.0], [6.0]]), 3)))
        >>> plain = {"embedding.weight": torch.eye(3)[None, None], "embedding.bias": torch.zeros(1, 1, 1, 3)}
        >>> embedded(plain, torch.tensor([[[0.5, 4.0]]]), pieces)
        tensor([[[0.5000, 0.0000, 0.0000],
                 [1.0000, 1.0000, 0.5000]]])
    """
    if pieces is None:
        angles = 2 * math.pi * numbers[..., None] * parameters["frequencies"][:, :, None]  # (r, p, n, w)
        encoded = torch.cat([angles.sin(), angles.cos()], dim=-1)
    else:
        start, length, low, high = (part[:, :, None] for part in pieces)  # (r, p, 1, t)
        encoded = torch.clamp((numbers[..., None] - start) / length, low, high)
    weight, bias = parameters["embedding.weight"], parameters["embedding.bias"]
    (r, p, n, _), e = encoded.shape, weight.shape[-1]
    z = torch.baddbmm(bias.flatten(0, 1), encoded.flatten(0, 1), weight.flatten(0, 1)).relu()  # (r * p, n, e)
    return z.view(r, p, n, e).permute(0, 2, 1, 3).reshape(r, n, p * e)


class Piecewise(nn.Module):
    """Piecewise-linear embeddings of rows of numbers ``(n, p)``: ``(n, p * e)``.

    Args:
        pieces: ``(p, t)``, of :func:`pieces_of`.
        layers: from ``t`` numbers to ``e``, one for each column.

    Example:
        >>> pieces = pieces_of(np.array([[0.0], [1.0], [2.0], [6.0]]), 3)
        >>> Piecewise(pieces, [nn.Linear(3, 4)])(torch.zeros(5, 1)).shape
        torch.Size([5, 4])
    """

    def __init__(self, pieces: Pieces, layers: Sequence[nn.Linear]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().mT for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach()[None] for layer in layers]))
        for name, part in pieces._asdict().items():
            self.register_buffer(name, part)

    def forward(self, rows: Tensor) -> Tensor:
        """Of each number what its layer makes of it."""
        parameters = {"embedding.weight": self.weight[None], "embedding.bias": self.bias[None]}
        pieces = Pieces(*(self.get_buffer(name)[None] for name in Pieces._fields))
        return embedded(parameters, rows.mT[None], pieces)[0]
