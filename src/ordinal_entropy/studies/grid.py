"""Methods and settings side by side over the same seeds: one summary."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ordinal_entropy import comparison, environment, runs, tasks
from ordinal_entropy import methods as registry
from ordinal_entropy.recipes import changed, described
from ordinal_entropy.studies.paper import Score
from ordinal_entropy.training.plans import Outcome, Plan, Progress


class Variant(NamedTuple):
    """A method, and the keys of the recipe that it changes, by short names."""

    method: str
    changes: tuple[tuple[str, Any], ...] = ()
    label: str = ""  # of rows with another recipe than the study's, which are held to the first of them
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


def methods_known(names: Sequence[str], *, first: str | None = None) -> list[str]:
    """The same names, if all are methods, they differ, and the first is as asked."""
    for name in names:
        registry.create(name)  # an unknown one is an error that names the near ones, parts that do not join another
    if len(set(names)) < len(names) or not names:
        raise ValueError(f"expected different methods, got {', '.join(names) or 'none'}")
    if first is not None and names[0] != first:
        raise ValueError(f"expected methods to begin with {first}, got {', '.join(names)}")
    return list(names)


def with_strengths(methods: Sequence[str], strengths: Sequence[float], label: str = "") -> list[Variant]:
    """Every method; of several strengths those that have one are taken with each, in rows of their own.

    Example:
        >>> [variant.name for variant in with_strengths(["baseline", "oe"], [1.0, 5.0])]
        ['baseline', 'oe strength=1', 'oe strength=5']
        >>> [variant.name for variant in with_strengths(["baseline", "oe"], [5.0])]  # that of the recipe
        ['baseline', 'oe']
    """
    several = [(("strength", strength),) for strength in strengths] if len(strengths) > 1 else [()]
    return [
        Variant(method, changes, label)
        for method in methods
        for changes in (several if _has_strength(method) else [()])
    ]


def _has_strength(method: str) -> bool:
    return any("strength" in registry.options(part) for part in registry.split(method))


def plans_of(variants: Sequence[Variant], recipes: Mapping[str, Any], seeds: Sequence[int]) -> list[Plan]:
    """The runs of a study, those of a variant one behind the other; recipes by the labels of the variants."""
    own = [changed(recipes[variant.label], dict(variant.changes)) for variant in variants]
    return [Plan(variant.method, seed, each) for variant, each in zip(variants, own, strict=True) for seed in seeds]


def summary_of(
    task: str,
    variants: Sequence[Variant],
    recipe: Any,
    seeds: Sequence[int],
    *,
    out: Path,
    device: str,
    progress: Progress | None = None,
    paper: Mapping[str, Score] | None = None,
    jobs: int = 1,
    others: Mapping[str, Any] | None = None,
    go_on: bool = False,
    new: Sequence[int] | None = None,
    stop_early: comparison.StopEarly | None = None,
) -> dict[str, Any]:
    """Trains every variant with every seed and summarises the scores; the first variant is what others are held to.

    Args:
        task: a name in ``tasks``.
        variants: at least two, of different names.
        recipe: of the task; variants change it.
        seeds: of the runs, the same for every variant.
        out: ``out/training`` holds checkpoints, ``out/curves.json`` the scores during training.
        device: "cpu", "cuda", ...
        progress: told the steps done and the steps in all.
        paper: scores of the paper by the variants' names.
        jobs: processes that train side by side what the task does not train as one stack.
        others: recipes of variants with a label, by the labels.
        go_on: a run that raises an exception is noted among the failures, and the others go on.
        new: the seeds to be trained, where the others were in an earlier round.
        stop_early: the rule by which rounds may end; intervals and p-values then allow for the looks.

    Returns:
        The content of summary.json: that of every comparison, and "variants", "paper" and "seconds"; "details",
        ``{variant: {"last" | "best_validation": {name: [one score a seed]}}}``, of a task that has further scores;
        "held_to", ``{variant: the first of its label}``, and "recipes" by label, where there are variants of several.
    """
    names = [variant.name for variant in variants]
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated or len(names) < 2:
        raise ValueError(f"expected two or more different methods, got {', '.join(repeated or names) or 'none'}")
    about = tasks.load(task)
    by_label = {"": recipe, **(others or {})}
    plans = plans_of(variants, by_label, seeds)
    training = out / "training"
    resumed = training.exists() and any(training.iterdir())
    start = time.perf_counter()
    chosen = plans if new is None else plans_of(variants, by_label, new)
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
    first: dict[str, str] = {}  # name of each label's first variant
    for variant in variants:
        first.setdefault(variant.label, variant.name)
    parts = [
        comparison.summary(
            task=task,
            metric=about.metric,
            lower_is_better=about.lower_is_better,
            scores={variant.name: grouped[variant.name] for variant in variants if variant.label == label},
            recipe=described(by_label[label]),
            environment=_trained_in(training),
            baseline=first[label],
            failures=[each for each in failures if label == next(v.label for v in variants if v.name == each.method)],
            stop_early=stop_early,
        )
        for label in first
    ]
    content = parts[0]
    if len(first) > 1:
        for key in ("methods", "paired", "spread"):
            content[key] = {name: found for part in parts for name, found in part[key].items()}
        content["failures"] = [each for part in parts for each in part["failures"]]
        content["held_to"] = {v.name: first[v.label] for v in variants if v.name != first[v.label]}
        content["recipes"] = {label: part["recipe"] for label, part in zip(first, parts, strict=True) if label}
    return {
        **content,
        "baseline": names[0],
        "variants": {v.name: {"method": v.method, **dict(v.changes)} for v in variants},
        **({"details": details} if any(score.details for score in scores) else {}),
        "paper": {name: score._asdict() for name, score in (paper or {}).items()},
        "device": device,
        "seconds": {"data_and_training": round(seconds, 1), "resumed": resumed},
    }


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
