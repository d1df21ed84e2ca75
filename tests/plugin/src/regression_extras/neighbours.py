"""A mixing."""

import torch

from ordinal_entropy.methods import Batch, Method


class Neighbours(Method):
    """Mixes each row with the next one in the order of the targets."""

    kind = "mixing"

    def __init__(self, most: float = 0.3) -> None:
        super().__init__()
        self.most = most

    def change(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The mixed batch."""
        if len(batch.targets) < 2:
            return batch
        order = batch.targets.flatten(1)[:, 0].argsort()
        partner = torch.empty_like(order)
        partner[order] = order.roll(-1)
        share = self.most * torch.rand(len(order), generator=generator).to(batch.targets)

        def mixed(each: torch.Tensor) -> torch.Tensor:
            own = share.view(-1, *[1] * (each.dim() - 1)).to(each.dtype)
            return each + own * (each[partner] - each)

        return batch._replace(inputs=mixed(batch.inputs), targets=mixed(batch.targets))
