"""The diversity in the ways that the benchmarks compare, and the data they compare them on."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy import kernels
from ordinal_entropy.functional import diversity

Loss = Callable[[Tensor, Tensor], Tensor]


def authors(features: Tensor, targets: Tensor) -> Tensor:
    """The steps of the authors' code, restated: every matrix in full, the upper triangle by a boolean index.

    The index is made on the CPU, as theirs is, wherever the features are.
    """

    def distances(x: Tensor) -> Tensor:
        n = x.shape[0]
        squares = x.pow(2).sum(1, keepdim=True).expand(n, n)
        return (squares + squares.t()).addmm(x, x.t(), beta=1, alpha=-2).clamp(min=1e-12).sqrt()

    def upper(matrix: Tensor) -> Tensor:
        return matrix[torch.triu(torch.ones(matrix.shape), diagonal=1).to(torch.bool)]

    of_features = upper(distances(F.normalize(features, dim=1)))
    weights = upper(distances(targets))
    largest, smallest = weights.max(), weights.min()
    return (of_features * ((weights - smallest) / largest)).mean()


def plain(features: Tensor, targets: Tensor) -> Tensor:
    """The formula of the paper with as few operations as it takes: the sum over all ordered pairs."""
    z, m = F.normalize(features, dim=1), features.shape[0]
    weights = torch.cdist(targets, targets)
    return (weights / weights.max() * torch.cdist(z, z)).sum() / (m * (m - 1))


def kernel(name: str, **options: Any) -> Loss:
    """The diversity of this library by the kernel of that name."""

    def loss(features: Tensor, targets: Tensor) -> Tensor:
        with kernels.use(name):
            return diversity(features, targets, **options)

    return loss


def data(m: int, d: int, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Gaussian features ``(m, d)`` that want a gradient, and targets ``(m, 1)``, no two alike."""
    generator = torch.Generator().manual_seed(m + d)
    features = torch.randn(m, d, generator=generator).to(device).requires_grad_()
    return features, (torch.randperm(m, generator=generator)[:, None] * (10.0 / m)).to(device)
