"""Ordinal entropy and the paper's ablations of it: one term, of which each name fixes some options."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordinal_entropy.losses import OrdinalEntropy
from ordinal_entropy.methods.contract import Method, Range, Step

FIXED: dict[str, dict[str, Any]] = {
    "ld-unweighted": {"tightness_weight": 0.0, "weighting": "none"},
    "ld": {"tightness_weight": 0.0},
    "ld-cosine": {"tightness_weight": 0.0, "distance": "cosine"},
    "ld-no-norm": {"tightness_weight": 0.0, "normalize": False},
    "ld-squared": {"tightness_weight": 0.0, "weighting": "squared"},
    "ld-sqrt": {"tightness_weight": 0.0, "weighting": "sqrt"},
    "lt": {"diversity_weight": 0.0},
    "oe": {},
}

DESCRIPTIONS = {
    "ld-unweighted": "L'_d: pushes the centers of the features apart, whatever their targets",
    "ld": "L_d: pushes the centers apart in proportion to the distance of their targets",
    "ld-cosine": "L_d with the cosine distance between centers",
    "ld-no-norm": "L_d on features that are not projected to the unit sphere",
    "ld-squared": "L_d with squared distances of the targets as weights",
    "ld-sqrt": "L_d with the square roots of the distances of the targets as weights",
    "lt": "L_t: pulls the features of one target to their center",
    "oe": "ordinal entropy, L_d + L_t: pushes the centers apart and pulls the features to them",
}


class Regularizer(Method):
    """:class:`ordinal_entropy.OrdinalEntropy` as a term; its strengths are held by the composition.

    Args:
        regularizer: with any options; a balance of its own is left to the composition.

    Example:
        >>> from ordinal_entropy.methods import Batch, Step
        >>> step = Step(Batch(None, torch.tensor([0.0, 3.0, 3.0])), torch.eye(3), None, None)
        >>> Regularizer(OrdinalEntropy(tightness_weight=0.5)).term(step)
        tensor(-0.9890)
    """

    kind = "term"
    cost = "time m^2 d for m distinct targets, memory m d"
    tunable: ClassVar[Mapping[str, Range]] = {"tightness_weight": Range(0.1, 10.0, log=True)}
    maps = True
    weighs_repeats = True
    over_groups: ClassVar[bool] = True  # with per="image"

    def __init__(self, regularizer: OrdinalEntropy) -> None:
        super().__init__()
        self.regularizer = regularizer
        self._width: float | None = None  # of the bins that mixing has brought, in place of unique targets

    def term(self, step: Step) -> Tensor:
        """Tightness minus diversity, each at its weight."""
        return self.regularizer.fixed(*_data(step))

    def terms(self, step: Step) -> tuple[Tensor, Tensor]:
        """Minus the diversity, and the tightness."""
        return self.regularizer.separate(*_data(step))

    def term_weights(self) -> dict[str, float]:
        """Of the diversity and the tightness."""
        return {"diversity": self.regularizer.diversity_weight, "tightness": self.regularizer.tightness_weight}

    def rounding(self, features: Tensor, targets: Tensor) -> Tensor:
        """Of the normalisation."""
        return self.regularizer.rounding(features[None], targets[None])[:, 0]

    def measures(self, step: Step) -> dict[str, Tensor]:
        """Diversity and tightness, both at least 0."""
        features, targets, mask, _ = _data(step)
        return self.regularizer.terms(features, targets, mask)._asdict()

    def targets_are_mixed(self, targets: Tensor) -> str | None:
        """Rows share a center by bins from now on, if training targets repeat: as wide as their median gap."""
        options = self.regularizer.options
        if self._width is not None and options.grouping == self._width:  # of other rows, before
            self.regularizer.options = options = options._replace(grouping="unique")
        values = torch.unique(targets.flatten())
        if options.grouping != "unique" or targets[0].numel() != 1 or not 1 < len(values) < targets.numel():
            return None
        self._width = width = float(values.diff().median())
        self.regularizer.options = options._replace(grouping=width)
        return f"mixed targets are unique, so rows of one bin of width {width:g} share a center"


def family(name: str) -> Any:
    """The maker of one member: of the options of :class:`OrdinalEntropy` that its name does not fix."""

    def make(**options: Any) -> Regularizer:
        return Regularizer(OrdinalEntropy(**{**options, **FIXED[name]}))

    return make


def regularizer_of(method: Method) -> OrdinalEntropy | None:
    """Ordinal entropy, where a part is that or a relative.

    Example:
        >>> regularizer_of(Regularizer(OrdinalEntropy(tightness_weight=0.0))).tightness_weight
        0.0
    """
    return method.regularizer if isinstance(method, Regularizer) else None


def _data(step: Step) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    return step.features, step.batch.targets, step.batch.mask, step.batch.repeats
