"""What methods add to the task losses of a stack, and how strongly.

Runs whose regularizers differ in strength only are one call: its gradient at the features is found for all of them, and
each run's is multiplied by its own strengths, fixed or such as set themselves.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ordinal_entropy import balance, methods
from ordinal_entropy.losses import OrdinalEntropy
from ordinal_entropy.methods import Method
from ordinal_entropy.methods.ablations import BALANCED, FIXED, Regularizer

TERMS = 2  # diversity and tightness


def unit_regularizer(name: str, options: dict[str, Any]) -> OrdinalEntropy | None:
    """The regularizer of a method with both strengths 1, a group of rows for each run; None where it is no such method.

    Runs of which this is the same are one call.
    """
    plain = BALANCED.get(name, name)
    if plain not in FIXED:
        return None
    known = [key for key in methods.options(plain) if key not in ("strength", "tightness_weight")]
    made = methods.create(plain, per="image", **{key: value for key, value in options.items() if key in known})
    return made.regularizer if isinstance(made, Regularizer) else None


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

    def _terms(self, features: Tensor, targets: Tensor) -> dict[int, Tensor]:
        """Minus the diversity and the tightness, each summed over the runs.

        A call gives means over runs: of the diversity over those with a pair of centers, of the tightness over all.
        """
        unit, g = self.unit, len(features)
        keys = targets if isinstance(unit.grouping, str) else torch.floor(targets / unit.grouping)
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


@dataclass
class Called:
    """For runs with any other method, which is called run by run."""

    methods: Sequence[Method]

    def loss(self, features: Tensor, targets: Tensor, outputs: Tensor) -> Tensor:
        """What the methods add, or have in place of the task loss, in all runs together."""
        every = zip(self.methods, features, targets, outputs, strict=True)
        return torch.stack([method(z, y, predictions=out) for method, z, y, out in every]).sum()
