"""Regression as classification: cross-entropy on uniform bins of the target, in place of the task loss."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy.methods.contract import Method, Range, Step
from ordinal_entropy.methods.rows import output_rows

_POSITIONS = {"center": 0.5, "left": 0.0}  # where in its bin a prediction lies


def bin_index(targets: Tensor, low: float | Tensor, high: float | Tensor, bins: int) -> Tensor:
    """The bin of each target, 0 to ``bins - 1``; targets beyond the range fall into the outermost bins.

    Args:
        targets: any shape, finite.
        low: where the first bin begins; a tensor is broadcast against the targets.
        high: where the last bin ends; likewise.
        bins: how many there are, all of one width.

    Example:
        >>> bin_index(torch.tensor([-1.0, 0.0, 0.9, 1.0, 4.0]), 0.0, 4.0, bins=4)
        tensor([0, 0, 0, 1, 3])
    """
    place = ((targets - low) / (high - low) * bins).floor().clamp(0, bins - 1)
    return place.long().clamp(0, bins - 1)  # again, for a NaN: an index out of range would stop a GPU


def bin_value(index: Tensor, low: float | Tensor, high: float | Tensor, bins: int, position: str = "center") -> Tensor:
    """The number that stands for each bin: its "center" or its "left" edge.

    Args:
        index: of the bins, any shape; the values have its dtype if that is a floating one.
        low: where the first bin begins; a tensor is broadcast against the index.
        high: where the last bin ends; likewise.
        bins: how many there are.
        position: "center" or "left".

    Example:
        >>> bin_value(torch.tensor([0, 3]), 0.0, 4.0, bins=4)
        tensor([0.5000, 3.5000])
        >>> bin_value(torch.tensor([0, 3]), 0.0, 4.0, bins=4, position="left")
        tensor([0., 3.])
    """
    return low + (index + _POSITIONS[position]) * ((high - low) / bins)


class Classification(Method):
    """Cross-entropy of the model's outputs, one logit a bin, at the bin of each target; the mean over the rows.

    It stands in for the task loss. Targets are single numbers.

    Args:
        bins: how many, of one width.
        low: where the first bin begins: a number, or a tensor ``(b,)`` with one for each of the ``b`` groups of
            points ``(b, n, bins)`` or maps ``(b, bins, h, w)``.
        high: where the last bin ends, likewise.
        decode: a prediction is the "center" of the likeliest bin, or its "left" edge as in the authors' code.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> method = Classification(4, low=0.0, high=4.0)
        >>> logits = torch.tensor([[0.0, 3.0, 0.0, 0.0], [0.0, 0.0, 0.0, 3.0]])
        >>> method.task_loss(Step(Batch(None, torch.tensor([1.2, 3.9])), torch.eye(2), logits, None))
        tensor(0.1392)
        >>> method.decode(logits)
        tensor([[1.5000],
                [3.5000]])
    """

    kind = "head"
    paper = "Zhang, Yang, Mi, Zheng and Yao, Improving Deep Regression with Ordinal Entropy, ICLR 2023"
    tunable: ClassVar[Mapping[str, Range]] = {"bins": Range(10, 200, log=True, whole=True, limits=(2, 2000))}
    maps = True
    over_groups: ClassVar[bool] = True
    low: float | Tensor
    high: float | Tensor

    def __init__(
        self,
        bins: int = 100,
        low: float | Tensor | None = None,
        high: float | Tensor | None = None,
        decode: str = "center",
    ) -> None:
        super().__init__()
        if not (isinstance(bins, int) and bins >= 2):
            raise ValueError(f"expected bins to be a whole number of at least 2, got {bins!r}")
        if decode not in _POSITIONS:
            raise ValueError(f"expected decode to be one of {tuple(_POSITIONS)}, got {decode!r}")
        self.bins = bins
        self.position = decode
        self._given = low is not None and high is not None
        if (low is None) != (high is None):
            raise ValueError(f"expected both of low and high, or neither, got low={low!r}, high={high!r}")
        if low is None or high is None:
            for name in ("low", "high"):
                self.register_buffer(name, torch.full((), torch.nan, dtype=torch.float64))
            return
        edges = [torch.as_tensor(edge, dtype=torch.float64) for edge in (low, high)]
        if max(edge.dim() for edge in edges) > 1:
            raise ValueError(f"expected low and high as numbers or (b,), got {[tuple(edge.shape) for edge in edges]}")
        if not bool(((edges[0] < edges[1]) & torch.isfinite(edges[1] - edges[0])).all()):
            raise ValueError(f"expected finite low < high, got low={low!r}, high={high!r}")
        for name, edge in (("low", low), ("high", high)):
            if isinstance(edge, Tensor):  # moves with the module, but is no state
                self.register_buffer(name, edge, persistent=False)
            else:
                setattr(self, name, float(edge))

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the range of the training targets, where none was given; a single value has a bin of its own."""
        if self._given:
            return
        low, high = targets.min().double(), targets.max().double()
        self.low.fill_(low)  # type: ignore[union-attr]
        self.high.fill_(high if high > low else low + 1)  # type: ignore[union-attr]

    def task_loss(self, step: Step) -> Tensor:
        """The mean cross-entropy of logits ``(n, bins)``, ``(b, n, bins)`` or ``(b, bins, h, w)``.

        Returns:
            Scalar, float32 for half precision. No rows: a zero that is still part of the graph.
        """
        found = output_rows(step, self.bins)  # outputs (g, n, bins), targets (g, n, 1)
        index = bin_index(found.targets[..., 0], *self._range(found.targets, 2), self.bins)  # (g, n)
        losses = F.cross_entropy(found.outputs.flatten(0, 1), index.flatten(), reduction="none")
        return found.mean(losses.view(index.shape))

    def outputs(self, t: int) -> int:
        """How many numbers the model gives: one a bin, for targets of ``t=1``."""
        if t != 1:
            raise ValueError(f"expected targets of one number a row for classification, got t={t}")
        return self.bins

    def decode(self, outputs: Tensor) -> Tensor:
        """The predictions ``(n, 1)``, ``(b, n, 1)`` or ``(b, 1, h, w)``: the likeliest bin; NaN where a logit is."""
        if outputs.dim() not in (2, 3, 4):
            raise ValueError(f"expected outputs (n, bins), (b, n, bins) or (b, bins, h, w), got {tuple(outputs.shape)}")
        along = 1 if outputs.dim() == 4 else -1
        if outputs.shape[along] != self.bins:
            raise ValueError(f"expected outputs with {self.bins} logits a row, got {tuple(outputs.shape)}")
        values = outputs if outputs.dtype == torch.float64 else outputs.float()
        largest, index = values.max(along, keepdim=True)
        low, high = self._range(values, outputs.dim())
        return torch.where(largest.isnan(), largest, bin_value(index.to(values), low, high, self.bins, self.position))

    def _range(self, like: Tensor, dim: int) -> tuple[float | Tensor, float | Tensor]:
        """Low and high, broadcast against ``dim`` dimensions of which the first are groups."""
        low, high = (
            edge.to(like).reshape(-1, *[1] * (dim - 1)) if isinstance(edge, Tensor) else edge
            for edge in (self.low, self.high)
        )
        return low, high

    def extra_repr(self) -> str:
        """The bins and what a prediction is."""
        edges = [
            f"{len(edge)} values" if isinstance(edge, Tensor) and edge.dim() else f"{float(edge):g}"
            for edge in (self.low, self.high)
        ]
        return f"bins={self.bins}, low={edges[0]}, high={edges[1]}, decode={self.position!r}"
