"""What a network sees of a table: numbers filled in and scaled, categories as columns of 0 and 1.

All of it is fitted on the training rows of a run alone, by scikit-learn's own transformers.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ordinal_entropy.tasks.tabular.data import Table

Array = NDArray[Any]

_TEST, _VALIDATION = 0, 1  # streams of a seed
_MOST_QUANTILES = 1000


class Rows(NamedTuple):
    """Row numbers of a run."""

    train: Array
    validation: Array
    test: Array


class Part(NamedTuple):
    """Inputs ``(n, i)`` in float32, numbers first, and targets ``(n,)`` in float64 and their own unit."""

    inputs: Array
    targets: Array


class Seen(NamedTuple):
    """All that a run sees."""

    train: Part
    validation: Part
    test: Part
    numbers: int  # so many of the inputs, the first ones, are numbers
    center: float  # mean of the training targets
    scale: float  # and their standard deviation

    def standardized(self) -> Array:
        """Training targets ``(n,)``."""
        return (self.train.targets - self.center) / self.scale


def rows_of(table: Table, seed: int, *, test_share: float, validation_share: float, split: int | None = None) -> Rows:
    """The rows of a seed: its published split, or one drawn by it; validation rows are drawn from the training rows.

    Args:
        table: with or without published splits; seed k takes split k modulo their number.
        seed: of the run.
        split: the test rows are those of this seed; None: of the run's own.
        test_share: of all rows, where there are no published splits.
        validation_share: of the training rows.

    Example:
        >>> table = Table(np.zeros((10, 1)), ("a",), np.empty((10, 0), dtype=object), (), np.arange(10.0))
        >>> [rows.tolist() for rows in rows_of(table, 0, test_share=0.2, validation_share=0.25)]
        [[0, 2, 5, 7, 8, 9], [1, 3], [4, 6]]
    """
    n, of_test = len(table.targets), seed if split is None else split
    if table.tests:
        test = np.sort(table.tests[of_test % len(table.tests)])
    else:
        test = _drawn(np.arange(n), test_share, [of_test, _TEST])
    rest = np.setdiff1d(np.arange(n), test)
    if len(rest) < 2 or not len(test):
        raise ValueError(f"expected rows to train on, to validate and to test on, got {n} rows in all")
    validation = _drawn(rest, validation_share, [seed, _VALIDATION])
    return Rows(np.setdiff1d(rest, validation), validation, test)


def _drawn(rows: Array, share: float, seed: list[int]) -> Array:
    """So many of the rows, in ascending order: one at least, and not all."""
    count = min(max(round(share * len(rows)), 1), max(len(rows) - 1, 1))
    drawn: Array = np.sort(np.random.default_rng(seed).permutation(rows)[:count])
    return drawn


class Preparation:
    """What the training rows say about how to turn a table into inputs.

    Args:
        table: with all rows.
        rows: those to train on.
        scaling: of numbers: "standard", mean 0 and variance 1; or "quantile", each to a normal distribution.
        max_categories: columns of 0 and 1 that a column of categories becomes, at most; the rarest share one.
    """

    def __init__(self, table: Table, rows: Array, *, scaling: str, max_categories: int) -> None:
        impute, preprocessing = require_sklearn()
        numbers, targets = table.numbers[rows], table.targets[rows]
        # in a column without a number, 0
        self.imputer = impute.SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
        self.scaler = preprocessing.StandardScaler()
        if scaling == "quantile":
            count = min(_MOST_QUANTILES, len(rows))
            self.scaler = preprocessing.QuantileTransformer(
                n_quantiles=count, output_distribution="normal", subsample=None
            )
        # categories that training has not seen are taken for rare ones, or for none where no category is rare
        self.encoder = preprocessing.OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=max_categories, sparse_output=False, dtype=np.float32
        )
        self.numbers = numbers.shape[1]
        self.categories = table.categories.shape[1]
        with np.errstate(over="ignore", invalid="ignore"):
            if self.numbers:
                self.scaler.fit(self.imputer.fit_transform(numbers)[:, : self.numbers])
            if self.categories:
                self.encoder.fit(table.categories[rows])
            self.center, self.scale = float(targets.mean()), float(targets.std())
        if (targets == targets[0]).all():
            raise ValueError(f"expected training targets that differ, got {targets[0]:g} in all {len(rows):,} rows")
        if not np.isfinite(self.scale):
            raise ValueError(f"expected targets whose variance is a number, got up to {np.abs(targets).max():g}")

    def part(self, table: Table, rows: Array) -> Part:
        """Inputs and targets of some rows of a table with the same columns."""
        found = []
        if self.numbers:
            with np.errstate(over="ignore", invalid="ignore"):
                filled = self.imputer.transform(table.numbers[rows])
                scaled = self.scaler.transform(filled[:, : self.numbers]).astype(np.float32)
            if not np.isfinite(scaled).all():
                name = table.number_names[int((~np.isfinite(scaled)).any(0).argmax())]
                raise ValueError(f"expected numbers whose variance is a number, got larger ones in column {name!r}")
            found += [scaled, filled[:, self.numbers :].astype(np.float32)]  # then where some were missing
        if self.categories:
            found.append(self.encoder.transform(table.categories[rows]))
        return Part(np.concatenate(found, axis=1), table.targets[rows])


def seen(table: Table, rows: Rows, preparation: Preparation) -> Seen:
    """What a run sees of its rows."""
    train, validation, test = (preparation.part(table, own) for own in rows)
    return Seen(train, validation, test, preparation.numbers, preparation.center, preparation.scale)


def require_sklearn() -> tuple[Any, Any]:
    """Its modules of transformers; an ImportError says how to get it."""
    try:
        from sklearn import impute, preprocessing
    except ImportError as error:
        raise ImportError("tables need scikit-learn: pip install 'ordinal-entropy[sklearn]'") from error
    return impute, preprocessing
