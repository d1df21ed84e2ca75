"""Batches of a split: rows on the device or read by workers, what a method sees of one, what a network predicts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics import Metric

from ordinal_entropy.methods import Batch, Composition
from ordinal_entropy.recipes.groups import LargeTraining
from ordinal_entropy.training.large.optimization import PRECISIONS, dtype_of, lay_out, precision_on
from ordinal_entropy.vision.sets import Batches
from ordinal_entropy.vision.split import Picked, Seen, Split, normalized


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


Scores = dict[str, float]


class Network(Protocol):
    """What is asked of a network beside being a module."""

    feature_layer: str  # the layer whose input is the features
    mean: tuple[float, float, float]  # of each channel, to be taken from images in 0..1
    std: tuple[float, float, float]  # to divide by after that

    def __call__(self, images: Tensor) -> Tensor:
        """Outputs for normalised images."""
        ...


def scored(
    network: Network, method: Composition, metric: Metric, split: Split, settings: LargeTraining, *, device: str
) -> Scores:
    """Scores of a network on a split, on one device."""
    metric = metric.clone().to(torch.device(device))
    for predictions, seen in predicted(network, method, split, settings, device=device):
        metric.update(*split.scored(predictions, seen))
    return numbers_of(metric.compute())


@torch.no_grad()
def predicted(
    network: Network, method: Composition, split: Split, settings: LargeTraining, *, device: str
) -> Iterator[tuple[Tensor, Seen]]:
    """Predictions of a network for the images of a split, batch by batch, on one device."""
    assert isinstance(network, nn.Module)
    where = torch.device(device)
    dtype = PRECISIONS[precision_on(where, settings)][1]
    mixed_precision = dtype in (torch.bfloat16, torch.float16)
    lay_out(network.to(where).eval(), settings)
    method.to(where).eval()

    def outputs(images: Tensor) -> Tensor:
        with torch.autocast(where.type, dtype=dtype if mixed_precision else None, enabled=mixed_precision):
            found: Tensor = network(shown_to(images, network, settings))
        return found

    split = split.to(where)
    for rows in split.batches(max(settings.batch_size // settings.accumulate, 1)):
        numbers = rows.tolist()
        raw = (
            [] if split.held else [torch.stack(each).to(where) for each in zip(*map(split.read, numbers), strict=True)]
        )
        seen = split.seen(Picked(rows.to(where), numbers, raw), None)
        yield decoded(outputs, method, seen.images, settings), seen


def shown_to(images: Tensor, network: Network, settings: LargeTraining) -> Tensor:
    """Images from 0 to 255 as a network wants them."""
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    return normalized(images.contiguous(memory_format=layout), network.mean, network.std, dtype=dtype_of(settings))


def decoded(
    outputs: Callable[[Tensor], Tensor], method: Composition, images: Tensor, settings: LargeTraining
) -> Tensor:
    """Predictions for images; those of the mirror images too, if so set."""
    found = method.decode(at_least_single(outputs(images)))
    if settings.flip and found.dim() == 4:
        found = (found + method.decode(at_least_single(outputs(images.flip(-1)))).flip(-1)) / 2
    return found


def at_least_single(outputs: Tensor) -> Tensor:
    """The same in float32 where they are in half precision."""
    return outputs.to(torch.promote_types(outputs.dtype, torch.float32))


def numbers_of(scores: Mapping[str, Tensor]) -> Scores:
    """All of them in one copy from the device."""
    return dict(zip(scores, torch.stack([value.double() for value in scores.values()]).tolist(), strict=True))
