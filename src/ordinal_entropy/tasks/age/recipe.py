"""Age from a face: all that determines a run but method and seed.

    ordinal-entropy train age --preset quick --method baseline
    ordinal-entropy compare age --methods baseline,oe --seeds 6 --preset small --set data=datasets/UTKFace

The first draws faces and trains on them, in a minute on two CPU cores, to far less error than the median age has.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import torch
from torch import Tensor

from ordinal_entropy.recipes import require_at_least_1, require_not_negative, require_positive
from ordinal_entropy.tasks import method_of, on_images
from ordinal_entropy.tasks.age import data, generated
from ordinal_entropy.tasks.age.counts import age_counts
from ordinal_entropy.tasks.age.losses import sample_weights, task_loss
from ordinal_entropy.tasks.on_images.description import OnImages, Prepared
from ordinal_entropy.tasks.on_images.source import Source, drawn_rows
from ordinal_entropy.training.plans import Plan
from ordinal_entropy.vision.paths import SPLITS, refuse, tell_left_out

if TYPE_CHECKING:  # Lightning takes seconds to import
    from ordinal_entropy.models.backbones import Network
    from ordinal_entropy.vision.sets import Images
    from ordinal_entropy.vision.split import Data

METRIC = "mae"
_GIGA = 1e9


@dataclass(frozen=True)
class Age:
    """A backbone and a linear head, from an aligned face to its age in years."""

    # Data.
    data: str = ""  # a folder as `ordinal-entropy data check age` takes it: AgeDB-DIR, IMDB-WIKI-DIR, UTKFace
    generated: int = 0  # with no data: so many faces are drawn and kept in the cache; 0: none are
    train_rows: int = 0  # a part of the training images, drawn by the seed of the run; 0: all
    skip_bad: bool = False  # True: files that cannot be used are left out; else they are refused
    image_size: int = 224  # side in pixels
    padding: int = 16  # pixels that a random crop moves an image by, at most
    memory: float = 8.0  # gigabytes of images that are held on the device; larger sets are streamed
    workers: int = 4  # processes that read the images of larger sets

    # Model.
    backbone: str = "resnet50"  # a name of timm's
    pretrained: str = ""  # a file of weights, or lite0 for those of the [pretrained] extra; "": random
    zero_last_norm: bool = False  # True: residual blocks begin as the identity, as timm has it

    # Training, as the benchmark has it.
    epochs: int = 90
    batch_size: int = 256  # images of a step, of all devices and accumulated parts together
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    milestones: tuple[int, ...] = (60, 80)  # epochs after which the learning rate is a tenth
    loss: Literal["l1", "mse", "huber"] = "l1"  # huber: squared up to an error of one year
    reweight: Literal["none", "inverse", "sqrt-inverse"] = "none"  # by how rare an age is in training
    precision: Literal["float32", "bf16", "fp16", "float64"] = "float32"  # bf16, fp16: mixed, on a GPU only
    channels_last: bool = True  # in memory: faster on most devices
    compile: bool = False  # by torch.compile
    graph: bool = False  # steps as a CUDA graph, for a GPU that waits for its host; one device, images held there
    accumulate: int = 1  # parts of a step, one after the other: less memory, and a method sees a part at a time
    devices: int = 1  # of each machine
    nodes: int = 1  # machines
    strategy: str = "auto"  # of Lightning, for several devices: ddp, ...
    threads: int = 1  # of a run on a CPU, whose rounding follows from them; more for one large run, --jobs for many

    # The method.
    strength: float = 1.0  # of what is added to the task loss
    tightness_weight: float = 1.0  # oe: of the tightness beside the diversity, lambda_t; the strength multiplies both
    balance: float = 0.1  # ld-balanced, oe-balanced: gradient of a term, as a fraction of the task loss's
    rescale: Literal["authors", "max", "none"] = "authors"  # weights (w - min) / max, w / max, or raw as in the paper
    bins: int = 100  # classification: uniform over the range of the training ages
    decode: Literal["center", "left"] = "center"  # classification: where in its bin a prediction lies; authors: left
    method_options: tuple[str, ...] = ()  # part.option=value, ...: of one part; --set method.part.option=value adds one

    feature_rows: int = 512  # training and test images whose features are kept after every epoch; 0: none

    def __post_init__(self) -> None:
        """Values that no run can have are refused before anything is read."""
        require_at_least_1(self, "image_size", "epochs", "batch_size", "accumulate", "devices", "nodes", "threads")
        require_not_negative(self, "weight_decay", "strength", "tightness_weight", "memory", "generated", "train_rows")
        require_not_negative(self, "padding", "workers", "feature_rows")
        require_positive(self, "learning_rate", "balance")
        if self.bins < 2:
            raise ValueError(f"expected bins to be at least 2, got {self.bins}")


PRESETS = {
    "paper": Age(),
    "small": Age(
        backbone="resnet18",
        image_size=112,
        padding=8,
        epochs=40,
        milestones=(27, 36),
        precision="bf16",
        graph=True,
    ),
    "quick": Age(
        generated=4000,
        backbone="test_resnet",
        image_size=56,
        padding=4,
        epochs=8,
        batch_size=64,
        learning_rate=5e-3,
        milestones=(5, 7),
        feature_rows=256,
    ),
}


class _Faces(NamedTuple):
    """A dataset as read: images and ages ``(n, 1)`` of each split, and how many files were left out."""

    images: "dict[str, Images]"
    ages: dict[str, Tensor]
    left_out: int

    def to(self, device: str) -> "_Faces":
        """The same with the images, if they are held, on a device."""
        return self._replace(images={split: own.to(device) for split, own in self.images.items()})


SOURCE = Source("a dataset of faces", "draws its own", data, generated.make, "faces", "agedb.csv")


def faces(recipe: Age) -> _Faces:
    """Reads the dataset of a recipe; files that cannot be used are refused, or left out and counted."""
    from ordinal_entropy.vision import sets

    root = SOURCE.root(recipe)
    records, problems = data.records(root)
    refuse(records, problems, skip_bad=recipe.skip_bad)
    hold = len(records) * 3 * recipe.image_size**2 <= recipe.memory * _GIGA
    folder = root if root.is_dir() else root.parent
    everything, kept, damaged = sets.load([record.path for record in records], folder, recipe.image_size, hold=hold)
    usable = [records[place] for place in kept]
    problems = [*problems, *damaged]
    refuse(usable, problems, skip_bad=recipe.skip_bad)
    tell_left_out(problems, root)
    images, ages = {}, {}
    for split in SPLITS:
        rows = torch.tensor([place for place, record in enumerate(usable) if record.split == split])
        images[split] = everything.take(rows)
        ages[split] = torch.tensor([record.age for record in usable if record.split == split])[:, None]
    return _Faces(images, ages, len(problems))


def split_for(plan: Plan, found: _Faces, *, trained: bool = False) -> "Data":
    """What one run trains on and is scored on: with ``train_rows``, of the training images those of its seed."""
    from ordinal_entropy.vision.split import Data, Labelled

    recipe, images, ages = plan.recipe, found.images["train"], found.ages["train"]
    rows = drawn_rows(plan, len(images), trained=trained)
    if rows is not None:
        images, ages = images.take(rows), ages[rows]
    weights = None if recipe.reweight == "none" else sample_weights(ages, recipe.reweight)
    return Data(
        Labelled(images, ages, weights, recipe.padding),
        Labelled(found.images["val"], found.ages["val"]),
        Labelled(found.images["test"], found.ages["test"]),
    )


def prepare(plan: Plan, found: _Faces, facts: Mapping[str, Any] | None) -> Prepared:
    """One run; bins and shots are those of the training ages, or of the facts of a run that is trained."""
    from ordinal_entropy.models import backbones
    from ordinal_entropy.tasks.age.metrics import ShotErrors
    from ordinal_entropy.vision.split import Labelled

    recipe, new = plan.recipe, facts is None
    parts = split_for(plan, found, trained=not new)
    if facts is None:
        assert isinstance(parts.train, Labelled)
        ages = parts.train.targets.cpu()
        facts = {"low": float(ages.min()), "high": float(ages.max()), "counts": age_counts(ages).tolist()}
    method = method_of(plan, low=facts["low"], high=facts["high"], gather=recipe.devices * recipe.nodes > 1)

    def make_network() -> "Network":
        return backbones.create(
            recipe.backbone,
            method.outputs(1),
            recipe.pretrained or None if new else None,
            image_size=recipe.image_size,
            zero_last_norm=recipe.zero_last_norm or bool(recipe.pretrained),
        )

    loss = partial(task_loss, loss=recipe.loss)
    return Prepared(parts, method, make_network, loss, ShotErrors(torch.tensor(facts["counts"])), facts)


_BY_SHOT = {"all": "", "many": "_many", "median": "_median", "few": "_few"}
AGE = on_images.task(
    OnImages(
        "age",
        METRIC,
        faces,
        ("data", "generated", "skip_bad", "image_size", "memory"),
        prepare,
        shown={f"{shot} shots": f"{METRIC}{end}" for shot, end in _BY_SHOT.items() if end},
        facts={"low": float, "high": float, "counts": [int]},
    ),
    about="the age of a face",
    presets=PRESETS,
    check=SOURCE.check,
    details={
        "Test MAE by shot": {heading: f"mae{end}" for heading, end in _BY_SHOT.items()},
        "Test GM by shot": {heading: f"gm{end}" for heading, end in _BY_SHOT.items()},
    },
    paper_at="best_validation",  # as the benchmark has it
)
TASKS = {"age": AGE}
