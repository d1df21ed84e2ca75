"""A trained run in use: what every task makes of a run folder, ``Task.used``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]
Progress = Callable[[int, int], None]  # rows or images done, and in all
POINTS = ("best_validation", "last")  # which parameters of a run


class Inputs(NamedTuple):
    """What is to be predicted, as a task has read it."""

    heading: str  # of the names: "row" or "file"
    names: Sequence[str]  # one a row or image
    content: Any  # what the task predicts from
    ids: Sequence[str] | None = None  # of the rows, where a column of them was asked for


class Predicted(NamedTuple):
    """Of some rows or images, in their order."""

    numbers: Array  # (n,), one each, in the unit of the targets
    features: Array | Sequence[Array]  # (n, d), or a map (d, h, w) an image; nothing unless they were asked for
    maps: Sequence[Array] = ()  # (h, w) an image, of tasks that predict maps
    images: Sequence[Array] = ()  # (h', w', 3) that the maps are of, bytes


class Residuals(NamedTuple):
    """Absolute errors that intervals are made of."""

    values: Array  # (n,)
    rows: str  # which they are of, in words


class Exportable(NamedTuple):
    """A plain module for use elsewhere."""

    module: nn.Module  # one tensor to predictions, in the unit of the targets; any number of rows
    example: Tensor  # an input of two rows
    preprocessing: Mapping[str, Any]  # how inputs are made of what a user has, as JSON


class Used(Protocol):
    """A run of one task."""

    @property
    def epoch(self) -> int:
        """That its parameters are of; of operators the step."""
        ...

    @property
    def at(self) -> str:
        """One of ``POINTS``."""
        ...

    @property
    def maps(self) -> str:
        """The unit of its maps; "" where it predicts one number a row."""
        ...

    @property
    def number(self) -> str:
        """What the one number of a map is, as in "count"; "prediction" where there are no maps."""
        ...

    def read(self, given: Any, id_column: str = "") -> Inputs:
        """What a user gave; a mistake is a ValueError that says what was expected."""
        ...

    def predicted(
        self, inputs: Inputs, *, features: bool = False, progress: Progress | None = None
    ) -> Iterator[Predicted]:
        """Some rows or images after the other."""
        ...

    def residuals(self, calibrate: Path | None = None) -> Residuals:
        """Of its own test rows, or of rows with targets that the run has not seen."""
        ...

    def exportable(self) -> Exportable:
        """The network by itself."""
        ...


def point_of(at: str | None, kept: Sequence[str] = POINTS) -> str:
    """The parameters that are asked for; by default the first of those that a run has kept.

    Example:
        >>> point_of(None), point_of("last")
        ('best_validation', 'last')
        >>> point_of("best_test")
        Traceback (most recent call last):
        ValueError: expected at to be best_validation or last, got 'best_test'
    """
    if at is not None and at not in kept:
        raise ValueError(f"expected at to be {' or '.join(kept)}, got {at!r}")
    return kept[0] if at is None else at
