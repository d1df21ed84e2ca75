"""A trained run on a table in use: from rows to predictions, by what lies in its folder."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ordinal_entropy.files import shown
from ordinal_entropy.tasks.tabular import data
from ordinal_entropy.tasks.tabular.data import Table
from ordinal_entropy.tasks.tabular.inputs import Preparation
from ordinal_entropy.tasks.using import Array, Exportable, Inputs, Predicted, Progress, Residuals
from ordinal_entropy.training.stacked.single import Single

_LOG = logging.getLogger(__name__)
_BLOCK = 2**21  # numbers in one layer of all members
_NAMED = 8  # categories that a warning names, at most


@dataclass(frozen=True)
class UsedTable:
    """See :class:`ordinal_entropy.tasks.using.Used`."""

    single: Single
    preparation: Preparation
    own_residuals: Array  # on the run's test rows
    epoch: int
    at: str
    target: str  # name of the column, "y" in an .npz
    of_numbers: tuple[str, ...]  # columns of numbers that stand for categories
    device: str
    maps: str = ""
    number: str = "prediction"

    def read(self, given: Any, id_column: str = "") -> Inputs:
        """Rows of a file, or of columns in memory, without a target; categories that are new are warned of."""
        if isinstance(given, (list, tuple)):
            if len(given) != 1:
                raise ValueError(f"expected one table, got {len(given)}")
            given = given[0]
        table, ids = self._table(given, id_column=id_column)
        names = [str(row) for row in range(1, len(table.targets) + 1)]
        return Inputs("row", names, table, None if ids is None else list(ids))

    def predicted(
        self, inputs: Inputs, *, features: bool = False, progress: Progress | None = None
    ) -> Iterator[Predicted]:
        """Of rows as read, some thousands at a time."""
        table: Table = inputs.content
        module, shape = self.single.to(self.device), self.single.shape
        width = shape.members * max(shape.hidden, shape.first, shape.numbers * shape.encoded)
        size, n = max(1, _BLOCK // width), len(table.targets)
        for start in range(0, n, size):
            rows = np.arange(start, min(start + size, n))
            x = torch.from_numpy(self.preparation.part(table, rows).inputs).to(self.device)
            with torch.no_grad():
                numbers = module(x)[:, 0].cpu().numpy()
                own: Array | list[Array] = module.features(x).cpu().numpy() if features else []
            yield Predicted(numbers, own)
            if progress is not None:
                progress(int(rows[-1]) + 1, n)

    def residuals(self, calibrate: Path | None = None) -> Residuals:
        """Of the test rows of the run, which it keeps; or of another table with the target."""
        if calibrate is None:
            return Residuals(self.own_residuals, f"{len(self.own_residuals):,} test rows of the run")
        table, _ = self._table(calibrate, target=self.target)
        found = self.predicted(Inputs("row", [], table))
        numbers = np.concatenate([each.numbers for each in found])
        return Residuals(np.abs(numbers - table.targets), f"{len(numbers):,} rows of {calibrate}")

    def exportable(self) -> Exportable:
        """From prepared rows ``(n, i)``; the preparation is written beside it."""
        own = self.preparation
        names = [*own.number_names, *(f"{own.number_names[place]} is missing" for place in own.indicated)]
        for column, kept, rare in zip(own.category_names, own.kept, own.rare, strict=True):
            names += [*(f"{column} = {each}" for each in kept), *([f"{column} is rare"] if rare else [])]
        how = (
            "numbers: missing ones are the median; then (number - center) / scale, or the normal quantile of the share "
            "that evenly spaced quantiles give; then 1 where a number of an indicated column is missing; then of each "
            "column of categories 1 for the one that it is; missing is the category ''; one that is in no list is rare"
        )
        described = {"kind": "table", "target": self.target, "inputs": names, "how": how, **own.described()}
        return Exportable(self.single.cpu(), torch.zeros(2, own.width), described)

    def _table(self, given: Any, *, id_column: str = "", target: str = "") -> tuple[Table, Array | None]:
        own = self.preparation
        table, ids = data.rows_like(
            given,
            own.number_names,
            own.category_names,
            of_numbers=self.of_numbers,
            target=target,
            id_column=id_column,
        )
        for column, strange in own.unknown(table).items():
            _warn_of(column, strange, table, own)
        return table, ids


def _warn_of(column: str, strange: list[str], table: Table, own: Preparation) -> None:
    """Says which categories are new, and what becomes of them: what becomes of rare ones in training."""
    place = own.category_names.index(column)
    rows = int(np.isin(table.categories[:, place].astype(str), strange).sum())
    counted = "count as rare ones" if own.rare[place] else "count as no category at all"
    _LOG.warning(
        "column %r has %s that training has not seen, in %s of %s rows: %s; they %s; expected %s",
        shown(column),
        "a category" if len(strange) == 1 else f"{len(strange):,} categories",
        f"{rows:,}",
        f"{len(table.targets):,}",
        _some(strange),
        counted,
        _some([*own.kept[place], *own.rare[place]]),
    )


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED:,} others" if len(names) > _NAMED else ""
    return ", ".join(repr(shown(name, 40)) for name in names[:_NAMED]) + more
