"""A strength over a training: constant, or falling to 0 so that the last steps are of the task alone."""

import torch
from torch import Tensor


def annealed(progress: Tensor, share: float | Tensor) -> Tensor:
    """What a strength is multiplied by: 1, then falling evenly over the last share of the training, to 0 at its end.

    Args:
        progress: of the training, from 0 in its first step to 1 in its last.
        share: of the training over which the strength falls, from 0, where it never does, to 1; one, or of each run.

    Returns:
        In the shape of the two, from 0 to 1.

    Example:
        >>> progress = torch.tensor([0.0, 0.5, 0.75, 1.0])
        >>> annealed(progress, 1.0), annealed(progress, 0.5), annealed(progress, 0.0)
        (tensor([1.0000, 0.5000, 0.2500, 0.0000]), tensor([1.0000, 1.0000, 0.5000, 0.0000]), tensor([1., 1., 1., 1.]))
    """
    if isinstance(share, Tensor):
        falls = share > 0
        return torch.where(falls, ((1 - progress) / torch.where(falls, share, 1)).clamp(max=1), 1)
    return ((1 - progress) / share).clamp(max=1) if share > 0 else torch.ones_like(progress)
