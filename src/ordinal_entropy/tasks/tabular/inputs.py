"""What a network sees of a table: numbers filled in and scaled, categories as columns of 0 and 1.

All of it is fitted on the training rows of a run alone, by scikit-learn's own transformers, and kept as plain numbers:
a trained run needs neither these rows nor scikit-learn to be used.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ordinal_entropy import runs
from ordinal_entropy.tasks.tabular.data import Table

Array = NDArray[Any]

_TEST, _VALIDATION = 0, 1  # streams of a seed
_MOST_QUANTILES = 1000
_BEYOND = 1e-7  # from the first quantile and the last: at the ends, as scikit-learn has it


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
    preparation: "Preparation | None" = None  # that made the inputs

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


@dataclass(frozen=True)
class Preparation:
    """How a table becomes inputs: plain numbers and names, which training rows have said; :meth:`fitted` makes one.

    Example:
        >>> table = Table(np.array([[1.0], [np.nan]]), ("a",), np.array([["x"], ["y"]], object), ("c",), np.arange(2.0))
        >>> own = Preparation.fitted(table, np.arange(2), scaling="standard", max_categories=32)
        >>> own.part(table, np.arange(2)).inputs  # a, whether it was missing, c = x, c = y
        array([[0., 0., 1., 0.],
               [0., 1., 0., 1.]], dtype=float32)
        >>> Preparation.restored(own.described()) == own
        True
    """

    number_names: tuple[str, ...]
    medians: tuple[float, ...]  # of each column of numbers, in place of what is missing
    indicated: tuple[int, ...]  # columns of numbers with a further input that says where they are missing
    centers: tuple[float, ...]  # of each column of numbers, subtracted; none where there are quantiles
    scales: tuple[float, ...]  # that it is divided by after that
    quantiles: tuple[tuple[float, ...], ...]  # of each column of numbers, evenly spaced ones, brought to normal ones
    category_names: tuple[str, ...]
    kept: tuple[tuple[str, ...], ...]  # categories of each column with an input of 0 and 1 each
    rare: tuple[tuple[str, ...], ...]  # those that share one more, if there are any
    center: float  # mean of the training targets
    scale: float  # and their standard deviation

    @classmethod
    def fitted(cls, table: Table, rows: Array, *, scaling: str, max_categories: int) -> "Preparation":
        """What the training rows say, by scikit-learn's transformers.

        Args:
            table: with all rows.
            rows: those to train on.
            scaling: of numbers: "standard", mean 0 and variance 1; or "quantile", each to a normal distribution.
            max_categories: inputs of 0 and 1 that a column of categories becomes, at most; the rarest share one.
        """
        impute, preprocessing = require_sklearn()
        numbers, targets = table.numbers[rows], table.targets[rows]
        # in a column without a number, 0
        imputer = impute.SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
        # categories that training has not seen are taken for rare ones, or for none where no category is rare
        encoder = preprocessing.OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=max_categories)
        p, q = numbers.shape[1], table.categories.shape[1]
        found: dict[str, Any] = dict.fromkeys(("medians", "indicated", "centers", "scales", "quantiles"), ())
        found |= {"kept": (), "rare": ()}
        with np.errstate(over="ignore", invalid="ignore"):
            if p:
                filled = imputer.fit_transform(numbers)[:, :p]
                found["medians"] = tuple(imputer.statistics_.tolist())
                found["indicated"] = tuple(imputer.indicator_.features_.tolist())
                if scaling == "quantile":
                    count = min(_MOST_QUANTILES, len(rows))
                    scaler = preprocessing.QuantileTransformer(n_quantiles=count, subsample=None).fit(filled)
                    found["quantiles"] = tuple(map(tuple, scaler.quantiles_.T.tolist()))
                else:
                    scaler = preprocessing.StandardScaler().fit(filled)
                    found["centers"], found["scales"] = (tuple(each.tolist()) for each in (scaler.mean_, scaler.scale_))
            if q:
                encoder.fit(table.categories[rows])
                rare = [() if own is None else tuple(own) for own in encoder.infrequent_categories_]
                there = zip(encoder.categories_, rare, strict=True)
                found["kept"] = tuple(tuple(each for each in own if each not in {*few}) for own, few in there)
                found["rare"] = tuple(rare)
            center, scale = float(targets.mean()), float(targets.std())
        if (targets == targets[0]).all():
            raise ValueError(f"expected training targets that differ, got {targets[0]:g} in all {len(rows):,} rows")
        if not np.isfinite(scale):
            raise ValueError(f"expected targets whose variance is a number, got up to {np.abs(targets).max():g}")
        return cls(table.number_names, category_names=table.category_names, center=center, scale=scale, **found)

    @property
    def numbers(self) -> int:
        """So many of the inputs, the first ones, are numbers."""
        return len(self.number_names)

    @property
    def width(self) -> int:
        """How many inputs there are."""
        shared = sum(len(kept) + bool(rare) for kept, rare in zip(self.kept, self.rare, strict=True))
        return self.numbers + len(self.indicated) + shared

    def part(self, table: Table, rows: Array) -> Part:
        """Inputs and targets of some rows of a table with the same columns."""
        found = []
        if self.numbers:
            there = table.numbers[rows]
            missing = np.isnan(there)
            filled = np.where(missing, np.array(self.medians), there)
            with np.errstate(over="ignore", invalid="ignore"):
                scaled = self._scaled(filled).astype(np.float32)
            if not np.isfinite(scaled).all():
                name = table.number_names[int((~np.isfinite(scaled)).any(0).argmax())]
                raise ValueError(f"expected numbers whose variance is a number, got larger ones in column {name!r}")
            found += [scaled, missing[:, list(self.indicated)].astype(np.float32)]
        for column, kept, rare in zip(table.categories[rows].T, self.kept, self.rare, strict=True):
            own, which = np.unique(column.astype(str), return_inverse=True)
            place = {name: k for k, name in enumerate(kept)}
            encoded = np.zeros((len(own), len(kept) + bool(rare)), dtype=np.float32)
            for row, name in enumerate(own.tolist()):
                if name in place or rare:
                    encoded[row, place.get(name, len(kept))] = 1
            found.append(encoded[which])
        return Part(np.concatenate(found, axis=1), table.targets[rows])

    def _scaled(self, numbers: Array) -> Array:
        """Numbers ``(n, p)`` without missing ones, as scikit-learn's scalers have them to the last bit."""
        if not self.quantiles:
            scaled: Array = (numbers - np.array(self.centers)) / np.array(self.scales)
            return scaled
        from scipy.special import ndtri

        least = ndtri(_BEYOND - np.spacing(1))
        found = np.empty_like(numbers)
        for column, quantiles in enumerate(np.array(self.quantiles)):
            own, even = numbers[:, column], np.linspace(0, 1, len(quantiles))
            # of equal quantiles the middle
            share = 0.5 * (np.interp(own, quantiles, even) - np.interp(-own, -quantiles[::-1], -even[::-1]))
            share = np.where(own + _BEYOND > quantiles[-1], 1, share)
            share = np.where(own - _BEYOND < quantiles[0], 0, share)
            found[:, column] = np.clip(ndtri(share), least, -least)
        return found

    def unknown(self, table: Table) -> dict[str, list[str]]:
        """The categories of a table that training has not seen, by column."""
        found = {}
        for name, column, kept, rare in zip(self.category_names, table.categories.T, self.kept, self.rare, strict=True):
            strange = sorted({*column.tolist()} - {*kept, *rare})
            if strange:
                found[name] = strange
        return found

    def described(self) -> dict[str, Any]:
        """As JSON has it; :meth:`restored` reads it back, to the last bit."""
        return asdict(self)

    @classmethod
    def restored(cls, content: Mapping[str, Any]) -> "Preparation":
        """What :meth:`described` told; a ValueError where it is something else."""
        number, text = [(int, float)], [str]
        form = {"number_names": text, "medians": number, "indicated": [int], "centers": number, "scales": number}
        form |= {"quantiles": [number], "category_names": text, "kept": [text], "rare": [text]}
        runs.require_form(content, {**form, "center": (int, float), "scale": (int, float)})
        p, q = len(content["number_names"]), len(content["category_names"])
        lengths = {"medians": p, "kept": q, "rare": q, "quantiles" if content["quantiles"] else "centers": p}
        for name, count in lengths.items():
            if len(content[name]) != count:
                raise ValueError(f"expected {count} {name}, got {len(content[name])}")
        own = {name: content[name] for name in (*form, "center", "scale")}
        return cls(**{name: _tuples(value) for name, value in own.items()})


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, (list, tuple)) else value


def seen(table: Table, rows: Rows, preparation: Preparation) -> Seen:
    """What a run sees of its rows."""
    train, validation, test = (preparation.part(table, own) for own in rows)
    own = preparation
    return Seen(train, validation, test, own.numbers, own.center, own.scale, own)


def require_sklearn() -> tuple[Any, Any]:
    """Its modules of transformers; an ImportError says how to get it."""
    try:
        from sklearn import impute, preprocessing
    except ImportError as error:
        raise ImportError("tables need scikit-learn: pip install 'ordinal-entropy[sklearn]'") from error
    return impute, preprocessing
