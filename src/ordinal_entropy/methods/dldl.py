"""Label distribution learning: cross-entropy at a Gaussian around each target, sampled at the centers of bins."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from ordinal_entropy.methods.bins import Bins, distances, positive
from ordinal_entropy.methods.contract import Method, Range, Step


def dldl(targets: Tensor, centers: Tensor, sigma: float | Tensor) -> Tensor:
    """Probabilities of the bins in proportion to ``exp(-(center - target)^2 / (2 sigma^2))``.

    Args:
        targets: any shape.
        centers: ``(bins,)``; or ``(..., bins)``, whose first dimensions are broadcast against those of the targets.
        sigma: standard deviation, in the unit of the targets; a tensor is broadcast against them.

    Returns:
        ``(..., bins)``, of at least float32; NaN of a NaN target. Any sigma gives a distribution.

    Example:
        >>> import torch
        >>> dldl(torch.tensor([0.5, 2.0]), torch.tensor([0.5, 1.5, 2.5]), sigma=1.0)
        tensor([[0.5741, 0.3482, 0.0777],
                [0.1554, 0.4223, 0.4223]])
    """
    away, near = distances(targets, centers)
    if isinstance(sigma, Tensor):
        sigma = sigma.to(away)[..., None]
    # (away^2 - near^2) / sigma^2, without a square that is infinite of all of them
    return (-((away - near) / sigma) * ((away + near) / sigma).clamp(max=1e30) / 2).softmax(-1)


class DLDL(Method):
    """Cross-entropy on bins at a discretised Gaussian around each target, in place of the task loss (DLDL).

    The range of the training targets, with three sigmas beyond it on both sides, is cut into bins of one width. Each
    number of a target has a histogram of its own.

    Args:
        bins: how many a number, more than ``6 * sigma``.
        sigma: standard deviation around each target, in widths of a bin.
        predict: a prediction is the "mean", the "median" or the "mode" of the histogram that the network gives.
        low: the smallest target, in place of that of the training targets.
        high: the largest one, likewise.

    Example:
        >>> import torch
        >>> from ordinal_entropy.methods import Batch
        >>> method = DLDL(bins=10, sigma=1.0)
        >>> method.prepare(torch.tensor([[0.0], [4.0]]))
        >>> step = Step(Batch(None, torch.ones(1, 1)), torch.eye(1), -torch.arange(10.0)[None], None)
        >>> method.task_loss(step)  # labels around the fifth edge, at 4
        tensor(3.9587)
    """

    kind = "head"
    tunable: ClassVar[Mapping[str, Range]] = {
        "bins": Range(50, 200, log=True, whole=True, limits=(50, 1000)),
        "sigma": Range(0.5, 6.0, log=True, limits=(0.1, 8.0)),
    }
    paper = "Gao, Xing, Xie, Wu and Geng, Deep Label Distribution Learning with Label Ambiguity, IEEE TIP 2017"
    maps = True
    over_groups: ClassVar[bool] = True

    def __init__(
        self,
        bins: int = 100,
        sigma: float = 2.0,
        predict: str = "mean",
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        super().__init__()
        self.sigma = positive("sigma", sigma)
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
        return found.mean(found.cross_entropy(dldl(found.places, found.centers, self.sigma)))

    def decode(self, outputs: Tensor) -> Tensor:
        """The predictions ``(n, t)``, ``(b, n, t)`` or ``(b, t, h, w)``; NaN where a logit is."""
        return self.bins.decode(outputs)

    def extra_repr(self) -> str:
        """The width of the Gaussian."""
        return f"sigma={self.sigma}"
