"""The Huber loss of predictions: squared for small errors, absolute for large ones."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy.methods.contract import Method, Range, Step
from ordinal_entropy.methods.rows import output_rows
from ordinal_entropy.methods.training_targets import moments, training_numbers


class Huber(Method):
    """Huber loss in place of the task loss: squared up to delta, absolute beyond.

    Args:
        delta: where the loss turns, in standard deviations of the training targets.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> method = Huber(delta=0.5)
        >>> method.prepare(torch.tensor([[-2.0], [2.0]]))  # a standard deviation of 2
        >>> step = Step(Batch(None, torch.tensor([[0.0], [0.0]])), torch.eye(2), torch.tensor([[0.5], [3.0]]), None)
        >>> method.task_loss(step)  # the mean of 0.5 * 0.5^2 / 1 and 3 - 0.5
        tensor(1.3125)
    """

    kind = "loss"
    paper = "Huber, Robust Estimation of a Location Parameter, Annals of Mathematical Statistics 1964"
    tunable: ClassVar[Mapping[str, Range]] = {"delta": Range(0.02, 2.0, log=True)}
    maps = True
    over_groups = True
    scale: Tensor

    def __init__(self, delta: float = 0.25) -> None:
        super().__init__()
        if not 0 < delta < float("inf"):
            raise ValueError(f"expected delta to be a positive number, got {delta}")
        self.delta = delta
        self.register_buffer("scale", torch.ones(1, dtype=torch.float64))  # (t,)

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the standard deviation of each number of the training targets; 1 where they are all alike."""
        self.scale = moments(training_numbers(targets))[1].to(self.scale)

    def task_loss(self, step: Step) -> Tensor:
        """The mean over rows, and over the numbers of a target; its gradient by a prediction is at most 1."""
        t = self.scale.shape[-1]
        found = output_rows(step, t, t)
        turn = self.delta * self.scale.to(found.outputs).unsqueeze(-2)  # (1, t), or (g, 1, t) of runs
        errors = (found.outputs - found.targets.to(found.outputs)) / turn
        losses = F.smooth_l1_loss(errors, torch.zeros_like(errors), reduction="none") * turn
        return found.mean(losses.mean(-1))

    def extra_repr(self) -> str:
        """The option."""
        return f"delta={self.delta}"
