"""Label distribution learning with the error of the expectation beside it (DLDL-v2)."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from ordinal_entropy.methods.bins import Bins, mean, not_negative, positive
from ordinal_entropy.methods.contract import Method, Range, Step
from ordinal_entropy.methods.dldl import dldl


class DLDLv2(Method):
    """DLDL and the absolute error of the expectation, in place of the task loss (DLDL-v2).

    Bins and labels are those of DLDL. The error is counted in widths of a bin, as the published one is in years.

    Args:
        bins: how many a number, more than ``6 * sigma``.
        sigma: standard deviation around each target, in widths of a bin.
        mean_weight: of the absolute error of the expectation, in widths of a bin.
        predict: a prediction is the "mean", the "median" or the "mode" of the histogram that the network gives.
        low: the smallest target, in place of that of the training targets.
        high: the largest one, likewise.

    Example:
        >>> import torch
        >>> from ordinal_entropy.methods import Batch
        >>> step = Step(Batch(None, torch.ones(1, 1)), torch.eye(1), torch.zeros(1, 10), None)
        >>> method = DLDLv2(bins=10, sigma=1.0)
        >>> method.prepare(torch.tensor([[0.0], [4.0]]))
        >>> method.task_loss(step)  # log(10), and a width of a bin between the expectation and the target
        tensor(3.3026)
    """

    kind = "head"
    tunable: ClassVar[Mapping[str, Range]] = {
        "sigma": Range(0.5, 6.0, log=True, limits=(0.1, 8.0)),
        "mean_weight": Range(0.1, 10.0, log=True),
    }
    paper = "Gao, Zhou, Wu and Geng, Age Estimation Using Expectation of Label Distribution Learning, IJCAI 2018"
    maps = True
    over_groups: ClassVar[bool] = True

    def __init__(
        self,
        bins: int = 100,
        sigma: float = 2.0,
        mean_weight: float = 1.0,
        predict: str = "mean",
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        super().__init__()
        self.sigma, self.mean_weight = positive("sigma", sigma), not_negative("mean_weight", mean_weight)
        self.bins = Bins(bins, padding=3 * self.sigma, predict=predict, low=low, high=high)

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the range of each number of the training targets, where none was given."""
        self.bins.prepare(targets)

    def outputs(self, t: int) -> int:
        """One logit for each bin of each number."""
        return self.bins.outputs(t)

    def task_loss(self, step: Step) -> Tensor:
        """The mean over rows, and over the numbers of a target; float32 for half precision."""
        found = self.bins.read(step)
        errors = (mean(found.log_p.exp()) - found.places).abs()
        labels = dldl(found.places, found.centers, self.sigma)
        return found.mean(found.cross_entropy(labels) + self.mean_weight * errors)

    def decode(self, outputs: Tensor) -> Tensor:
        """The predictions ``(n, t)``, ``(b, n, t)`` or ``(b, t, h, w)``; NaN where a logit is."""
        return self.bins.decode(outputs)

    def extra_repr(self) -> str:
        """The width of the Gaussian, and the weight of the error."""
        return f"sigma={self.sigma}, mean_weight={self.mean_weight}"
