"""Tables 4 and 5, ages of faces; and classification beside them, which the paper lacks.

    ordinal-entropy reproduce table4-age --set data=datasets/AgeDB-DIR
    ordinal-entropy reproduce table4-age --preset small --set data=datasets/UTKFace

The paper's numbers are of AgeDB-DIR, single ones without a spread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from ordinal_entropy.studies import paper
from ordinal_entropy.studies.grid import (
    Variant,
    check_keys,
    published_rows,
    require_different,
    seeds_from,
    with_strengths,
)
from ordinal_entropy.studies.paper import Score
from ordinal_entropy.studies.study import Details, Study, draws_differences

_PUBLISHED_STRENGTH = 1.0


@dataclass(frozen=True)
class Methods:
    """What is varied."""

    seeds: int = 6  # runs of each row
    methods: tuple[str, ...] = ("baseline", "ld", "oe")
    strengths: tuple[float, ...] = (_PUBLISHED_STRENGTH,)  # of the regularizers; of several, each has rows of its own

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        check_keys(self)


@dataclass(frozen=True)
class TightnessWeights:
    """What is varied."""

    seeds: int = 6  # runs of each row
    tightness_weights: tuple[float, ...] = (0.0, 0.1, 1.0, 10.0)  # beside the diversity: lambda_t

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        seeds_from(self.seeds)
        require_different("tightness_weights", self.tightness_weights)


def _weighted(keys: TightnessWeights) -> list[Variant]:
    return [Variant("baseline"), *(Variant("oe", (("tightness_weight", w),)) for w in keys.tightness_weights)]


def _published_rows(keys: Methods, variants: Sequence[Variant]) -> dict[str, dict[str, float]]:
    return published_rows(paper.TABLE4, variants, _PUBLISHED_STRENGTH, keys.strengths[0])


def _published_weighted(keys: TightnessWeights, variants: Sequence[Variant]) -> dict[str, dict[str, float]]:
    weights = {v.name: dict(v.changes).get("tightness_weight") for v in variants}
    known = {name: paper.TABLE5[weight] for name, weight in weights.items() if weight in paper.TABLE5}
    return {"baseline": paper.TABLE4["baseline"], **known}


def _study(
    title: str,
    about: str,
    keys: Any,
    fixed: Callable[[Any], dict[str, Any]],
    variants: Callable[[Any], list[Variant]],
    published: Callable[[Any, Sequence[Variant]], Details],
) -> Study:
    return Study(
        about=f"{title}: {about}",
        keys=keys,
        task=lambda keys: "age",
        fixed=fixed,
        variants=variants,
        paper=lambda keys, rows: {name: Score(own["mae"]) for name, own in published(keys, rows).items()},
        paper_details=published,
        notes=("The paper's numbers are of AgeDB-DIR with a ResNet-50; it gives no spread.",),
        picture=draws_differences(title),
    )


_by_method = partial(
    _study,
    fixed=lambda keys: {"strength": keys.strengths[0]},
    variants=lambda keys: with_strengths(keys.methods, keys.strengths),
    published=_published_rows,
)

STUDIES = {
    "table4-age": _by_method("Table 4, ages", "the diversity, and with the tightness; --set data=ROOT", Methods()),
    "table5-lambda-t": _study(
        "Table 5, ages",
        "weights of the tightness beside the diversity; --set data=ROOT",
        TightnessWeights(),
        fixed=lambda keys: {"tightness_weight": keys.tightness_weights[0]},
        variants=_weighted,
        published=_published_weighted,
    ),
    "classification-age": _by_method(
        "Classification, ages",
        "regression, plain and regularized, beside it; not in the paper; --set data=ROOT",
        Methods(methods=("baseline", "ld", "oe", "classification")),
    ),
}
