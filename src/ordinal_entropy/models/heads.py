"""The last layer of a network, in the precision of its weights even where the rest is in half precision.

An age of 40 in bfloat16 is a multiple of a quarter of a year, and some errors would be exactly 0. What goes in, the
features, stays as it is.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn

from ordinal_entropy.methods import Composition


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


class MethodHead(nn.Module):
    """The head that a method brings, outside of autocast; in maps it sees every place as a row.

    Args:
        layer: from features ``(n, d)`` to outputs ``(n, o)``.

    Example:
        >>> MethodHead(nn.Linear(4, 2))(torch.zeros(1, 4, 3, 5)).shape
        torch.Size([1, 2, 3, 5])
    """

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, features: Tensor) -> Tensor:
        """Outputs ``(n, o)`` or ``(n, o, h, w)`` for features ``(n, d)`` or ``(n, d, h, w)``."""
        with _whole(features):
            features = features.to(torch.promote_types(features.dtype, torch.float32))
            outputs: Tensor
            if features.dim() != 4:
                outputs = self.layer(features)
                return outputs
            outputs = self.layer(features.permute(0, 2, 3, 1))
            return outputs.permute(0, 3, 1, 2)


def width_of(layer: nn.Module) -> int:
    """How many features go into a head.

    Example:
        >>> width_of(LinearHead(4, 1)), width_of(ConvHead(8, 1, 3))
        (4, 8)
    """
    width = getattr(layer, "in_features", getattr(layer, "in_channels", None))
    if not isinstance(width, int):
        raise ValueError(f"expected a head that is a linear layer or a convolution, got {type(layer).__name__}")
    return width


def replace_head(network: nn.Module, name: str, method: Composition) -> None:
    """Puts the head of a method in the place of a layer, where the method brings one.

    Example:
        >>> from ordinal_entropy import methods
        >>> network = nn.Sequential(nn.Flatten(), LinearHead(4, 1))
        >>> replace_head(network, "1", methods.create("oe"))  # which has none
        >>> network[1]
        LinearHead(in_features=4, out_features=1, bias=True)
    """
    if method.own_head:
        parent, _, own = name.rpartition(".")
        setattr(network.get_submodule(parent), own, MethodHead(method.head(width_of(network.get_submodule(name)), 1)))


def _whole(features: Tensor) -> AbstractContextManager[object]:
    """No autocast, where there is one."""
    kind = features.device.type
    return torch.autocast(kind, enabled=False) if torch.amp.is_autocast_available(kind) else nullcontext()
