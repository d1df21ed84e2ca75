"""Counting heads in an image: all that determines a run but method and seed.

    ordinal-entropy train crowd --preset quick --method baseline
    ordinal-entropy compare crowd --methods baseline,oe --seeds 5 --preset small --set data=ShanghaiTech/part_A

The first draws crowds and trains on them, in a minute on two CPU cores, to far less error than the mean count has.
"""

import math
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ordinal_entropy.recipes import require_at_least_1, require_not_negative, require_positive
from ordinal_entropy.tasks import method_of, on_images
from ordinal_entropy.tasks.crowd import annotations, data, density, generated
from ordinal_entropy.tasks.crowd.annotations import Points
from ordinal_entropy.tasks.crowd.data import Record
from ordinal_entropy.tasks.crowd.density import CELL
from ordinal_entropy.tasks.crowd.losses import task_loss
from ordinal_entropy.tasks.on_images.description import OnImages, Prepared, ShownAs
from ordinal_entropy.tasks.on_images.source import Source, drawn_rows
from ordinal_entropy.training.plans import Plan
from ordinal_entropy.vision import images
from ordinal_entropy.vision.images import ImageError, Pixels
from ordinal_entropy.vision.paths import SPLITS, Problem, refuse, shown, tell_left_out

if TYPE_CHECKING:  # Lightning and torchmetrics take seconds to import
    from ordinal_entropy.models.csrnet import CSRNet
    from ordinal_entropy.tasks.crowd.views import Crowds
    from ordinal_entropy.vision.split import Data, Seen

METRIC = "mae"
_GIGA = 1e9
_FRAME = 16  # cells: after crops, images are counted in frames of multiples of 128 pixels; a GPU plans every new size


