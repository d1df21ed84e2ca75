"""The diversity term of the loss, read as an estimate of entropy."""

from typing import Literal

from torch import Tensor

from ordinal_entropy.estimators._inputs import checked_features, checked_targets, result


def diversity_entropy(
    z: Tensor,
    y: Tensor,
    *,
    rescale: Literal["none", "max", "authors"] = "none",
    grouping: Literal["unique", "none"] | float = "unique",
) -> Tensor:
    """Diversity of the L2-normalised features: the paper's third estimate.

    The mean, over pairs of centers, of the distance between the two centers times the distance between
    their targets. It is what the loss raises, so it is the estimate to watch beside the loss; it is not in
    nats, and depends on the targets and, with ``rescale="none"``, on their unit.

    Args:
        z: ``(n, d)`` features, ``n >= 2``, any floating type; computed in float64.
        y: ``(n,)`` or ``(n, t)`` targets.
        rescale: ``"none"`` (paper), or ``"max"``, ``"authors"`` as in `ordinal_entropy.functional.diversity`.
        grouping: ``"unique"`` (paper): one center per distinct target; ``"none"``; or a bin width.

    Returns:
        Scalar >= 0, float64 for float64 features, else float32. 0 where all targets or all features are
        the same. Differentiable.

    Example:
        >>> import torch
        >>> diversity_entropy(torch.eye(2), torch.tensor([0.0, 3.0]))  # 3 sqrt 2
        tensor(4.2426)
    """
    from ordinal_entropy.functional import diversity

    features = checked_features(z)
    targets = checked_targets(y, len(z))
    return result(diversity(features, targets, rescale=rescale, grouping=grouping), z)
