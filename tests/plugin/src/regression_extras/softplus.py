"""A head of its own layers, for targets that are never below the smallest of training."""

from typing import Any

import torch
from torch import Tensor, nn

from ordinal_entropy.methods import Method, Step, weighted_mean


class Softplus(Method):
    """Predicts the smallest training target and a positive number more, by two layers."""

    kind = "head"
    least: Tensor

    def __init__(self, hidden: int = 8) -> None:
        super().__init__()
        self.hidden = hidden
        self.register_buffer("least", torch.zeros(0))

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the smallest training target."""
        self.least = targets.amin(0).to(self.least)

    def head(self, width: int, t: int) -> nn.Module:
        """Two layers."""
        return nn.Sequential(nn.Linear(width, self.hidden), nn.ReLU(), nn.Linear(self.hidden, t))

    def decode(self, outputs: Tensor) -> Tensor:
        """Outputs to predictions."""
        return self.least.to(outputs) + nn.functional.softplus(outputs)

    def task_loss(self, step: Step) -> Tensor:
        """The mean absolute error."""
        return weighted_mean((self.decode(step.outputs) - step.batch.targets).abs(), weight=step.batch.weight)
