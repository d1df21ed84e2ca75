"""Are these features collapsed? Every estimator on one sample of rows, with intervals, sentences and alarms.

At most some thousand rows are drawn and measured, so that a file of any length takes about as long. Intervals come from
subsamples *without* replacement: a bootstrap repeats rows, and repeated rows are at distance 0 from each other.
"""

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from ordinal_entropy import feature_files
from ordinal_entropy.diagnosis.draws import (
    LEAST_FOR_INTERVALS,
    LEAST_ROWS,
    SUBSAMPLES,
    Drawn,
    draw,
    equal,
    interval,
    number_of_blocks,
    subsample_size,
    width,
)
from ordinal_entropy.diagnosis.measures import MEASURES, Sample, target_groups
from ordinal_entropy.diagnosis.results import Change, Counts, Diagnosis, Difference, Measure
from ordinal_entropy.diagnosis.sentences import about, alarms, change, meaning, notes
from ordinal_entropy.feature_files import RowStream

__all__ = ["Change", "Counts", "Diagnosis", "Difference", "Measure", "diagnose", "diagnose_change"]

ROWS = 4096  # measured at most, unless told otherwise; fewer where that makes more than
NUMBERS = 2**21  # but not fewer than
FEWEST_ROWS = 1024

_WHOLE = 16  # steps of progress for a measure of all rows; one for that of a subsample

Numbers = Tensor | np.ndarray | RowStream
Progress = Callable[[int, int], None]


