"""Table 7: what the regularizer costs in a training step of depth, in time and memory, against M.

    ordinal-entropy reproduce table7-cost
    ordinal-entropy reproduce table7-cost --preset quick          # a small network, on a CPU

The encoder-decoder of the depth task on random images with smooth depths: no dataset is needed. Features and depths are
taken at every fourth place of the map before the head, 3,536 of an image of 416 x 544, of which M are drawn for the
diversity, within each image. Rounds over all M alternate; the time of a step is scaled to an epoch.
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ordinal_entropy import capture, methods
from ordinal_entropy.recipes import require_at_least_1, require_not_negative
from ordinal_entropy.results.summary_figures import costs
from ordinal_entropy.studies import cost, paper
from ordinal_entropy.studies.cost import Measured
from ordinal_entropy.studies.grid import Variant, require_different
from ordinal_entropy.studies.study import Study, draws
from ordinal_entropy.training.plans import Progress

_STRIDE = 2  # of the map before the head
_FAR = 10.0  # metres


@dataclass(frozen=True)
class DepthStep:
    """A training step of depth."""

    encoder: str = "resnet50"  # a name of timm's
    channels: int = 128  # of the features
    height: int = 416  # of an image in pixels
    width: int = 544  # likewise
    batch_size: int = 16  # images of a step; a smaller GPU has room for less
    images: int = 24_231  # of an epoch: the published list of NYU-Depth-v2
    precision: Literal["float32", "bf16"] = "float32"  # on a GPU, mixed; a CPU has float32
    channels_last: bool = True  # in memory: faster on most devices
    strength: float = 1.0  # of the regularization beside the task loss
    rescale: Literal["authors", "max", "none"] = "authors"  # weights (w - min) / max, w / max, or raw as in the paper
    stride: int = 4  # one place of the map in so many, down and across, is seen by the method
    samples: int | None = None  # M: rows of an image that are drawn for the diversity; None: all

    def __post_init__(self) -> None:
        """Values that no step can have are refused before anything is measured."""
        require_at_least_1(self, "channels", "height", "width", "batch_size", "images", "stride")
        require_not_negative(self, "strength")
        if self.samples is not None and not 2 <= self.samples <= self.places:
            raise ValueError(
                f"expected samples from 2 to the {self.places:,} places of an image of {self.width} x {self.height}, "
                f"got {self.samples:,}"
            )

    @property
    def places(self) -> int:
        """Of an image that the method sees."""
        down, across = (-(-side // _STRIDE) // self.stride for side in (self.height, self.width))
        return down * across


PRESETS = {
    "paper": DepthStep(),
    "quick": DepthStep(encoder="resnet18", channels=32, batch_size=1),
}


@dataclass(frozen=True)
class Table7:
    """What is varied."""

    samples: tuple[int, ...] = (100, 1000, 3536)  # M; the baseline, M = 0, comes first, oe has the last of them
    rounds: int = 3  # each times every row once
    timed_steps: int = 5  # of each
    warm_up: int = 2  # steps before, not timed

    def __post_init__(self) -> None:
        """Checked before anything is measured."""
        cost.check_counts(self, rounds=2, timed_steps=1, warm_up=1, samples=2)
        require_different("samples", self.samples, least=1)


def _variants(keys: Table7) -> list[Variant]:
    diversity = [Variant("ld", (("samples", m),)) for m in keys.samples]
    return [Variant("baseline"), *diversity, Variant("oe", (("samples", keys.samples[-1]),))]


def _summary(keys: Table7, chosen: DepthStep, device: str, progress: Progress | None) -> dict[str, Any]:
    images, depths = _batch(chosen, torch.device(device))
    return cost.summary_of(
        "depth",
        f"seconds for {chosen.images:,} images",
        _variants(keys),
        lambda variant: _measured(variant, images, depths, keys, chosen),
        chosen,
        rounds=keys.rounds,
        times=chosen.images / chosen.batch_size,
        device=device,
        published={
            Variant(method, (("samples", m),) if m else ()).name: own for (method, m), own in paper.TABLE7.items()
        },
        progress=progress,
    )


def _batch(chosen: DepthStep, device: torch.device) -> tuple[Tensor, Tensor]:
    """Images of noise, and surfaces in whole millimetres, as a sensor has them."""
    draw = torch.Generator().manual_seed(0)
    b, size = chosen.batch_size, (chosen.height, chosen.width)
    images = torch.randn(b, 3, *size, generator=draw)
    coarse = torch.rand(b, 1, *(max(side // 32, 2) for side in size), generator=draw)
    depths = (1000 * _FAR * (0.05 + 0.9 * F.interpolate(coarse, size=size, mode="bilinear"))).round() / 1000
    layout = torch.channels_last if chosen.channels_last else torch.contiguous_format
    return images.to(device, memory_format=layout), depths.to(device)


def _measured(variant: Variant, images: Tensor, depths: Tensor, keys: Table7, chosen: DepthStep) -> Measured:
    """Of a network of its own, new each time."""
    from ordinal_entropy.models import decoder
    from ordinal_entropy.tasks.depth.losses import masked_mse

    with torch.random.fork_rng([images.device] if images.is_cuda else []):
        torch.manual_seed(0)
        model: nn.Module = decoder.create(chosen.encoder, width=chosen.channels)
    model = model.to(images.device)
    if chosen.channels_last:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    plain = variant.method == "baseline"
    options = {"strength": chosen.strength, "rescale": chosen.rescale, "stride": chosen.stride, "per": "image"}
    method = methods.create(
        variant.method, **({} if plain else {**options, "max_samples": dict(variant.changes)["samples"]})
    )
    half = chosen.precision == "bf16" and images.is_cuda

    def steps(count: int) -> None:
        with nullcontext() if plain else capture(model, "head") as tap:
            for _ in range(count):
                with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=half):
                    outputs = model(images)
                loss = masked_mse(outputs, depths)
                if tap is not None:
                    loss = loss + method(tap.features, depths)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()

    try:
        return cost.measured(steps, images.device, warm_up=keys.warm_up, timed=keys.timed_steps)
    except torch.OutOfMemoryError:
        raise ValueError(
            f"expected a device with room for batch_size={chosen.batch_size} images of {chosen.width} x "
            f"{chosen.height}, got too little; --set batch_size=4, say, or --set precision=bf16"
        ) from None


STUDIES = {
    "table7-cost": Study(
        about="Table 7, depth: time and memory of a training step against M, on random images",
        keys=Table7(),
        task=lambda keys: "depth",
        recipes=PRESETS,
        fixed=lambda keys: {"samples": None},
        variants=_variants,
        measured=_summary,
        notes=(
            "The paper's seconds are of an epoch on its GPU, its memory is that of the whole process there; "
            "its batch size is not known.",
        ),
        picture=draws("Table 7, depth: time and memory over the baseline's", lambda summary, folder: costs(summary)),
    )
}
