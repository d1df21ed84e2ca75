"""What the numbers mean, in sentences that are true for them, and when to raise an alarm."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import torch

from ordinal_entropy.diagnosis.measures import MEASURES, Sample
from ordinal_entropy.diagnosis.results import Measure, number
from ordinal_entropy.functional import tightness
from ordinal_entropy.kernels.unit import unit_rows

ALARM_RANK = 2.0  # directions, or
ALARM_RANK_SHARE = 0.01  # of those that are possible, where there are at least
ALARM_RANK_POSSIBLE = 4
ALARM_COSINE = 0.995  # mean of two rows: 6 degrees
ALARM_SHARE = 0.5  # of dimensions that are dead or repeat another, of rows that repeat another
NOTED_SHARE = 0.01  # of rows that repeat another


class About(NamedTuple):
    """What sentences and alarms need beside the measures."""

    n: int
    d: int
    distinct: int  # targets
    grouped_by: str
    constant: bool  # all rows of the features are the same
    deviation: float  # of the dimensions, as a root mean square
    cosine: float  # of two rows, the mean
    around_all: float  # tightness with one group
    repeated: float  # share of rows that equal another


def about(sample: Sample, grouped_by: str) -> About:
    """These facts of a sample."""
    z = sample.features
    n, d = z.shape
    offset = z - z[0]
    unit = unit_rows(z[None])[0]
    counts = torch.unique(z, dim=0, return_counts=True)[1]
    pairs = float(unit.sum(0).square().sum() - unit.square().sum())  # cosines of all i != j
    return About(
        n=n,
        d=d,
        distinct=len(torch.unique(sample.targets, dim=0)),
        grouped_by=grouped_by,
        constant=not bool(offset.any()),
        deviation=float(offset.var(0).mean().sqrt()),
        cosine=pairs / (n * (n - 1)),
        around_all=float(tightness(z, torch.zeros(n))),
        repeated=int(counts[counts > 1].sum()) / n,
    )


def alarms(measures: Mapping[str, Measure], facts: About) -> Iterator[str]:
    """What says that the features have collapsed; nothing for healthy ones."""
    d, distinct = facts.d, facts.distinct
    if facts.constant:
        yield "All rows of the features are the same: nothing of the input is left in them."
        return
    rank, possible = measures["effective_rank"].value, min(d, facts.n - 1, distinct - 1)
    if possible >= ALARM_RANK_POSSIBLE and rank < max(ALARM_RANK, ALARM_RANK_SHARE * possible):
        shape = ": the features lie nearly on a line" if rank < ALARM_RANK else ""
        yield f"Only {rank:.1f} of {possible:,} possible directions are used{shape}."
    if d > 1 and facts.cosine > ALARM_COSINE:
        degrees = math.degrees(math.acos(min(facts.cosine, 1.0)))
        yield (
            f"All rows point in nearly the same direction (mean cosine {facts.cosine:.4f}, {degrees:.1f} degrees): "
            "on the unit sphere, where the regularizer acts, they are nearly one point."
        )
    for name, what in (("dead_dimensions", "are dead"), ("duplicate_dimensions", "repeat an earlier one")):
        share = measures[name].value
        if share >= ALARM_SHARE:
            yield f"{round(share * d):,} of {d:,} dimensions {what}."
    if facts.repeated >= ALARM_SHARE:
        yield f"{number(facts.repeated, 'share')} of the rows equal another row: the features do not tell inputs apart."
    told = measures["mutual_information"], measures["ordinality"]
    if distinct > 1 and all(measure.low <= 0 for measure in told):
        yield (
            "Distances between features say nothing about the target that these rows could show: "
            f"information {told[0].shown}, ordinality {told[1].shown}, both intervals reaching 0."
        )


def notes(facts: About) -> Iterator[str]:
    """What to bear in mind when reading the numbers."""
    if facts.repeated >= NOTED_SHARE and not facts.constant:
        yield (
            f"{number(facts.repeated, 'share')} of the rows equal another row; a distance of 0 counts as 1e-9 of the "
            "spread, which pulls the entropies down."
        )
    if facts.n <= facts.d:
        yield "There are no more rows than dimensions: entropies tell sets of features apart, and are not absolute."


def meaning(name: str, values: Mapping[str, float], facts: About) -> str:
    """One measure in words."""
    if facts.constant and name not in ("dead_dimensions", "duplicate_dimensions"):
        return "all rows of the features are the same"
    if facts.distinct == 1 and name in ("diversity_entropy", "mutual_information", "ordinality"):
        return "all targets are the same"
    if math.isnan(values[name]):
        return "not measured: too few rows have equal targets"
    if math.isinf(values[name]):
        return "not measured: squares of numbers so large or so small are out of range"
    return _MEANINGS[name](values[name], values, facts)


def change(name: str, value: float, low: float, high: float, n: int) -> str:
    """A difference, after minus before, in words."""
    if math.isnan(low):
        return "there is no interval to tell"
    if value == low == high == 0:
        return "no difference"
    if low <= 0 <= high:
        return f"no difference that {n:,} rows could show"
    return MEASURES[name].raised if value > 0 else MEASURES[name].lowered


Sentence = Callable[[float, Mapping[str, float], About], str]


def _mean_nn(value: float, values: Mapping[str, float], facts: About) -> str:
    return f"two rows are {number(math.exp(value / facts.d))} apart (geometric mean); longer features raise it"


def _mean_nn_unit(value: float, values: Mapping[str, float], facts: About) -> str:
    how = "are spread" if facts.cosine <= 0.5 else "have much in common" if facts.cosine <= ALARM_COSINE else "agree"
    apart = number(math.exp(value / facts.d))
    return f"directions {how}: mean cosine {facts.cosine:.3g}; {apart} apart on the unit sphere (geometric mean)"


def _diversity(value: float, values: Mapping[str, float], facts: About) -> str:
    return "what the regularizer raises, in the unit of the targets; compares on equal targets only"


def _knn(value: float, values: Mapping[str, float], facts: About) -> str:
    like = number(math.exp(value / facts.d) / math.sqrt(2 * math.pi * math.e))
    caution = " (too high, in so many)" if facts.d > 16 else ""
    own = number(facts.deviation)
    return f"the room of a Gaussian of deviation {like} in each dimension{caution}; their own is {own}"


def _conditional(value: float, values: Mapping[str, float], facts: About) -> str:
    less = values["knn_entropy"] - value
    taken = f"{number(less)} nats" if less > 0 else "nothing"
    return f"knowing the target takes {taken} off H(Z), kNN; {facts.grouped_by}"


def _information(value: float, values: Mapping[str, float], facts: About) -> str:
    if value < 0.05:
        return "neighbouring features tell next to nothing about the target"
    return f"as much as telling {number(math.exp(value))} equally frequent targets apart takes"


def _order(value: float, values: Mapping[str, float], facts: About) -> str:
    if value <= -0.1:
        return "feature distances run against target distances"
    for bound, how in ((0.9, "closely"), (0.6, "fairly well"), (0.3, "loosely"), (0.1, "barely")):
        if value >= bound:
            return f"feature distances follow target distances {how}"
    return "feature distances do not follow target distances"


def _tight(value: float, values: Mapping[str, float], facts: About) -> str:
    share = value / facts.around_all if facts.around_all > 0 else 1.0
    how = "tight" if share < 0.5 else "loose" if share < 0.9 else "as loose as the whole, nearly"
    return (
        f"{how}: at unit length rows are {number(value)} from the center of their group, "
        f"{number(facts.around_all)} from that of all; {facts.grouped_by}"
    )


def _rank(value: float, values: Mapping[str, float], facts: About) -> str:
    return f"of {min(facts.d, facts.n - 1):,} that {facts.d:,} dimensions and {facts.n:,} rows allow"


def _dead(value: float, values: Mapping[str, float], facts: About) -> str:
    return f"{_some(value, facts.d)} nearly constant over these rows"


def _duplicate(value: float, values: Mapping[str, float], facts: About) -> str:
    return f"{_some(value, facts.d)} an earlier one again, but for sign, scale and offset"


def _some(share: float, d: int) -> str:
    count = round(share * d)
    return f"{count:,} of {d:,} {'is' if count == 1 else 'are'}" if count else f"none of {d:,} is"


_MEANINGS: dict[str, Sentence] = {
    "mean_nn_entropy": _mean_nn,
    "mean_nn_entropy_unit": _mean_nn_unit,
    "diversity_entropy": _diversity,
    "knn_entropy": _knn,
    "conditional_entropy": _conditional,
    "mutual_information": _information,
    "ordinality": _order,
    "tightness": _tight,
    "effective_rank": _rank,
    "dead_dimensions": _dead,
    "duplicate_dimensions": _duplicate,
}
