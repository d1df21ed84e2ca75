"""Keys that several tasks have in common: groups of recipes, which tasks extend by their own."""

from dataclasses import dataclass
from typing import Literal

from ordinal_entropy.recipes import require_at_least_1, require_not_negative, require_positive


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

    strength: float = 1.0  # of what is added to the task loss
    tightness_weight: float = 1.0  # oe: of the tightness beside the diversity, lambda_t; the strength multiplies both
    balance: float = 0.1  # ld-balanced, oe-balanced: gradient of a term, as a fraction of the task loss's
    rescale: Literal["authors", "max", "none"] = "authors"  # weights (w - min) / max, w / max, or raw as in the paper
    bins: int = 100  # classification: uniform over the range of the targets
    decode: Literal["center", "left"] = "center"  # classification: where in its bin a prediction lies; authors: left
    options: tuple[str, ...] = ()  # part.option=value, ...: of one part; --set method.part.option=value adds one

    def __post_init__(self) -> None:
        """Values that no method can have."""
        require_not_negative(self, "strength", "tightness_weight")
        require_positive(self, "balance")
        if self.bins < 2:
            raise ValueError(f"expected bins to be at least 2, got {self.bins}")
