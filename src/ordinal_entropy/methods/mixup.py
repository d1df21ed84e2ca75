"""Mixup: rows are mixed with any other row."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Batch, Method, Range
from ordinal_entropy.methods.mixing import host_draws, mixed, points_inside, require_alpha, require_inputs


class Mixup(Method):
    """Mixes inputs and targets of each row with a partner drawn evenly from the batch (mixup).

    The control of C-Mixup, from which it differs in the partners alone. Each row has its own share, drawn from
    Beta(alpha, alpha). Weights are mixed likewise, and a target counts where both do. A row of which no target counts
    is nobody's partner.

    Args:
        alpha: of the Beta distribution; large ones mix by halves.

    Example:
        >>> batch = Batch(torch.tensor([[0.0], [10.0]]), torch.tensor([[0.0], [1.0]]))
        >>> mixed = Mixup().change(batch, torch.Generator().manual_seed(0))
        >>> bool((mixed.inputs == 10 * mixed.targets).all()), bool((mixed.targets > 0).all())
        (True, True)
    """

    kind = "mixing"
    tunable: ClassVar[Mapping[str, Range]] = {
        "alpha": Range(0.2, 4.0, log=True),
    }
    paper = "Zhang, Cisse, Dauphin, Lopez-Paz, mixup: Beyond Empirical Risk Minimization, ICLR 2018"
    maps = True

    def __init__(self, alpha: float = 2.0) -> None:
        super().__init__()
        self.alpha = require_alpha(alpha)

    def change(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The mixed batch; one of a single row as it is."""
        n = len(batch.targets)
        require_inputs(batch.inputs, n)
        if n < 2:
            return batch
        draws = host_draws(generator)
        usable = points_inside(batch.targets, batch.mask)[1].flatten(1).any(1)
        chance = torch.from_numpy(draws.random(n)).to(usable.device)
        share = torch.from_numpy(draws.beta(self.alpha, self.alpha, n)).to(usable.device)
        return mixed(batch, even_partners(usable, chance), share)

    def extra_repr(self) -> str:
        """The options."""
        return f"alpha={self.alpha:g}"


def even_partners(usable: Tensor, chance: Tensor) -> Tensor:
    """Another row for each, any usable one with the same chance; the row itself where there is none.

    Args:
        usable: boolean ``(n,)``.
        chance: ``(n,)``, evenly drawn from 0 to 1.

    Example:
        >>> even_partners(torch.tensor([True, False, True, True]), torch.tensor([0.0, 0.5, 0.4, 0.9]))
        tensor([2, 2, 0, 2])
    """
    order = (~usable).long().argsort(stable=True)  # usable rows first
    others = usable.sum() - usable.long()  # (n,), rows that may be the partner
    place = (chance * others).long().minimum((others - 1).clamp(min=0))
    own = usable.cumsum(0) - 1  # the row's own place
    partner = order[place + (usable & (place >= own)).long() * (others > 0)]
    return torch.where(others > 0, partner, torch.arange(len(usable), device=usable.device))
