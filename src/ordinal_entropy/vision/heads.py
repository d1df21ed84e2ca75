"""The last layer of a network, in the precision of its weights even where the rest is in half precision.

An age of 40 in bfloat16 is a multiple of a quarter of a year, and some errors would be exactly 0. What goes in, the
features, stays as it is.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn


class LinearHead(nn.Linear):
    """``nn.Linear`` outside of autocast.

    Example:
        >>> with torch.autocast("cpu", dtype=torch.bfloat16):
        ...     LinearHead(4, 1)(torch.zeros(2, 4, dtype=torch.bfloat16)).dtype
        torch.float32
    """

    def forward(self, features: Tensor) -> Tensor:
        """Outputs ``(n, outputs)`` for features ``(n, d)``."""
        with _whole(features):
            return super().forward(features.to(self.weight.dtype))


class ConvHead(nn.Conv2d):
    """``nn.Conv2d`` outside of autocast."""

    def forward(self, features: Tensor) -> Tensor:
        """Outputs ``(n, outputs, h, w)`` for features ``(n, d, h, w)``."""
        with _whole(features):
            return super().forward(features.to(self.weight.dtype))


def _whole(features: Tensor) -> AbstractContextManager[object]:
    """No autocast, where there is one."""
    kind = features.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()
