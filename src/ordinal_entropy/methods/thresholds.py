"""What heads on ordered thresholds share: levels of each number of a target, and a logit for each step to the next one.

A target has a rank among the levels, and the binary tasks of the thresholds ask whether it is above the first, the
second, and so on. Ranks have no unit, and a prediction is the expectation over the levels. A logit is an output of the
head plus the logit of the base rate, so that a head that gives zeros predicts the mean of the training targets.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ordinal_entropy.methods.bins import logits_of, require_one_of, require_range, require_whole, training_numbers
from ordinal_entropy.methods.contract import Step, resize_buffers
from ordinal_entropy.methods.rows import OutputRows, output_rows

_PREDICT = ("mean", "median")
_HALF = 0.499  # of the way to the next level: the tie belongs to it, whatever the rounding


def binary_losses(logits: Tensor, index: Tensor) -> Tensor:
    """The binary cross-entropy of each threshold, at whether the level of a row is above it.

    Args:
        logits: ``(..., k)``, of the thresholds behind the first ``k`` levels.
        index: of the level of each row ``(...)``, 0 to ``k``.

    Returns:
        ``(..., k)``.

    Example:
        >>> binary_losses(torch.tensor([[0.0, 0.0, 2.0]]), torch.tensor([1]))
        tensor([[0.6931, 0.6931, 2.1269]])
    """
    above = index[..., None] > torch.arange(logits.shape[-1], device=logits.device)
    return F.binary_cross_entropy_with_logits(logits, above.to(logits.dtype), reduction="none")


class Ranks(NamedTuple):
    """Predicted logits beside ranks of the targets."""

    rows: OutputRows
    rank: Tensor  # (g, n, t), of each target among the levels
    logits: Tensor  # (g, n, t, k), of the thresholds: outputs of the head plus the base
    used: Tensor  # (1, t, k) or (g, 1, t, k): false where there are fewer levels than the head has logits for

    def sum(self, losses: Tensor) -> Tensor:
        """Over the thresholds in use, of losses ``(g, n, t, k)``."""
        return torch.where(self.used, losses, 0).sum(-1)

    def mean(self, losses: Tensor) -> Tensor:
        """Of losses ``(g, n, t)``: over the numbers of a target, and over the rows."""
        return self.rows.mean(losses.mean(-1))


class Levels(nn.Module):
    """Ordered levels of each number of a target: the distinct training targets, or where these are many, uniform ones.

    Args:
        count: how many a number, at most.
        predict: a prediction is the "mean" over the levels, or their "median": the level behind as many thresholds as
            have a probability above 0.5.
        low: what smaller targets count as, and the first of uniform levels, in place of the smallest training target.
        high: what larger ones count as, and the last of uniform levels, likewise.
        conditional: the logits are those of being above a level where above the one before.

    Example:
        >>> levels = Levels(4)
        >>> levels.prepare(torch.tensor([3.0, 1.0, 7.0, 1.0]))  # of which three are distinct
        ()
        >>> levels.values
        tensor([[1., 3., 7., 7.]], dtype=torch.float64)
        >>> levels.decode(torch.tensor([[0.0, 0.0, 0.0]]), torch.sigmoid)  # the mean of the training targets
        tensor([[3.]])
    """

    values: Tensor
    share: Tensor
    base: Tensor

    def __init__(
        self,
        count: int,
        *,
        predict: str = "mean",
        low: float | None = None,
        high: float | None = None,
        conditional: bool = False,
    ) -> None:
        super().__init__()
        require_whole("bins", count)
        if not count > 1:
            raise ValueError(f"expected at least 2 bins, got {count}")
        require_one_of("predict", predict, _PREDICT)
        require_range(low, high)
        self.count, self.predict, self.conditional = count, predict, conditional
        self._given = (low, high)
        # (t, count), ascending, the last one repeated where there are fewer; empty before `prepare`
        self.register_buffer("values", torch.zeros(0, dtype=torch.float64))
        # (t, count - 1), of the training targets that are above each level
        self.register_buffer("share", torch.zeros(0, dtype=torch.float64))
        # (t, count - 1), logits of the base rates, which are added to the outputs of the head
        self.register_buffer("base", torch.zeros(0, dtype=torch.float64))

    def prepare(self, targets: Tensor) -> tuple[str, ...]:
        """Takes the levels from the training targets; what a log is to say."""
        low, high = self._given
        numbers = training_numbers(targets).to(self.values)  # distinct ones are those of the type that levels have
        numbers = numbers if low is None and high is None else numbers.clamp(low, high)
        values, binned = [], False
        for number in numbers.T:
            distinct = number.unique()
            if len(distinct) > self.count:
                first = float(distinct[0] if low is None else low)
                last = float(distinct[-1] if high is None else high)
                distinct = torch.linspace(first, last, self.count, dtype=number.dtype, device=number.device)
                binned = True
            values.append(torch.cat([distinct, distinct[-1:].expand(self.count - len(distinct))]))
        self.values = torch.stack(values)
        shares = []
        for number, own in zip(numbers.T, self._cuts(), strict=True):
            counts = torch.bincount(torch.bucketize(number.contiguous(), own), minlength=self.count)
            shares.append(1 - counts.cumsum(0)[:-1].double() / len(number))
        share = torch.stack(shares)
        self.share, self.base = share.to(self.values), self._base_of(share).to(self.values)
        return (f"real targets are binned into {self.count} ordered levels",) if binned else ()

    def _base_of(self, share: Tensor) -> Tensor:
        """Logits of the base rates of the thresholds ``(t, k)``, of shares above each level; always finite.

        A rate is kept so far from 0 and 1 that the mean over the levels is off by half a level at most: conditional
        rates, of which up to ``count`` are multiplied, by as much further.
        """
        if not self.conditional:
            return torch.logit(share, eps=0.5 / self.count)
        before = F.pad(share[:, :-1], (1, 0), value=1.0)
        return torch.logit(torch.where(before > 0, share / before, 0.5), eps=0.5 / self.count**2)

    def _cuts(self) -> Tensor:
        """Above which a target is nearer to the next level ``(..., t, k)``; infinite where there is none."""
        gaps = self.values.diff()
        return torch.where(gaps > 0, self.values[..., :-1] + _HALF * gaps, torch.inf)

    @property
    def t(self) -> int:
        """Numbers of a target, known after `prepare`."""
        if not self.values.numel():
            raise ValueError("expected prepare(targets) before the first step, which sets the levels")
        return self.values.shape[-2]

    def outputs(self, t: int) -> int:
        """One logit for each threshold of each number."""
        return t * (self.count - 1)

    def read(self, step: Step) -> Ranks:
        """What the head gave beside the ranks of the targets; buffers ``(g, t, ...)`` are of groups each."""
        t = self.t
        rows = output_rows(step, self.outputs(t), t)
        targets = rows.targets.to(self.values.dtype)
        rank = (targets[..., None] > self._cuts().unsqueeze(-3)).sum(-1)
        logits = rows.outputs.unflatten(-1, (t, self.count - 1))
        return Ranks(rows, rank, self._from_base(logits), (self.values.diff() > 0).unsqueeze(-3))

    def _from_base(self, logits: Tensor) -> Tensor:
        """Of the thresholds ``(..., t, k)``, of what the head gives."""
        return logits + self.base.unsqueeze(-3).to(logits)

    def decode(self, outputs: Tensor, above: Callable[[Tensor], Tensor]) -> Tensor:
        """The predictions ``(n, t)``, ``(b, n, t)`` or ``(b, t, h, w)``; NaN where a logit is.

        Args:
            outputs: of the head.
            above: probabilities of being above each level ``(..., k)``, of their logits.
        """
        likely = above(self._from_base(logits_of(outputs, self.t, self.count - 1)))  # (..., t, k)
        values = self.values.unsqueeze(-3)
        gaps = values[..., 1:] - values[..., :-1]  # ONNX has no diff
        if self.predict == "mean":
            span = values[..., -1] - values[..., 0]
            parts = (gaps / torch.where(span > 0, span, 1)[..., None]).to(likely.dtype)
            found = values[..., 0] + span * (likely * parts).sum(-1)
        else:
            index = ((likely > 0.5) & (gaps > 0)).sum(-1, keepdim=True)
            found = values.expand(*likely.shape[:-1], self.count).gather(-1, index)[..., 0]
            found = torch.where(likely.isnan().any(-1), torch.nan, found)
        found = found.to(likely.dtype)
        return found.movedim(-1, 1) if outputs.dim() == 4 else found

    def extra_repr(self) -> str:
        """The levels and what a prediction is."""
        return f"{self.count}, predict={self.predict!r}"

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        resize_buffers(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
