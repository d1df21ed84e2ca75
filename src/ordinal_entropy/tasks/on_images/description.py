"""What a task on images says of its own, and where its images come from."""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ordinal_entropy import methods, runs
from ordinal_entropy.recipes import cache_folder
from ordinal_entropy.training.plans import Plan

if TYPE_CHECKING:  # Lightning takes seconds to import
    from torchmetrics import Metric

    from ordinal_entropy.training.large.batches import Network
    from ordinal_entropy.vision.images import Pixels
    from ordinal_entropy.vision.split import Data, Seen, Split


class Dataset(Protocol):
    """A dataset as read."""

    @property
    def left_out(self) -> int:
        """Files that cannot be used."""
        ...

    def to(self, device: str) -> "Dataset":
        """The same with what is held in memory on a device."""
        ...


class Prepared(NamedTuple):
    """All that one run is made of."""

    data: "Data"
    method: methods.Composition
    make_network: "Callable[[], Network]"  # with new weights, by torch's generator
    loss: methods.TaskLoss
    metric: "Metric"
    facts: Mapping[str, Any] = {}  # of the training data, which a later evaluation needs; plain numbers and lists
    train_metric: "Metric | None" = None  # of the batches trained on, where that should be another


class Built(NamedTuple):
    """A network and its method, of no images yet."""

    method: methods.Composition
    make_network: "Callable[[], Network]"  # with new weights, by torch's generator


class ShownAs(NamedTuple):
    """How the training images of a recipe will be shown, before there are any: as ``vision.split.Shown`` has it."""

    uniform: bool = True
    augmented: bool = True
    maps: bool = False


def augmented_images(recipe: Any) -> ShownAs:
    """Of a task whose images are of one size, augmented, and have one target each."""
    return ShownAs()


@dataclass(frozen=True)
class OnImages:
    """A task on images: its name, and what its runs have of their own."""

    name: str
    metric: str  # the score that decides; lower is better
    read: Callable[[Any], Dataset]  # the dataset of a recipe
    read_keys: tuple[str, ...]  # keys of its group `data` that it depends on
    prepare: Callable[[Plan, Any, Mapping[str, Any] | None], Prepared]  # plan, dataset, facts of a run to be scored
    # (training split) -> the predictions that see no input, in the shape of the targets of a batch
    constant: "Callable[[Any], Callable[[Seen], Tensor]]"
    constant_is: str  # what these are, as in "predicting the training mean"
    build: Callable[..., Built]  # (plan, facts, new): as `prepare` makes them; not new: of a run that is trained
    size: Callable[[Any], tuple[int, int]] | None = None  # (recipe): height and width of all images; None: any
    unlabelled: "Callable[[Any, Sequence[Pixels], Sequence[str]], Split] | None" = None  # those of any size, to predict
    resize: Callable[[Any], str] | None = None  # (recipe): how they are resized, in words
    gives: str = "(n, 1)"  # what the network predicts, in words
    maps: str = ""  # the unit of predicted maps; "": there are none
    number: str = "prediction"  # what the one number of an image is called
    counted: bool = False  # maps are densities, whose sum is that number; else their mean is
    shown: Mapping[str, str] = field(
        default_factory=dict
    )  # further lines of an evaluation: what is said -> score on the test images
    facts: Mapping[str, Any] = field(default_factory=dict)  # form of those that `prepare` returns
    truth: "Callable[[Seen], Tensor] | None" = None  # maps (b, 1, h, w) of a batch, NaN where there is none
    views: Callable[[Any], ShownAs] = augmented_images  # of a recipe; a function with a name


_GENERATED_SEED = 0


class Source(NamedTuple):
    """Where the images of a task come from: the dataset that a recipe names, or one that is generated for it."""

    what: str  # as in "expected --set data=ROOT, a dataset of faces"
    makes: str  # what the preset quick does, as in "draws its own"
    data: Any  # the module that reads it: `require` and `WHERE_TO_GET_IT`
    make: Callable[[Path, int, int], None]  # writes a generated one: folder, seed, count
    folder: str  # a name for it in the cache
    whole: str  # a file that is there when all of it is

    def check(self, recipe: Any) -> None:
        """Refuses a recipe without a dataset; nothing is read or made."""
        if recipe.data.path:
            self.data.require(Path(recipe.data.path).expanduser())
        elif not recipe.data.generated:
            raise ValueError(
                f"expected --set data=ROOT, {self.what}, or --preset quick, which {self.makes}, got neither. "
                f"{self.data.WHERE_TO_GET_IT}"
            )

    def root(self, recipe: Any) -> Path:
        """The dataset of a recipe; a generated one is made if it is not there yet."""
        self.check(recipe)
        if recipe.data.path:
            return Path(recipe.data.path).expanduser()
        folder = cache_folder() / f"{self.folder}-{recipe.data.generated}-seed{_GENERATED_SEED}"
        if not (folder / self.whole).exists():
            with runs.lock(folder.with_name(f".{folder.name}.lock"), wait=True):
                for left in folder.parent.glob(f".{folder.name}.*.tmp"):  # by a process that was killed
                    shutil.rmtree(left)
                if not (folder / self.whole).exists():  # nobody made it while we waited
                    beside = folder.with_name(f".{folder.name}.{os.urandom(4).hex()}.tmp")
                    self.make(beside, _GENERATED_SEED, recipe.data.generated)
                    beside.rename(folder)
        return folder


def drawn_rows(plan: Plan, count: int, *, trained: bool = False) -> Tensor | None:
    """The rows out of so many that the seed of a run draws to train on, in ascending order; None: all of them.

    Args:
        plan: whose recipe says how many, ``train_rows``.
        count: of training images.
        trained: the run is scored again, perhaps on a dataset that has fewer.

    Example:
        >>> from ordinal_entropy.tasks.age.recipe import Age, Faces
        >>> drawn_rows(Plan("oe", 0, Age(Faces(train_rows=3))), 5)
        tensor([0, 1, 4])
    """
    wanted = plan.recipe.data.train_rows
    if wanted > count and not trained:
        raise ValueError(f"expected train_rows of at most {count:,}, got {wanted:,}")
    if not 0 < wanted < count:
        return None
    rows: Tensor = torch.randperm(count, generator=torch.Generator().manual_seed(plan.seed))[:wanted].sort().values
    return rows
