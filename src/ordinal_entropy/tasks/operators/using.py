"""A trained operator in use: from functions at their sensors, and places, to values there."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ordinal_entropy import arrays
from ordinal_entropy.tasks.using import Array, Exportable, Inputs, Predicted, Progress, Residuals
from ordinal_entropy.training.stacked.single import Single

_BLOCK = 2**21  # numbers in one layer
_NAMES = [("functions", "places", "values")] + [(f"X_{part}0", f"X_{part}1", f"y_{part}") for part in ("test", "train")]


@dataclass(frozen=True)
class UsedOperator:
    """See :class:`ordinal_entropy.tasks.using.Used`."""

    single: Single
    own_residuals: Array  # on the run's test rows
    epoch: int  # steps
    device: str
    at: str = "last"  # no others are kept
    maps: str = ""
    number: str = "prediction"

    def read(self, given: Any, id_column: str = "") -> Inputs:
        """Rows of functions and places: of an .npz, a pair of arrays, or one whose last column is the place."""
        if id_column:
            raise ValueError(f"expected a table for an id column, got functions and {id_column!r}")
        if isinstance(given, list) and len(given) == 1:
            given = given[0]
        rows, _ = self._rows(given)
        return Inputs("row", [str(row) for row in range(1, len(rows) + 1)], rows)

    def predicted(
        self, inputs: Inputs, *, features: bool = False, progress: Progress | None = None
    ) -> Iterator[Predicted]:
        """Some thousand rows at a time."""
        rows: Array = inputs.content
        module, shape = self.single.to(self.device), self.single.shape
        size = max(1, _BLOCK // max(shape.hidden, shape.inputs))
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            x = torch.from_numpy(some).to(self.device, shape.dtype)
            with torch.no_grad():
                numbers = module(x)[:, 0].cpu().numpy()
                own: Array | list[Array] = module.features(x).cpu().numpy() if features else []
            yield Predicted(numbers, own)
            if progress is not None:
                progress(start + len(some), len(rows))

    def residuals(self, calibrate: Path | None = None) -> Residuals:
        """Of the test rows of the run, which it keeps; or of an .npz with values."""
        if calibrate is None:
            return Residuals(self.own_residuals, f"{len(self.own_residuals):,} test rows of the run")
        rows, values = self._rows(calibrate)
        if values is None:
            raise ValueError(f"expected values beside functions and places in {calibrate}, got none")
        numbers = np.concatenate([each.numbers for each in self.predicted(Inputs("row", [], rows))])
        return Residuals(np.abs(numbers - values), f"{len(numbers):,} rows of {calibrate}")

    def exportable(self) -> Exportable:
        """From rows ``(n, sensors + 1)``."""
        width = self.single.shape.inputs
        names = [*(f"function at sensor {place}" for place in range(width - 1)), "place"]
        return Exportable(
            self.single.cpu(), torch.zeros(2, width, dtype=self.single.shape.dtype), {"kind": "rows", "inputs": names}
        )

    def _rows(self, given: Any) -> tuple[Array, Array | None]:
        """Inputs ``(n, sensors + 1)``, and values ``(n,)`` where a file has them."""
        values = None
        if isinstance(given, (str, os.PathLike)):
            there = arrays.names(given)
            names = next((each for each in _NAMES if {*each[:2]} <= {*there}), None)
            if names is None:
                raise ValueError(
                    f"expected functions and places, or X_test0 and X_test1, in {os.fspath(given)}, "
                    f"got {', '.join(there) or 'nothing'}"
                )
            found = arrays.load(given, [name for name in names if name in there])
            given = found[names[0]], found[names[1]]
            values = found.get(names[2])
        if isinstance(given, Mapping):
            given = given.get("functions"), given.get("places")
        if isinstance(given, tuple):
            functions, places = (np.asarray(each, dtype=np.float64) for each in given)
            if functions.ndim != 2 or places.size != len(functions):
                raise ValueError(f"expected functions (n, s) and places (n, 1), got {functions.shape}, {places.shape}")
            given = np.hstack([functions, places.reshape(-1, 1)])
        rows = np.asarray(given, dtype=np.float64)
        width = self.single.shape.inputs
        if rows.ndim != 2 or rows.shape[1] != width:
            raise ValueError(f"expected functions at {width - 1} sensors and a place, (n, {width}), got {rows.shape}")
        if not np.isfinite(rows).all():
            raise ValueError(f"expected finite numbers, got {int((~np.isfinite(rows)).sum())} others")
        return rows, None if values is None else np.asarray(values, dtype=np.float64).reshape(-1)
