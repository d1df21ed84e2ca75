"""What a diagnosis holds, and how it prints."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeVar


@dataclass(frozen=True)
class Measure:
    """One number of a diagnosis, its 95% interval and what it means."""

    name: str
    title: str
    unit: str
    value: float  # at as many rows as were used
    low: float  # NaN where rows so few, or so alike, give no interval
    high: float
    meaning: str
    subsamples: tuple[float, ...]  # the value in each

    @property
    def shown(self) -> str:
        """The value and its unit as they are printed."""
        return with_unit(self.value, self.unit)

    @property
    def interval(self) -> str:
        """The interval as it is printed."""
        return _between(self.low, self.high, self.unit)


@dataclass(frozen=True)
class Counts:
    """What was measured of what there is."""

    rows: int
    left_out: int  # rows with NaN or infinite numbers, here or in the file that this one is compared with:
    left_out_features: int  # in the features here
    left_out_targets: int  # in the targets here
    used: int
    subsamples: int
    subsample_rows: int
    dimensions: int
    distinct_targets: int  # among the rows used
    grouped_by: str  # what H(Z|Y) and the tightness take together
    seed: int

    def __str__(self) -> str:
        text = f"{self.rows:,} rows of {self.dimensions:,} features"
        if self.left_out:
            found = (("features", self.left_out_features), ("targets", self.left_out_targets))
            where = " and ".join(f"{count:,} in the {name}" for name, count in found if count)
            text += f"; {self.left_out:,} left out, with NaN or infinite numbers ({where or 'in the other file'})"
        if self.used < self.rows - self.left_out:
            text += f"; {self.used:,} drawn without replacement (seed {self.seed}) and measured"
        else:
            text += f"; {self.used:,} measured" if self.left_out else "; all measured"
        if self.subsamples:
            text += f"; 95% intervals from {self.subsamples} subsamples of {self.subsample_rows:,}"
        return f"{text}. Most values depend on the number of rows: they are those at {self.used:,}."


@dataclass(frozen=True)
class Diagnosis:
    """What :func:`ordinal_entropy.diagnose` found: prints as a table; ``found["ordinality"]`` is one measure."""

    measures: tuple[Measure, ...]
    alarms: tuple[str, ...]  # empty where nothing is wrong
    notes: tuple[str, ...]
    counts: Counts

    def __getitem__(self, name: str) -> Measure:
        return _named(self.measures, name)

    def to_dict(self) -> dict[str, Any]:
        """All of it: ``{"alarms", "measures": {name: {...}}, "notes", "counts", "sampling"}``."""
        return {
            "alarms": list(self.alarms),
            "measures": {measure.name: asdict(measure) for measure in self.measures},
            "notes": list(self.notes),
            "counts": asdict(self.counts),
            "sampling": str(self.counts),
        }

    def __str__(self) -> str:
        lines = [[m.title, m.shown, m.interval, m.meaning] for m in self.measures]
        alarms = [f"Alarm: {alarm}" for alarm in self.alarms]
        table = _lined_up([["", "value", "95% interval", "what it means"], *lines])
        return "\n".join([*alarms, *[""] * bool(alarms), *table, "", str(self.counts), *self.notes])


@dataclass(frozen=True)
class Difference:
    """A measure after minus before, the 95% interval of the difference and what it means."""

    name: str
    title: str
    unit: str
    before: float
    after: float
    value: float  # NaN where the two cannot be compared
    low: float
    high: float
    meaning: str

    @property
    def shown(self) -> str:
        """The difference as it is printed."""
        return "" if math.isnan(self.value) else f"{'+' * (self.value > 0)}{number(self.value, self.unit)}"

    @property
    def interval(self) -> str:
        """The interval as it is printed."""
        return _between(self.low, self.high, self.unit)


@dataclass(frozen=True)
class Change:
    """What :func:`ordinal_entropy.diagnose_change` found: two diagnoses at the same number of rows, and differences."""

    before: Diagnosis
    after: Diagnosis
    differences: tuple[Difference, ...]
    paired: bool  # row i of one was taken for row i of the other
    notes: tuple[str, ...]

    def __getitem__(self, name: str) -> Difference:
        return _named(self.differences, name)

    def to_dict(self) -> dict[str, Any]:
        """All of it: ``{"before", "after", "differences": {name: {...}}, "paired", "notes"}``."""
        return {
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "differences": {difference.name: asdict(difference) for difference in self.differences},
            "paired": self.paired,
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        sides = (("before", self.before), ("after", self.after))
        alarms = [f"Alarm, {side}: {alarm}" for side, found in sides for alarm in found.alarms]
        lines = [
            [found.title, old.shown, new.shown, found.shown, found.interval, found.meaning]
            for found, old, new in zip(self.differences, self.before.measures, self.after.measures, strict=True)
        ]
        table = _lined_up([["", "before", "after", "difference", "95% interval", "what it means"], *lines])
        said = [f"{side}: {text}" for side, found in sides for text in (found.counts, *found.notes)]
        return "\n".join([*alarms, *[""] * bool(alarms), *table, "", *said, *self.notes])


_Named = TypeVar("_Named", Measure, Difference)


def number(value: float, unit: str = "") -> str:
    """Three digits, or all before the point; a share in percent; rounding is 0.

    Example:
        >>> number(0.93456), number(-12345.6), number(0.125, "share")
        ('0.935', '-12,346', '12.5%')
    """
    value = 0.0 if abs(value) < 1e-14 else value
    if unit == "share":
        return f"{100 * value:.3g}%"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.3g}"


def with_unit(value: float, unit: str) -> str:
    """A number and its unit, where that is a word; nothing for NaN."""
    if math.isnan(value):
        return ""
    return f"{number(value, unit)} {unit if unit != 'share' else ''}".rstrip()


def _between(low: float, high: float, unit: str) -> str:
    return "" if math.isnan(low) else f"{number(low, unit)} to {number(high, unit)}"


def _named(found: Sequence[_Named], name: str) -> _Named:
    for one in found:
        if one.name == name:
            return one
    raise KeyError(f"expected one of {', '.join(one.name for one in found)}, got {name!r}")


def _lined_up(lines: Sequence[Sequence[str]]) -> list[str]:
    """Columns of equal width, the last one free."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return ["  ".join(cell.ljust(wide) for cell, wide in zip(line, widths, strict=True)).rstrip() for line in lines]
