"""Age from a face: all that determines a run but method and seed.

    ordinal-entropy train age --preset quick --method baseline
    ordinal-entropy compare age --methods baseline,oe --seeds 6 --preset small --set data=datasets/UTKFace

The first draws faces and trains on them, in a minute on two CPU cores, to far less error than the median age has.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ordinal_entropy.files import SPLITS, refuse, tell_left_out
from ordinal_entropy.recipes import preset, require_at_least_1, require_not_negative
from ordinal_entropy.recipes.groups import Backbone, Images, LargeTraining, MethodOptions
from ordinal_entropy.tasks import method_of, on_images
from ordinal_entropy.tasks.age import data, generated
from ordinal_entropy.tasks.age.losses import age_counts, sample_weights, task_loss
from ordinal_entropy.tasks.on_images.description import Built, OnImages, Prepared, Source, drawn_rows
from ordinal_entropy.training.plans import Plan

if TYPE_CHECKING:  # Lightning takes seconds to import
    from ordinal_entropy.models.backbones import Network
    from ordinal_entropy.vision import sets
    from ordinal_entropy.vision.split import Data, Labelled, Seen

METRIC = "mae"
_GIGA = 1e9


@dataclass(frozen=True, kw_only=True)
class Faces(Images):
    """Aligned faces with their ages: AgeDB-DIR, IMDB-WIKI-DIR, UTKFace."""

    image_size: int = 224  # side in pixels
    padding: int = 16  # pixels that a random crop moves an image by, at most

    def __post_init__(self) -> None:
        """Values that no dataset can have."""
        super().__post_init__()
        require_at_least_1(self, "image_size")
        require_not_negative(self, "padding")


@dataclass(frozen=True, kw_only=True)
class AgeTraining(LargeTraining):
    """As the benchmark has it."""

    loss: Literal["l1", "mse", "huber"] = "l1"  # huber: squared up to an error of one year
    reweight: Literal["none", "inverse", "sqrt-inverse"] = "none"  # by how rare an age is in training


@dataclass(frozen=True)
class Age:
    """A backbone and a linear head, from an aligned face to its age in years."""

    data: Faces = Faces()
    model: Backbone = Backbone()
    training: AgeTraining = AgeTraining(epochs=90, batch_size=256, milestones=(60, 80))
    method: MethodOptions = MethodOptions(strength=1.0)


PRESETS = {
    "paper": Age(),
    "small": preset(
        Age(),
        """backbone=resnet18 image_size=112 padding=8
        epochs=40 milestones=27,36 precision=bf16 graph=true strength=none""",
    ),
    "quick": preset(
        Age(),
        """generated=4000 backbone=test_resnet image_size=56 padding=4
        epochs=8 batch_size=64 learning_rate=5e-3 milestones=5,7 feature_rows=256 strength=none""",
    ),
}


class _Faces(NamedTuple):
    """A dataset as read: images and ages ``(n, 1)`` of each split, and how many files were left out."""

    images: "dict[str, sets.Images]"
    ages: dict[str, Tensor]
    left_out: int

    def to(self, device: str) -> "_Faces":
        """The same with the images, if they are held, on a device."""
        return self._replace(images={split: own.to(device) for split, own in self.images.items()})


SOURCE = Source("a dataset of faces", "draws its own", data, generated.make, "faces", "agedb.csv")


def faces(recipe: Age) -> _Faces:
    """Reads the dataset of a recipe; files that cannot be used are refused, or left out and counted."""
    from ordinal_entropy.vision import sets

    root, own = SOURCE.root(recipe), recipe.data
    records, problems = data.records(root)
    refuse(records, problems, skip_bad=own.skip_bad)
    hold = len(records) * 3 * own.image_size**2 <= own.memory * _GIGA
    folder = root if root.is_dir() else root.parent
    everything, kept, damaged = sets.load([record.path for record in records], folder, own.image_size, hold=hold)
    usable = [records[place] for place in kept]
    problems = [*problems, *damaged]
    refuse(usable, problems, skip_bad=own.skip_bad)
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

    reweight, images, ages = plan.recipe.training.reweight, found.images["train"], found.ages["train"]
    rows = drawn_rows(plan, len(images), trained=trained)
    if rows is not None:
        images, ages = images.take(rows), ages[rows]
    weights = None if reweight == "none" else sample_weights(ages, reweight)
    return Data(
        Labelled(images, ages, weights, plan.recipe.data.padding),
        Labelled(found.images["val"], found.ages["val"]),
        Labelled(found.images["test"], found.ages["test"]),
    )


def prepare(plan: Plan, found: _Faces, facts: Mapping[str, Any] | None) -> Prepared:
    """One run; bins and shots are those of the training ages, or of the facts of a run that is trained."""
    from ordinal_entropy.tasks.age.metrics import ShotErrors
    from ordinal_entropy.vision.split import Labelled

    new = facts is None
    parts = split_for(plan, found, trained=not new)
    if facts is None:
        assert isinstance(parts.train, Labelled)
        ages = parts.train.targets.cpu()
        facts = {"low": float(ages.min()), "high": float(ages.max()), "counts": age_counts(ages).tolist()}
    loss = partial(task_loss, loss=plan.recipe.training.loss)
    return Prepared(parts, *build(plan, facts, new=new), loss, ShotErrors(torch.tensor(facts["counts"])), facts)


def constant(train: "Labelled") -> "Callable[[Seen], Tensor]":
    """The median age, which has the least absolute error of all constants."""
    median = float(np.median(train.target_rows().numpy()))
    return lambda seen: torch.full_like(seen.targets, median, dtype=torch.float64)


def build(plan: Plan, facts: Mapping[str, Any], *, new: bool) -> Built:
    """The method with bins over the ages of the facts, and the network."""
    from ordinal_entropy.models import backbones

    recipe = plan.recipe
    method = method_of(plan, low=facts["low"], high=facts["high"], gather=recipe.training.processes > 1)

    def make_network() -> "Network":
        model = recipe.model
        return backbones.create(
            model.backbone,
            method.outputs(1),
            model.pretrained or None if new else None,
            image_size=recipe.data.image_size,
            zero_last_norm=model.zero_last_norm or bool(model.pretrained),
        )

    return Built(method, make_network)


def size_of(recipe: Age) -> tuple[int, int]:
    """Height and width of the images."""
    return recipe.data.image_size, recipe.data.image_size


_BY_SHOT = {"all": "", "many": "_many", "median": "_median", "few": "_few"}
AGE = on_images.task(
    OnImages(
        "age",
        METRIC,
        faces,
        ("path", "generated", "skip_bad", "image_size", "memory"),
        prepare,
        constant,
        "the training median",
        build,
        size=size_of,
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
