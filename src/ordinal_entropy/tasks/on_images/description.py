"""What a task on images says of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from torch import Tensor

from ordinal_entropy import methods
from ordinal_entropy.training.plans import Plan

if TYPE_CHECKING:  # Lightning takes seconds to import
    from torchmetrics import Metric

    from ordinal_entropy.training.large.predicting import Network
    from ordinal_entropy.vision.split import Data, Seen


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
    shown: Mapping[str, str] = field(
        default_factory=dict
    )  # further lines of an evaluation: what is said -> score on the test images
    facts: Mapping[str, Any] = field(default_factory=dict)  # form of those that `prepare` returns
    truth: "Callable[[Seen], Tensor] | None" = None  # maps (b, 1, h, w) of a batch, NaN where there is none
    views: Callable[[Any], ShownAs] = augmented_images  # of a recipe; a function with a name
