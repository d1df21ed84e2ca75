"""Counting heads in an image: all that determines a run but method and seed.

    ordinal-entropy train crowd --preset quick --method baseline
    ordinal-entropy compare crowd --methods baseline,oe --seeds 5 --preset small --set data=ShanghaiTech/part_A

The first draws crowds and trains on them, in a minute on two CPU cores, to far less error than the mean count has.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ordinal_entropy.files import SPLITS, Problem, refuse, shown, tell_left_out
from ordinal_entropy.recipes import preset, require_at_least_1, require_not_negative, require_positive
from ordinal_entropy.recipes.groups import Images, LargeTraining, OnMaps, Pretrained
from ordinal_entropy.tasks import method_of, on_images
from ordinal_entropy.tasks.crowd import annotations, data, density, generated
from ordinal_entropy.tasks.crowd.annotations import Points
from ordinal_entropy.tasks.crowd.data import Record
from ordinal_entropy.tasks.crowd.density import CELL
from ordinal_entropy.tasks.crowd.losses import task_loss
from ordinal_entropy.tasks.on_images.description import Built, OnImages, Prepared, ShownAs, Source, drawn_rows
from ordinal_entropy.training.plans import Plan
from ordinal_entropy.vision import images
from ordinal_entropy.vision.images import ImageError, Pixels

if TYPE_CHECKING:  # Lightning and torchmetrics take seconds to import
    from ordinal_entropy.models.csrnet import CSRNet
    from ordinal_entropy.tasks.crowd.views import Crowds
    from ordinal_entropy.vision.split import Data, Seen

METRIC = "mae"
_GIGA = 1e9
_FRAME = 16  # cells: after crops, images are counted in frames of multiples of 128 pixels; a GPU plans every new size


@dataclass(frozen=True, kw_only=True)
class CrowdImages(Images):
    """Images with the places of heads, and the density maps that are made of these: part A or B of ShanghaiTech."""

    validation: float = 0.1  # part of the training images that the best epoch is chosen by
    max_side: int = 0  # larger images are reduced until their longer side has so many pixels; 0: none are
    kernel: Literal["adaptive", "fixed"] = "adaptive"  # width of a head: from its neighbours (part A), or one for all
    sigma: float = 15.0  # of the fixed kernel (part B), in pixels of the images as they are used
    border: Literal["kept", "lost"] = "lost"  # what of a head would lie outside: lost (published), or kept inside
    reduce: Literal["sum", "bicubic"] = "bicubic"  # cells of 8 x 8 pixels: resized (published), or exact sums
    crop: int = 0  # side of random crops in pixels, a multiple of 8; 0: whole images
    mirror: bool = False  # True: one in two is mirrored
    repeats: int = 4  # times that an epoch goes over the images

    def __post_init__(self) -> None:
        """Values that no dataset can have."""
        super().__post_init__()
        require_at_least_1(self, "repeats")
        require_not_negative(self, "max_side", "crop")
        require_positive(self, "sigma")
        if not 0 < self.validation < 1:
            raise ValueError(f"expected validation to be between 0 and 1, got {self.validation}")


@dataclass(frozen=True, kw_only=True)
class FrontAndBack(Pretrained):
    """CSRNet: layers of a network of timm's, and layers behind them."""

    front: str = "vgg16"  # a name of timm's
    reach: int = 0  # the front end goes up to its layers of stride 8, 16 or 32; 0: 16 of a ResNet, 8 of others
    dilated: bool = False  # True: those past stride 8 are dilated; else only their stride is taken away
    widths: tuple[int, ...] = (512, 512, 512, 256, 128, 64)  # channels of the back end
    batch_norm: bool = False  # in the back end

    def __post_init__(self) -> None:
        """Values that no network can have."""
        if self.reach not in (0, 8, 16, 32):
            raise ValueError(f"expected reach to be 0, 8, 16 or 32, got {self.reach}")
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"expected widths of at least 1, got {', '.join(map(str, self.widths)) or 'none'}")


@dataclass(frozen=True, kw_only=True)
class CrowdTraining(LargeTraining):
    """On density maps."""

    loss: Literal["sum-mse", "mse"] = "sum-mse"  # squared errors of cells: sum over an image (published), or mean
    loss_scale: float = 2.0  # mse: of heads in a cell; their standard deviation is 0.53 in part A at 512 pixels

    def __post_init__(self) -> None:
        """Values that no training can have."""
        super().__post_init__()
        require_positive(self, "loss_scale")


