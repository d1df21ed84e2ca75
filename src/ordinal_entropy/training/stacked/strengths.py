"""Strengths of the diversity and the tightness of many runs, fixed or gradient-balanced, constant or annealed."""

from collections.abc import Sequence

import torch
from torch import Tensor

from ordinal_entropy import balance
from ordinal_entropy.methods import Composition
from ordinal_entropy.methods.annealing import annealed
from ordinal_entropy.methods.ordinal_entropy import Regularizer

TERMS = 2  # diversity and tightness
_NAMES = "diversity_strength", "tightness_strength"  # in logs


class Strengths:
    """One of each term and run.

    Args:
        methods: of the runs; None of one without a regularizer that is computed for many runs.
        like: has the dtype and the device.
    """

    def __init__(self, methods: Sequence[Composition | None], like: Tensor) -> None:
        each = [_strengths_of(method) for method in methods]
        self.weights = like.new_tensor(
            [weights for weights, _ in each]
        ).mT.contiguous()  # (2, r), or parts in a balance
        self.fractions = like.new_tensor([fraction for _, fraction in each])  # (r,), 0: strengths are fixed
        self.balanced = any(fraction > 0 for _, fraction in each)
        shares = [0.0 if method is None else sum(method.anneals.values()) for method in methods]  # of one part each
        self.anneals = like.new_tensor(shares)  # (r,)
        self.annealed = any(share > 0 for share in shares)
        self.progress = like.new_zeros(())  # of the training, from 0 in its first step to 1 in its last
        self.squares = like.new_zeros(1 + TERMS, len(each))  # running sums of squared gradients, the task loss's first
        self.steps = like.new_zeros(len(each))  # in those sums

    def observe(self, now: Tensor, rounding: Tensor) -> None:
        """Moves the running sums.

        Args:
            now: ``(3, r)``, squared norms of the gradients at the features, the task loss's first.
            rounding: ``(2, r)``, what those of the terms may be by rounding alone.
        """
        squares, steps = balance.moved(self.squares, self.steps, now, balance.DECAY, rounding)
        self.squares.copy_(squares)
        self.steps.copy_(steps)

    def at(self, step: Tensor, steps: int) -> None:
        """Told before each step, counted from 0, of how many there are; looks at no value on the host."""
        if self.annealed:
            self.progress.copy_((step.to(self.progress.dtype) / max(steps - 1, 1)).clamp(max=1))

    def now(self) -> Tensor:
        """``(2, r)``."""
        found = self.weights
        if self.balanced:
            own = balance.strengths(self.squares, self.steps, self.fractions, balance.WARM_UP)
            found = found * torch.where(self.fractions > 0, own, 1)
        return found * annealed(self.progress, self.anneals) if self.annealed else found

    def of_run(self, run: int) -> dict[str, float]:
        """What gradient-balanced strengths have come to, by their names in logs; none of fixed ones."""
        if not self.fractions[run] > 0:
            return {}
        return dict(zip(_NAMES, self.now()[:, run].tolist(), strict=True))


def _strengths_of(method: Composition | None) -> tuple[list[float], float]:
    """Strengths, or their parts in a balance, and the fraction of the task loss's gradient, 0 of fixed strengths."""
    if method is None:
        return [0.0] * TERMS, 0.0
    ((name, part),) = method.parts.items()
    assert isinstance(part, Regularizer)
    if name in method.balances:
        own = method.balances[name]
        assert isinstance(own, balance.Balance)
        return list(part.term_weights().values()), own.fraction
    return [method.strengths[name] * weight for weight in part.term_weights().values()], 0.0
