"""CORN: each of ordered levels asks, of the targets that are above the one before, which are above it too."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy.methods.contract import Method, Range, Step
from ordinal_entropy.methods.thresholds import Levels, binary_losses


def corn(logits: Tensor, index: Tensor) -> Tensor:
    """The binary cross-entropies of the conditional tasks, each of the rows it is asked of; their mean over all.

    Args:
        logits: ``(..., k)``, of ``P(y > level | y > the level before)`` for the first ``k`` of ``k + 1`` levels.
        index: of the level of each row ``(...)``, 0 to ``k``.

    Returns:
        Scalar; of no rows, a zero that is part of the graph.

    Example:
        >>> corn(torch.tensor([[9.0, 0.0], [-9.0, -9.0]]), torch.tensor([1, 0]))  # the last one is not asked
        tensor(0.2311)
    """
    asked = _asked(logits, index)
    return torch.where(asked, binary_losses(logits, index), 0).sum() / asked.sum().clamp(min=1)


def _asked(logits: Tensor, index: Tensor) -> Tensor:
    """Whether each row is above the level before a threshold ``(..., k)``; all are above the one before the first."""
    return index[..., None] >= torch.arange(logits.shape[-1], device=logits.device)


def _above(logits: Tensor) -> Tensor:
    """The probabilities of being above each level, products of the conditional ones."""
    return F.logsigmoid(logits).cumsum(-1).exp()


class CORN(Method):
    """Conditional binary tasks, above each level where above the one before, in place of the task loss (CORN).

    The levels are the distinct training targets, or uniform ones over their range where there are more than bins. A
    logit is an output of the head plus that of the share of the training targets above the level before that are above
    the level too, so that predictions start near the mean of the training targets.

    Args:
        bins: how many levels a number, at most; the head has a logit less.
        predict: a prediction is the "mean" over the levels, by the sum of the probabilities, or their "median", by the
            number of probabilities above 0.5.
        low: what smaller targets count as, and the first of uniform levels, in place of the smallest training target.
        high: what larger ones count as, and the last of uniform levels, likewise.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> method = CORN(bins=3)
        >>> method.prepare(torch.tensor([[0.0], [1.0], [4.0]]))  # a row has 5 / 3 tasks
        >>> logits = torch.tensor([[9.0, 0.0]])
        >>> method.decode(logits), method.task_loss(Step(Batch(None, torch.ones(1, 1)), torch.eye(1), logits, None))
        (tensor([[2.4998]]), tensor(0.4159))
    """

    kind = "head"
    tunable: ClassVar[Mapping[str, Range]] = {
        "bins": Range(10, 200, log=True, whole=True, limits=(2, 2000)),
    }
    paper = (
        "Shi, Cao and Raschka, Deep Neural Networks for Rank-Consistent Ordinal Regression Based on Conditional "
        "Probabilities, Pattern Analysis and Applications 2023"
    )
    maps = True
    over_groups: ClassVar[bool] = True

    def __init__(
        self, bins: int = 100, predict: str = "mean", low: float | None = None, high: float | None = None
    ) -> None:
        super().__init__()
        self.levels = Levels(bins, predict=predict, low=low, high=high, conditional=True)

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the levels from the training targets."""
        self.notes = self.levels.prepare(targets)

    def outputs(self, t: int) -> int:
        """One logit for each threshold of each number."""
        return self.levels.outputs(t)

    def task_loss(self, step: Step) -> Tensor:
        """The mean over rows, and over the numbers of a target; float32 for half precision.

        A row has the sum of its tasks, divided by how many the training targets have on average. Of all training rows
        that is :func:`corn`, and of any batch a mean over its rows, which may be split and weighted.
        """
        found = self.levels.read(step)
        asked = _asked(found.logits, found.rank)
        losses = found.sum(torch.where(asked, binary_losses(found.logits, found.rank), 0))
        return found.mean(losses / self._tasks().unsqueeze(-2).to(losses))

    def _tasks(self) -> Tensor:
        """How many the training targets have on average ``(..., t)``: the first, and those above each but the last."""
        more = self.levels.values.diff()[..., 1:] > 0
        return 1 + torch.where(more, self.levels.share[..., :-1], 0).sum(-1)

    def decode(self, outputs: Tensor) -> Tensor:
        """The predictions ``(n, t)``, ``(b, n, t)`` or ``(b, t, h, w)``; NaN where a logit is."""
        return self.levels.decode(outputs, _above)
