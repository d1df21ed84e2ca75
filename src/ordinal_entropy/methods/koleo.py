"""KoLeo: every feature far from its nearest neighbour, whatever the targets."""

import math

import torch
from torch import Tensor

from ordinal_entropy.kernels.unit import unit_rows
from ordinal_entropy.methods.contract import Method, Step, zero
from ordinal_entropy.methods.rows import feature_rows

_EPSILON = 1e-8  # is added to distances


def koleo(features: Tensor, mask: Tensor | None = None) -> Tensor:
    """Minus the mean logarithm of the distance of each normalised feature from its nearest neighbour.

    Up to constants it is minus the entropy that Kozachenko and Leonenko estimate, of features on the unit sphere.

    Args:
        features: ``(n, d)``, of any length.
        mask: boolean ``(n,)``, rows that count.

    Returns:
        Scalar, at least float32. A feature that coincides with another one counts as at a distance of ``1e-8`` and has
        no gradient. Fewer than two rows: a zero that is part of the graph. Memory for ``(n, n)`` and ``(n, d)``.

    Example:
        >>> koleo(torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, -3.0]]))  # a square root of 2 from the first
        tensor(-0.3466)
    """
    n = len(features)
    if n < 2:
        return zero(features)
    z = unit_rows(features.to(torch.promote_types(features.dtype, torch.float32)))
    counts = torch.ones(n, dtype=torch.bool, device=z.device) if mask is None else mask
    others = counts & ~torch.eye(n, dtype=torch.bool, device=z.device)  # (n, n)
    squares = z.detach().square().sum(1)  # 1, but of zero features
    nearest = torch.where(others, squares - 2 * (z.detach() @ z.detach().T), math.inf).argmin(1)
    squared = (z - z.index_select(0, nearest)).square().sum(1)  # from differences: exact for close pairs
    apart = torch.where(squared > 0, torch.where(squared > 0, squared, 1).sqrt(), 0)
    number = counts.sum()
    losses = torch.where(counts & (number > 1), -(apart + _EPSILON).log(), 0)
    return losses.sum() / number.clamp(min=1)


class KoLeo(Method):
    """KoLeo: nearest neighbours of normalised features pushed apart, a control that ignores the targets.

    Args:
        gather: join the rows of all ranks.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> features = torch.tensor([[1.0, 0.0], [0.0, 2.0], [0.0, -3.0]])
        >>> KoLeo().term(Step(Batch(None, torch.zeros(3)), features, None, None))
        tensor(-0.3466)
    """

    kind = "term"
    cost = "time m^2 d, memory m^2"
    paper = "Sablayrolles, Douze, Schmid, Jégou, Spreading vectors for similarity search, ICLR 2019"

    def __init__(self, gather: bool = False) -> None:
        super().__init__()
        self.gather = gather

    def term(self, step: Step) -> Tensor:
        """Of the rows inside the mask."""
        if step.features.dim() != 2:
            raise ValueError(
                f"expected features (n, d) for koleo, which compares all pairs of rows, got "
                f"{tuple(step.features.shape)}"
            )
        features, _, mask = feature_rows(step, gather=self.gather)
        return koleo(features, mask)

    def extra_repr(self) -> str:
        """The option."""
        return f"gather={self.gather}"
