"""Runs to be carried out, the folders that they have, and the outcomes that are read from what they wrote."""

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ordinal_entropy import runs
from ordinal_entropy.recipes import described, flat

_LONGEST = 120  # letters of a folder's name; systems end at 255, and some at 260 for the whole path
Progress = Callable[[int, int], None]  # steps done, steps in all


class Plan(NamedTuple):
    """One run to be carried out."""

    method: str
    seed: int
    recipe: Any


def length(recipe: Any) -> str:
    """Of a run: in epochs if its recipe has them, else in steps.

    Example:
        >>> from types import SimpleNamespace as Group
        >>> length(Group(training=Group(steps=50_000)))
        '50,000 steps'
    """
    own = recipe.training
    return f"{own.epochs:,} epochs" if hasattr(own, "epochs") else f"{own.steps:,} steps"


def default_folder(label: str, settings: Mapping[str, Any]) -> Path:
    """Where nobody has named one: the same for the same settings, so that the same command resumes.

    Example:
        >>> default_folder("linear-oe-seed0", {"steps": 3}).name
        'linear-oe-seed0-6f3597'
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()[:6]
    return Path("runs") / f"{label}-{digest}"


def run_names(plans: Sequence[Plan]) -> list[str]:
    """A folder's name for each run: method, seed, and the keys in which the recipes differ, or a hash of many.

    Example:
        >>> from dataclasses import make_dataclass
        >>> Recipe = make_dataclass("Recipe", ["strength"])
        >>> run_names([Plan("baseline", 0, Recipe(1.0)), Plan("oe", 0, Recipe(5.0))])
        ['baseline-seed0-strength=1', 'oe-seed0-strength=5']
    """
    values = [flat(described(plan.recipe)) for plan in plans]
    differing = [key for key in values[0] if len({repr(own[key]) for own in values}) > 1]
    names = []
    for plan, recipe in zip(plans, values, strict=True):
        start = f"{plan.method}-seed{plan.seed}"
        own = "-".join([start, *(f"{key}={_text(recipe[key])}" for key in differing)])
        names.append(own if len(own) <= _LONGEST else f"{start}-{hashlib.sha256(own.encode()).hexdigest()[:12]}")
    if len(set(names)) < len(names):
        raise ValueError(
            f"expected runs that differ, got {next(name for name in names if names.count(name) > 1)} twice"
        )
    return names


def trained_in(folder: Path, plan: Plan, checkpoint: str) -> Path:
    """The folder of a trained run: the given one where that has the checkpoint, else that of the plan inside it."""
    place = folder if (folder / checkpoint).exists() else folder / run_names([plan])[0]
    if not (place / checkpoint).exists():
        raise FileNotFoundError(f"expected a checkpoint in {place}, got none")
    return place


def _text(value: Any) -> str:
    """Of a value, for the name of a folder."""
    text = ",".join(map(str, value)) if isinstance(value, list) else f"{value:g}" if isinstance(value, float) else value
    return "".join(sign if sign.isalnum() or sign in ".,_-+" else "_" for sign in str(text))


PARTS = ("train", "validation", "test")
History = Sequence[Mapping[str, Mapping[str, float | None]]]  # of each evaluation: by part, then by score; None as JSON
# has NaN


class Scores(NamedTuple):
    """The score of one evaluation on each part of the data."""

    train: float
    validation: float
    test: float


class Outcome(NamedTuple):
    """Of one run: at so many steps, on the rows it trains on, on validation rows and on test rows."""

    steps: list[int]
    train: list[float]
    validation: list[float]
    test: list[float]
    last: float
    best_validation: float  # test score where the validation score is best
    best_test: float
    details: Mapping[str, Mapping[str, float]] = {}  # further ones: "last", "best_validation" -> name
    validation_score: float = math.nan  # where it is best
    failure: Mapping[str, str] | None = None  # "type" and "message" of the exception that a run without scores raised


def failed(failure: Mapping[str, str]) -> Outcome:
    """Of a run that raised an exception: NaN."""
    return Outcome([], [], [], [], math.nan, math.nan, math.nan, failure=failure)


def places(history: History, metric: str, first_stage: int = 0) -> dict[str, int]:
    """Where in a history the "last" evaluation is and that of "best_validation", the first one if none is a number.

    Args:
        history: at least one evaluation.
        metric: the score that decides; lower is better.
        first_stage: so many evaluations are of a stage whose head is not trained, and are never the best.

    Example:
        >>> places([{"validation": {"mse": score}} for score in (2.0, None, 1.0, 3.0)], "mse")
        {'last': 3, 'best_validation': 2}
    """
    scores = [_number(each["validation"][metric]) for each in history]
    ranked = [math.inf if math.isnan(score) else score for score in scores[first_stage:]]
    return {"last": len(scores) - 1, "best_validation": first_stage + ranked.index(min(ranked))}


def outcome(result: Mapping[str, Any], metric: str) -> Outcome:
    """Of a finished run; a ValueError where the result is of another form.

    Args:
        result: what a run writes at its end: "history"; "steps", the evaluations are of (else 1, 2, ...);
            "features", scores of the features that the run saved, by points of ``details``; "first_stage", evaluations
            of a stage whose head is not trained (else none).
        metric: the score that decides; lower is better.
    """
    scores: runs.Form = {str: runs.NUMBER}
    runs.require_form(result, {"history": [{part: {**scores, metric: runs.NUMBER} for part in PARTS}]})
    runs.require_form(result, {"features": {str: scores}})
    history, first = result["history"], result.get("first_stage", 0)
    steps = result.get("steps", [*range(1, len(history) + 1)])
    runs.require_form(steps, [int], "steps")
    if not isinstance(first, int) or not 0 <= first < len(history) == len(steps):
        raise ValueError(f"expected {len(steps)} evaluations, more than first_stage, got {len(history)} and {first!r}")
    train, validation, test = ([_number(each[part][metric]) for each in history] for part in PARTS)
    at = places(history, metric, first)
    best = at["best_validation"]
    return Outcome(
        steps,
        train,
        validation,
        test,
        last=test[-1],
        best_validation=math.nan if math.isnan(validation[best]) else test[best],
        best_test=min((score for score in test[first:] if not math.isnan(score)), default=math.nan),
        details={
            point: {name: _number(score) for name, score in {**history[at[point]]["test"], **own}.items()}
            for point, own in result["features"].items()
        },
        validation_score=validation[best],
    )


def _number(score: float | None) -> float:
    return math.nan if score is None else score
