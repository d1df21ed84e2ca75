"""What is measured, each by a function from a sample to a number."""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ordinal_entropy import estimators
from ordinal_entropy.functional import tightness

DEAD = 1e-4  # of the largest standard deviation of a dimension: half precision keeps nothing so small beside it
ROUNDING = 1e-6  # of a dimension's own size: what sums in float32 lose
DUPLICATE = 1e-4  # of a dimension's variance left once an earlier one is known

NEIGHBOURS = 3
_DISTINCT = 10  # targets that are groups of their own; where there are more,
_HALVINGS = 3  # make groups of them
_GROUP_ROWS = 8  # of a subsample
_BLOCK = 2**22  # correlations held at once


class Sample(NamedTuple):
    """Features ``(n, d)``, targets ``(n, t)`` and a group ``(n,)`` of near targets, in float64."""

    features: Tensor
    targets: Tensor
    group: Tensor

    def at(self, index: Tensor) -> "Sample":
        """These rows of it."""
        return Sample(self.features[index], self.targets[index], self.group[index])


def target_groups(targets: Tensor, subsample: int) -> tuple[Tensor, str]:
    """A number ``(n,)`` for rows of near targets, and what these have in common.

    Up to ten distinct targets are groups of their own. More are cut in half three times, at the median of the column
    that varies most within what is cut; less often where a group would have few rows in a subsample of that size.

    Example:
        >>> target_groups(torch.arange(80.0)[:, None], 40)[0].bincount()
        tensor([20, 20, 20, 20])
    """
    distinct, label = torch.unique(targets, dim=0, return_inverse=True)
    if len(distinct) <= _DISTINCT:
        return label, "rows of equal targets"
    halvings = min(_HALVINGS, max(0, int(math.log2(subsample / _GROUP_ROWS))))
    deviation = targets.std(0)
    label = _halved((targets - targets.mean(0)) / torch.where(deviation > 0, deviation, 1), halvings)
    return label, f"{len(label.unique())} groups of near targets"


def _halved(targets: Tensor, times: int) -> Tensor:
    label = torch.zeros(len(targets), dtype=torch.long)
    column = targets[:, (targets.amax(0) - targets.amin(0)).argmax()]
    if times == 0 or bool((column == column[0]).all()):
        return label
    middle = column.median()
    upper = column > middle
    if not upper.any():  # more than half are the largest one
        upper = column == middle
    label[~upper] = _halved(targets[~upper], times - 1)
    label[upper] = _halved(targets[upper], times - 1) + 2 ** (times - 1)
    return label


def conditional_entropy(sample: Sample) -> float:
    """Of the features given the group; groups too small to measure are left out, NaN where all are."""
    large = sample.group.bincount()[sample.group] > NEIGHBOURS
    if not large.any():
        return math.nan
    return float(estimators.conditional_entropy(sample.features[large], sample.group[large], "unique", k=NEIGHBOURS))


def ordinality(sample: Sample) -> Tensor:
    """Over pairs in number proportional to the rows, so that their draw adds the same share to any spread."""
    return estimators.ordinality(sample.features, sample.targets, num_pairs=max(2**15, 25 * len(sample.features)))


def dead_share(features: Tensor) -> float:
    """Share of the dimensions of ``features (n, d)`` that are constant, or nearly.

    Their standard deviation is at most 1e-4 of the largest one, or at most 1e-6 of their own root-mean-square value.

    Example:
        >>> dead_share(torch.tensor([[1.0, 5.0], [2.0, 5.0]]))
        0.5
    """
    return float((_live_deviations(features.double()) == 0).double().mean())


def _live_deviations(features: Tensor) -> Tensor:
    """Standard deviations ``(d,)`` of the dimensions, 0 for the dead ones."""
    deviation = (features - features[0]).std(0, correction=0)  # exactly 0 where all rows are the same
    size = features.square().mean(0).sqrt()
    return torch.where((deviation > DEAD * deviation.max()) & (deviation > ROUNDING * size), deviation, 0.0)


