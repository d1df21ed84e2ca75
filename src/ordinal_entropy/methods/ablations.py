"""Ordinal entropy and the paper's ablations of it: one regularizer, of which each name fixes some options."""

import inspect
from typing import Any

from torch import Tensor, nn

from ordinal_entropy.balance import FRACTION, Balance
from ordinal_entropy.losses import OrdinalEntropy

FIXED: dict[str, dict[str, Any]] = {
    "ld-unweighted": {"tightness_weight": 0.0, "weighting": "none"},
    "ld": {"tightness_weight": 0.0},
    "ld-cosine": {"tightness_weight": 0.0, "distance": "cosine"},
    "ld-no-norm": {"tightness_weight": 0.0, "normalize": False},
    "ld-squared": {"tightness_weight": 0.0, "weighting": "squared"},
    "ld-sqrt": {"tightness_weight": 0.0, "weighting": "sqrt"},
    "lt": {"diversity_weight": 0.0},
    "oe": {},
    "ld-balanced": {"tightness_weight": 0.0},
    "oe-balanced": {},
}
BALANCED = {"ld-balanced": "ld", "oe-balanced": "oe"}  # whose strength sets itself, and what they are otherwise

DESCRIPTIONS = {
    "ld-unweighted": "L'_d: pushes the centers of the features apart, whatever their targets",
    "ld": "L_d: pushes the centers apart in proportion to the distance of their targets",
    "ld-cosine": "L_d with the cosine distance between centers",
    "ld-no-norm": "L_d on features that are not projected to the unit sphere",
    "ld-squared": "L_d with squared distances of the targets as weights",
    "ld-sqrt": "L_d with the square roots of the distances of the targets as weights",
    "lt": "L_t: pulls the features of one target to their center",
    "oe": "ordinal entropy, L_d + L_t: pushes the centers apart and pulls the features to them",
    "ld-balanced": "L_d at a strength that sets itself: its gradient is a fraction of the task loss's",
    "oe-balanced": "L_d + L_t at strengths that set themselves: the gradient of each is a fraction of the task loss's",
}


def free_options(name: str) -> tuple[str, ...]:
    """Every option of :class:`OrdinalEntropy` that the name does not fix, and the overall strength or the balance.

    Example:
        >>> "weighting" in free_options("ld"), "weighting" in free_options("ld-sqrt")
        (True, False)
        >>> free_options("oe")[0], free_options("oe-balanced")[0]
        ('strength', 'balance')
    """
    options = (option for option in inspect.signature(OrdinalEntropy).parameters if option not in FIXED[name])
    return ("balance" if name in BALANCED else "strength", *(option for option in options if option != "balance"))


def regularizer_of(method: object) -> OrdinalEntropy | None:
    """Ordinal entropy, where a method is that or a relative.

    Example:
        >>> regularizer_of(Regularizer("ld")).tightness_weight
        0.0
    """
    inner = getattr(method, "regularizer", method)
    return inner if isinstance(inner, OrdinalEntropy) else None


def self_set_strengths(method: object) -> dict[str, Tensor]:
    """What strengths that set themselves have come to, by the names of a log; nothing where they are fixed.

    Example:
        >>> self_set_strengths(Regularizer("oe")), list(self_set_strengths(Regularizer("oe-balanced")))
        ({}, ['diversity_strength', 'tightness_strength'])
    """
    found = regularizer_of(method)
    if found is None or found.balance is None:
        return {}
    return {f"{name}_strength": value for name, value in found.strengths._asdict().items()}


class Regularizer(nn.Module):
    """One member of the family, by name.

    Args:
        name: a key of ``FIXED``.
        strength: multiplies both terms.
        balance: of a name in ``BALANCED``, in place of the strength.
        options: those of :class:`OrdinalEntropy` that the name does not fix; ``diversity_weight`` and
            ``tightness_weight`` are relative to the strength or the balance.

    Example:
        >>> Regularizer("ld", strength=0.001, rescale="authors")
        Regularizer(
          (regularizer): OrdinalEntropy(diversity_weight=0.001, tightness_weight=0.0, rescale='authors')
        )
    """

    replaces_task_loss = False

    def __init__(
        self, name: str, *, strength: float = 1.0, balance: float | Balance = FRACTION, **options: Any
    ) -> None:
        super().__init__()
        if name in BALANCED:
            options = {**options, "balance": balance}
        all_options: dict[str, Any] = {"diversity_weight": 1.0, "tightness_weight": 1.0, **options, **FIXED[name]}
        for weight in ("diversity_weight", "tightness_weight"):
            all_options[weight] = strength * all_options[weight]
        self.regularizer = OrdinalEntropy(**all_options)

    def forward(
        self,
        features: Tensor,
        targets: Tensor,
        mask: Tensor | None = None,
        predictions: Tensor | None = None,
        task_loss: Tensor | None = None,
    ) -> Tensor:
        """What is added to the task loss, strength included; layouts as in ``functional.ordinal_entropy``."""
        return self.regularizer(features, targets, mask, task_loss=task_loss)  # type: ignore[no-any-return]

    def outputs(self, t: int) -> int:
        """How many numbers the model gives for targets of ``t``: as many."""
        return t

    def decode(self, outputs: Tensor) -> Tensor:
        """The predictions: what the model gives."""
        return outputs
