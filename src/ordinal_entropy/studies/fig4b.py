"""Figures 4b and Bb: the error against the strength of the regularizer."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from ordinal_entropy.results.summary_figures import sweep
from ordinal_entropy.studies import paper
from ordinal_entropy.studies.grid import Variant, methods_known, seeds_from
from ordinal_entropy.studies.paper import Score
from ordinal_entropy.studies.study import Study, draws
from ordinal_entropy.studies.table1 import SCALES, STRENGTH


@dataclass(frozen=True)
class Fig4b:
    """What is varied."""

    seeds: int = 10  # runs of each point
    method: str = "ld"
    strengths: tuple[float, ...] = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # the paper does not name its own

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        seeds_from(self.seeds)
        methods_known([self.method])


def _variants(keys: Fig4b) -> list[Variant]:
    return [Variant("baseline"), *(Variant(keys.method, (("strength", s),)) for s in keys.strengths)]


def _paper(operator: str, keys: Fig4b, variants: Sequence[Variant]) -> dict[str, Score]:
    """Table 1 has the point at the published strength."""
    known = paper.TABLE1[operator]
    published = Variant(keys.method, (("strength", STRENGTH),))
    at = {published.name: known[keys.method]} if published in variants and keys.method in known else {}
    return {"baseline": known["baseline"], **at}


def _study(operator: str, figure: str) -> Study:
    return Study(
        about=f"Figure {figure}, {operator} operator: error against strength from 1e-5 to 1",
        keys=Fig4b(),
        task=lambda keys: operator,
        fixed=lambda keys: {"operator": operator, "strength": keys.strengths[0]},
        variants=_variants,
        paper=partial(_paper, operator),
        scale=SCALES[operator],
        picture=draws(
            f"Error against strength, {operator} operator",
            lambda summary, _: sweep(summary, SCALES[operator], "strength", label="strength of the regularizer"),
        ),
    )


STUDIES = {"fig4b-linear": _study("linear", "4b"), "figBb-nonlinear": _study("nonlinear", "Bb")}
