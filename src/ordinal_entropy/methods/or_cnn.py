"""OR-CNN: an independent binary task for each of ordered levels, whether the target is above it."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Method, Range, Step
from ordinal_entropy.methods.thresholds import Levels, binary_losses


def or_cnn(logits: Tensor, index: Tensor) -> Tensor:
    """The binary cross-entropies of all thresholds, summed; their mean over the rows.

    Args:
        logits: ``(..., k)``, of ``P(y > level)`` for the first ``k`` of ``k + 1`` levels.
        index: of the level of each row ``(...)``, 0 to ``k``.

    Returns:
        Scalar; of no rows, a zero that is part of the graph.

    Example:
        >>> or_cnn(torch.tensor([[9.0, 0.0], [-9.0, -9.0]]), torch.tensor([1, 0]))
        tensor(0.3468)
    """
    return binary_losses(logits, index).sum() / max(index.numel(), 1)


class ORCNN(Method):
    """Independent binary tasks, whether a target is above each level, in place of the task loss (OR-CNN).

    The levels are the distinct training targets, or uniform ones over their range where there are more than bins. A
    logit is an output of the head plus that of the share of the training targets above the level, so that predictions
    start near the mean of the training targets.

    Args:
        bins: how many levels a number, at most; the head has a logit less.
        predict: a prediction is the "mean" over the levels, by the sum of the probabilities, or their "median", by the
            number of probabilities above 0.5.
        low: what smaller targets count as, and the first of uniform levels, in place of the smallest training target.
        high: what larger ones count as, and the last of uniform levels, likewise.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> method = ORCNN(bins=3)
        >>> method.prepare(torch.tensor([[0.0], [1.0], [4.0]]))
        >>> logits = torch.tensor([[9.0, 0.0]])
        >>> method.decode(logits), method.task_loss(Step(Batch(None, torch.ones(1, 1)), torch.eye(1), logits, None))
        (tensor([[1.9999]]), tensor(0.4055))
    """

    kind = "head"
    tunable: ClassVar[Mapping[str, Range]] = {
        "bins": Range(10, 200, log=True, whole=True, limits=(2, 2000)),
    }
    paper = "Niu, Zhou, Wang, Gao and Hua, Ordinal Regression with Multiple Output CNN for Age Estimation, CVPR 2016"
    maps = True
    over_groups: ClassVar[bool] = True

    def __init__(
        self, bins: int = 100, predict: str = "mean", low: float | None = None, high: float | None = None
    ) -> None:
        super().__init__()
        self.levels = Levels(bins, predict=predict, low=low, high=high)

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the levels from the training targets."""
        self.notes = self.levels.prepare(targets)

    def outputs(self, t: int) -> int:
        """One logit for each threshold of each number."""
        return self.levels.outputs(t)

    def task_loss(self, step: Step) -> Tensor:
        """The mean over rows, and over the numbers of a target; float32 for half precision."""
        found = self.levels.read(step)
        return found.mean(found.sum(binary_losses(found.logits, found.rank)))

    def decode(self, outputs: Tensor) -> Tensor:
        """The predictions ``(n, t)``, ``(b, n, t)`` or ``(b, t, h, w)``; NaN where a logit is."""
        return self.levels.decode(outputs, torch.sigmoid)