def diagnose(
    features: Numbers,
    targets: Numbers,
    *,
    rows: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Diagnosis:
    """Entropies, information, ordinality, tightness, rank, dead and duplicate dimensions: are the features collapsed?

    Args:
        features: ``(n, d)``, a tensor, a NumPy array (memory-mapped too), or what ``feature_files.read`` returns.
        targets: ``(n,)`` or ``(n, t)``, any of these; integers are fine.
        rows: the most that are drawn and measured: 4,096 unless given, fewer where there are more than 512 features,
            but at least 1,024.
        seed: of all draws; the same seed gives the same numbers.
        progress: called with the steps done and the steps in all.

    Returns:
        The diagnosis. Rows with NaN or infinite numbers are left out and counted. Where all rows of the features are
        the same, entropies are ``-inf`` and an alarm says so. Fewer than 16 rows give no intervals.

    Raises:
        TypeError: neither tensors nor arrays.
        ValueError: shapes that do not fit, or fewer than 8 rows that can be measured.

    Example:
        >>> y = torch.linspace(0, 1, 400)
        >>> line = torch.outer(y, torch.ones(8))  # one dimension, eight times
        >>> found = diagnose(line, y)
        >>> print(found["ordinality"].shown, found["effective_rank"].shown, found["duplicate_dimensions"].shown)
        1 1 directions 87.5%
        >>> found.alarms[0]
        'Only 1.0 of 8 possible directions are used: the features lie nearly on a line.'
    """
    pair = checked(features, targets)
    counted = _Steps(progress, [pair])
    (drawn,) = draw([pair], _most_rows(rows, [pair]), seed, counted)
    return _diagnosis(drawn, seed, counted)


def diagnose_change(
    before: tuple[Numbers, Numbers],
    after: tuple[Numbers, Numbers],
    *,
    rows: int | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Change:
    """Two sets of features compared at the same number of rows.

    Where both have the same number of rows and equal targets, row i of one is matched with row i of the other:
    the same rows are left out, drawn and subsampled, which makes the difference a paired one.

    Args:
        before: features and targets, as :func:`diagnose` takes them.
        after: the same.
        rows: as there.
        seed: as there.
        progress: as there.

    Returns:
        Both diagnoses and the differences, after minus before. Entropies in nats of features of different dimensions
        are not compared.

    Example:
        >>> z = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
        >>> found = diagnose_change((z, z[:, 0]), (2 * z, z[:, 0]))
        >>> print(f"{found['knn_entropy'].value:.3f}")  # 4 log 2
        2.773
        >>> found["ordinality"].meaning
        'no difference'
    """
    samples = [checked(*before), checked(*after)]
    counted = _Steps(progress, samples)
    most = _most_rows(rows, samples)
    paired = equal(samples[0][1], samples[1][1])
    if paired:
        both = draw(samples, most, seed, counted)
    else:
        both = [drawn for sample in samples for drawn in draw([sample], most, seed, counted)]
        n = min(len(drawn.features) for drawn in both)
        both = [drawn._replace(features=drawn.features[:n], targets=drawn.targets[:n]) for drawn in both]
    first, second = (_diagnosis(drawn, seed, counted) for drawn in both)
    said = ["Intervals are of single measures, not adjusted for their number."]
    if paired:
        said.append("Both have the same targets: row i of one is taken for row i of the other, and the pairs compared.")
    else:
        said.append(
            "The targets differ: compared as two separate samples. What depends on targets (diversity, H(Z|Y), I(Z;Y), "
            "ordinality, tightness) compares only if these are of one kind."
        )
    return Change(first, second, tuple(_differences(first, second)), paired, tuple(said))


def checked(features: Numbers, targets: Numbers) -> tuple[RowStream, RowStream]:
    """What :func:`diagnose` takes as rows, if their shapes can be measured; a ValueError where not."""
    x, y = feature_files.stream(features, "features"), feature_files.stream(targets, "targets")
    if len(x.shape) != 2 or x.shape[1] == 0:
        raise ValueError(f"expected features of shape (n, d) with d >= 1, got {x.shape}")
    n = x.shape[0]
    if len(y.shape) not in (1, 2) or y.shape[0] != n or 0 in y.shape[1:]:
        raise ValueError(f"expected targets for each of the {n:,} rows of features, ({n},) or ({n}, t), got {y.shape}")
    if n < LEAST_ROWS:
        raise ValueError(f"expected at least {LEAST_ROWS} rows of features, got {n}")
    return x, y


def _most_rows(rows: int | None, samples: Sequence[tuple[RowStream, RowStream]]) -> int:
    if rows is None:
        return min(ROWS, max(FEWEST_ROWS, NUMBERS // width(samples)))
    if not isinstance(rows, int) or rows < LEAST_ROWS:
        raise ValueError(f"expected rows as an integer of at least {LEAST_ROWS}, got {rows!r}")
    return rows


class _Steps:
    """Counts the steps of one call: blocks read, measures taken."""

    def __init__(self, progress: Progress | None, samples: Sequence[tuple[RowStream, RowStream]]) -> None:
        self.progress = progress
        self.done = 0
        self.total = sum(number_of_blocks([sample]) + len(MEASURES) * (_WHOLE + SUBSAMPLES) for sample in samples)

    def __call__(self, steps: int = 1) -> None:
        self.done = min(self.done + steps, self.total)
        if self.progress is not None:
            self.progress(self.done, self.total)


def _diagnosis(drawn: Drawn, seed: int, counted: _Steps) -> Diagnosis:
    n, d = drawn.features.shape
    size = subsample_size(n)
    group, grouped_by = target_groups(drawn.targets, size)
    whole = Sample(drawn.features, drawn.targets, group)
    values: dict[str, float] = {}
    for name, kind in MEASURES.items():
        values[name] = float(kind.estimate(whole))
        counted(_WHOLE)
    draws: dict[str, list[float]] = {name: [] for name in MEASURES}
    generator = torch.Generator().manual_seed(seed)
    for _ in range(SUBSAMPLES if n >= LEAST_FOR_INTERVALS else 0):
        part = whole.at(torch.randperm(n, generator=generator)[:size])
        for name, kind in MEASURES.items():
            draws[name].append(float(kind.estimate(part)))
            counted()
    subsamples = len(draws["ordinality"])
    facts = about(whole, grouped_by)
    measures = {}
    for name, (title, unit, _, least, most, *_) in MEASURES.items():
        low, high = interval(values[name], draws[name], n, size)
        low, high = (float(np.clip(end, least, most)) for end in (low, high))  # NaN stays
        measures[name] = Measure(
            name, title, unit, values[name], low, high, meaning(name, values, facts), tuple(draws[name])
        )
    counts = Counts(
        *drawn.counts,
        used=n,
        subsamples=subsamples,
        subsample_rows=size if subsamples else 0,
        dimensions=d,
        distinct_targets=facts.distinct,
        grouped_by=grouped_by,
        seed=seed,
    )
    return Diagnosis(tuple(measures.values()), tuple(alarms(measures, facts)), tuple(notes(facts)), counts)


def _differences(before: Diagnosis, after: Diagnosis) -> Iterator[Difference]:
    counts, others = before.counts, after.counts
    for old, new in zip(before.measures, after.measures, strict=True):
        kind = MEASURES[old.name]
        comparable = counts.dimensions == others.dimensions or not kind.of_equal_dimensions
        value = new.value - old.value if comparable else math.nan
        steps = [b - a for a, b in zip(old.subsamples, new.subsamples, strict=True)]
        low, high = interval(value, steps, counts.used, counts.subsample_rows)
        said = (
            change(old.name, value, low, high, counts.used)
            if comparable
            else f"not to be compared: {counts.dimensions:,} dimensions before, {others.dimensions:,} after"
        )
        yield Difference(old.name, old.title, old.unit, old.value, new.value, value, low, high, said)
