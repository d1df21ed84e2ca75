"""A weighting."""

from typing import Any

import torch
from torch import Tensor

from ordinal_entropy.methods import Batch, Method


class Tails(Method):
    """Weights both ends of the targets more than their middle."""

    kind = "weights"
    center: Tensor

    def __init__(self, power: float = 1.0) -> None:
        super().__init__()
        self.power = power
        self.register_buffer("center", torch.zeros(2))

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the median and the mean distance from it."""
        median = targets.median()
        self.center = torch.stack([median, (targets - median).abs().mean().clamp(min=1e-6)]).to(self.center)

    def change(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch with 0.5 and half the distance, so that the mean weight is 1 at a power of 1."""
        distance = (batch.targets - self.center[0]).abs() / self.center[1]
        weight = 0.5 + 0.5 * distance**self.power
        return batch._replace(weight=weight if batch.weight is None else batch.weight * weight)