@dataclass(frozen=True)
class Crowd:
    """CSRNet: from an image to a density map whose sum is the number of heads."""

    # Data.
    data: str = ""  # a folder as `ordinal-entropy data check crowd` takes it: part A or B of ShanghaiTech
    generated: int = 0  # with no data: so many crowds are drawn and kept in the cache; 0: none are
    validation: float = 0.1  # part of the training images that the best epoch is chosen by
    train_rows: int = 0  # a part of the other training images, drawn by the seed of the run; 0: all
    skip_bad: bool = False  # True: files that cannot be used are left out; else they are refused
    max_side: int = 0  # larger images are reduced until their longer side has so many pixels; 0: none are
    memory: float = 8.0  # gigabytes of images that are held on the device, at most; a larger set is refused

    # Density maps.
    kernel: Literal["adaptive", "fixed"] = "adaptive"  # width of a head: from its neighbours (part A), or one for all
    sigma: float = 15.0  # of the fixed kernel (part B), in pixels of the images as they are used
    border: Literal["kept", "lost"] = "lost"  # what of a head would lie outside: lost (published), or kept inside
    reduce: Literal["sum", "bicubic"] = "bicubic"  # cells of 8 x 8 pixels: resized (published), or exact sums

    # Model.
    front: str = "vgg16"  # a name of timm's
    pretrained: str = ""  # a file of weights of it, or lite0 for those of the [pretrained] extra; "": random
    reach: int = 0  # the front end goes up to its layers of stride 8, 16 or 32; 0: 16 of a ResNet, 8 of others
    dilated: bool = False  # True: those past stride 8 are dilated; else only their stride is taken away
    widths: tuple[int, ...] = (512, 512, 512, 256, 128, 64)  # channels of the back end
    batch_norm: bool = False  # in the back end

    # Training.
    crop: int = 0  # side of random crops in pixels, a multiple of 8; 0: whole images
    mirror: bool = False  # True: one in two is mirrored
    epochs: int = 400
    repeats: int = 4  # times that an epoch goes over the images
    batch_size: int = 1  # images of a step, of all devices and accumulated parts together
    loss: Literal["sum-mse", "mse"] = "sum-mse"  # squared errors of cells: sum over an image (published), or mean
    loss_scale: float = 2.0  # mse: of heads in a cell; their standard deviation is 0.53 in part A at 512 pixels
    optimizer: Literal["adam", "adamw", "sgd"] = "sgd"
    learning_rate: float = 1e-7
    weight_decay: float = 5e-4
    momentum: float = 0.95  # of sgd
    schedule: Literal["milestones", "poly", "one-cycle"] = "milestones"  # of the learning rate
    milestones: tuple[int, ...] = ()  # epochs after which the learning rate is a tenth
    clip: float = 0.0  # the norm of the gradient, at most; 0: any
    precision: Literal["float32", "bf16", "fp16", "float64"] = "float32"  # bf16, fp16: mixed, on a GPU only
    channels_last: bool = True  # in memory: faster on most devices
    compile: bool = False  # by torch.compile
    graph: bool = False  # steps as a CUDA graph, for a GPU that waits for its host; one device, images held there
    accumulate: int = 1  # parts of a step, one after the other: less memory, and a method sees a part at a time
    devices: int = 1  # of each machine
    nodes: int = 1  # machines
    strategy: str = "auto"  # of Lightning, for several devices: ddp, ...
    threads: int = 1  # of a run on a CPU, whose rounding follows from them; more for one large run, --jobs for many
    flip: bool = False  # predict the mean of an image and its mirror image

    # The method.
    strength: float = 10.0  # of what is added to the task loss; published beside sum-mse, whose scale it is for
    tightness_weight: float = 1.0  # oe: of the tightness beside the diversity, lambda_t; the strength multiplies both
    balance: float = 0.1  # ld-balanced, oe-balanced: gradient of a term, as a fraction of the task loss's
    rescale: Literal["authors", "max", "none"] = "authors"  # weights (w - min) / max, w / max, or raw as in the paper
    grouping: float = 0.02  # cells share a center whose heads fall into one bin of this width; 0: only equal ones
    above: float = 1e-3  # cells with more heads than this are seen by the method
    stride: int = 4  # one cell in so many, down and across, is seen by the method
    bins: int = 256  # classification: uniform from 0 to the fullest cell of the training images
    decode: Literal["center", "left"] = "left"  # classification: where in its bin a prediction lies; left: 0 is 0
    method_options: tuple[str, ...] = ()  # part.option=value, ...: of one part; --set method.part.option=value adds one

    feature_rows: int = 512  # training and test images of which some features are kept after every epoch; 0: none

    def __post_init__(self) -> None:
        """Values that no run can have are refused before anything is read."""
        require_at_least_1(
            self, "epochs", "repeats", "batch_size", "accumulate", "devices", "nodes", "threads", "stride"
        )
        require_not_negative(self, "weight_decay", "momentum", "strength", "tightness_weight", "memory", "generated")
        require_not_negative(self, "train_rows", "feature_rows", "clip", "max_side", "crop", "above", "grouping")
        require_positive(self, "learning_rate", "loss_scale", "sigma", "balance")
        if not 0 < self.validation < 1:
            raise ValueError(f"expected validation to be between 0 and 1, got {self.validation}")
        if self.crop % CELL or 0 < self.crop < CELL * self.stride:
            least = f"at least {CELL} x stride = {CELL * self.stride}"
            raise ValueError(f"expected crop to be 0, or a multiple of {CELL} and {least}, got {self.crop}")
        if 0 < self.max_side < CELL * self.stride:
            raise ValueError(
                f"expected max_side to be 0, or at least {CELL} x stride = {CELL * self.stride}, got {self.max_side}"
            )
        if self.reach not in (0, 8, 16, 32):
            raise ValueError(f"expected reach to be 0, 8, 16 or 32, got {self.reach}")
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"expected widths of at least 1, got {', '.join(map(str, self.widths)) or 'none'}")
        if self.bins < 2:
            raise ValueError(f"expected bins to be at least 2, got {self.bins}")


