"""VICReg's variance and covariance: features that spread and do not repeat each other, whatever the targets."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy.methods.contract import Method, Range, Step, zero
from ordinal_entropy.methods.rows import feature_rows

_EPSILON = 1e-4  # of a variance, as published


def vicreg(features: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """How far standard deviations of features are below 1, and how much features covary.

    With the unbiased covariance ``C (d, d)`` over the rows: the mean over ``k`` of ``max(0, 1 - sqrt(C_kk + 0.0001))``,
    and the sum of all ``C_kl^2`` with ``k != l``, divided by ``d``.

    Args:
        features: ``(n, d)``, as they are: not normalised.
        mask: boolean ``(n,)``, rows that count.

    Returns:
        Two scalars, at least float32; fewer than two rows: zeros that are part of the graph.

    Example:
        >>> vicreg(torch.tensor([[0.0, 0.0], [0.5, 1.0]]))
        (tensor(0.4696), tensor(0.0625))
    """
    n, d = features.shape
    if n < 2 or d == 0:
        return zero(features), zero(features)
    z = features.to(torch.promote_types(features.dtype, torch.float32))
    if mask is None:
        centered, number = z - z.mean(0), torch.full((), float(n), dtype=z.dtype, device=z.device)
    else:
        number = mask.sum().to(z.dtype)
        z = torch.where(mask[:, None], z, 0)
        centered = torch.where(mask[:, None], z - z.sum(0) / number.clamp(min=1), 0)
    covariance = centered.T @ centered / (number - 1).clamp(min=1)  # (d, d)
    variances = covariance.diagonal()
    variance = F.relu(1 - (variances + _EPSILON).sqrt()).mean()
    covariance = (covariance - variances.diag()).square().sum() / d
    return torch.where(number > 1, variance, 0), covariance


class VICReg(Method):
    """Variance and covariance of VICReg: a control that spreads features whatever their targets.

    Args:
        variance_weight: of the standard deviations below 1.
        covariance_weight: of the squared covariances. Where strengths are gradient-balanced, the weights count
            relative to the larger one.
        gather: join the rows of all ranks.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> step = Step(Batch(None, torch.zeros(2)), torch.tensor([[0.0, 0.0], [0.5, 1.0]]), None, None)
        >>> VICReg(variance_weight=1.0).terms(step)
        (tensor(0.4696), tensor(0.0625))
        >>> VICReg(variance_weight=1.0).term(step)
        tensor(0.5321)
    """

    kind = "term"
    cost = "time m d^2, memory d^2"
    paper = (
        "Bardes, Ponce, LeCun, VICReg: Variance-Invariance-Covariance Regularization for Self-Supervised Learning, "
        "ICLR 2022"
    )
    tunable: ClassVar[Mapping[str, Range]] = {"variance_weight": Range(2.0, 200.0, log=True)}
    maps = True

    def __init__(self, variance_weight: float = 25.0, covariance_weight: float = 1.0, gather: bool = False) -> None:
        super().__init__()
        weights = {"variance": variance_weight, "covariance": covariance_weight}
        for name, value in weights.items():
            if not 0 <= value < math.inf:
                raise ValueError(f"expected {name}_weight to be a number from 0 on, got {value}")
        if not any(weights.values()):
            raise ValueError("expected variance_weight or covariance_weight to be positive, got 0 for both")
        self.weights, self.gather = {name: float(value) for name, value in weights.items()}, gather

    def term(self, step: Step) -> Tensor:
        """Both, each at its weight."""
        variance, covariance = self.terms(step)
        return self.weights["variance"] * variance + self.weights["covariance"] * covariance

    def terms(self, step: Step) -> tuple[Tensor, Tensor]:
        """Of the rows inside the mask."""
        features, _, mask = feature_rows(step, gather=self.gather)
        return vicreg(features, mask)

    def term_weights(self) -> dict[str, float]:
        """Relative to the larger one."""
        largest = max(self.weights.values())
        return {name: value / largest for name, value in self.weights.items()}

    def extra_repr(self) -> str:
        """The options."""
        own = ", ".join(f"{name}_weight={value:g}" for name, value in self.weights.items())
        return f"{own}, gather={self.gather}"
