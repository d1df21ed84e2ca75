"""Depth from one image of a room: all that determines a run but method and seed.

    ordinal-entropy train depth --preset quick --method baseline
    ordinal-entropy compare depth --preset small --set data=datasets/nyu

The first renders rooms and trains on them, in a minute on two CPU cores, to far less error than the mean depth has.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from ordinal_entropy.recipes import require_at_least_1, require_not_negative, require_positive
from ordinal_entropy.tasks import method_of, on_images
from ordinal_entropy.tasks.depth import data, generated
from ordinal_entropy.tasks.depth.losses import masked_mse, silog
from ordinal_entropy.tasks.depth.maps import CROP, HEIGHT, MAX_DEPTH, WIDTH
from ordinal_entropy.tasks.on_images.description import OnImages, Prepared, ShownAs
from ordinal_entropy.tasks.on_images.source import Source, drawn_rows
from ordinal_entropy.training.plans import Plan
from ordinal_entropy.vision.paths import SPLITS, refuse, tell_left_out

if TYPE_CHECKING:  # Lightning takes seconds to import
    from ordinal_entropy.tasks.depth.views import Views
    from ordinal_entropy.training.large.predicting import Network
    from ordinal_entropy.vision.split import Data, Seen

METRIC = "rms"
_GIGA = 1e9
_LEAST = 32  # pixels of a side


@dataclass(frozen=True)
class Depth:
    """An encoder and a decoder, from an image of a room to the depth of its pixels in metres."""

    # Data.
    data: str = ""  # a folder as `ordinal-entropy data check depth` takes it, or nyu_depth_v2_labeled.mat
    generated: int = 0  # with no data: so many views of rooms are rendered and kept in the cache; 0: none are
    train_rows: int = 0  # a part of the training images, drawn by the seed of the run; 0: all
    skip_bad: bool = False  # True: files that cannot be used are left out; else they are refused
    height: int = HEIGHT  # rows of an image; images of another size are resized
    width: int = WIDTH  # columns of an image
    frame: Literal["crop", "mask", "none"] = "crop"  # where the sensor measures: cut out, the rest masked, or no matter
    crop: bool = True  # train on random parts of 416 x 544, scaled to the size of the images; else on all of them
    angle: float = 2.5  # degrees that a training image is turned by, at most
    memory: float = 8.0  # gigabytes of images and depths that are held on the device; larger sets are streamed
    workers: int = 4  # processes that read the images of larger sets

    # Model.
    model: Literal["decoder", "newcrfs"] = "decoder"  # a plain decoder to stride 2, or NeW-CRFs, to stride 4
    backbone: str = "resnet50"  # the encoder, a name of timm's
    pretrained: str = ""  # a file of weights, or lite0 for those of the [pretrained] extra; "": random
    zero_last_norm: bool = True  # residual blocks begin as the identity, as timm has it; False: random weights do not
    channels: int | None = None  # of the features of a pixel; none: 128 for decoder, as the encoder has it for newcrfs
    drop_path: float | None = None  # how often residual branches are left out in training; none: as the model has it
    start: float = 0.0  # metres that predictions begin at, less than 10; 0: as the random weights have it

    # Training, as AdaBins has it.
    epochs: int = 25
    batch_size: int = 16  # images of a step, of all devices and accumulated parts together
    optimizer: Literal["adam", "adamw", "sgd"] = "adamw"
    learning_rate: float = 3.57e-4
    weight_decay: float = 0.1
    schedule: Literal["milestones", "poly", "one-cycle"] = "one-cycle"  # of the learning rate
    milestones: tuple[int, ...] = ()  # epochs after which the learning rate is a tenth, with schedule=milestones
    clip: float = 0.1  # the norm of the gradient, at most; 0: any
    loss: Literal["mse", "silog"] = "mse"  # mean squared error, or the scale-invariant one of logarithms
    silog_form: Literal["adabins", "newcrfs"] = "newcrfs"  # silog: adabins from 1 mm on, newcrfs from 0.1 m on
    flip: bool = False  # predict test images as the mean of theirs and of their mirror image's
    precision: Literal["float32", "bf16", "fp16", "float64"] = "float32"  # bf16, fp16: mixed, on a GPU only
    channels_last: bool = True  # in memory: faster on most devices
    compile: bool = False  # by torch.compile
    graph: bool = False  # steps as a CUDA graph, for a GPU that waits for its host; one device, images held there
    accumulate: int = 1  # parts of a step, one after the other: less memory
    devices: int = 1  # of each machine
    nodes: int = 1  # machines
    strategy: str = "auto"  # of Lightning, for several devices: ddp, ...
    threads: int = 1  # of a run on a CPU, whose rounding follows from them; more for one large run, --jobs for many

    # The method.
    strength: float = 1.0  # of what is added to the task loss
    tightness_weight: float = 1.0  # oe: of the tightness beside the diversity, lambda_t; the strength multiplies both
    balance: float = 0.1  # ld-balanced, oe-balanced: gradient of a term, as a fraction of the task loss's
    rescale: Literal["authors", "max", "none"] = "authors"  # weights (w - min) / max, w / max, or raw as in the paper
    stride: int = 4  # one in so many features, down and across: 3,536 an image of 416 x 544
    grouping: str = "unique"  # pixels that share a center: unique (depths are whole millimetres), none, or a bin in m
    bins: int = 256  # classification: uniform over 0 to 10 m
    decode: Literal["center", "left"] = "center"  # classification: where in its bin a prediction lies; authors: left
    method_options: tuple[str, ...] = ()  # part.option=value, ...: of one part; --set method.part.option=value adds one

    feature_rows: int = 64  # training and test images of which 24 pixels' features are kept after every epoch; 0: none

    def __post_init__(self) -> None:
        """Values that no run can have are refused before anything is read."""
        require_at_least_1(self, "epochs", "batch_size", "accumulate", "devices", "nodes", "threads", "stride")
        require_not_negative(self, "weight_decay", "strength", "tightness_weight", "memory", "generated", "train_rows")
        require_not_negative(self, "workers", "feature_rows", "clip", "angle")
        for name in ("height", "width"):
            if getattr(self, name) < _LEAST:
                raise ValueError(f"expected {name} to be at least {_LEAST}, got {getattr(self, name)}")
        require_positive(self, "learning_rate", "balance")
        if self.drop_path is not None and not 0 <= self.drop_path < 1:
            raise ValueError(f"expected drop_path from 0 to 1, got {self.drop_path}")
        if not 0 <= self.start < MAX_DEPTH:
            raise ValueError(f"expected start to be a depth from 0 to {MAX_DEPTH:g} metres, got {self.start}")
        if self.bins < 2:
            raise ValueError(f"expected bins to be at least 2, got {self.bins}")
        grouping_of(self)


def grouping_of(recipe: Depth) -> str | float:
    """As ``OrdinalEntropy`` takes it.

    Example:
        >>> grouping_of(Depth()), grouping_of(Depth(grouping="0.05"))
        ('unique', 0.05)
    """
    if recipe.grouping in ("unique", "none"):
        return recipe.grouping
    try:
        width = float(recipe.grouping)
    except ValueError:
        width = math.nan
    if not 0 < width < math.inf:
        raise ValueError(f"expected grouping to be unique, none or a bin width in metres, got {recipe.grouping!r}")
    return width


_NEWCRFS: dict[str, Any] = {"model": "newcrfs", "loss": "silog"}  # what is the model's own
_SMALL = Depth(
    height=240,
    width=320,
    backbone="tf_efficientnet_lite0",
    pretrained="lite0",
    channels=64,
    start=2.5,
    epochs=20,
    learning_rate=1e-3,
    clip=1.0,
    precision="bf16",
    graph=True,
    flip=True,
)
_QUICK = Depth(
    generated=600,
    height=72,
    width=96,
    backbone="test_resnet",
    channels=16,
    start=3.0,
    epochs=10,
    learning_rate=5e-3,
    clip=1.0,
    feature_rows=32,
)
PRESETS = {
    "paper": Depth(flip=True),
    "newcrfs": Depth(
        **_NEWCRFS,
        frame="mask",
        crop=False,
        backbone="swin_large_patch4_window7_224",
        epochs=50,
        batch_size=8,
        optimizer="adam",
        learning_rate=2e-5,
        weight_decay=0.0,
        schedule="poly",
        clip=0.0,
        flip=True,
    ),
    "small": _SMALL,
    "small-newcrfs": replace(_SMALL, **_NEWCRFS),
    "quick": _QUICK,
    "quick-newcrfs": replace(_QUICK, **_NEWCRFS, channels=32, learning_rate=1e-3),
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

    root, size = SOURCE.root(recipe), (recipe.height, recipe.width)
    records, problems = data.records(root)
    refuse(records, problems, skip_bad=recipe.skip_bad)
    hold = len(records) * views.BYTES * math.prod(size) <= recipe.memory * _GIGA
    folder = root if root.is_dir() else root.parent
    found, usable = {}, []
    for split in SPLITS:
        own = [record for record in records if record.split == split]
        found[split], kept, damaged = views.load(own, folder, size, hold=hold)
        usable += [own[place] for place in kept]
        problems = [*problems, *damaged]
    refuse(usable, problems, skip_bad=recipe.skip_bad)
    tell_left_out(problems, root)
    return _Rooms(found, len(problems))


def split_for(plan: Plan, found: _Rooms, *, trained: bool = False) -> "Data":
    """What one run trains on and is scored on: with ``train_rows``, of the training images those of its seed."""
    from ordinal_entropy.vision.split import Data

    recipe, train = plan.recipe, found.views["train"]
    rows = drawn_rows(plan, len(train), trained=trained)
    if rows is not None:
        train = train.part(rows)
    train = replace(train, frame=recipe.frame, crop=CROP if recipe.crop else None, angle=recipe.angle)
    return Data(train, found.views["val"], found.views["test"])


def prepare(plan: Plan, found: _Rooms, facts: Mapping[str, Any] | None) -> Prepared:
    """One run; it needs no facts of a trained one."""
    from ordinal_entropy.models import decoder, newcrfs
    from ordinal_entropy.tasks.depth.metrics import DepthScores, QuickRms

    recipe, new = plan.recipe, facts is None
    method = method_of(
        plan,
        low=0.0,
        high=MAX_DEPTH,
        stride=recipe.stride,
        per="image",
        grouping=grouping_of(recipe),
        gather=False,  # images know nothing of each other, hence ranks neither
    )
    outputs = method.outputs(1)

    def make_network() -> "Network":
        options: dict[str, Any] = {} if recipe.channels is None else {"width": recipe.channels}
        options["upsample"] = outputs == 1  # many bins stay at the resolution of the features: that is memory
        options |= {"drop_path": recipe.drop_path, "zero_last_norm": recipe.zero_last_norm}
        create = decoder.create if recipe.model == "decoder" else newcrfs.create
        made = create(recipe.backbone, outputs, recipe.pretrained or None if new else None, **options)
        if recipe.start and outputs == 1:
            assert made.head.bias is not None
            share = recipe.start / MAX_DEPTH  # NeW-CRFs have ten times a sigmoid
            bias = recipe.start if recipe.model == "decoder" else math.log(share / (1 - share))
            torch.nn.init.constant_(made.head.bias, bias)
        return made

    loss = partial(masked_mse) if recipe.loss == "mse" else partial(silog, form=recipe.silog_form)
    scores, quick = DepthScores(align_corners=False), QuickRms(align_corners=False)  # as the models enlarge their maps
    return Prepared(split_for(plan, found, trained=not new), method, make_network, loss, scores, train_metric=quick)


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
        ("data", "generated", "skip_bad", "height", "width", "memory"),
        prepare,
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
