"""Groups of keys that several tasks have in common, which tasks extend by their own."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ordinal_entropy.balance import FRACTION
from ordinal_entropy.recipes.values import require_at_least_1, require_not_negative, require_positive


def cache_folder() -> Path:
    """Where generated rows are kept: ``$ORDINAL_ENTROPY_CACHE``, or ``~/.cache/ordinal-entropy``."""
    named = os.environ.get("ORDINAL_ENTROPY_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "ordinal-entropy"


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Where the data are."""

    path: str = ""  # the dataset: a folder or a file, as the page of the task in docs/ has it; "": generated, or none


@dataclass(frozen=True, kw_only=True)
class Files(Dataset):
    """Data in files that people have, or that are made for want of such."""

    generated: int = 0  # without a path: so many images or rows are made, images kept in the cache; 0: none are
    skip_bad: bool = False  # True: files or rows that cannot be used are left out; else they are refused

    def __post_init__(self) -> None:
        """Values that no dataset can have."""
        require_not_negative(self, "generated")


@dataclass(frozen=True, kw_only=True)
class Perceptron:
    """A network of layers that see all of the one before."""

    hidden: int = 100  # width of the hidden layers; the last one's activations are the features

    def __post_init__(self) -> None:
        """Values that no network can have."""
        require_at_least_1(self, "hidden")


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """Options of methods: each part of a method takes those that it knows."""

    strength: float | None = None  # of added terms, fixed; none: gradient-balanced
    tightness_weight: float = 1.0  # oe: of the tightness beside the diversity, lambda_t; the strength multiplies both
    balance: float = FRACTION  # of terms without a strength: their gradient, as a fraction of the task loss's
    rescale: Literal["authors", "max", "none"] = "authors"  # weights (w - min) / max, w / max, or raw as in the paper
    bins: int = 100  # heads: uniform over the range of the targets
    decode: Literal["center", "left"] = "center"  # classification: where in its bin a prediction lies; authors: left
    options: tuple[str, ...] = ()  # part.option=value, ...: of one part; --set method.part.option=value adds one

    def __post_init__(self) -> None:
        """Values that no method can have."""
        require_not_negative(self, "tightness_weight", *(["strength"] if self.strength is not None else []))
        require_positive(self, "balance")
        if self.bins < 2:
            raise ValueError(f"expected bins to be at least 2, got {self.bins}")


@dataclass(frozen=True, kw_only=True)
class Images(Files):
    """Images with their targets."""

    train_rows: int = 0  # a part of the training images, drawn by the seed of the run; 0: all
    memory: float = 8.0  # gigabytes of images held on the device; larger sets are streamed, those of crowds refused

    def __post_init__(self) -> None:
        """Values that no dataset can have."""
        super().__post_init__()
        require_not_negative(self, "train_rows", "memory")


@dataclass(frozen=True, kw_only=True)
class Pretrained:
    """A network that begins with weights of others, or not."""

    pretrained: str = ""  # a file of its weights, or lite0 for those of the [pretrained] extra; "": random


@dataclass(frozen=True, kw_only=True)
class Backbone(Pretrained):
    """A network of timm's."""

    backbone: str = "resnet50"  # a name of timm's
    zero_last_norm: bool = False  # True: residual blocks begin as the identity, as timm has it


@dataclass(frozen=True, kw_only=True)
class OnMaps(MethodOptions):
    """Options of methods that see maps of features."""

    stride: int = 4  # one place of the map in so many, down and across, is seen by the method

    def __post_init__(self) -> None:
        """Values that no method can have."""
        super().__post_init__()
        require_at_least_1(self, "stride")


@dataclass(frozen=True, kw_only=True)
class Training:
    """What every training has."""

    learning_rate: float = 1e-3  # of the optimizer; of a schedule, the largest one
    weight_decay: float = 0.0  # of the optimizer; PyTorch has 0.01 for AdamW
    feature_rows: int = 512  # training and test rows or images whose features are saved at evaluations; 0: none

    def __post_init__(self) -> None:
        """Values that no training can have."""
        require_positive(self, "learning_rate")
        require_not_negative(self, "weight_decay", "feature_rows")


@dataclass(frozen=True, kw_only=True)
class InEpochs(Training):
    """One that goes over its rows batch by batch."""

    epochs: int = 90  # passes over the training rows
    batch_size: int = 64  # rows or images of a step, of all devices and accumulated parts together

    def __post_init__(self) -> None:
        """Values that no training can have."""
        super().__post_init__()
        require_at_least_1(self, "epochs", "batch_size")


@dataclass(frozen=True, kw_only=True)
class Stacked(Training):
    """One of many small networks as a stack."""

    dtype: Literal["float32", "float64"] = "float32"  # of the network


@dataclass(frozen=True, kw_only=True)
class LargeTraining(InEpochs):
    """One of one large network, through Lightning."""

    optimizer: Literal["adam", "adamw", "sgd"] = "adam"  # PyTorch's
    momentum: float = 0.9  # of sgd
    schedule: Literal["milestones", "poly", "one-cycle"] = "milestones"  # of the learning rate
    milestones: tuple[int, ...] = ()  # epochs after which the learning rate is a tenth, with schedule=milestones
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
    workers: int = 4  # processes that read images which are not held in memory
    flip: bool = False  # predict maps as the mean of those of an image and of its mirror image
    checkpoint_seconds: float = 10.0  # between two checkpoints, at least

    def __post_init__(self) -> None:
        """Values that no training can have."""
        super().__post_init__()
        require_at_least_1(self, "accumulate", "devices", "nodes", "threads")
        require_not_negative(self, "momentum", "clip", "workers", "checkpoint_seconds")

    @property
    def processes(self) -> int:
        """That train together."""
        return self.devices * self.nodes
