"""Keys that tasks on images have in common: groups of recipes, which tasks extend by their own."""

from dataclasses import dataclass

from ordinal_entropy.recipes import require_at_least_1, require_not_negative
from ordinal_entropy.tasks.groups import Files, MethodOptions


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
