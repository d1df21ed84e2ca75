"""Entropy from the mean log distance of all pairs: Eq. 1 of the paper, as printed and as an entropy."""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordinal_entropy.estimators._distances import distance_rows
from ordinal_entropy.estimators._inputs import check_floor, checked_features, result, standardised
from ordinal_entropy.estimators.knn import log_ball_volume


def mean_nn_entropy(
    z: Tensor,
    normalize: bool = False,
    *,
    scale: Literal["printed", "entropy", "absolute"] = "printed",
    floor: float = 1e-9,
) -> Tensor:
    """MeanNN entropy of the features, from the log distances of all pairs.

    ``scale="printed"`` is Eq. 1 of the paper to the letter, its constant dropped::

        H = D / (N (N - 1)) * sum over i != j of log |z_i - z_j|^2

    The square makes it grow by ``2 D log 2`` when the features double, where an entropy grows by
    ``D log 2``. ``"entropy"`` halves it, so that differences between two sets of features are in nats.
    ``"absolute"`` also adds the constant ``1 + log(volume of the unit ball)``, for numbers that can be held
    against `knn_entropy`.

    Args:
        z: ``(n, d)`` features, ``n >= 2``, any floating type; computed in float64.
        normalize: divide each row by its length first (the paper's second estimate); zero rows stay zero.
        scale: ``"printed"``, ``"entropy"`` or ``"absolute"``, as above.
        floor: distances below this share of the spread (root-mean-square distance of the rows to their
            mean) count as that share and pass no gradient. So duplicates pull the value down by a finite
            amount; 0 gives ``-inf`` for any duplicate.

    Returns:
        Scalar, float64 for float64 features, else float32. Exact to about 1e-9 relative in float64, close
        pairs included. ``-inf`` with a zero gradient where all rows are the same. Differentiable once, with
        memory linear in ``n``.

    Example:
        >>> z = torch.tensor([[0.0, 0.0], [3.0, 4.0]])
        >>> mean_nn_entropy(z)  # 2 log 25
        tensor(6.4378)
        >>> mean_nn_entropy(2 * z, scale="entropy") - mean_nn_entropy(z, scale="entropy")  # 2 log 2
        tensor(1.3863)
    """
    if scale not in ("printed", "entropy", "absolute"):
        raise ValueError(f'expected scale "printed", "entropy" or "absolute", got {scale!r}')
    check_floor(floor)
    features = checked_features(z)
    if normalize:
        length = torch.linalg.vector_norm(features, dim=1, keepdim=True)
        features = features / torch.where(length > 0, length, 1.0)
    d = features.shape[1]
    features, spread = standardised(features)
    if spread == 0:
        return result(features.sum() - torch.inf, z)
    mean_log: Tensor = _MeanLogSquaredDistance.apply(features, floor)
    printed = d * (mean_log + 2 * spread.log())
    if scale == "printed":
        return result(printed, z)
    constant = 1 + log_ball_volume(d) if scale == "absolute" else 0.0
    return result(printed / 2 + constant, z)


class _MeanLogSquaredDistance(torch.autograd.Function):
    """Mean of ``log max(|z_i - z_j|^2, floor^2)`` over ``i != j``; the gradient is made in the same walk."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, floor: float) -> Tensor:
        n = len(z)
        total = z.new_zeros(())
        gradient = torch.zeros_like(z)
        for rows, squared in distance_rows(z):
            if ctx.needs_input_grad[0]:
                # d/dz_i of both log |z_i - z_j|^2 and log |z_j - z_i|^2: 4 (z_i - z_j) / |z_i - z_j|^2
                weight = torch.where(squared > floor**2, 4 / squared, 0.0)  # (b, n), 0 on the diagonal
                gradient[rows] = weight.sum(1, keepdim=True) * z[rows] - weight @ z
            squared.diagonal(offset=rows.start).fill_(1.0)  # log 1 = 0
            total += squared.clamp_(min=floor**2).log_().sum()
        pairs = n * (n - 1)
        ctx.save_for_backward(gradient / pairs)
        return total / pairs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        (gradient,) = ctx.saved_tensors
        return upstream * gradient, None
