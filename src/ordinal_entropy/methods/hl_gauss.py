"""HL-Gauss: cross-entropy at a histogram of a normal distribution around each target, in place of the task loss."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Method, Range, Step
from ordinal_entropy.methods.rows import output_rows

_PREDICT = ("mean", "median", "mode")
_PADDING = 3.0  # sigmas on both sides of the range


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
        >>> method.low, method.width  # four widths for the range, three on both sides
        (tensor([-3.], dtype=torch.float64), tensor([1.], dtype=torch.float64))
        >>> logits = torch.zeros(1, 10)
        >>> method.decode(logits), method.task_loss(Step(Batch(None, torch.ones(1, 1)), torch.eye(1), logits, None))
        (tensor([[2.]]), tensor(2.3026))
    """

    kind = "head"
    tunable: ClassVar[Mapping[str, Range]] = {
        "bins": Range(50, 200, log=True, whole=True, limits=(50, 1000)),
        "sigma": Range(0.5, 6.0, log=True, limits=(0.1, 8.0)),
    }
    maps = True
    low: Tensor
    width: Tensor

    def __init__(
        self,
        bins: int = 100,
        sigma: float = 2.0,
        predict: str = "mean",
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        super().__init__()
        if isinstance(bins, bool) or not isinstance(bins, int):
            raise ValueError(f"expected bins to be a whole number, got {bins!r}")
        if not 0 < sigma < math.inf:
            raise ValueError(f"expected sigma to be a positive number, got {sigma}")
        if not bins > 2 * _PADDING * sigma:
            raise ValueError(
                f"expected more than {2 * _PADDING * sigma:g} bins for a range with 3 sigma of {sigma:g} bins beyond "
                f"it on both sides, got {bins}"
            )
        if predict not in _PREDICT:
            raise ValueError(f"expected predict to be one of {', '.join(_PREDICT)}, got {predict!r}")
        if low is not None and high is not None and not (low < high and math.isfinite(high - low)):
            raise ValueError(f"expected finite low < high, got low={low}, high={high}")
        self.bins, self.sigma, self.predict = bins, float(sigma), predict
        self._given = (low, high)
        for name in ("low", "width"):  # (t,), of the first bin and of each; empty before `prepare`
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64))
        if low is not None and high is not None:
            self._set_range(torch.tensor([low], dtype=torch.float64), torch.tensor([high], dtype=torch.float64))

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the range of each number of the training targets, where none was given."""
        numbers = targets.flatten(1).double()
        if not (len(numbers) and bool(numbers.isfinite().all())):
            raise ValueError(f"expected finite training targets, at least one, got {tuple(targets.shape)}")
        low, high = self._given
        smallest = numbers.amin(0) if low is None else torch.full_like(numbers[0], low)
        largest = numbers.amax(0) if high is None else torch.full_like(numbers[0], high)
        if not bool((smallest <= largest).all()):
            raise ValueError(
                f"expected low <= high, got low={float(smallest.max())} and high={float(largest.min())}, of which one "
                "was given and the other is a training target"
            )
        self._set_range(smallest, largest)

    def _set_range(self, low: Tensor, high: Tensor) -> None:
        """A range without a length has a bin as wide as its number is large around it."""
        span = high - low
        own = torch.where(low == 0, 1.0, low.abs())
        low, span = torch.where(span > 0, low, low - own / 2), torch.where(span > 0, span, own)
        self.width = (span / (self.bins - 2 * _PADDING * self.sigma)).to(self.width)
        self.low = (low - _PADDING * self.sigma * self.width.to(low)).to(self.low)

    def _numbers(self) -> int:
        """``t``, known after `prepare`."""
        if not len(self.low):
            raise ValueError("expected prepare(targets) before the first step, which sets the range of the bins")
        return len(self.low)

    def outputs(self, t: int) -> int:
        """One logit for each bin of each number."""
        return t * self.bins

    def task_loss(self, step: Step) -> Tensor:
        """The mean cross-entropy over rows, and over the numbers of a target; float32 for half precision."""
        t = self._numbers()
        found = output_rows(step, t * self.bins, t)
        places = (found.targets.to(self.low.dtype) - self.low) / self.width  # in widths from the first edge
        edges = torch.arange(self.bins + 1, device=places.device)
        likely = hl_gauss(places, edges, self.sigma).to(found.outputs)  # (g, n, t, bins)
        losses = -(likely * found.outputs.unflatten(-1, (t, self.bins)).log_softmax(-1)).sum(-1)
        return found.mean(losses.mean(-1))

    def decode(self, outputs: Tensor) -> Tensor:
        """The predictions ``(n, t)``, ``(b, n, t)`` or ``(b, t, h, w)``; NaN where a logit is."""
        t = self._numbers()
        along = 1 if outputs.dim() == 4 else -1
        if outputs.dim() not in (2, 3, 4) or outputs.shape[along] != t * self.bins:
            raise ValueError(f"expected outputs with {t * self.bins} logits a row, got {tuple(outputs.shape)}")
        values = outputs if outputs.dtype == torch.float64 else outputs.float()
        likely = values.movedim(along, -1).unflatten(-1, (t, self.bins)).softmax(-1)
        places = {"mean": _mean, "median": _median, "mode": _mode}[self.predict](likely)  # (..., t)
        return (self.low + self.width * places).to(values.dtype).movedim(-1, along)

    def extra_repr(self) -> str:
        """The bins and what a prediction is."""
        return f"bins={self.bins}, sigma={self.sigma:g}, predict={self.predict!r}"


def _mean(likely: Tensor) -> Tensor:
    """Of histograms ``(..., bins)``, in widths from the first edge."""
    return (likely * (torch.arange(likely.shape[-1], device=likely.device) + 0.5)).sum(-1)


def _median(likely: Tensor) -> Tensor:
    """Likewise; a bin's mass is spread evenly in it."""
    until = likely.cumsum(-1)
    index = (until < 0.5).sum(-1, keepdim=True).clamp(max=likely.shape[-1] - 1)
    own = likely.gather(-1, index)
    return (index + (0.5 - until.gather(-1, index) + own) / own)[..., 0]


def _mode(likely: Tensor) -> Tensor:
    """Likewise, the middle of the likeliest bin."""
    largest, index = likely.max(-1)
    return torch.where(largest.isnan(), largest, index + 0.5)
