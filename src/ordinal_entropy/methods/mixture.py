"""A mixture of Gaussians as the density of targets: fitted by expectation maximisation, the same every time."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ordinal_entropy.methods.training_targets import evenly_spread, moments

_ROWS = 20_000  # that a mixture is fitted to, at most
_ROUNDS = 200
_IMPROVEMENT = 1e-7  # of the mean log-likelihood, below which the rounds end
_FLOOR = 1e-6  # variance that every component has at least, of targets of unit variance


class Mixture(NamedTuple):
    """Gaussians with shares; dimensions before those are of several mixtures."""

    shares: Tensor  # (..., k), of sum 1
    means: Tensor  # (..., k, t)
    covariances: Tensor  # (..., k, t, t)


def log_densities(points: Tensor, mixture: Mixture) -> Tensor:
    """The logarithm of share times density of each Gaussian at each point; their ``logsumexp`` is the mixture's.

    Args:
        points: ``(..., n, t)``.
        mixture: of ``k`` Gaussians.

    Returns:
        ``(..., k, n)``; minus infinity for a share of 0.

    Example:
        >>> one = Mixture(torch.ones(1), torch.zeros(1, 1), torch.ones(1, 1, 1))
        >>> log_densities(torch.tensor([[0.0], [1.0]]), one).exp()
        tensor([[0.3989, 0.2420]])
    """
    factor = torch.linalg.cholesky_ex(mixture.covariances).L  # without a look at values, which would stall a GPU
    away = points.unsqueeze(-3) - mixture.means.unsqueeze(-2)  # (..., k, n, t)
    white = torch.linalg.solve_triangular(factor, away.mT, upper=False)  # (..., k, t, n)
    volume = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1) + points.shape[-1] / 2 * math.log(2 * math.pi)
    found: Tensor = (mixture.shares.log() - volume)[..., None] - white.square().sum(-2) / 2
    return found


def fit_mixture(numbers: Tensor, components: int) -> Mixture:
    """The mixture by expectation maximisation, from groups of equal size along the first principal axis.

    Args:
        numbers: ``(n, t)``, finite; of more than 20,000, so many that are evenly spread in their order.
        components: how many Gaussians; those that nothing is left for have a share of 0.

    Returns:
        In float64. No variance is below a millionth of the numbers' own.

    Example:
        >>> fit_mixture(torch.tensor([[0.0], [2.0], [10.0], [12.0]]), components=2).means
        tensor([[ 1.],
                [11.]], dtype=torch.float64)
    """
    center, scale = moments(numbers.double())
    rows = evenly_spread((numbers.double() - center) / scale, _ROWS)
    n = len(rows)
    axis = torch.linalg.eigh(rows.T @ rows)[1][:, -1]
    axis = axis * torch.where(axis[axis.abs().argmax()] < 0, -1.0, 1.0)  # the sign of an eigenvector is arbitrary
    place = (rows @ axis).argsort(stable=True).argsort()
    member = torch.nn.functional.one_hot(place * components // n, components).to(rows)  # (n, k)
    before = -math.inf
    mixture = _maximised(rows, member)
    for _ in range(_ROUNDS):
        logs = log_densities(rows, mixture)
        likelihood = float(logs.logsumexp(0).mean())
        if likelihood - before < _IMPROVEMENT:
            break
        before = likelihood
        mixture = _maximised(rows, logs.softmax(0).T)
    spread = scale[:, None] * scale
    return Mixture(mixture.shares, mixture.means * scale + center, mixture.covariances * spread)


def _maximised(rows: Tensor, member: Tensor) -> Mixture:
    """The likeliest Gaussians for rows ``(n, t)`` that belong to them by ``(n, k)``."""
    amount = member.sum(0)  # (k,)
    share = member / amount.clamp(min=1e-300)
    means = share.T @ rows  # (k, t)
    away = rows[:, None] - means  # (n, k, t)
    covariances = torch.einsum("nk,nki,nkj->kij", share, away, away)
    floor = _FLOOR * torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
    return Mixture(amount / len(rows), means, covariances + floor)
