"""The mean-variance loss: cross-entropy on bins, the error of the expectation, and the variance around it."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from ordinal_entropy.methods.bins import Bins, not_negative
from ordinal_entropy.methods.contract import Method, Range, Step


def mean_variance(
    likely: Tensor, targets: Tensor, centers: Tensor, mean_weight: float = 0.2, variance_weight: float = 0.05
) -> Tensor:
    """What is added to the cross-entropy: half the squared error of the mean, and the variance, each times its weight.

    Args:
        likely: predicted probabilities of the bins ``(..., bins)``.
        targets: ``(...)``.
        centers: of the bins, ``(bins,)`` or ``(..., bins)``, in the unit of the targets.
        mean_weight: of half the squared error.
        variance_weight: of the variance.

    Returns:
        ``(...)``, in the squared unit of the targets.

    Example:
        >>> import torch
        >>> mean_variance(torch.tensor([0.5, 0.0, 0.5]), torch.tensor(2.0), torch.tensor([0.0, 1.0, 2.0]))
        tensor(0.1500)
    """
    mean = (likely * centers).sum(-1)
    variance = (likely * (centers - mean[..., None]).square()).sum(-1)
    return mean_weight * (mean - targets).square() / 2 + variance_weight * variance


class MeanVariance(Method):
    """Cross-entropy on bins, squared error of their mean and their variance, in place of the task loss.

    The centers of the bins go from the smallest training target to the largest one. Each number of a target has a
    histogram of its own. Error and variance are counted in widths of a bin, as the published ones are in years.

    Args:
        bins: how many a number.
        mean_weight: of half the squared error of the mean, in widths of a bin.
        variance_weight: of the variance, likewise.
        predict: a prediction is the "mean", the "median" or the "mode" of the histogram that the network gives.
        low: the smallest target, in place of that of the training targets.
        high: the largest one, likewise.

    Example:
        >>> import torch
        >>> from ordinal_entropy.methods import Batch
        >>> method = MeanVariance(bins=5)
        >>> method.prepare(torch.tensor([[0.0], [4.0]]))
        >>> step = Step(Batch(None, torch.ones(1, 1)), torch.eye(1), torch.zeros(1, 5), None)
        >>> method.task_loss(step)  # log(5) + 0.2 * 1 / 2 + 0.05 * 2
        tensor(1.8094)
    """

    kind = "head"
    tunable: ClassVar[Mapping[str, Range]] = {
        "mean_weight": Range(0.02, 2.0, log=True),
        "variance_weight": Range(0.005, 0.5, log=True),
    }
    paper = "Pan, Han, Shan and Chen, Mean-Variance Loss for Deep Age Estimation from a Face, CVPR 2018"
    maps = True
    over_groups: ClassVar[bool] = True

    def __init__(
        self,
        bins: int = 100,
        mean_weight: float = 0.2,
        variance_weight: float = 0.05,
        predict: str = "mean",
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        super().__init__()
        self.mean_weight = not_negative("mean_weight", mean_weight)
        self.variance_weight = not_negative("variance_weight", variance_weight)
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
        added = mean_variance(found.log_p.exp(), found.places, found.centers, self.mean_weight, self.variance_weight)
        return found.mean(found.cross_entropy_at_index() + added)

    def decode(self, outputs: Tensor) -> Tensor:
        """The predictions ``(n, t)``, ``(b, n, t)`` or ``(b, t, h, w)``; NaN where a logit is."""
        return self.bins.decode(outputs)

    def extra_repr(self) -> str:
        """The weights."""
        return f"mean_weight={self.mean_weight}, variance_weight={self.variance_weight}"
