"""Cross-entropy on bins with the expectation as prediction, in place of the task loss."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from ordinal_entropy.methods.bins import Bins
from ordinal_entropy.methods.contract import Method, Range, Step


class CrossEntropy(Method):
    """Cross-entropy at the bin of each target, the expectation as prediction, in place of the task loss.

    The centers of the bins go from the smallest training target to the largest one. Each number of a target has a
    histogram of its own. The method "classification" differs: its edges go that far, it predicts the likeliest bin,
    and it takes one number a target.

    Args:
        bins: how many a number.
        predict: a prediction is the "mean", the "median" or the "mode" of the histogram that the network gives.
        low: the smallest target, in place of that of the training targets.
        high: the largest one, likewise.

    Example:
        >>> import torch
        >>> from ordinal_entropy.methods import Batch
        >>> method = CrossEntropy(bins=5)
        >>> method.prepare(torch.tensor([[0.0], [4.0]]))
        >>> logits = torch.tensor([[0.0, 0.0, 0.0, 9.0, 9.0]])
        >>> method.decode(logits)
        tensor([[3.4995]])
        >>> method.task_loss(Step(Batch(None, torch.tensor([[4.0]])), torch.eye(1), logits, None))
        tensor(0.6933)
    """

    kind = "head"
    tunable: ClassVar[Mapping[str, Range]] = {
        "bins": Range(10, 200, log=True, whole=True, limits=(2, 2000)),
    }
    paper = (
        "Rothe, Timofte and Van Gool, Deep Expectation of Real and Apparent Age from a Single Image without Facial "
        "Landmarks, IJCV 2018"
    )
    maps = True
    over_groups: ClassVar[bool] = True

    def __init__(
        self, bins: int = 100, predict: str = "mean", low: float | None = None, high: float | None = None
    ) -> None:
        super().__init__()
        self.bins = Bins(bins, padding=0.5, predict=predict, low=low, high=high)

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the range of each number of the training targets, where none was given."""
        self.bins.prepare(targets)

    def outputs(self, t: int) -> int:
        """One logit for each bin of each number."""
        return self.bins.outputs(t)

    def task_loss(self, step: Step) -> Tensor:
        """The mean over rows, and over the numbers of a target; float32 for half precision."""
        found = self.bins.read(step)
        return found.mean(found.cross_entropy_at_index())

    def decode(self, outputs: Tensor) -> Tensor:
        """The predictions ``(n, t)``, ``(b, n, t)`` or ``(b, t, h, w)``; NaN where a logit is."""
        return self.bins.decode(outputs)
