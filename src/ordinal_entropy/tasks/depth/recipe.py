"""Depth from one image of a room: all that determines a run but method and seed.

    ordinal-entropy train depth --preset quick --method baseline
    ordinal-entropy compare depth --preset small --set data=datasets/nyu

The first renders rooms and trains on them, in a minute on two CPU cores, to far less error than the mean depth has.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from ordinal_entropy.files import SPLITS, refuse, tell_left_out
from ordinal_entropy.recipes import preset, require_not_negative
from ordinal_entropy.recipes.groups import Backbone, Images, LargeTraining, OnMaps
from ordinal_entropy.tasks import method_of, on_images
from ordinal_entropy.tasks.depth import data, generated
from ordinal_entropy.tasks.depth.losses import masked_mse, silog
from ordinal_entropy.tasks.depth.maps import CROP, HEIGHT, MAX_DEPTH, WIDTH
from ordinal_entropy.tasks.on_images.description import (
    Built,
    OnImages,
    Prepared,
    ShownAs,
    Source,
    drawn_rows,
)
from ordinal_entropy.training.plans import Plan

if TYPE_CHECKING:  # Lightning takes seconds to import
    from ordinal_entropy.tasks.depth.views import Views
    from ordinal_entropy.training.large.batches import Network
    from ordinal_entropy.vision.split import Data, Seen

METRIC = "rms"
_GIGA = 1e9
_LEAST = 32  # pixels of a side


@dataclass(frozen=True, kw_only=True)
class Rooms(Images):
    """Images of rooms with depths: a folder, or nyu_depth_v2_labeled.mat."""

    height: int = HEIGHT  # rows of an image; images of another size are resized
    width: int = WIDTH  # columns of an image
    frame: Literal["crop", "mask", "none"] = "crop"  # where the sensor measures: cut out, the rest masked, or no matter
    crop: bool = True  # train on random parts of 416 x 544, scaled to the size of the images; else on all of them
    angle: float = 2.5  # degrees that a training image is turned by, at most

    def __post_init__(self) -> None:
        """Values that no dataset can have."""
        super().__post_init__()
        require_not_negative(self, "angle")
        for name in ("height", "width"):
            if getattr(self, name) < _LEAST:
                raise ValueError(f"expected {name} to be at least {_LEAST}, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class EncoderDecoder(Backbone):
    """An encoder, the backbone, and what makes a map of its features."""

    name: Literal["decoder", "newcrfs"] = "decoder"  # a plain decoder to stride 2, or NeW-CRFs, to stride 4
    channels: int | None = None  # of the features of a pixel; none: 128 for decoder, as the encoder has it for newcrfs
    drop_path: float | None = None  # how often residual branches are left out in training; none: as the model has it
    start: float = 0.0  # metres that predictions begin at, less than 10; 0: as the random weights have it

    def __post_init__(self) -> None:
        """Values that no network can have."""
        if self.drop_path is not None and not 0 <= self.drop_path < 1:
            raise ValueError(f"expected drop_path from 0 to 1, got {self.drop_path}")
        if not 0 <= self.start < MAX_DEPTH:
            raise ValueError(f"expected start to be a depth from 0 to {MAX_DEPTH:g} metres, got {self.start}")


@dataclass(frozen=True, kw_only=True)
class DepthTraining(LargeTraining):
    """As AdaBins has it."""

    loss: Literal["mse", "silog"] = "mse"  # mean squared error, or the scale-invariant one of logarithms
    silog_form: Literal["adabins", "newcrfs"] = "newcrfs"  # silog: adabins from 1 mm on, newcrfs from 0.1 m on


@dataclass(frozen=True, kw_only=True)
class OnPixels(OnMaps):
    """Options of methods that see 3,536 pixels of an image of 416 x 544."""

    grouping: str = "unique"  # pixels that share a center: unique (depths are whole millimetres), none, or a bin in m

    def __post_init__(self) -> None:
        """Values that no method can have."""
        super().__post_init__()
        _ = self.centers

    @property
    def centers(self) -> str | float:
        """The grouping as ``OrdinalEntropy`` takes it.

        Example:
            >>> OnPixels().centers, OnPixels(grouping="0.05").centers
            ('unique', 0.05)
        """
        if self.grouping in ("unique", "none"):
            return self.grouping
        try:
            width = float(self.grouping)
        except ValueError:
            width = math.nan
        if not 0 < width < math.inf:
            raise ValueError(f"expected grouping to be unique, none or a bin width in metres, got {self.grouping!r}")
        return width


@dataclass(frozen=True)
class Depth:
    """An encoder and a decoder, from an image of a room to the depth of its pixels in metres."""

    data: Rooms = Rooms()
    model: EncoderDecoder = EncoderDecoder(zero_last_norm=True)
    training: DepthTraining = DepthTraining(
        epochs=25,
        batch_size=16,
        optimizer="adamw",
        learning_rate=3.57e-4,
        weight_decay=0.1,
        schedule="one-cycle",
        clip=0.1,
        feature_rows=64,  # images, of each of which 24 pixels are saved
    )
    method: OnPixels = OnPixels(bins=256, strength=1.0)


_NEWCRFS = "model=newcrfs loss=silog"  # what is the model's own
_SMALL = preset(
    Depth(),
    """height=240 width=320 backbone=tf_efficientnet_lite0 pretrained=lite0 channels=64 start=2.5
    epochs=20 learning_rate=1e-3 clip=1 precision=bf16 graph=true flip=true strength=none""",
)
_QUICK = preset(
    Depth(),
    """generated=600 height=72 width=96 backbone=test_resnet channels=16 start=3
    epochs=10 learning_rate=5e-3 clip=1 feature_rows=32 strength=none""",
)
PRESETS = {
    "paper": preset(Depth(), "flip=true"),
    "newcrfs": preset(
        Depth(),
        f"""{_NEWCRFS} frame=mask crop=false backbone=swin_large_patch4_window7_224
        epochs=50 batch_size=8 optimizer=adam learning_rate=2e-5 weight_decay=0 schedule=poly clip=0 flip=true""",
    ),
    "small": _SMALL,
    "small-newcrfs": preset(_SMALL, _NEWCRFS),
    "quick": _QUICK,
    "quick-newcrfs": preset(_QUICK, f"{_NEWCRFS} channels=32 learning_rate=1e-3"),
}


class _Rooms(NamedTuple):
    """A dataset as read: the pairs of each split, and how many files were left out."""

    views: "dict[str, Views]"
    left_out: int

    def to(self, device: str) -> "_Rooms":
        """The same with the pairs, if they are held, on a device."""
        return self._replace(views={split: own.to(device) for split, own in self.views.items()})


SOURCE = Source(
    "a dataset of images with depths", "renders its own", data, generated.make, "rooms", data.TRAIN_LISTS[0]
)


def rooms(recipe: Depth) -> _Rooms:
    """Reads the dataset of a recipe; pairs that cannot be used are refused, or left out and counted."""
    from ordinal_entropy.tasks.depth import views

    root, own = SOURCE.root(recipe), recipe.data
    size = own.height, own.width
    records, problems = data.records(root)
    refuse(records, problems, skip_bad=own.skip_bad)
    hold = len(records) * views.BYTES * math.prod(size) <= own.memory * _GIGA
    folder = root if root.is_dir() else root.parent
    found, usable = {}, []
    for split in SPLITS:
        part = [record for record in records if record.split == split]
        found[split], kept, damaged = views.load(part, folder, size, hold=hold)
        usable += [part[place] for place in kept]
        problems = [*problems, *damaged]
    refuse(usable, problems, skip_bad=own.skip_bad)
    tell_left_out(problems, root)
    return _Rooms(found, len(problems))


def split_for(plan: Plan, found: _Rooms, *, trained: bool = False) -> "Data":
    """What one run trains on and is scored on: with ``train_rows``, of the training images those of its seed."""
    from ordinal_entropy.vision.split import Data

    own, train = plan.recipe.data, found.views["train"]
    rows = drawn_rows(plan, len(train), trained=trained)
    if rows is not None:
        train = train.part(rows)
    train = replace(train, frame=own.frame, crop=CROP if own.crop else None, angle=own.angle)
    return Data(train, found.views["val"], found.views["test"])


def prepare(plan: Plan, found: _Rooms, facts: Mapping[str, Any] | None) -> Prepared:
    """One run; it needs no facts of a trained one."""
    from ordinal_entropy.tasks.depth.metrics import DepthScores, QuickRms

    recipe, new = plan.recipe, facts is None
    method, make_network = build(plan, {}, new=new)
    loss = partial(masked_mse) if recipe.training.loss == "mse" else partial(silog, form=recipe.training.silog_form)
    scores, quick = DepthScores(align_corners=False), QuickRms(align_corners=False)  # as the models enlarge their maps
    return Prepared(split_for(plan, found, trained=not new), method, make_network, loss, scores, train_metric=quick)


def constant(train: "Views") -> "Callable[[Seen], Tensor]":
    """The mean depth of each pixel."""
    depths = train.mean_map()
    return lambda seen: depths.expand(len(seen.targets), 1, -1, -1)


def build(plan: Plan, facts: Mapping[str, Any], *, new: bool) -> Built:
    """The method with bins up to 10 m, and the network."""
    from ordinal_entropy.models import decoder, newcrfs

    recipe = plan.recipe
    method = method_of(
        plan,
        low=0.0,
        high=MAX_DEPTH,
        stride=recipe.method.stride,
        per="image",
        grouping=recipe.method.centers,
        gather=False,  # images know nothing of each other, hence ranks neither
    )
    outputs = method.outputs(1)

    def make_network() -> "Network":
        model = recipe.model
        options: dict[str, Any] = {} if model.channels is None else {"width": model.channels}
        options["upsample"] = outputs == 1  # many bins stay at the resolution of the features: that is memory
        options |= {"drop_path": model.drop_path, "zero_last_norm": model.zero_last_norm}
        create = decoder.create if model.name == "decoder" else newcrfs.create
        made = create(model.backbone, outputs, model.pretrained or None if new else None, **options)
        if model.start and outputs == 1:
            assert made.head.bias is not None
            share = model.start / MAX_DEPTH  # NeW-CRFs have ten times a sigmoid
            bias = model.start if model.name == "decoder" else math.log(share / (1 - share))
            torch.nn.init.constant_(made.head.bias, bias)
        return made

    return Built(method, make_network)


def size_of(recipe: Depth) -> tuple[int, int]:
    """Height and width of the images."""
    return recipe.data.height, recipe.data.width


def shown_as(recipe: Depth) -> ShownAs:
    """How training images are shown: augmented maps of one size."""
    return ShownAs(maps=True)


def truth(seen: "Seen") -> Tensor:
    """Metres ``(b, 1, h, w)``; NaN where there is no depth."""
    assert seen.mask is not None
    return torch.where(seen.mask, seen.targets, torch.nan)


_SHOWN = {"delta1": "delta1", "delta2": "delta2", "delta3": "delta3", "REL": "rel", "log10": "log10", "SILog": "silog"}
DEPTH = on_images.task(
    OnImages(
        "depth",
        METRIC,
        rooms,
        ("path", "generated", "skip_bad", "height", "width", "memory"),
        prepare,
        constant,
        "the mean depth map of the training images",
        build,
        size=size_of,
        gives="metres of each pixel (n, 1, height, width)",
        maps="metres",
        number="mean_depth",
        shown=_SHOWN,
        truth=truth,
        views=shown_as,
    ),
    about="the depth of the pixels of a room",
    presets=PRESETS,
    check=SOURCE.check,
    details={
        "Test scores": {"delta1": "delta1", "REL": "rel", "RMS": "rms", "log10": "log10"},  # as in the paper
        "Further test scores": {"delta2": "delta2", "delta3": "delta3", "SILog": "silog"},
    },
)
TASKS = {"depth": DEPTH}
