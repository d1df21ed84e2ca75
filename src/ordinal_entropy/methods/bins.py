"""What heads on bins share: a histogram of each number of a target, of which the head gives the logits.

Inside, places are counted in widths of a bin from the first edge, so that no loss has the unit of the targets.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ordinal_entropy.methods.contract import Step, resize_buffers
from ordinal_entropy.methods.rows import OutputRows, output_rows

_PREDICT = ("mean", "median", "mode")
_TIE = 1e-3  # widths below an edge that still count as on it, so that rounding does not choose the bin


class Histograms(NamedTuple):
    """Predicted histograms beside targets; places are in widths of a bin from the first edge."""

    rows: OutputRows
    places: Tensor  # (g, n, t), of the targets; those beyond the bins are at their ends
    log_p: Tensor  # (g, n, t, bins), logarithms of the predicted probabilities

    @property
    def centers(self) -> Tensor:
        """Of the bins ``(bins,)``."""
        return centers(self.log_p)

    def cross_entropy_at_index(self) -> Tensor:
        """Of each number of a target ``(g, n, t)``, at its own bin; one on an edge is in the upper bin."""
        index = (self.places + _TIE).long().clamp(0, self.log_p.shape[-1] - 1)
        return -self.log_p.gather(-1, index[..., None])[..., 0]

    def cross_entropy(self, likely: Tensor) -> Tensor:
        """Of each number of a target ``(g, n, t)``, at probabilities of the bins ``(g, n, t, bins)``."""
        return -(likely * self.log_p).sum(-1)

    def mean(self, losses: Tensor) -> Tensor:
        """Of losses ``(g, n, t)``: over the numbers of a target, and over the rows."""
        return self.rows.mean(losses.mean(-1))


class Bins(nn.Module):
    """Bins of one width over the range of each number of a target, and predictions from logits on them.

    Args:
        count: how many a number.
        padding: widths of a bin beyond the range on both sides. With 0.5 the outermost centers are the smallest and
            the largest target.
        predict: a prediction is the "mean", the "median" or the "mode" of the histogram.
        low: the smallest target, in place of that of the training targets.
        high: the largest one, likewise.

    Example:
        >>> bins = Bins(5, padding=0.5)
        >>> bins.prepare(torch.tensor([[0.0], [4.0]]))
        >>> bins.decode(torch.tensor([[0.0, 0.0, 0.0, 9.0, 9.0]]))  # of the centers 0, 1, 2, 3, 4
        tensor([[3.4995]])
    """

    low: Tensor
    width: Tensor

    def __init__(
        self,
        count: int,
        *,
        padding: float,
        predict: str = "mean",
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        super().__init__()
        require_whole("bins", count)
        if not count > 2 * padding:
            raise ValueError(
                f"expected more than {2 * padding:g} bins for a range with {padding:g} of them beyond it on both "
                f"sides, got {count}"
            )
        require_one_of("predict", predict, _PREDICT)
        require_range(low, high)
        self.count, self.padding, self.predict = count, padding, predict
        self._given = (low, high)
        for name in ("low", "width"):  # (t,), of the first bin and of each; empty before `prepare`
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64))
        if low is not None and high is not None:
            self._set_range(torch.tensor([low], dtype=torch.float64), torch.tensor([high], dtype=torch.float64))

    def prepare(self, targets: Tensor) -> None:
        """Takes the range of each number of the training targets, where none was given."""
        numbers = training_numbers(targets)
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
        """A range without a length is the center of a bin, and the bins span as much as its number is large."""
        span = high - low
        alike = span == 0
        width = torch.where(alike, torch.where(low == 0, 1.0, low.abs()), span) / (self.count - 2 * self.padding)
        below = torch.where(alike, self.count // 2 + 0.5, torch.full_like(span, self.padding))
        self.low, self.width = (low - below * width).to(self.low), width.to(self.width)

    @property
    def t(self) -> int:
        """Numbers of a target, known after `prepare`."""
        if not self.low.numel():
            raise ValueError("expected prepare(targets) before the first step, which sets the range of the bins")
        return self.low.shape[-1]

    def outputs(self, t: int) -> int:
        """One logit for each bin of each number."""
        return t * self.count

    def read(self, step: Step) -> Histograms:
        """What the head gave beside the targets, of at least float32; buffers ``(g, t)`` are of groups each."""
        rows = output_rows(step, self.outputs(self.t), self.t)
        places = (rows.targets.to(self.low.dtype) - self.low.unsqueeze(-2)) / self.width.unsqueeze(-2)
        log_p = rows.outputs.unflatten(-1, (self.t, self.count)).log_softmax(-1)
        return Histograms(rows, places.clamp(0, self.count).to(log_p), log_p)

    def decode(self, outputs: Tensor) -> Tensor:
        """The predictions ``(n, t)``, ``(b, n, t)`` or ``(b, t, h, w)``; NaN where a logit is."""
        likely = logits_of(outputs, self.t, self.count).softmax(-1)
        places = {"mean": mean, "median": _median, "mode": _mode}[self.predict](likely)  # (..., t)
        found = (self.low.unsqueeze(-2) + self.width.unsqueeze(-2) * places).to(likely.dtype)
        return found.movedim(-1, 1) if outputs.dim() == 4 else found

    def extra_repr(self) -> str:
        """The bins and what a prediction is."""
        return f"{self.count}, padding={self.padding}, predict={self.predict!r}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        resize_buffers(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def centers(likely: Tensor) -> Tensor:
    """Of the bins of histograms ``(..., bins)``: 0.5, 1.5, ...

    Example:
        >>> centers(torch.zeros(7, 3))
        tensor([0.5000, 1.5000, 2.5000])
    """
    return torch.arange(likely.shape[-1], device=likely.device, dtype=likely.dtype) + 0.5


def distances(targets: Tensor, centers: Tensor) -> tuple[Tensor, Tensor]:
    """Of targets ``(...)`` from centers ``(..., bins)``, all of them and the smallest, of at least float32.

    Example:
        >>> distances(torch.tensor([0.5, 2.0]), torch.tensor([0.5, 1.5]))
        (tensor([[0.0000, 1.0000],
                [1.5000, 0.5000]]), tensor([[0.0000],
                [0.5000]]))
    """
    dtype = torch.promote_types(targets.dtype, torch.float32)
    away = (centers.to(dtype) - targets.to(dtype)[..., None]).abs()
    return away, away.amin(-1, keepdim=True)


def mean(likely: Tensor) -> Tensor:
    """Of histograms ``(..., bins)``, in widths from the first edge.

    Example:
        >>> mean(torch.tensor([0.5, 0.0, 0.5]))
        tensor(1.5000)
    """
    return (likely * centers(likely)).sum(-1)


def _median(likely: Tensor) -> Tensor:
    """Likewise; a bin's mass is spread evenly in it."""
    until = likely.cumsum(-1)
    index = (until < 0.5).sum(-1, keepdim=True).clamp(max=likely.shape[-1] - 1)
    own = likely.gather(-1, index)
    return (index + (0.5 - until.gather(-1, index) + own) / own)[..., 0]