def duplicate_share(features: Tensor) -> float:
    """Share of the dimensions of ``features (n, d)`` that follow an earlier one, up to sign, scale and offset.

    Their squared correlation with it is at least 0.9999: a linear layer gains nothing from them. Dead dimensions do not
    count.

    Example:
        >>> a, b = torch.tensor([1.0, 2.0, 4.0]), torch.tensor([1.0, 0.0, 1.0])
        >>> duplicate_share(torch.stack([a, b, 5 - 2 * a, torch.zeros(3)], dim=1))
        0.25
    """
    features = features.double()
    deviation = _live_deviations(features)
    live = features[:, deviation > 0]
    scaled = (live - live.mean(0)) / (deviation[deviation > 0] * math.sqrt(len(live)))  # columns of length 1
    scaled = scaled.float()
    step = max(1, _BLOCK // max(1, scaled.shape[1]))
    found = 0
    for start in range(0, scaled.shape[1], step):
        correlation = scaled[:, start : start + step].T @ scaled[:, : start + step]  # (step, start + step)
        found += int((correlation.square() >= 1 - DUPLICATE).tril(start - 1).any(1).sum())
    return found / features.shape[1]


class Kind(NamedTuple):
    """How a measure is called, made and read."""

    title: str
    unit: str
    estimate: Callable[[Sample], Tensor | float]
    least: float  # that is possible
    most: float
    raised: str  # what it means that it rose
    lowered: str
    of_equal_dimensions: bool = False  # compares only between features of as many


_ANY = math.inf

MEASURES: dict[str, Kind] = {
    "mean_nn_entropy": Kind(
        "H(Z), meanNN",
        "nats",
        lambda s: estimators.mean_nn_entropy(s.features, scale="entropy"),
        -_ANY,
        _ANY,
        "rows lie further apart",
        "rows lie closer together",
        of_equal_dimensions=True,
    ),
    "mean_nn_entropy_unit": Kind(
        "H(Z), meanNN, unit length",
        "nats",
        lambda s: estimators.mean_nn_entropy(s.features, normalize=True, scale="entropy"),
        -_ANY,
        _ANY,
        "directions are further apart",
        "directions are closer together",
        of_equal_dimensions=True,
    ),
    "diversity_entropy": Kind(
        "H(Z), diversity",
        "",
        lambda s: estimators.diversity_entropy(s.features, s.targets),
        0,
        _ANY,
        "features of far targets point further apart",
        "features of far targets point less far apart",
    ),
    "knn_entropy": Kind(
        "H(Z), kNN",
        "nats",
        lambda s: estimators.knn_entropy(s.features, NEIGHBOURS),
        -_ANY,
        _ANY,
        "the features fill more room",
        "the features fill less room",
        of_equal_dimensions=True,
    ),
    "conditional_entropy": Kind(
        "H(Z|Y), kNN",
        "nats",
        conditional_entropy,
        -_ANY,
        _ANY,
        "features of near targets fill more room",
        "features of near targets fill less room",
        of_equal_dimensions=True,
    ),
    "mutual_information": Kind(
        "I(Z;Y)",
        "nats",
        lambda s: estimators.mutual_information(s.features, s.targets, k=NEIGHBOURS),
        -_ANY,
        _ANY,
        "the features tell more about the target",
        "the features tell less about the target",
    ),
    "ordinality": Kind(
        "ordinality",
        "",
        ordinality,
        -1,
        1,
        "feature distances follow target distances more closely",
        "feature distances follow target distances less closely",
    ),
    "tightness": Kind(
        "tightness",
        "",
        lambda s: tightness(s.features, s.group),
        0,
        2,
        "features of near targets point less alike",
        "features of near targets point more alike",
    ),
    "effective_rank": Kind(
        "effective rank",
        "directions",
        lambda s: estimators.effective_rank(s.features),
        0,
        _ANY,
        "more directions are used",
        "fewer directions are used",
    ),
    "dead_dimensions": Kind(
        "dead dimensions",
        "share",
        lambda s: dead_share(s.features),
        0,
        1,
        "more dimensions are dead",
        "fewer dimensions are dead",
    ),
    "duplicate_dimensions": Kind(
        "duplicate dimensions",
        "share",
        lambda s: duplicate_share(s.features),
        0,
        1,
        "more dimensions repeat an earlier one",
        "fewer dimensions repeat an earlier one",
    ),
}