@dataclass(frozen=True, kw_only=True)
class OnCells(OnMaps):
    """Options of methods that see cells of 8 x 8 pixels."""

    grouping: float = 0.02  # cells share a center whose heads fall into one bin of this width; 0: only equal ones
    above: float = 1e-3  # cells with more heads than this are seen by the method

    def __post_init__(self) -> None:
        """Values that no method can have."""
        super().__post_init__()
        require_not_negative(self, "above", "grouping")


@dataclass(frozen=True)
class Crowd:
    """CSRNet: from an image to a density map whose sum is the number of heads."""

    data: CrowdImages = CrowdImages()
    model: FrontAndBack = FrontAndBack()
    training: CrowdTraining = CrowdTraining(
        epochs=400, batch_size=1, optimizer="sgd", learning_rate=1e-7, weight_decay=5e-4, momentum=0.95
    )
    method: OnCells = OnCells(
        strength=10.0,  # published beside sum-mse, whose scale it is for
        bins=256,  # from 0 to the fullest cell of the training images
        decode="left",  # so that 0 is 0
    )

    def __post_init__(self) -> None:
        """Images that have no place that the method sees."""
        data, least = self.data, CELL * self.method.stride
        named = f"at least {CELL} x stride = {least}"
        if data.crop % CELL or 0 < data.crop < least:
            raise ValueError(f"expected crop to be 0, or a multiple of {CELL} and {named}, got {data.crop}")
        if 0 < data.max_side < least:
            raise ValueError(f"expected max_side to be 0, or {named}, got {data.max_side}")


