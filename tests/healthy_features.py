"""Features without a sign of collapse, and seeded draws."""

import torch


def generator(seed):
    return torch.Generator().manual_seed(seed)


def curve(n=300, seed=0):
    """Healthy: sixteen dimensions through which the target leads a curve."""
    random = generator(seed)
    y = torch.rand(n, generator=random)
    angles = torch.outer(y, torch.arange(1, 9))
    return torch.cat([angles.sin(), angles.cos()], 1) + 0.1 * torch.randn(n, 16, generator=random), y