_CROPS = Crowd(
    border="kept",
    reduce="sum",
    batch_norm=True,
    mirror=True,
    loss="mse",
    optimizer="adamw",
    schedule="one-cycle",
    strength=1.0,
)
PRESETS = {
    "paper": Crowd(),  # of CSRNet; it begins with weights of ImageNet, without which this rate hardly learns
    "resnet50": Crowd(front="resnet50"),  # the front end that the paper names
    "small": replace(
        _CROPS,
        max_side=512,
        front="tf_efficientnet_lite0",
        pretrained="lite0",
        reach=16,
        widths=(256, 256, 256, 128, 64),
        crop=256,
        epochs=8,
        repeats=8,
        batch_size=16,
        learning_rate=5e-4,
        weight_decay=1e-2,
        clip=1.0,
        precision="bf16",
        graph=True,
        feature_rows=64,
    ),
    "quick": replace(
        _CROPS,
        generated=120,
        front="test_resnet",
        widths=(64, 64),
        crop=128,
        epochs=8,
        repeats=4,
        batch_size=8,
        learning_rate=2e-3,
        weight_decay=1e-2,
        clip=1.0,
        feature_rows=24,
    ),
}


class _Found(NamedTuple):
    """A dataset as read: the images of each split, and how many files were left out."""

    splits: "dict[str, Crowds]"
    left_out: int

    def to(self, device: str) -> "_Found":
        """The same on a device."""
        return self._replace(splits={name: split.to(device) for name, split in self.splits.items()})


class _Image(NamedTuple):
    """As used: reduced, and the points with it."""

    pixels: Pixels
    points: Points
    split: str
    density_size: tuple[int, int]  # height and width of the image that the density map is made for


SOURCE = Source("a dataset of crowds", "draws its own", data, generated.make, "crowds", "test_data")


def crowds(recipe: Crowd) -> _Found:
    """Reads the dataset of a recipe; files that cannot be used are refused, or left out and counted."""
    from ordinal_entropy.tasks.crowd.views import Crowds, sheets

    root = SOURCE.root(recipe)
    records, problems = data.records(root, validation=recipe.validation)
    refuse(records, problems, skip_bad=recipe.skip_bad)
    everything, damaged = _read(records, root, recipe)
    problems = [*problems, *damaged]
    refuse(everything, problems, skip_bad=recipe.skip_bad)
    tell_left_out(problems, root)
    settings = density.Settings(recipe.kernel, recipe.sigma, recipe.border, CELL, recipe.reduce)
    maps = density.all_cached(
        [image.points for image in everything], [image.density_size for image in everything], settings
    )
    splits = {}
    for name in SPLITS:
        rows = [row for row, image in enumerate(everything) if image.split == name]
        splits[name] = Crowds(
            sheets([torch.from_numpy(everything[row].pixels) for row in rows]),
            sheets([torch.from_numpy(maps[row])[..., None] for row in rows]),
            torch.tensor([len(everything[row].points) for row in rows], dtype=torch.float64),
        )
    return _Found(splits, len(problems))


def split_for(plan: Plan, found: _Found, *, trained: bool = False) -> "Data":
    """What one run trains on and is scored on: with ``train_rows``, of the training images those of its seed."""
    from ordinal_entropy.vision.split import Data

    recipe, train = plan.recipe, found.splits["train"]
    rows = drawn_rows(plan, len(train), trained=trained)
    if rows is not None:
        train = train.take(rows)
    train, validation, test = (
        replace(split, crop=recipe.crop, above=recipe.above, frame=_FRAME if recipe.crop else 1)
        for split in (train, found.splits["val"], found.splits["test"])
    )
    return Data(replace(train, mirror=recipe.mirror, repeats=recipe.repeats), validation, test)