def _mode(likely: Tensor) -> Tensor:
    """Likewise, the center of the likeliest bin."""
    largest, index = likely.max(-1)
    return torch.where(largest.isnan(), largest, index + 0.5)


def logits_of(outputs: Tensor, t: int, each: int) -> Tensor:
    """Logits ``(..., t, each)``, of at least float32, of outputs in any layout; those of maps come last.

    Example:
        >>> logits_of(torch.zeros(2, 6, 4, 5), t=2, each=3).shape
        torch.Size([2, 4, 5, 2, 3])
    """
    along = 1 if outputs.dim() == 4 else -1
    if outputs.dim() not in (2, 3, 4) or outputs.shape[along] != t * each:
        raise ValueError(f"expected outputs with {t * each} logits a row, got {tuple(outputs.shape)}")
    logits: Tensor = outputs.to(torch.promote_types(outputs.dtype, torch.float32)).movedim(along, -1)
    return logits.reshape(*logits.shape[:-1], t, each)


def training_numbers(targets: Tensor) -> Tensor:
    """Training targets ``(n, t)`` in float64; a ValueError where one is not finite, or there is none.

    Example:
        >>> training_numbers(torch.tensor([3, 4])).shape
        torch.Size([2, 1])
    """
    numbers = (targets[:, None] if targets.dim() == 1 else targets.flatten(1)).double()
    if not (len(numbers) and bool(numbers.isfinite().all())):
        raise ValueError(f"expected finite training targets, at least one, got {tuple(targets.shape)}")
    return numbers


def require_whole(name: str, value: object) -> None:
    """A ValueError where an option is no whole number."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"expected {name} to be a whole number, got {value!r}")


def require_one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    """A ValueError where an option is none of those known."""
    if value not in known:
        raise ValueError(f"expected {name} to be one of {', '.join(known)}, got {value!r}")


def require_range(low: float | None, high: float | None) -> None:
    """A ValueError where the two ends of a range are given and are none."""
    if low is not None and high is not None and not (low < high and math.isfinite(high - low)):
        raise ValueError(f"expected finite low < high, got low={low}, high={high}")


def positive(name: str, value: float) -> float:
    """An option; a ValueError where it is not a positive number.

    Example:
        >>> positive("sigma", 2)
        2.0
    """
    if not 0 < value < math.inf:
        raise ValueError(f"expected {name} to be a positive number, got {value}")
    return float(value)


def not_negative(name: str, value: float) -> float:
    """An option; a ValueError where it is not a number from 0 on.

    Example:
        >>> not_negative("mean_weight", 0)
        0.0
    """
    if not 0 <= value < math.inf:
        raise ValueError(f"expected {name} to be a number from 0 on, got {value}")
    return float(value)
