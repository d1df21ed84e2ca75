"""Figures 1, 3, 4c and A: the entropy of the features during training, and the features themselves.

    ordinal-entropy reproduce fig4c --preset small --set data=datasets/nyu
    ordinal-entropy reproduce figA --preset quick
    ordinal-entropy reproduce figA-linear --set steps=20000

Regression and classification learn the depth of rooms. After every epoch a run keeps the features of fixed pixels of
training and test images, and of one test image on a grid; entropies are computed from these files in the end.
Operators are looked at in the same way, as the authors' code does and the paper does not: a run keeps the features of
fixed training and test rows at every evaluation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ordinal_entropy import runs
from ordinal_entropy.recipes import require_at_least_1
from ordinal_entropy.results.figures import Figure
from ordinal_entropy.results.training_figures import Curves, entropies
from ordinal_entropy.studies import saved_features
from ordinal_entropy.studies.claims import ESTIMATORS
from ordinal_entropy.studies.grid import Variant, seeds_from
from ordinal_entropy.studies.saved_features import ENTROPIES_REMEDY, Subject
from ordinal_entropy.studies.study import Picture, Study, draws
from ordinal_entropy.studies.table1 import SCALES, STRENGTH

_MOST_BINS = 4  # which is as many lines as can be told apart
_DEPTH = Subject(
    task="depth",
    scale=1e-3,  # millimetres
    rows="images",
    time="epoch",
    part="image",
    points="places of one test image",
    prediction="predicted depth (m)",
    unit="m",
)
_OPERATORS = {
    operator: Subject(
        task=operator,
        scale=SCALES[operator],
        rows="rows",
        time="step",
        part="test",
        points="test rows",
        prediction="predicted value",
        unit="",
    )
    for operator in ("linear", "nonlinear")
}


@dataclass(frozen=True)
class Features:
    """What is varied."""

    seeds: int = 3  # runs of each row; the paper has one

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        seeds_from(self.seeds, 1)


@dataclass(frozen=True)
class Entropies:
    """What is varied."""

    seeds: int = 3  # runs of each row; the paper has one
    bins: tuple[int, ...] = (256, 64)  # of classification, a row each: the authors' 256, and fewer

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        seeds_from(self.seeds, 1)
        _check_bins(self.bins)


@dataclass(frozen=True)
class OfOperators:
    """What is varied, and how many rows are kept."""

    seeds: int = 3  # runs of each row
    bins: tuple[int, ...] = (10,)  # of classification, a row each: the authors' 10
    feature_rows: int = 600  # training and test rows of which features are saved at every evaluation

    def __post_init__(self) -> None:
        """Checked before anything is trained."""
        seeds_from(self.seeds, 1)
        _check_bins(self.bins)
        require_at_least_1(self, "feature_rows")


def _check_bins(bins: Sequence[int]) -> None:
    if not 1 <= len(set(bins)) == len(bins) <= _MOST_BINS:
        raise ValueError(f"expected one to {_MOST_BINS} different bins, got {', '.join(map(str, bins)) or 'none'}")


def _variants(methods: Sequence[str], keys: Any) -> list[Variant]:
    """Regression, then classification with each number of bins, if that is varied, then what is added to regression."""
    classified = [Variant("classification", (("bins", bins),)) for bins in getattr(keys, "bins", ())]
    return [Variant("baseline"), *classified, *map(Variant, methods)]


def _draws_entropies(study: str, subject: Subject) -> Picture:
    titles = {
        "fig1": "Figure 1a, entropy of the features of training images",
        "fig4c": "Figure 4c, entropy of the features of test images",
        "figA": "Figure A, entropy of the features",
    }
    title = titles.get(study, f"Entropy of the features, {subject.task} operator")
    return draws(title, partial(_entropies, study, subject))


def _entropies(study: str, subject: Subject, summary: Mapping[str, Any], folder: Path) -> Figure | None:
    names = saved_features.called(summary)
    classified = [name for name, own in summary["variants"].items() if own["method"] == "classification"]
    without = ["baseline", *classified]
    regularized = [name for name in names if name not in without]
    if study in ("fig1", "fig4c"):
        shown = [("train" if study == "fig1" else "test", list(names), "")]
    elif study == "figA":
        both = ["baseline", classified[0], *regularized]
        shown = [("train", without, "training"), ("test", without, "testing")]
        shown.append(("test", both, "testing, with ordinal entropy"))
    else:
        shown = [("train", list(names), "training rows"), ("test", list(names), "test rows")]
        shown.append(("test", ["baseline", *regularized], "test rows, regression"))
    estimators = ESTIMATORS[:1] if len(shown) == 1 else ESTIMATORS
    panels = [Curves(part, each, own, title) for each in estimators for part, own, title in shown]
    found = folder / "entropies.json"
    with runs.reading(found, ENTROPIES_REMEDY):
        content = runs.read_json(found, dict, remedy=ENTROPIES_REMEDY)
        return entropies(content, names, panels, columns=len(shown), unit=subject.unit)


_E1_TO_E3 = (
    "E1: meanNN entropy of the features; E2: of the L2-normalised features. Both are half of Eq. 1 as printed, which "
    "makes them nats, up to a constant. E3: diversity."
)
_HELD = "Held or not: of the mean over the runs; in brackets, in how many of the seeds."
_NOTES = (
    f"{_E1_TO_E3} Each of the same pixels of fixed images, all together.",
    f"{_HELD} Falls: less after the last epoch than after the first. Overtakes: above in the end, from that epoch on "
    "(paper, Figure 4c: after the 13th).",
    "image-EPOCH.safetensors holds features, predictions and targets of one test image and their places in it; "
    "train-EPOCH and test-EPOCH are what the entropies are of.",
)
_NOTES_ON_OPERATORS = (
    f"{_E1_TO_E3} Each of the same rows of a run; the test rows are the same in all runs.",
    f"{_HELD} Falls: less after the last step than at the first evaluation. The paper says it of depth maps, not of "
    "operators.",
    "train-STEP.safetensors and test-STEP.safetensors hold features, predictions and targets.",
)


def _study(
    about: str, keys: Any, methods: Sequence[str], picture: Picture, further: Mapping[str, Picture] | None = None
) -> Study:
    return Study(
        about=f"{about}; --set data=ROOT",
        keys=keys,
        task=lambda keys: _DEPTH.task,
        fixed=lambda keys: {"bins": keys.bins[0]} if hasattr(keys, "bins") else {},
        variants=partial(_variants, methods),
        least_seeds=1,
        check=lambda recipe: require_at_least_1(recipe.training, "feature_rows"),
        further=partial(saved_features.further, _DEPTH),
        report=partial(saved_features.report, _DEPTH),
        notes=_NOTES,
        picture=picture,
        further_pictures={**(further or {}), "ordinality": saved_features.draws_ordinality(_DEPTH)},
        draws_with=("matplotlib", "sklearn"),
    )


def _study_of_operators(operator: str) -> Study:
    """All rows of ``linear`` differ in their targets, so that the tightness has nothing to pull: there is no ``oe``."""
    subject, figure = _OPERATORS[operator], f"{operator.capitalize()} operator"
    return Study(
        about=f"Figure A's estimates, {operator} operator: entropy during training, and the features on a sphere",
        keys=OfOperators(),
        task=lambda keys: operator,
        fixed=lambda keys: {"operator": operator, "bins": keys.bins[0], "feature_rows": keys.feature_rows},
        variants=partial(_variants, ("ld-unweighted", "ld")),
        least_seeds=1,
        further=partial(saved_features.further, subject),
        report=partial(saved_features.report, subject),
        strength=STRENGTH,
        scale=subject.scale,
        notes=_NOTES_ON_OPERATORS,
        picture=_draws_entropies(f"figA-{operator}", subject),
        further_pictures={
            "tsne": partial(saved_features.draw_layout, figure, 2, subject),
            "sphere": partial(saved_features.draw_layout, figure, 3, subject),
            "ordinality": saved_features.draws_ordinality(subject),
        },
        draws_with=("matplotlib", "sklearn"),
    )


STUDIES = {
    "fig1": _study(
        "Figure 1, depth: features and their entropy, regression against classification",
        Entropies(),
        (),
        _draws_entropies("fig1", _DEPTH),
        {"tsne": partial(saved_features.draw_layout, "Figures 1b and 1c", 2, _DEPTH)},
    ),
    "fig3": _study(
        "Figure 3, depth: features of one image, plain and regularized",
        Features(),
        ("ld-unweighted", "ld", "oe"),
        partial(saved_features.draw_layout, "Figure 3", 2, _DEPTH),
        {"sphere": partial(saved_features.draw_layout, "Figure 3", 3, _DEPTH)},
    ),
    "fig4c": _study(
        "Figure 4c, depth: entropy of test features, four methods",
        Entropies(bins=(256,)),
        ("ld", "oe"),
        _draws_entropies("fig4c", _DEPTH),
    ),
    "figA": _study(
        "Figure A, depth: three estimates of entropy during training",
        Entropies(),
        ("ld", "oe"),
        _draws_entropies("figA", _DEPTH),
    ),
    **{f"figA-{operator}": _study_of_operators(operator) for operator in _OPERATORS},
}