def prepare(plan: Plan, found: _Found, facts: Mapping[str, Any] | None) -> Prepared:
    """One run; the bins are those of the training cells, or of the facts of a run that is trained."""
    from ordinal_entropy.models import csrnet
    from ordinal_entropy.tasks.crowd.metrics import CountErrors
    from ordinal_entropy.tasks.crowd.views import Crowds
    from ordinal_entropy.vision.split import Data

    recipe, new = plan.recipe, facts is None
    parts = split_for(plan, found, trained=not new)
    if facts is None:
        assert isinstance(parts.train, Crowds)
        facts = {"high": float(parts.train.cells.values.max()) or 1.0}  # of nobody at all: some range
    method = method_of(
        plan,
        low=0.0,
        high=facts["high"],
        grouping=recipe.grouping or "unique",
        stride=recipe.stride,
        per="image",
        gather=recipe.devices * recipe.nodes > 1,
    )
    if method.replaces_task_loss:  # it has to learn of the empty cells too
        parts = Data(*(replace(split, above=-math.inf) for split in parts if isinstance(split, Crowds)))

    def make_network() -> "CSRNet":
        return csrnet.create(
            recipe.front,
            method.outputs(1),
            recipe.pretrained or None if new else None,
            reach=recipe.reach or None,
            dilated=recipe.dilated,
            batch_norm=recipe.batch_norm,
            widths=recipe.widths,
        )

    def loss(outputs: Tensor, targets: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        # of every cell that has a target; the mask says which cells added terms see
        return task_loss(outputs, targets, weight=weight, loss=recipe.loss, scale=recipe.loss_scale)

    return Prepared(parts, method, make_network, loss, CountErrors(), facts)


def shown_as(recipe: Crowd) -> ShownAs:
    """How training images are shown: crops are of one size, and each epoch draws others."""
    return ShownAs(recipe.crop > 0, recipe.crop > 0 or recipe.mirror, maps=True)


def truth(seen: "Seen") -> Tensor:
    """Heads of cells ``(b, 1, h, w)``; NaN beyond the image."""
    return seen.targets


def _read(records: list[Record], root: Path, recipe: Crowd) -> tuple[list[_Image], list[Problem]]:
    """All images that can be used, on all cores, and what is wrong with the others."""

    def one(record: Record) -> _Image | str:
        try:
            pixels = images.read(record.path)
        except ImageError as error:
            return error.reason
        height, width, _ = pixels.shape
        return annotations.outside(record.points, height, width) or _used(pixels, record, recipe)

    found, problems, held = [], [], 0
    pool = ThreadPoolExecutor(os.cpu_count())  # Pillow decodes outside the interpreter's lock
    try:
        for record, image in zip(records, pool.map(one, records), strict=True):
            if isinstance(image, str):
                problems.append(Problem(shown(record.path.relative_to(root).as_posix()), image))
                continue
            found.append(image)
            held += image.pixels.nbytes
            if held > recipe.memory * _GIGA:
                raise ValueError(
                    f"expected images of at most memory={recipe.memory:g} gigabytes in all, got more in the first "
                    f"{len(found):,} of {len(records):,}; max_side makes them smaller, memory allows for more"
                )
    finally:
        pool.shutdown(cancel_futures=True)
    return found, problems


def _used(pixels: Pixels, record: Record, recipe: Crowd) -> _Image | str:
    """The image, reduced and cut as the recipe says; or why it cannot be used."""
    height, width, _ = pixels.shape
    points = record.points
    if 0 < recipe.max_side < max(height, width):
        from PIL import Image

        factor = recipe.max_side / max(height, width)
        across, down = (max(round(side * factor), 1) for side in (width, height))
        pixels = np.array(Image.fromarray(pixels).resize((across, down), Image.Resampling.BILINEAR))
        points = points * (across / width, down / height)
        height, width = down, across
    size = height, width
    if recipe.reduce == "bicubic":  # which has no cell for the rest
        pixels = pixels[: height // CELL * CELL, : width // CELL * CELL]
        if not pixels.size:
            return f"smaller than a cell of {CELL} x {CELL} pixels: {width} x {height}"
    return _Image(pixels, points, record.split, size)


CROWD = on_images.task(
    OnImages(
        "crowd",
        METRIC,
        crowds,
        ("data", "generated", "validation", "skip_bad", "max_side", "memory", "kernel", "sigma", "border", "reduce"),
        prepare,
        shown={"root MSE": "rmse"},
        facts={"high": float},
        truth=truth,
        views=shown_as,
    ),
    about="the number of heads in an image",
    presets=PRESETS,
    check=SOURCE.check,
    details={"Test errors of counts": {"MAE": "mae", "root MSE": "rmse"}},
    paper_at="best_test",  # as the code of CSRNet has it
)
TASKS = {"crowd": CROWD}
