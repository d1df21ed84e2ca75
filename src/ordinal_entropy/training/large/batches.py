"""Batches of a split: their rows on the device or read by workers, and what a method sees of one."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from ordinal_entropy.methods import Batch
from ordinal_entropy.recipes.groups import LargeTraining
from ordinal_entropy.training.large.optimization import dtype_of
from ordinal_entropy.vision.sets import Batches
from ordinal_entropy.vision.split import Picked, Seen, Split


def loader(split: Split, make: Callable[[], list[Tensor]], device: torch.device, workers: int) -> Any:
    """Batches of row numbers, on the device, where the split is held; else of what is read, with row numbers."""
    length = len(make())
    if split.held:
        return Batches(lambda: on_device(make(), device), length)
    return DataLoader(
        _Reads(split),
        batch_sampler=Batches(lambda: [batch.tolist() for batch in make()], length),
        num_workers=workers,
        persistent_workers=workers > 0,
        pin_memory=device.type == "cuda",
    )


class _Reads(Dataset[tuple[Tensor | int, ...]]):
    """What a DataLoader asks for of a split that is not held."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> tuple[Tensor | int, ...]:
        return *self.split.read(index), index


def on_device(batches: Sequence[Tensor], device: torch.device) -> list[Picked]:
    """The same on a device, in one copy: each one waits for what the device has to do."""
    parts = torch.cat(list(batches)).to(device).split([len(batch) for batch in batches])
    return [Picked(part, batch.tolist()) for part, batch in zip(parts, batches, strict=True)]


def picked_of(batch: Any) -> Picked:
    """Of what a loader gives."""
    if isinstance(batch, Picked):
        return batch
    *raw, rows = batch
    return Picked(rows, raw=raw)


def batch_of(views: Sequence[Seen], settings: LargeTraining, *, floats: bool) -> Batch:
    """What a method sees of a batch: all views of its rows, one after the other."""

    def joined(parts: Sequence[Tensor | None]) -> Tensor | None:
        there = [part for part in parts if part is not None]
        return there[0] if len(there) == 1 else torch.cat(there) if there else None

    seen = Seen(*(joined(parts) for parts in zip(*views, strict=True)))  # type: ignore[arg-type]
    images, targets, weight = seen.images, seen.targets, seen.weights
    if floats:  # bytes cannot be mixed
        images = images.to(dtype_of(settings))
    if settings.precision == "float64":  # so that nothing of the method is computed in less
        targets = targets.double()
    if weight is not None:
        weight = weight.view(-1, *[1] * (targets.dim() - 1)).expand_as(targets)
    return Batch(images, targets, seen.mask, weight)
