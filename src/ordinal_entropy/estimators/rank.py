"""Effective rank: how many directions the features really use."""

import torch
from torch import Tensor

from ordinal_entropy.estimators._inputs import checked_features, result


def effective_rank(z: Tensor, *, center: bool = True) -> Tensor:
    """Effective rank of the features: the exponential of the entropy of their singular values.

    Roy and Vetterli's: with ``p_i`` the singular values divided by their sum,
    ``exp(-sum over i of p_i log p_i)``. Between 1 (a line) and ``min(n, d)`` (all directions alike); does not
    depend on scale or rotation.

    Args:
        z: ``(n, d)`` features, ``n >= 2``, any floating type; computed in float64.
        center: take the mean row off first, so that a common offset is not a direction.

    Returns:
        Scalar, float64 for float64 features, else float32. 0 with a zero gradient where nothing is left:
        all rows the same (or, uncentered, zero). Singular values that are rounding, below
        ``max(n, d) * 2.2e-16`` times the largest, count as zero and pass no gradient; the others pass theirs.

    Example:
        >>> effective_rank(torch.tensor([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]]))
        tensor(2.)
    """
    features = checked_features(z)
    if center:
        offset = features - features[0].detach()  # exact zeros where all rows are the same
        features = offset - offset.mean(0)
    size = features.detach().abs().amax()
    if size == 0:
        return result(features.sum(), z)
    values = torch.linalg.svdvals(features / size)
    share = values[values > max(z.shape) * torch.finfo(values.dtype).eps * values[0]]
    share = share / share.sum()
    return result(torch.exp(-(share * share.log()).sum()), z)
