"""CORAL: binary tasks of ordered levels that share their weights and differ in a bias, so that they never disagree."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ordinal_entropy.methods.contract import Method, Range, Step
from ordinal_entropy.methods.or_cnn import or_cnn
from ordinal_entropy.methods.thresholds import Levels, binary_losses


def coral(logits: Tensor, index: Tensor) -> Tensor:
    """The loss of CORAL: that of OR-CNN, of logits that are a score of the row plus a bias of the threshold.

    Args:
        logits: ``(..., k)``, of ``P(y > level)`` for the first ``k`` of ``k + 1`` levels.
        index: of the level of each row ``(...)``, 0 to ``k``.

    Returns:
        Scalar; of no rows, a zero that is part of the graph.

    Example:
        >>> score, biases = torch.tensor([[1.0], [-1.0]]), torch.tensor([1.0, -1.0])
        >>> coral(score + biases, torch.tensor([1, 0]))
        tensor(0.8201)
    """
    return or_cnn(logits, index)


class SharedWeights(nn.Module):
    """A score of each number of a target, and a bias of each of its thresholds.

    Args:
        width: of the features.
        t: numbers of a target.
        k: thresholds of each.

    Example:
        >>> SharedWeights(4, t=2, k=3)(torch.ones(5, 4)).shape
        torch.Size([5, 6])
    """

    def __init__(self, width: int, t: int, k: int) -> None:
        super().__init__()
        self.scores = nn.Linear(width, t, bias=False)
        self.biases = nn.Parameter(torch.zeros(t, k))

    def forward(self, features: Tensor) -> Tensor:
        """Logits ``(..., t * k)`` of features ``(..., width)``."""
        logits: Tensor = self.scores(features)[..., None] + self.biases
        return logits.flatten(-2)


class CORAL(Method):
    """Binary tasks, whether a target is above each level, of one score and a bias each, in place of head and loss.

    The levels are the distinct training targets, or uniform ones over their range where there are more than bins. A
    logit is an output of the head plus that of the share of the training targets above the level, so that predictions
    start near the mean of the training targets.

    Args:
        bins: how many levels a number, at most.
        predict: a prediction is the "mean" over the levels, by the sum of the probabilities, or their "median", by the
            number of probabilities above 0.5.
        low: what smaller targets count as, and the first of uniform levels, in place of the smallest training target.
        high: what larger ones count as, and the last of uniform levels, likewise.

    Example:
        >>> method = CORAL(bins=3)
        >>> method.prepare(torch.tensor([[0.0], [1.0], [4.0], [4.0]]))
        >>> head = method.head(2, t=1)
        >>> method.decode(head(torch.zeros(1, 2))).detach()  # shares of 0.75 above 0, and 0.5 above 1
        tensor([[2.2500]])
    """

    kind = "head"
    tunable: ClassVar[Mapping[str, Range]] = {
        "bins": Range(10, 200, log=True, whole=True, limits=(2, 2000)),
    }
    paper = (
        "Cao, Mirjalili and Raschka, Rank Consistent Ordinal Regression for Neural Networks with Application to Age "
        "Estimation, Pattern Recognition Letters 2020"
    )
    maps = True

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

    def head(self, width: int, t: int) -> nn.Module:
        """A score of each number, and biases that start at 0."""
        return SharedWeights(width, t, self.outputs(1))

    def task_loss(self, step: Step) -> Tensor:
        """The mean over rows, and over the numbers of a target; float32 for half precision."""
        found = self.levels.read(step)
        return found.mean(found.sum(binary_losses(found.logits, found.rank)))

    def decode(self, outputs: Tensor) -> Tensor:
        """The predictions ``(n, t)``, ``(b, n, t)`` or ``(b, t, h, w)``; NaN where a logit is."""
        return self.levels.decode(outputs, torch.sigmoid)
