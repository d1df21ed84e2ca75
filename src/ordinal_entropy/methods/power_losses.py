"""The absolute and the squared error of predictions, in place of the task's own loss."""

from collections.abc import Callable

import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Method, Step
from ordinal_entropy.methods.rows import prediction_rows


class L1(Method):
    """Mean absolute error in place of the task loss.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> step = Step(Batch(None, torch.zeros(2, 1)), torch.eye(2), torch.tensor([[1.0], [-3.0]]), None)
        >>> L1().task_loss(step)
        tensor(2.)
    """

    kind = "loss"
    maps = True
    over_groups = True

    def task_loss(self, step: Step) -> Tensor:
        """The mean over rows, and over the numbers of a target."""
        return _mean(step, torch.abs)


class L2(Method):
    """Mean squared error in place of the task loss.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> step = Step(Batch(None, torch.zeros(2, 1)), torch.eye(2), torch.tensor([[1.0], [-3.0]]), None)
        >>> L2().task_loss(step)
        tensor(5.)
    """

    kind = "loss"
    maps = True
    over_groups = True

    def task_loss(self, step: Step) -> Tensor:
        """The mean over rows, and over the numbers of a target."""
        return _mean(step, torch.square)


def _mean(step: Step, power: Callable[[Tensor], Tensor]) -> Tensor:
    found = prediction_rows(step)
    return found.mean(power(found.outputs - found.targets.to(found.outputs)).mean(-1))
