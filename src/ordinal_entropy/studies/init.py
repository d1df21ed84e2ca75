"""Table 1 under PyTorch's default initialisation, which the paper lacks.

The authors draw all weights from N(0, 0.001). Such a network may predict the mean for thousands of steps before it
learns anything, and a regularizer that spreads the features may end that sooner. How much of the gain is that? Baseline
and ld under the authors' initialisation stand beside the table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

from ordinal_entropy.studies import paper
from ordinal_entropy.studies.grid import Variant, methods_known, seeds_from
from ordinal_entropy.studies.paper import Score
from ordinal_entropy.studies.study import Study, draws
from ordinal_entropy.studies.table1 import METHODS, STRENGTH, curves_of

_SCALE = 1e-3

_DRAWN = {
    "baseline initial=authors": "baseline, the authors' initialisation",
    "ld initial=authors": "ld, the authors' initialisation",
    "baseline": "baseline, PyTorch's initialisation",
    "ld": "ld, PyTorch's initialisation",
}


@dataclass(frozen=True)
class Init:
    """What is varied."""

    operator: Literal["linear", "nonlinear"] = "nonlinear"  # where the published gain is largest
    seeds: int = 10  # runs of each row, each with training rows of its own
    methods: tuple[str, ...] = METHODS
    beside: tuple[str, ...] = ("baseline", "ld")  # methods shown under the authors' initialisation too

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        seeds_from(self.seeds)
        methods_known(self.methods, first="baseline")
        methods_known(self.beside)


def _variants(keys: Init) -> list[Variant]:
    beside = [Variant(method, (("initial", "authors"),)) for method in keys.beside]
    return [*map(Variant, keys.methods), *beside]


def _paper(keys: Init, variants: Sequence[Variant]) -> dict[str, Score]:
    """Beside the rows under the authors' initialisation only."""
    known = paper.TABLE1[keys.operator]
    return {v.name: known[v.method] for v in variants if v.changes and v.method in known}


STUDIES = {
    "init": Study(
        about="Table 1 under PyTorch's default initialisation (operator=linear or nonlinear); not in the paper",
        keys=Init(),
        task=lambda keys: keys.operator,
        fixed=lambda keys: {"operator": keys.operator, "initial": "default"},
        variants=_variants,
        paper=_paper,
        strength=STRENGTH,
        scale=_SCALE,
        picture=draws(
            lambda summary: f"Both initialisations, {summary['task']} operator", partial(curves_of, _DRAWN, _SCALE)
        ),
        notes=("All rows but those with initial=authors start from PyTorch's default initialisation.",),
    )
}
