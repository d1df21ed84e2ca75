"""Uniformity: features spread over the unit sphere, whatever the targets."""

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from ordinal_entropy.kernels.unit import unit_rows
from ordinal_entropy.methods.contract import Method, Range, Step, zero
from ordinal_entropy.methods.rows import feature_rows


def uniformity(features: Tensor, t: float = 2.0, mask: Tensor | None = None) -> Tensor:
    """The logarithm of the mean of ``exp(-t |z_i - z_j|^2)`` over all pairs of different rows, normalised.

    Args:
        features: ``(n, d)``, of any length.
        t: positive; the larger, the more close pairs count.
        mask: boolean ``(n,)``, rows that count.

    Returns:
        Scalar, at least float32: 0 where all features have one direction, ``-4t`` at the least. Fewer than two rows: a
        zero that is part of the graph. Memory for ``(n, n)``.

    Example:
        >>> uniformity(torch.tensor([[1.0, 0.0], [0.0, 3.0]]))  # a squared distance of 2
        tensor(-4.)
    """
    n = len(features)
    if n < 2:
        return zero(features)
    z = unit_rows(features.to(torch.promote_types(features.dtype, torch.float32)))
    pairs = ~torch.eye(n, dtype=torch.bool, device=z.device)  # (n, n)
    if mask is not None:
        pairs = pairs & mask & mask[:, None]
    squares = z.square().sum(1)  # 1, but of zero features
    apart = squares[:, None] + squares - 2 * (z @ z.T)
    number = pairs.sum()
    scores = torch.where(pairs | (number == 0), -t * apart, -math.inf)  # without a pair anything finite
    return torch.where(number > 0, scores.flatten().logsumexp(0) - number.clamp(min=1).to(z.dtype).log(), 0)


class Uniformity(Method):
    """Uniformity: normalised features pushed apart over the sphere, a control that ignores the targets.

    Args:
        t: of the Gaussian potential of a pair; the larger, the more close pairs count.
        gather: join the rows of all ranks.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> step = Step(Batch(None, torch.zeros(2)), torch.tensor([[1.0, 0.0], [0.0, 3.0]]), None, None)
        >>> Uniformity().term(step)
        tensor(-4.)
    """

    kind = "term"
    cost = "time m^2 d, memory m^2"
    paper = (
        "Wang, Isola, Understanding Contrastive Representation Learning through Alignment and Uniformity on the "
        "Hypersphere, ICML 2020"
    )
    tunable: ClassVar[Mapping[str, Range]] = {"t": Range(0.5, 8.0, log=True)}

    def __init__(self, t: float = 2.0, gather: bool = False) -> None:
        super().__init__()
        if not 0 < t < math.inf:
            raise ValueError(f"expected t to be a positive number, got {t}")
        self.t, self.gather = float(t), gather

    def term(self, step: Step) -> Tensor:
        """Of the rows inside the mask."""
        if step.features.dim() != 2:
            raise ValueError(
                f"expected features (n, d) for uniformity, which compares all pairs of rows, got "
                f"{tuple(step.features.shape)}"
            )
        features, _, mask = feature_rows(step, gather=self.gather)
        return uniformity(features, self.t, mask)

    def extra_repr(self) -> str:
        """The options."""
        return f"t={self.t:g}, gather={self.gather}"
