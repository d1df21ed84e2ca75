"""The options of the regularizer, spelled once: with their defaults, their meaning and their checks."""

import inspect
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypedDict, TypeVar

import torch

from ordinal_entropy.kernels.weights import POWERS, Function

Call = TypeVar("Call", bound=Callable[..., Any])

_CHOICES: dict[str, tuple[Any, ...]] = {
    "distance": ("l2", "cosine"),
    "rescale": ("max", "authors", "none"),
    "centers": ("normalize-first", "average-first"),
    "tightness_over": ("all", "shared"),
    "tightness_power": (1, 2),
    "per": ("batch", "image"),
}


class Options(NamedTuple):
    """All that determines the regularizer but its two strengths.

    Args:
        weighting: how far two targets are apart: "l2", "squared", "sqrt", "none" (all weights 1), or a function from
            targets ``(a, t)`` and ``(b, t)`` to weights ``(a, b)`` of at least 0.
        distance: between features: "l2", or "cosine" (1 - cos).
        normalize: project the features to the unit sphere first; a zero vector stays zero, without gradient.
        rescale: "max" divides the weights by the largest among all centers, so that the strength does not depend on
            the unit of the targets; "authors" takes (w - min) / max over the pairs; "none" leaves them as in the
            paper. The weights of "none" weighting are 1 whatever this says.
        grouping: which rows share a center: those of equal target ("unique"), of equal bin ``floor(y / width)`` (a
            positive number, the width; a bin's target is the mean of its members'), or no two ("none").
        centers: average normalised features ("normalize-first", paper) or normalise averages of raw ones
            ("average-first", authors).
        tightness_over: average over "all" rows, or over those at a non-zero distance from their center ("shared").
        tightness_power: 1, or 2 to square the distances.
        max_samples: draw at most so many rows a group, without replacement, before grouping; for the diversity only.
        num_pairs: draw so many pairs of centers a group, with replacement, instead of using all: an unbiased estimate.
        generator: for every draw, on the device of the features.
        stride: maps are subsampled (nearest) to ``(h // stride, w // stride)``, targets and mask to the same grid.
        per: pairs and centers within the whole "batch" or within each "image" (then the mean over images that have
            any).
        gather: join the rows of all ranks of the default process group first; see ``ordinal_entropy.distributed``.
        check: refuse features that are not finite, and look at targets and weights (finite, non-negative) on a GPU
            too; on a CPU these always are looked at.
    """

    weighting: str | Function = "l2"
    distance: str = "l2"
    normalize: bool = True
    rescale: str = "max"
    grouping: str | float = "unique"
    centers: str = "normalize-first"
    tightness_over: str = "all"
    tightness_power: int = 1
    max_samples: int | None = None
    num_pairs: int | None = None
    generator: torch.Generator | None = None
    stride: int = 1
    per: str = "batch"
    gather: bool = False
    check: bool = False


class OfBoth(TypedDict, total=False):
    """Types of the options that the diversity and the tightness have in common."""

    distance: str
    normalize: bool
    grouping: str | float
    centers: str
    stride: int
    per: str
    gather: bool
    check: bool


class OfDiversity(OfBoth, total=False):
    """Types of the options of the diversity."""

    weighting: str | Function
    rescale: str
    max_samples: int | None
    num_pairs: int | None
    generator: torch.Generator | None


class OfTightness(OfBoth, total=False):
    """Types of the options of the tightness."""

    tightness_over: str
    tightness_power: int


class OfAll(OfDiversity, OfTightness, total=False):
    """Types of all options."""


def checked(options: Options) -> Options:
    """The options themselves; a ValueError for a value that none can have.

    Example:
        >>> checked(Options(distance="l3"))
        Traceback (most recent call last):
        ValueError: expected distance to be one of ('l2', 'cosine'), got 'l3'
    """
    for name, choices in _CHOICES.items():
        if getattr(options, name) not in choices:
            raise ValueError(f"expected {name} to be one of {choices}, got {getattr(options, name)!r}")
    if not callable(options.weighting) and options.weighting not in POWERS:
        raise ValueError(f"expected weighting to be one of {tuple(POWERS)} or a function, got {options.weighting!r}")
    grouping = options.grouping
    width = isinstance(grouping, (int, float)) and not isinstance(grouping, bool) and 0 < grouping < float("inf")
    if not (width or grouping in ("unique", "none")):
        raise ValueError(f"expected grouping to be 'unique', 'none' or a positive bin width, got {grouping!r}")
    for name in ("max_samples", "num_pairs", "stride"):
        count = getattr(options, name)
        if count is not None and not (isinstance(count, int) and count >= 1):
            raise ValueError(f"expected {name} to be a whole number of at least 1, got {count!r}")
    return options


DEFAULTS = checked(Options())


def spelled(names: Collection[str]) -> Callable[[Call], Call]:
    """Shows these options with their defaults in the signature of a function, where it has ``**options``."""

    def show(function: Call) -> Call:
        own = inspect.signature(function)
        fixed = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        options = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
            for name, default in Options._field_defaults.items()
            if name in names
            for kind in (Options.__annotations__[name],)
        ]
        function.__signature__ = own.replace(parameters=[*fixed, *options])  # type: ignore[attr-defined]
        return function

    return show
