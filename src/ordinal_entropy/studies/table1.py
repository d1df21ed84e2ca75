"""Table 1: the terms of the regularizer and their alternatives, on both operators.

The authors' code draws M = 10 rows in each step; M = 100, which a comment in it names, stands beside it.
Classification is ours: the paper's argument sets regression against it, its table leaves it out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ordinal_entropy import runs
from ordinal_entropy.results import training_figures
from ordinal_entropy.results.figures import Figure
from ordinal_entropy.studies import paper
from ordinal_entropy.studies.grid import Variant, methods_known, seeds_from
from ordinal_entropy.studies.paper import Score
from ordinal_entropy.studies.study import Study, draws

METHODS = (
    "baseline",
    "ld-unweighted",
    "ld",
    "ld-cosine",
    "ld-no-norm",
    "ld-squared",
    "ld-sqrt",
    "classification",
)
STRENGTH = 1e-3  # of the regularizer on operators, as published
SCALES = {"linear": 1e-3, "nonlinear": 1e-2}  # of the errors, as the paper prints them
_DRAWN = {name: name for name in ("baseline", "ld-unweighted", "ld", "ld-no-norm")}  # as many as can be told apart
_WITHOUT_SAMPLES = ("baseline", "classification")


@dataclass(frozen=True)
class Table1:
    """What is varied."""

    seeds: int = 10  # runs of each row, each with training rows of its own
    methods: tuple[str, ...] = METHODS
    samples: tuple[int, ...] = (10, 100)  # rows drawn in each step (M): the paper's numbers stand beside the first

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        seeds_from(self.seeds)
        methods_known(self.methods, first="baseline")


def variants(methods: tuple[str, ...], samples: tuple[int, ...]) -> list[Variant]:
    """Every method with the first M of the recipe; then those that draw rows, with each further M."""
    first = [Variant(method) for method in methods]
    drawn = [method for method in methods if method not in _WITHOUT_SAMPLES]
    return first + [Variant(method, (("samples", m),)) for m in samples[1:] for method in drawn]


def published(operator: str, variants: Sequence[Variant]) -> dict[str, Score]:
    """The paper's scores for the variants that are as published."""
    known = paper.TABLE1[operator]
    return {variant.name: known[variant.method] for variant in variants if variant.name in known}


def curves_of(names: Mapping[str, str], scale: float, summary: dict[str, Any], folder: Path) -> Figure | None:
    """Test scores during training, which lie beside the summary."""
    found, remedy = folder / "curves.json", "remove it and summary.json, and the same command writes both again"
    with runs.reading(found, remedy):
        content = runs.read_json(found, dict, remedy=remedy)
        return training_figures.scores(content, names, summary["metric"], scale, parts=("test",))


def _study(operator: str) -> Study:
    return Study(
        about=f"Table 1, {operator} operator: seven rows and classification, with M = 10 and M = 100 drawn rows",
        keys=Table1(),
        task=lambda keys: operator,
        fixed=lambda keys: {"operator": operator, "samples": keys.samples[0]},
        variants=lambda keys: variants(keys.methods, keys.samples),
        paper=lambda keys, variants: published(operator, variants),
        strength=STRENGTH,
        scale=SCALES[operator],
        picture=draws(f"Table 1 during training, {operator} operator", partial(curves_of, _DRAWN, SCALES[operator])),
    )


STUDIES = {"table1-linear": _study("linear"), "table1-nonlinear": _study("nonlinear")}
