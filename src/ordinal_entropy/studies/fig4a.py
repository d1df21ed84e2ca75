"""Figures 4a and Ba: the error against M, the number of rows that the regularizer draws in each step.

Under the authors' rescaling (w - min) / max two rows have weight 0, and the mean weight changes with M: M and strength
are confounded. So every M is trained with raw weights too, whose mean does not depend on M.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ordinal_entropy.results.summary_figures import sweep
from ordinal_entropy.studies import paper
from ordinal_entropy.studies.grid import Variant, methods_known, seeds_from
from ordinal_entropy.studies.paper import Score
from ordinal_entropy.studies.study import Study, draws
from ordinal_entropy.studies.table1 import SCALES, STRENGTH

Rescale = Literal["authors", "max", "none"]


@dataclass(frozen=True)
class Fig4a:
    """What is varied."""

    seeds: int = 10  # runs of each point
    method: str = "ld"
    samples: tuple[int, ...] = (2, 5, 10, 20, 50, 100, 200, 500, 1000)  # M
    rescales: tuple[Rescale, ...] = ("authors", "none")

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        seeds_from(self.seeds)
        methods_known([self.method])


def _variants(keys: Fig4a) -> list[Variant]:
    points = [(("samples", m), ("rescale", rescale)) for rescale in keys.rescales for m in keys.samples]
    return [Variant("baseline"), *(Variant(keys.method, point) for point in points)]


def _paper(operator: str, keys: Fig4a, variants: Sequence[Variant]) -> dict[str, Score]:
    known = {"baseline": paper.TABLE1[operator]["baseline"]}
    for variant in variants:
        changes = dict(variant.changes)
        published = operator == "linear" and variant.method == "ld" and changes["rescale"] == "authors"
        if published and changes["samples"] in paper.FIG4A:
            known[variant.name] = paper.FIG4A[changes["samples"]]
    return known


_NAMES = {"authors": "weights rescaled as in the authors' code", "none": "raw weights", "max": "w / max"}
_drawn = partial(sweep, key="samples", series="rescale", label="rows drawn in each step, M", names=_NAMES)


def _study(operator: str, figure: str) -> Study:
    return Study(
        about=f"Figure {figure}, {operator} operator: error against M from 2 to 1000, rescaled and raw weights",
        keys=Fig4a(),
        task=lambda keys: operator,
        fixed=lambda keys: {"operator": operator, "samples": keys.samples[0], "rescale": keys.rescales[0]},
        variants=_variants,
        paper=partial(_paper, operator),
        strength=STRENGTH,
        scale=SCALES[operator],
        notes=("With rescale=authors and M = 2 the only pair has weight 0: that row is the baseline again.",),
        picture=draws(f"Error against M, {operator} operator", lambda summary, _: _drawn(summary, SCALES[operator])),
    )


STUDIES = {"fig4a-linear": _study("linear", "4a"), "figBa-nonlinear": _study("nonlinear", "Ba")}
