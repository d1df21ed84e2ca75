"""Methods and settings side by side over the same seeds: one summary."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from ordinal_entropy import comparison, environment, runs, tasks
from ordinal_entropy import methods as registry
from ordinal_entropy.comparison import references
from ordinal_entropy.recipes import changed, described
from ordinal_entropy.studies.paper import Score
from ordinal_entropy.training.plans import Outcome, Plan, Progress

Published = TypeVar("Published")
_NO_PRESETS: Mapping[str, str] = MappingProxyType({})


class Variant(NamedTuple):
    """A method, and the keys of the recipe that it changes, by short names.

    Variants with a label have a recipe and a baseline of their own: the first variant of that label.
    """

    method: str
    changes: tuple[tuple[str, Any], ...] = ()
    label: str = ""
    presets: Mapping[str, str] = _NO_PRESETS  # preset of the study -> that of these variants; none: the same
    title: str = ""  # in place of the name that is made of the rest

    @property
    def name(self) -> str:
        """As in a summary.

        Example:
            >>> Variant("ld", (("samples", 100),)).name
            'ld samples=100'
        """
        if self.title:
            return self.title
        changes = [f"{key}={_text(value)}" for key, value in self.changes]
        return " ".join([self.method, *changes, *([self.label] if self.label else [])])


def _text(value: Any) -> str:
    return "all" if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def seeds_from(count: int, least: int = 2) -> list[int]:
    """``0, 1, ...``; an interval needs two at least."""
    if count < least:
        why = "" if least == 1 else "s, since the interval is one of paired differences"
        raise ValueError(f"expected at least {least} seed{why}, got {count}")
    return list(range(count))


def require_different(name: str, values: Sequence[Any], least: int = 0) -> None:
    """A ValueError where some of the values of a key are equal, or there are too few.

    Example:
        >>> require_different("strengths", (1.0, 1.0))
        Traceback (most recent call last):
        ValueError: expected different strengths, got 1, 1
    """
    if not least <= len(set(values)) == len(values):
        raise ValueError(f"expected different {name}, got {', '.join(map(_text, values)) or 'none'}")


def check_keys(keys: Any) -> None:
    """Refuses seeds, methods and strengths of a study that cannot be compared; checked before anything is trained."""
    seeds_from(keys.seeds)
    methods_known(keys.methods, first="baseline")
    require_different("strengths", keys.strengths)


def methods_known(names: Sequence[str], *, first: str | None = None, task: str = "") -> list[str]:
    """The same names, if all are methods or rows of the task, they differ, and the first is as asked."""
    for name in names:
        tasks.require_row(task, name)
    if len(set(names)) < len(names) or not names:
        raise ValueError(f"expected different methods, got {', '.join(names) or 'none'}")
    if first is not None and names[0] != first:
        raise ValueError(f"expected methods to begin with {first}, got {', '.join(names)}")
    return list(names)


def baselines(variants: Sequence[Variant]) -> dict[str, str]:
    """By names of variants that of the one that each is held to, itself among them.

    Example:
        >>> baselines([Variant("baseline"), Variant("oe"), Variant("ld", label="deep"), Variant("oe", label="deep")])
        {'baseline': 'baseline', 'oe': 'baseline', 'ld deep': 'ld deep', 'oe deep': 'ld deep'}
    """
    first: dict[str, str] = {}
    for variant in variants:
        first.setdefault(variant.label, variant.name)
    return {variant.name: first[variant.label] for variant in variants}


def with_strengths(
    methods: Sequence[str],
    strengths: Sequence[float],
    label: str = "",
    presets: Mapping[str, str] = _NO_PRESETS,
) -> list[Variant]:
    """Every method; of several strengths those that have one are taken with each, in rows of their own.

    Example:
        >>> [variant.name for variant in with_strengths(["baseline", "oe"], [1.0, 5.0])]
        ['baseline', 'oe strength=1', 'oe strength=5']
        >>> [variant.name for variant in with_strengths(["baseline", "oe"], [5.0])]  # that of the recipe
        ['baseline', 'oe']
    """
    several = [(("strength", strength),) for strength in strengths] if len(strengths) > 1 else [()]
    return [
        Variant(method, changes, label, presets)
        for method in methods
        for changes in (several if _has_strength(method) else [()])
    ]


def _has_strength(method: str) -> bool:
    return any("strength" in registry.options(part) for part in tasks.parts_of(method))


def published_rows(
    known: Mapping[str, Published], variants: Sequence[Variant], strength: float, usual: float
) -> dict[str, Published]:
    """The paper's scores beside the rows that have its strength, and beside the baseline.

    Args:
        known: by methods.
        variants: of the study.
        strength: the paper's.
        usual: of variants that do not vary it.

    Example:
        >>> rows = with_strengths(["baseline", "oe"], [1.0, 5.0])
        >>> published_rows({"baseline": 7.8, "oe": 7.5}, rows, 1.0, 1.0)
        {'baseline': 7.8, 'oe strength=1': 7.5}
    """
    return {
        v.name: known[v.method]
        for v in variants
        if v.method in known and (v.method == "baseline" or dict(v.changes).get("strength", usual) == strength)
    }


def plans_of(variants: Sequence[Variant], recipes: Mapping[str, Any], seeds: Sequence[int]) -> list[Plan]:
    """The runs of a study, those of a variant one behind the other; recipes by the labels of the variants."""
    own = [changed(recipes[variant.label], dict(variant.changes)) for variant in variants]
    return [Plan(variant.method, seed, each) for variant, each in zip(variants, own, strict=True) for seed in seeds]


def summary_of(
    task: str,
    variants: Sequence[Variant],
    recipes: Mapping[str, Any],
    seeds: Sequence[int],
    *,
    out: Path,
    device: str,
    progress: Progress | None = None,
    paper: Mapping[str, Score] | None = None,
    jobs: int = 1,
    go_on: bool = False,
    new: Sequence[int] | None = None,
    stop_early: comparison.StopEarly | None = None,
) -> dict[str, Any]:
    """Trains every variant with every seed and summarises the scores, each label against its first variant.

    Args:
        task: a name in ``tasks``.
        variants: at least one, of different names.
        recipes: of the task, by the labels of the variants, which change them.
        seeds: of the runs, the same for every variant.
        out: ``out/training`` holds checkpoints, ``out/curves.json`` the scores during training.
        device: "cpu", "cuda", ...
        progress: told the steps done and the steps in all.
        paper: scores of the paper by the variants' names.
        jobs: processes that train side by side what the task does not train as one stack.
        go_on: a run that raises an exception is noted among the failures, and the others continue.
        new: the seeds to be trained, where the others were in an earlier round.
        stop_early: the rule by which rounds may end; intervals and p-values then allow for the looks.

    Returns:
        The content of summary.json: that of every comparison, and "variants", "paper" and "seconds"; "details",
        ``{variant: {"last" | "best_validation": {name: [one score a seed]}}}``, of a task that has further scores;
        "references", "reference_values" and "constant", see ``comparison.references``, of the first label's recipe;
        "held_to", ``{variant: the first of its label}``, and "recipes" by label, where there are variants of several.
    """
    names = [variant.name for variant in variants]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated or not names:
        raise ValueError(f"expected different methods, got {', '.join(repeated) or 'none'}")
    about = tasks.load(task)
    plans = plans_of(variants, recipes, seeds)
    training = out / "training"
    resumed = training.exists() and any(training.iterdir())
    start = time.perf_counter()
    chosen = plans if new is None else plans_of(variants, recipes, new)
    scores = about.train(chosen, device=device, folder=training, progress=progress, jobs=jobs, go_on=go_on)
    if new is not None:
        scores = about.gather(plans, folder=training)
    seconds = time.perf_counter() - start
    by_variant = {name: scores[k * len(seeds) :][: len(seeds)] for k, name in enumerate(names)}
    every = [(name, seed, score) for name, own in by_variant.items() for seed, score in zip(seeds, own, strict=True)]
    curves = [
        {"variant": name, "seed": seed, **{key: _short(getattr(score, key)) for key in _CURVES}}
        for name, seed, score in every
        if score.failure is None
    ]
    failures = [
        comparison.Failure(name, seed, score.failure["type"], score.failure["message"])
        for name, seed, score in every
        if score.failure is not None
    ]
    steps = next((score.steps for score in scores if score.failure is None), [])
    runs.write_json(out / "curves.json", {"steps": steps, "runs": curves}, indent=None)
    points = ("last", "best_validation", "best_test")
    grouped = {name: {at: [getattr(score, at) for score in own] for at in points} for name, own in by_variant.items()}
    details = {name: _details(own, scores) for name, own in by_variant.items()}
    held_to = baselines(variants)
    first = {variant.label: held_to[variant.name] for variant in variants}
    parts = [
        comparison.summary(
            task=task,
            metric=about.metric,
            lower_is_better=about.lower_is_better,
            scores={name: grouped[name] for name in names if held_to[name] == base},
            recipe=described(recipes[label]),
            environment=_trained_in(training),
            baseline=base,
            failures=[each for each in failures if held_to[each.method] == base],
            stop_early=stop_early,
        )
        for label, base in first.items()
    ]
    content = parts[0]
    if len(first) > 1:
        for key in ("methods", "paired", "spread"):
            content[key] = {name: found for part in parts for name, found in part[key].items()}
        content["failures"] = [each for part in parts for each in part["failures"]]
        content["held_to"] = {name: base for name, base in held_to.items() if name != base}
        content["recipes"] = {label: part["recipe"] for label, part in zip(first, parts, strict=True) if label}
    own_seeds = list(seeds if new is None else new)
    fresh = {name: [own[seeds.index(seed)].best_validation for seed in own_seeds] for name, own in by_variant.items()}
    first_label = [each for each in variants if each.label == variants[0].label]
    return {
        **content,
        "baseline": names[0],
        "variants": {v.name: {"method": v.method, **dict(v.changes)} for v in variants},
        **_references(task, recipes[variants[0].label], first_label, fresh, own_seeds),
        **({"details": details} if any(score.details for score in scores) else {}),
        "paper": {name: score._asdict() for name, score in (paper or {}).items()},
        "device": device,
        "seconds": {"data_and_training": round(seconds, 1), "resumed": resumed},
    }


def _references(
    task: str, recipe: Any, variants: Sequence[Variant], scores: Mapping[str, Sequence[float]], seeds: Sequence[int]
) -> dict[str, Any]:
    """Of some seeds; what is a row of the comparison, and has its scores there, is not fitted again."""
    about = tasks.load(task)
    rows = {each.method: scores[each.name] for each in variants if each.method in tasks.classical(task)}
    return references.described({**about.references(recipe, seeds, rows), **rows}, about.constant)


_CURVES = ("train", "validation", "test")


def _trained_in(training: Path) -> dict[str, Any]:
    """The environment that all run folders name, which may have come from elsewhere; without such, the present one."""
    found = [runs.open(path.parent).environment for path in training.glob("*/recipe.json")]
    return found[0] if found and found[0] and all(each == found[0] for each in found) else environment.environment()


def _details(outcomes: Sequence[Outcome], all_variants: Sequence[Outcome]) -> dict[str, dict[str, list[float]]]:
    """Of one variant, one score a seed; NaN where a run has none, by the names that others have where all failed."""
    named = all_variants if all(run.failure is not None for run in outcomes) else outcomes
    every = {at: None for run in named for at in run.details}
    points = {at: {name: None for run in named for name in run.details.get(at, {})} for at in every}
    return {
        at: {name: [run.details.get(at, {}).get(name, math.nan) for run in outcomes] for name in names}
        for at, names in points.items()
    }


def _short(values: Sequence[float]) -> list[float]:
    """Five digits: curves are looked at."""
    return [float(f"{value:.5g}") for value in values]
