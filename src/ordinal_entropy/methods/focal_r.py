"""Focal-R: absolute errors, small ones scaled down."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Method, Range, Step, weighted_mean
from ordinal_entropy.methods.rows import paired, prediction_rows
from ordinal_entropy.methods.training_targets import moments, training_numbers


def focal_r(
    predictions: Tensor,
    targets: Tensor,
    beta: float | Tensor = 0.2,
    gamma: float = 1.0,
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """The mean of ``sigmoid(beta |e|)^gamma |e|`` over errors ``e``.

    Args:
        predictions: ``(n,)`` or ``(..., n, t)``.
        targets: of the same shape.
        beta: how fast the factor grows from ``0.5^gamma`` to 1, in the inverse unit of the targets; a tensor is
            broadcast against them.
        gamma: power of the factor; 0 gives the mean absolute error.
        mask: boolean ``(..., n)``, rows that count.
        weight: ``(..., n)``, factor of a row's loss.

    Returns:
        Scalar, at least float32; without rows, a zero that is part of the graph.

    Example:
        >>> focal_r(torch.tensor([0.0, 5.0]), torch.tensor([0.0, 0.0]))  # sigmoid(1) * 5 / 2
        tensor(1.8276)
    """
    predictions, targets = paired(predictions, targets, mask)
    errors = (predictions - targets).abs()
    return weighted_mean(((beta * errors).sigmoid().pow(gamma) * errors).mean(-1), mask, weight)


class FocalR(Method):
    """Absolute error, small errors scaled down by a sigmoid of their size, in place of the task loss (Focal-R).

    Errors inside the sigmoid are measured in standard deviations of the training targets; the loss has their unit.

    Args:
        beta: how fast the factor grows with the error from ``0.5^gamma`` to 1, per standard deviation.
        gamma: power of the factor; 0 is the mean absolute error.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> method = FocalR(beta=2.0)
        >>> method.prepare(torch.tensor([[-2.0], [2.0]]))  # a standard deviation of 2
        >>> step = Step(Batch(None, torch.zeros(1, 1)), torch.eye(1), torch.tensor([[3.0]]), None)
        >>> method.task_loss(step)  # sigmoid(2 * 1.5) * 3
        tensor(2.8577)
    """

    kind = "loss"
    tunable: ClassVar[Mapping[str, Range]] = {
        "beta": Range(0.05, 5.0, log=True),
        "gamma": Range(0.25, 2.0, limits=(0.0, 4.0)),
    }
    paper = "Yang, Zha, Chen, Wang, Katabi, Delving into Deep Imbalanced Regression, ICML 2021"
    maps = True
    over_groups = True
    scale: Tensor

    def __init__(self, beta: float = 0.2, gamma: float = 1.0) -> None:
        super().__init__()
        for name, value in (("beta", beta), ("gamma", gamma)):
            if not 0 <= value < math.inf:
                raise ValueError(f"expected {name} to be a number from 0 on, got {value}")
        self.beta, self.gamma = float(beta), float(gamma)
        self.register_buffer("scale", torch.ones(1, dtype=torch.float64))  # (t,)

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the standard deviation of each number of the training targets."""
        self.scale = moments(training_numbers(targets))[1].to(self.scale)

    def task_loss(self, step: Step) -> Tensor:
        """The mean over rows, and over the numbers of a target."""
        found = prediction_rows(step)
        scale = self.scale.to(found.outputs).unsqueeze(-2)  # (1, t), or (g, 1, t) of runs
        return focal_r(
            found.outputs, found.targets, self.beta / scale, self.gamma, mask=found.mask, weight=found.weight
        )

    def extra_repr(self) -> str:
        """The options."""
        return f"beta={self.beta}, gamma={self.gamma}"
