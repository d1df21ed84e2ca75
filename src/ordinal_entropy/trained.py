"""A run that was trained, in use: predictions, features and intervals on new inputs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:  # imported where they are used: importing the package brings in torch alone
    from numpy.typing import NDArray

    from ordinal_entropy.tasks.using import Exportable, Inputs, Predicted, Progress, Used

    Array = NDArray[Any]


class Intervals(NamedTuple):
    """Around predictions, each ``(n,)``."""

    predictions: "Array"
    low: "Array"
    high: "Array"
    halfwidth: float
    rows: str  # that it was found on, in words


class TrainedRun:
    """A run folder, ready to predict; :func:`load` makes it.

    Attributes:
        task: its name.
        method: of the run.
        seed: of the run.
        recipe: all else that determined it.
        at: the parameters in use: "best_validation" or "last".
        epoch: that they are of; of operators the step.
        maps: what the maps of the task are of, "metres" or "heads"; "" where a prediction is one number.
    """

    def __init__(self, task: str, method: str, seed: int, recipe: Any, used: "Used") -> None:
        self.task, self.method, self.seed, self.recipe = task, method, seed, recipe
        self.at, self.epoch, self.maps = used.at, used.epoch, used.maps
        self._used = used

    def read(self, inputs: Any, id_column: str = "") -> "Inputs":
        """Inputs as the methods below take them too: read once for several.

        Args:
            inputs: of tables a path, a pandas DataFrame, a mapping from names to columns, or an array ``(n, p)``
                whose columns are called "0", "1", ...; of images a path, a list of paths, a folder, a .csv with a
                column ``path``, or pixels ``(n, h, w, 3)`` in bytes; of operators a path of an .npz, or functions
                ``(n, s)`` and places ``(n, 1)`` as a pair, or both as one array.
            id_column: of a table: the column that names its rows.
        """
        if hasattr(inputs, "heading"):
            found: Inputs = inputs
            return found
        return self._used.read(inputs, id_column)

    def predict(self, inputs: Any) -> "Array":
        """Predictions ``(n,)`` in the unit of the targets; of depth maps ``(n, h, w)``.

        Args:
            inputs: see :meth:`read`.
        """
        import numpy as np

        found = list(self.each(inputs))
        if self.task == "depth":
            return np.stack([each for some in found for each in some.maps])
        return np.concatenate([some.numbers for some in found])

    def features(self, inputs: Any) -> Any:
        """What goes into the head: ``(n, d)``, of maps ``(n, d, h, w)``; a list where images have several sizes.

        Args:
            inputs: see :meth:`read`.
        """
        import numpy as np

        found = [each for some in self.each(inputs, features=True) for each in some.features]
        return np.stack(found) if len({each.shape for each in found}) == 1 else found

    def map_of_each(self, inputs: Any) -> "Iterator[Array]":
        """Of tasks that predict maps, that of each image ``(h, w)``.

        Args:
            inputs: see :meth:`read`.
        """
        if not self.maps:
            raise ValueError(f"expected a task that predicts maps, got {self.task}")
        return (each for some in self.each(inputs) for each in some.maps)

    def intervals(self, inputs: Any, level: float = 0.9, calibrate: str | os.PathLike[str] | None = None) -> Intervals:
        """Predictions with intervals that cover a share of new targets, by split conformal.

        Args:
            inputs: see :meth:`read`.
            level: the share.
            calibrate: rows with targets that the run has not seen: a table, or a dataset of images. None: the test rows
                of the run, which training and the choice of its epoch have not seen either.
        """
        import numpy as np

        half, rows = self.halfwidth(level, calibrate)
        numbers = np.concatenate([some.numbers for some in self.each(inputs)])
        return Intervals(numbers, numbers - half, numbers + half, half, rows)

    def halfwidth(self, level: float = 0.9, calibrate: str | os.PathLike[str] | None = None) -> tuple[float, str]:
        """Half of the width of :meth:`intervals`, and the rows that it was found on, in words."""
        from ordinal_entropy import conformal

        if self.task == "depth":
            raise ValueError("expected a task with one number a row or image for intervals, got depth")
        if not 0 < level < 1:
            raise ValueError(f"expected a level of intervals between 0 and 1, got {level:g}")
        found = self._used.residuals(None if calibrate is None else Path(calibrate))
        if len(found.values) < conformal.least_rows(level):
            raise ValueError(
                f"expected at least {conformal.least_rows(level):,} rows to calibrate intervals of {level:g} on, got "
                f"{found.rows}"
            )
        return conformal.halfwidth(found.values, level), found.rows

    def each(self, inputs: Any, *, features: bool = False, progress: "Progress | None" = None) -> "Iterator[Predicted]":
        """Some rows or images after the other, for those that are too many at once.

        Args:
            inputs: see :meth:`read`.
            features: whether they are given too.
            progress: is told how many are done, and how many there are.
        """
        return self._used.predicted(self.read(inputs), features=features, progress=progress)

    def exportable(self) -> "Exportable":
        """The network as a plain module, with an example of its input and a description of how inputs are made."""
        return self._used.exportable()

    @property
    def number(self) -> str:
        """What the one number of a row or image is called: "prediction", "count", "mean_depth"."""
        return self._used.number

    def __repr__(self) -> str:
        """In one line."""
        return f"TrainedRun({self.task}, {self.method}, seed {self.seed}, {self.at} at {self.epoch})"


def load(path: str | os.PathLike[str], *, at: str | None = None, device: str = "cpu") -> TrainedRun:
    """The run in a folder that ``train``, or a comparison, has written.

    Args:
        path: of the run folder.
        at: "best_validation" or "last"; None: the first of these that the run has kept, which of operators is "last".
        device: that is computed on.

    Raises:
        ValueError: there is no such run, or it lacks something; the message says what.
    """
    from ordinal_entropy import tasks

    folder = Path(path)
    name, plan = tasks.planned(folder)
    used = tasks.load(name).used(plan, at=at, device=device, folder=folder)
    return TrainedRun(name, plan.method, plan.seed, plan.recipe, used)