_CROPS = preset(
    Crowd(),
    """border=kept reduce=sum batch_norm=true mirror=true
    loss=mse optimizer=adamw schedule=one-cycle weight_decay=1e-2 clip=1 epochs=8 strength=none""",
)
PRESETS = {
    "paper": Crowd(),  # of CSRNet; it begins with weights of ImageNet, without which this rate hardly learns
    "resnet50": preset(Crowd(), "front=resnet50"),  # the front end that the paper names
    "small": preset(
        _CROPS,
        """max_side=512 crop=256 repeats=8
        front=tf_efficientnet_lite0 pretrained=lite0 reach=16 widths=256,256,256,128,64
        batch_size=16 learning_rate=5e-4 precision=bf16 graph=true feature_rows=64""",
    ),
    "quick": preset(
        _CROPS,
        """generated=120 crop=128 front=test_resnet widths=64,64
        batch_size=8 learning_rate=2e-3 feature_rows=24""",
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

    root, own = SOURCE.root(recipe), recipe.data
    records, problems = data.records(root, validation=own.validation)
    refuse(records, problems, skip_bad=own.skip_bad)
    everything, damaged = _read(records, root, recipe)
    problems = [*problems, *damaged]
    refuse(everything, problems, skip_bad=own.skip_bad)
    tell_left_out(problems, root)
    settings = density.DensityOptions(own.kernel, own.sigma, own.border, CELL, own.reduce)
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

    own, train = plan.recipe.data, found.splits["train"]
    rows = drawn_rows(plan, len(train), trained=trained)
    if rows is not None:
        train = train.take(rows)
    train, validation, test = (
        replace(split, crop=own.crop, above=plan.recipe.method.above, frame=_FRAME if own.crop else 1)
        for split in (train, found.splits["val"], found.splits["test"])
    )
    return Data(replace(train, mirror=own.mirror, repeats=own.repeats), validation, test)


def prepare(plan: Plan, found: _Found, facts: Mapping[str, Any] | None) -> Prepared:
    """One run; the bins are those of the training cells, or of the facts of a run that is trained."""
    from ordinal_entropy.tasks.crowd.metrics import CountErrors
    from ordinal_entropy.tasks.crowd.views import Crowds
    from ordinal_entropy.vision.split import Data

    recipe, new = plan.recipe, facts is None
    parts = split_for(plan, found, trained=not new)
    if facts is None:
        assert isinstance(parts.train, Crowds)
        facts = {"high": float(parts.train.cells.values.max()) or 1.0}  # of nobody at all: some range
    method, make_network = build(plan, facts, new=new)
    if method.replaces_task_loss:  # it has to learn of the empty cells too
        parts = Data(*(replace(split, above=-math.inf) for split in parts if isinstance(split, Crowds)))

    def loss(outputs: Tensor, targets: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        # of every cell that has a target; the mask says which cells the regularization sees
        return task_loss(outputs, targets, weight=weight, loss=recipe.training.loss, scale=recipe.training.loss_scale)

    return Prepared(parts, method, make_network, loss, CountErrors(), facts)


def constant(train: "Crowds") -> "Callable[[Seen], Tensor]":
    """The mean count, spread over the cells of an image."""
    count = train.people.mean()

    def predicted(seen: "Seen") -> Tensor:
        inside = ~seen.targets.isnan()
        return torch.where(inside, count / inside.sum((1, 2, 3), keepdim=True), 0)

    return predicted


def build(plan: Plan, facts: Mapping[str, Any], *, new: bool) -> Built:
    """The method with bins up to the fullest cell of the facts, and CSRNet."""
    from ordinal_entropy.models import csrnet

    recipe = plan.recipe
    method = method_of(
        plan,
        low=0.0,
        high=facts["high"],
        grouping=recipe.method.grouping or "unique",
        stride=recipe.method.stride,
        per="image",
        gather=recipe.training.processes > 1,
    )

    def make_network() -> "CSRNet":
        model = recipe.model
        return csrnet.create(
            model.front,
            method.outputs(1),
            model.pretrained or None if new else None,
            reach=model.reach or None,
            dilated=model.dilated,
            batch_norm=model.batch_norm,
            widths=model.widths,
        )

    return Built(method, make_network)


def unlabelled(recipe: Crowd, pixels: Sequence[Pixels], names: Sequence[str]) -> "Crowds":
    """Images to count in, reduced and framed as test images are."""
    from ordinal_entropy.tasks.crowd.views import Crowds, sheets

    found = []
    for image, name in zip(pixels, names, strict=True):
        own = _used(image, Record(Path(name), np.empty((0, 2)), ""), recipe)
        if isinstance(own, str):
            raise ImageError(name, own)
        found.append(torch.from_numpy(own.pixels))
    cells = [torch.zeros(-(-each.shape[0] // CELL), -(-each.shape[1] // CELL), 1) for each in found]
    people = torch.zeros(len(found), dtype=torch.float64)
    return Crowds(sheets(found), sheets(cells), people, crop=recipe.data.crop, frame=_FRAME if recipe.data.crop else 1)


def resize(recipe: Crowd) -> str:
    """How images are resized, in words."""
    most = recipe.data.max_side
    first = f"reduced, bilinear, until the longer side has {most} pixels" if most else "as they are"
    return f"{first}; then made larger to multiples of {CELL}, mirrored at the edge; the map has a cell for each {CELL}"


def shown_as(recipe: Crowd) -> ShownAs:
    """How training images are shown: crops are of one size, and each epoch draws others."""
    cropped = recipe.data.crop > 0
    return ShownAs(cropped, cropped or recipe.data.mirror, maps=True)


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
            if held > recipe.data.memory * _GIGA:
                raise ValueError(
                    f"expected images of at most memory={recipe.data.memory:g} gigabytes in all, got more in the "
                    f"first {len(found):,} of {len(records):,}; max_side makes them smaller, memory allows for more"
                )
    finally:
        pool.shutdown(cancel_futures=True)
    return found, problems


def _used(pixels: Pixels, record: Record, recipe: Crowd) -> _Image | str:
    """The image, reduced and cut as the recipe says; or why it cannot be used."""
    height, width, _ = pixels.shape
    points = record.points
    if 0 < recipe.data.max_side < max(height, width):
        factor = recipe.data.max_side / max(height, width)
        across, down = (max(round(side * factor), 1) for side in (width, height))
        pixels = images.resized(pixels, (down, across))
        points = points * (across / width, down / height)
        height, width = down, across
    size = height, width
    if recipe.data.reduce == "bicubic":  # which has no cell for the rest
        pixels = pixels[: height // CELL * CELL, : width // CELL * CELL]
        if not pixels.size:
            return f"smaller than a cell of {CELL} x {CELL} pixels: {width} x {height}"
    return _Image(pixels, points, record.split, size)


CROWD = on_images.task(
    OnImages(
        "crowd",
        METRIC,
        crowds,
        ("path", "generated", "validation", "skip_bad", "max_side", "memory", "kernel", "sigma", "border", "reduce"),
        prepare,
        constant,
        "the mean count of the training images",
        build,
        unlabelled=unlabelled,
        resize=resize,
        gives="heads in cells of 8 x 8 pixels (n, 1, h / 8, w / 8), whose sum is the count",
        maps="heads",
        number="count",
        counted=True,
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
