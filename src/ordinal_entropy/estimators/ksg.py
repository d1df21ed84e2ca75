"""Mutual information between features and targets, from neighbours in the joint space."""

import torch
from torch import Tensor

from ordinal_entropy.estimators._distances import distance_rows
from ordinal_entropy.estimators._inputs import (
    check_neighbours,
    checked_features,
    checked_targets,
    result,
    standardised,
)

_TIE = 1e-9  # of a squared distance: ten times what is lost in computing it


@torch.no_grad()
def mutual_information(z: Tensor, y: Tensor, *, k: int = 3) -> Tensor:
    """Mutual information of features and targets, in nats: how much the features tell about the target.

    The first estimator of Kraskov, Stögbauer and Grassberger. Features and targets are brought to unit
    spread; each has its Euclidean distance, and the joint distance is the larger of the two. With ``e_i``
    the joint distance from row ``i`` to its k-th neighbour, and ``m_i``, ``a_i``, ``b_i`` the other rows
    *strictly* nearer than ``e_i`` in the joint space, the features and the targets::

        I = psi(N) + mean over i of psi(m_i + 1) - psi(a_i + 1) - psi(b_i + 1)

    Without ties ``m_i + 1`` is ``k``. Ties are counted, never broken by noise: where more than k rows
    coincide (``e_i = 0``) the three counts are of the rows that coincide.

    Args:
        z: ``(n, d)`` features, ``n > k``, any floating type; computed in float64.
        y: ``(n,)`` or ``(n, t)`` targets.
        k: which neighbour; larger is smoother and more biased towards 0.

    Returns:
        Scalar, float64 for float64 features, else float32. Not differentiable: it counts. About 0 for
        independent data, and slightly negative as often as positive; 0 up to rounding where the features or
        the targets are all the same. Does not depend on the units of either.

    Example:
        >>> z = torch.linspace(0, 1, 1000).reshape(-1, 1)
        >>> print(f"{mutual_information(z, z > 0.5):.2f}")  # one bit: log 2 = 0.69
        0.69
    """
    check_neighbours(k)
    features, _ = standardised(checked_features(z, at_least=k + 1))
    targets, _ = standardised(checked_targets(y, len(z)))
    total = features.new_zeros(())
    for (_, in_features), (_, in_targets) in zip(distance_rows(features), distance_rows(targets), strict=True):
        joint = torch.maximum(in_features, in_targets)  # (b, n)
        radius = joint.topk(k, dim=1, largest=False).values[:, -1:]
        radius *= 1 - _TIE  # distances that rounding alone tells apart are equal
        radius.clamp_(min=torch.finfo(radius.dtype).tiny)  # at radius 0, "nearer" means "coincides"
        inside, a, b = ((squared < radius).sum(1) for squared in (joint, in_features, in_targets))
        total += _psi(inside + 1) - _psi(a + 1) - _psi(b + 1)
    n = torch.tensor([len(z)], device=z.device)
    return result(_psi(n) + total / len(z), z)


def _psi(count: Tensor) -> Tensor:
    """Sum of digamma over the counts."""
    return torch.digamma(count.double()).sum()
