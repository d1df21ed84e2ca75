"""Tables 1 and 2, depth of rooms; and classification beside them.

    ordinal-entropy reproduce table1-depth --set data=datasets/nyu --set pretrained=resnet50.safetensors
    ordinal-entropy reproduce table2-depth --preset small --set data=datasets/nyu
    ordinal-entropy reproduce classification-depth --preset quick

The paper's numbers are of NYU-Depth-v2 at full size, single ones without a spread.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from ordinal_entropy.studies import paper
from ordinal_entropy.studies.grid import Variant, check_keys, published_rows, require_different, with_strengths
from ordinal_entropy.studies.paper import Score
from ordinal_entropy.studies.study import Details, Study, draws_differences

_PUBLISHED_STRENGTH = 1.0
_NEWCRFS = "newcrfs"  # the label of its rows
_PRESETS = {"paper": "newcrfs", "small": "small-newcrfs", "quick": "quick-newcrfs"}  # theirs


@dataclass(frozen=True)
class Table1:
    """What is varied."""

    seeds: int = 5  # runs of each row
    methods: tuple[str, ...] = tuple(paper.TABLE1_DEPTH)
    strengths: tuple[float, ...] = (_PUBLISHED_STRENGTH,)  # of the regularizers; of several, each has rows of its own

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        check_keys(self)


@dataclass(frozen=True)
class Table2:
    """What is varied."""

    seeds: int = 5  # runs of each row
    models: tuple[Literal["decoder", "newcrfs"], ...] = ("decoder", "newcrfs")  # that of the preset, and NeW-CRFs
    methods: tuple[str, ...] = ("baseline", "ld", "oe")
    strengths: tuple[float, ...] = (_PUBLISHED_STRENGTH,)  # of the regularizers; of several, each has rows of its own

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        check_keys(self)
        require_different("models", self.models, least=1)


@dataclass(frozen=True)
class Bins:
    """What is varied."""

    seeds: int = 5  # runs of each row
    methods: tuple[str, ...] = ("baseline", "ld", "oe")  # of regression
    strengths: tuple[float, ...] = (_PUBLISHED_STRENGTH,)  # of the regularizers; of several, each has rows of its own
    bins: tuple[int, ...] = (256, 64)  # of classification, a row each: the authors' 256, and fewer

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        check_keys(self)
        if "classification" in self.methods:
            raise ValueError("expected methods of regression, got classification, whose rows are those of bins")
        require_different("bins", self.bins)


def _of_models(keys: Table2) -> list[Variant]:
    own: dict[str, tuple[Any, ...]] = {"decoder": (), "newcrfs": (_NEWCRFS, _PRESETS)}
    return [row for model in keys.models for row in with_strengths(keys.methods, keys.strengths, *own[model])]


def _of_bins(keys: Bins) -> list[Variant]:
    classified = [Variant("classification", (("bins", bins),)) for bins in keys.bins]
    return [*with_strengths(keys.methods, keys.strengths), *classified]


def _published(known: Details, keys: Any, variants: Sequence[Variant]) -> dict[str, Any]:
    return published_rows(known, variants, _PUBLISHED_STRENGTH, keys.strengths[0])


def _published_models(keys: Table2, variants: Sequence[Variant]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for model, label in (("decoder", ""), ("newcrfs", _NEWCRFS)):
        found |= _published(paper.TABLE2[model], keys, [v for v in variants if v.label == label])
    return {**found, **paper.TABLE2_CITED}


_NOTE = (
    "The paper's numbers are of NYU-Depth-v2 at 480 x 640, with tens of thousands of training images and pretrained "
    "encoders; it gives no spread."
)


def _study(
    title: str,
    about: str,
    keys: Any,
    variants: Callable[[Any], list[Variant]],
    published: Callable[[Any, Sequence[Variant]], dict[str, Any]],
    *,
    fixed: Callable[[Any], dict[str, Any]] = lambda keys: {},
    notes: tuple[str, ...] = (),
) -> Study:
    return Study(
        about=f"{title}: {about}; --set data=ROOT",
        keys=keys,
        task=lambda keys: "depth",
        fixed=lambda keys: {"strength": keys.strengths[0], **fixed(keys)},
        variants=variants,
        paper=lambda keys, rows: {name: Score(own["rms"]) for name, own in published(keys, rows).items()},
        paper_details=published,
        scale=1e-3,
        notes=(_NOTE, *notes),
        picture=draws_differences(title),
    )


STUDIES = {
    "table1-depth": _study(
        "Table 1, depth",
        "the eight rows of the ablation",
        Table1(),
        lambda keys: with_strengths(keys.methods, keys.strengths),
        partial(_published, paper.TABLE1_DEPTH),
    ),
    "table2-depth": _study(
        "Table 2, depth",
        "a decoder and NeW-CRFs, beside the models that it cites",
        Table2(),
        _of_models,
        _published_models,
        notes=(f"Rows with {_NEWCRFS} have a recipe of their own, and are held to the baseline with {_NEWCRFS}.",),
    ),
    "classification-depth": _study(
        "Classification, depth",
        "regression, plain and regularized, beside two numbers of bins",
        Bins(),
        _of_bins,
        partial(_published, paper.TABLE1_DEPTH),
        fixed=lambda keys: {"bins": keys.bins[0]},
    ),
}
