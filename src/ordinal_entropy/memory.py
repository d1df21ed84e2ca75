"""Rows of earlier batches as partners for those of a small one.

A batch of 2 or 4 has hardly a pair, and no two rows of one target. The last rows that were seen, without their graph,
stand in for a larger batch: pairs and centers are those of both together, and the gradient, which only the new rows
have, is multiplied by how many rows each new one stands for. Were the features of earlier batches still what the
network gives, that would be an unbiased estimate of the gradient of the large batch.
"""

import torch
from torch import Tensor, nn

from ordinal_entropy.layouts import Rows


class Memory(nn.Module):
    """The last rows, their targets and how many times each counts.

    Args:
        size: how many rows.
        saved: put them into ``state_dict`` too, so that a run that goes on has the same partners.

    Example:
        >>> memory = Memory(2)
        >>> new = Rows(torch.ones(1, 1, 3), torch.ones(1, 1, 1), None, eager=False)
        >>> memory.joined(new).amount  # two places are empty
        tensor([[1., 0., 0.]])
        >>> memory.keep()
        >>> memory.joined(new).amount
        tensor([[1., 1., 0.]])
    """

    features: Tensor
    targets: Tensor
    amount: Tensor

    def __init__(self, size: int, *, saved: bool = False) -> None:
        super().__init__()
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"expected memory to be a whole number of rows of at least 1, got {size!r}")
        self.size = size
        for name in ("features", "targets"):
            self.register_buffer(name, torch.zeros(1, size, 0), persistent=saved)  # as wide as the first rows
        self.register_buffer("amount", torch.zeros(1, size), persistent=saved)
        self._new: Rows | None = None

    def joined(self, new: Rows) -> Rows:
        """New rows and behind them those remembered, which have no gradient; places not filled yet count 0 times."""
        features, targets, amount, eager = new
        if features.shape[0] != 1:
            raise ValueError(
                "expected one group of rows for a memory, which is what per='batch' makes, "
                f"got {features.shape[0]} groups"
            )
        if amount is None:
            amount = features.new_ones(features.shape[:2])
        self._make_room(features, targets, amount)
        for name, own, kept in (("features", features, self.features), ("targets", targets, self.targets)):
            if own.shape[-1] != kept.shape[-1]:
                raise ValueError(
                    f"expected {name} of {kept.shape[-1]} numbers a row, as those remembered, got {own.shape[-1]}"
                )
        self._new = Rows(features.detach(), targets, amount.detach(), eager)
        here, there = amount.sum(), self.amount.sum()
        stands_for = torch.where(here > 0, (here + there) / torch.where(here > 0, here, 1), 1)
        constant = features.detach()
        features = constant + stands_for * (features - constant)  # the same values, a gradient so many times as large
        return Rows(
            torch.cat([features, self.features.to(features.dtype)], 1),
            torch.cat([targets, self.targets.to(targets.dtype)], 1),
            torch.cat([amount, self.amount.to(amount.dtype)], 1),
            eager,
        )

    def keep(self) -> None:
        """Remembers the rows that were joined last, and forgets as many of the oldest.

        A row with a number that is not finite, as an overflow leaves it, is not remembered: an older one stays instead.
        """
        if self._new is None:
            return
        names = ("features", "targets", "amount")
        new = [getattr(self._new, name).to(getattr(self, name).dtype) for name in names]
        self._new = None
        finite = new[0].isfinite().all(-1) & new[1].isfinite().all(-1) & new[2].isfinite()  # (1, n)
        usable = torch.cat([finite, torch.ones_like(self.amount, dtype=torch.bool)], 1)
        first = usable.to(torch.uint8).argsort(dim=1, descending=True, stable=True)[0, : self.size]  # in their order
        for name, rows in zip(names, new, strict=True):
            kept = getattr(self, name)
            kept.copy_(torch.cat([rows, kept], 1).index_select(1, first))

    def forget(self) -> None:
        """Empties it, as for another dataset."""
        self.amount.zero_()

    def _make_room(self, features: Tensor, targets: Tensor, amount: Tensor) -> None:
        """The buffers as wide as rows are, where they are."""
        if self.features.shape[-1] == 0:
            self.features = features.new_zeros(1, self.size, features.shape[-1])
            self.targets = targets.new_zeros(1, self.size, targets.shape[-1])
            self.amount = amount.new_zeros(1, self.size)
        elif self.features.device != features.device:
            self.to(features.device)

    def _load_from_state_dict(self, state_dict: dict[str, Tensor], prefix: str, *rest: object) -> None:
        """Rows that were saved decide how wide they are, and of what type."""
        for name in ("features", "targets", "amount"):
            saved, own = state_dict.get(prefix + name), getattr(self, name)
            if saved is not None and saved.shape[:2] == own.shape[:2]:
                setattr(self, name, torch.zeros_like(saved, device=own.device))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        """How many rows."""
        return str(self.size)
