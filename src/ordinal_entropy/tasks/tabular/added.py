"""What methods do in a stack: one call for runs that differ in strengths alone, run by run for all others.

Runs whose methods are a regularizer and nothing else differ in its strengths only: its gradient at the features is
found for all of them at once, and each run's is multiplied by its own strengths, fixed or gradient-balanced.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ordinal_entropy import balance
from ordinal_entropy.balance import Balance
from ordinal_entropy.losses import OrdinalEntropy
from ordinal_entropy.methods import Composition
from ordinal_entropy.methods.ordinal_entropy import Regularizer

TERMS = 2  # diversity and tightness
_NAMES = "diversity_strength", "tightness_strength"  # in logs


def unit_regularizer(method: Composition) -> OrdinalEntropy | None:
    """The regularizer of a method that is nothing else, without its strengths, a group of rows for each run.

    Runs of which this is the same are one call. None where the method has other parts, or draws or remembers rows.
    """
    part = next(iter(method.parts.values()))
    if len(method.parts) > 1 or not isinstance(part, Regularizer):
        return None
    own = part.regularizer
    if own.memory is not None or own.options.max_samples is not None or own.options.num_pairs is not None:
        return None
    weights = float(own.diversity_weight != 0), float(own.tightness_weight != 0)
    return OrdinalEntropy(*weights, **own.options._replace(per="image")._asdict())


def strengths_of(methods: Sequence[Composition], like: Tensor) -> tuple[Tensor, bool, Tensor]:
    """Strengths ``(2, g)`` of the terms of methods that have a :func:`unit_regularizer`, or their parts in a balance.

    Beside them, whether any is gradient-balanced, and the fractions ``(g,)`` of those that are.
    """
    weights, fractions = [], []
    for method in methods:
        ((name, part),) = method.parts.items()
        assert isinstance(part, Regularizer)
        balance = method.balances[name] if name in method.balances else None  # noqa: SIM401  no dictionary
        strength = method.strengths[name] if balance is None else 1.0
        weights.append([strength * weight for weight in part.term_weights().values()])
        fractions.append(balance.fraction if isinstance(balance, Balance) else 0.0)
    return like.new_tensor(weights).mT, any(fractions), like.new_tensor(fractions)


@dataclass
class Regularized:
    """For runs that have a regularizer in common but for its strengths."""

    unit: OrdinalEntropy
    weights: Tensor  # (2, g): strengths of diversity and tightness, or their parts in a balance
    balanced: bool  # some strengths set themselves
    fractions: Tensor  # (g,) of the task loss's gradient, for these; 0: a run's strengths are fixed
    squares: Tensor  # (3, g), for these too: running sums of squared gradients, the task loss's first; changed in place
    steps: Tensor  # (g,) in those sums

    def loss(self, features: Tensor, targets: Tensor, task_losses: Tensor, head: Tensor) -> Tensor:
        """A scalar whose gradient at the features is what the method adds for each run; its value means nothing.

        Args:
            features: ``(g, b, d)``.
            targets: ``(g, b, 1)``.
            task_losses: ``(g,)``, mean squared errors.
            head: ``(g, d, 1)``, weights of the linear head.
        """
        leaf = features.detach().requires_grad_()
        terms = self._terms(leaf, targets)
        gradients = {term: torch.autograd.grad(value, leaf)[0] for term, value in terms.items()}  # (g, b, d) each
        with torch.no_grad():
            strengths = self.weights
            if self.balanced:
                rounding = self.unit.rounding(leaf, targets)
                strengths = strengths * self._balanced(gradients, task_losses, head, features.shape[1], rounding)
        parts = [(strengths[term][:, None, None] * own * features).sum() for term, own in gradients.items()]
        return torch.stack(parts).sum()

    def strengths(self, run: int) -> dict[str, float]:
        """What gradient-balanced strengths have come to, of one of the runs; none of fixed ones."""
        if not self.fractions[run] > 0:
            return {}
        found = balance.strengths(self.squares[:, run], self.steps[run], self.fractions[run], balance.WARM_UP)
        return dict(zip(_NAMES, (self.weights[:, run] * found).tolist(), strict=True))

    def _terms(self, features: Tensor, targets: Tensor) -> dict[int, Tensor]:
        """Minus the diversity and the tightness, each summed over the runs.

        A call gives means over runs: of the diversity over those with a pair of centers, of the tightness over all.
        """
        unit, g = self.unit, len(features)
        width = unit.options.grouping
        keys = targets if isinstance(width, str) else torch.floor(targets / width)
        with_pairs = (keys.amax((1, 2)) != keys.amin((1, 2))).sum()
        if unit.tightness_weight == 0:
            return {0: with_pairs * unit(features, targets)}
        if unit.diversity_weight == 0:
            return {1: g * unit(features, targets)}
        diversity, tightness = unit.terms(features, targets)
        return {0: -with_pairs * diversity, 1: g * tightness}

    def _balanced(
        self, gradients: dict[int, Tensor], task_losses: Tensor, head: Tensor, rows: int, rounding: Tensor
    ) -> Tensor:
        """Factors ``(2, g)`` of the weights: of strengths that set themselves what they have come to, else 1."""
        now = torch.zeros_like(self.squares)
        # at the features the gradient of a run's mean squared error is 2 / b * error * head, a row of features a row
        now[0] = 4 / rows * task_losses * head.square().sum((1, 2))
        for term, own in gradients.items():
            now[1 + term] = own.square().sum((1, 2))
        squares, steps = balance.moved(self.squares, self.steps, now, balance.DECAY, rounding)
        self.squares.copy_(squares)
        self.steps.copy_(steps)
        return torch.where(self.fractions > 0, balance.strengths(squares, steps, self.fractions, balance.WARM_UP), 1)
