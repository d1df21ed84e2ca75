"""HL-Gauss: cross-entropy at a histogram of a normal distribution around each target, in place of the task loss."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordinal_entropy.methods.bins import Bins, positive
from ordinal_entropy.methods.contract import Method, Range, Step


def hl_gauss(targets: Tensor, edges: Tensor, sigma: float | Tensor) -> Tensor:
    """Probabilities of the bins: the mass that a normal distribution around each target has in them, renormalised.

    Args:
        targets: any shape; one beyond the outermost edges counts as the nearest of them.
        edges: ``(bins + 1,)``, ascending; or ``(..., bins + 1)``, whose first dimensions are broadcast against those of
            the targets.
        sigma: standard deviation, in the unit of the targets; a tensor is broadcast against them.

    Returns:
        ``(..., bins)``, of at least float32; NaN of a NaN target. Computed in float64: the mass far from the target
        has its relative precision, and any sigma gives a distribution.

    Example:
        >>> hl_gauss(torch.tensor([0.5, 2.0]), torch.arange(4.0), sigma=1.0)
        tensor([[0.5588, 0.3528, 0.0884],
                [0.1660, 0.4170, 0.4170]])
    """
    dtype = torch.promote_types(targets.dtype, torch.float32)
    inside = dtype if targets.device.type == "mps" else torch.float64
    edges = edges.to(inside)
    centers = targets.to(inside)[..., None].clamp(edges[..., :1], edges[..., -1:])
    if isinstance(sigma, Tensor):
        sigma = sigma.to(inside)[..., None]
    away = (edges - centers) / (sigma * math.sqrt(2.0))  # (..., bins + 1)
    left, right = away[..., :-1], away[..., 1:]
    below = left + right < 0  # mirrored, so that what is subtracted is small
    near, far = torch.where(below, -right, left), torch.where(below, -left, right)
    mass = torch.where(near < 0.5, torch.erf(far) - torch.erf(near), torch.erfc(near) - torch.erfc(far))
    return (mass / mass.sum(-1, keepdim=True)).to(dtype)


class HLGauss(Method):
    """Cross-entropy on bins at a Gaussian around each target, in place of the task loss (HL-Gauss).

    The range of the training targets, with three sigmas beyond it on both sides, is cut into bins of one width. Each
    number of a target has a histogram of its own.

    Args:
        bins: how many a number, more than ``6 * sigma``.
        sigma: standard deviation around each target, in widths of a bin.
        predict: a prediction is the "mean", the "median" or the "mode" of the histogram that the network gives.
        low: the smallest target, in place of that of the training targets.
        high: the largest one, likewise.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> method = HLGauss(bins=10, sigma=1.0)
        >>> method.prepare(torch.tensor([[0.0], [4.0]]))
        >>> method.bins.low, method.bins.width  # four widths for the range, three on both sides
        (tensor([-3.], dtype=torch.float64), tensor([1.], dtype=torch.float64))
        >>> logits = torch.zeros(1, 10)
        >>> method.decode(logits), method.task_loss(Step(Batch(None, torch.ones(1, 1)), torch.eye(1), logits, None))
        (tensor([[2.]]), tensor(2.3026))
    """

    kind = "head"
    paper = "Imani and White, Improving Regression Performance with Distributional Losses, ICML 2018"
    tunable: ClassVar[Mapping[str, Range]] = {
        "bins": Range(50, 200, log=True, whole=True, limits=(50, 1000)),
        "sigma": Range(0.5, 6.0, log=True, limits=(0.1, 8.0)),
    }
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
        """The mean cross-entropy over rows, and over the numbers of a target; float32 for half precision."""
        found = self.bins.read(step)
        edges = torch.arange(self.bins.count + 1, device=found.places.device)
        return found.mean(found.cross_entropy(hl_gauss(found.places, edges, self.sigma)))

    def decode(self, outputs: Tensor) -> Tensor:
        """The predictions ``(n, t)``, ``(b, n, t)`` or ``(b, t, h, w)``; NaN where a logit is."""
        return self.bins.decode(outputs)

    def extra_repr(self) -> str:
        """The width of the Gaussian."""
        return f"sigma={self.sigma}"
