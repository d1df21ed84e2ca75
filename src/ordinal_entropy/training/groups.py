"""Keys that the training of several tasks has in common: groups of recipes, which tasks extend by their own."""

from dataclasses import dataclass
from typing import Literal

from ordinal_entropy.recipes import require_at_least_1, require_not_negative, require_positive


@dataclass(frozen=True, kw_only=True)
class Training:
    """What every training has."""

    learning_rate: float = 1e-3  # of the optimizer; of a schedule, the largest one
    weight_decay: float = 0.0  # of the optimizer; PyTorch has 0.01 for AdamW
    feature_rows: int = 512  # training and test rows or images whose features are kept at evaluations; 0: none

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
