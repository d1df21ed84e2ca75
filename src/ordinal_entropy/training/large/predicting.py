"""Predictions of a network for images, and their scores."""

from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from ordinal_entropy.methods import Composition
from ordinal_entropy.recipes.groups import LargeTraining
from ordinal_entropy.training.large.optimization import PRECISIONS, dtype_of, lay_out, precision_on
from ordinal_entropy.vision.augment import normalized
from ordinal_entropy.vision.split import Picked, Seen, Split

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
