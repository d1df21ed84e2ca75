"""Soft labels for ordinal regression (SORD): cross-entropy at a softmax of minus the distances from each target."""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from ordinal_entropy.methods.bins import Bins, distances, positive
from ordinal_entropy.methods.contract import Method, Range, Step


def sord(targets: Tensor, centers: Tensor, scale: float | Tensor) -> Tensor:
    """Probabilities of the bins in proportion to ``exp(-|center - target| / scale)``.

    Args:
        targets: any shape.
        centers: ``(bins,)``; or ``(..., bins)``, whose first dimensions are broadcast against those of the targets.
        scale: in the unit of the targets; a tensor is broadcast against them.

    Returns:
        ``(..., bins)``, of at least float32; NaN of a NaN target. Any scale gives a distribution.

    Example:
        >>> import torch
        >>> sord(torch.tensor([0.5, 2.0]), torch.tensor([0.5, 1.5, 2.5]), scale=1.0)
        tensor([[0.6652, 0.2447, 0.0900],
                [0.1554, 0.4223, 0.4223]])
    """
    away, near = distances(targets, centers)
    if isinstance(scale, Tensor):
        scale = scale.to(away)[..., None]
    return (-(away - near) / scale).softmax(-1)


class SORD(Method):
    """Cross-entropy on bins at a softmax of minus the distances from each target, in place of the task loss (SORD).

    The range of the training targets, with three scales beyond it on both sides, is cut into bins of one width. Each
    number of a target has a histogram of its own.

    Args:
        bins: how many a number, more than ``6 * scale``.
        scale: the distance at which a label is smaller by a factor of e, in widths of a bin.
        predict: a prediction is the "mean", the "median" or the "mode" of the histogram that the network gives.
        low: the smallest target, in place of that of the training targets.
        high: the largest one, likewise.

    Example:
        >>> import torch
        >>> from ordinal_entropy.methods import Batch
        >>> method = SORD(bins=10)
        >>> method.prepare(torch.tensor([[0.0], [4.0]]))
        >>> step = Step(Batch(None, torch.ones(1, 1)), torch.eye(1), -torch.arange(10.0)[None], None)
        >>> method.task_loss(step)
        tensor(3.9968)
    """

    kind = "head"
    tunable: ClassVar[Mapping[str, Range]] = {
        "scale": Range(0.25, 6.0, log=True, limits=(0.1, 8.0)),
    }
    paper = "Díaz and Marathe, Soft Labels for Ordinal Regression, CVPR 2019"
    maps = True
    over_groups: ClassVar[bool] = True

    def __init__(
        self,
        bins: int = 100,
        scale: float = 1.0,
        predict: str = "mean",
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        super().__init__()
        self.scale = positive("scale", scale)
        self.bins = Bins(bins, padding=3 * self.scale, predict=predict, low=low, high=high)

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the range of each number of the training targets, where none was given."""
        self.bins.prepare(targets)

    def outputs(self, t: int) -> int:
        """One logit for each bin of each number."""
        return self.bins.outputs(t)

    def task_loss(self, step: Step) -> Tensor:
        """The mean over rows, and over the numbers of a target; float32 for half precision."""
        found = self.bins.read(step)
        return found.mean(found.cross_entropy(sord(found.places, found.centers, self.scale)))

    def decode(self, outputs: Tensor) -> Tensor:
        """The predictions ``(n, t)``, ``(b, n, t)`` or ``(b, t, h, w)``; NaN where a logit is."""
        return self.bins.decode(outputs)

    def extra_repr(self) -> str:
        """The scale of the distances."""
        return f"scale={self.scale}"
