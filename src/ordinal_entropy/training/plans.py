"""Runs to be carried out, and the folders that they have."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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
