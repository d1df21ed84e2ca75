"""Seeds in rounds: a few at a time are trained, and judged, until no verdict is open."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ordinal_entropy import comparison, runs, tasks
from ordinal_entropy.comparison.summaries import LEAST_SEEDS
from ordinal_entropy.tasks.operators.recipe import train_stacked


def rounds_of(task: str, seeds: Sequence[int], runs_at_once: int = 1, methods: int = 2) -> list[list[int]]:
    """As many seeds as can settle anything, then one at a time, or as many as keep the jobs of single runs busy.

    Example:
        >>> rounds_of("linear", range(6))
        [[0, 1, 2, 3], [4], [5]]
        >>> rounds_of("age", range(8), runs_at_once=6, methods=2)
        [[0, 1, 2, 3], [4, 5, 6], [7]]
    """
    size = math.ceil(runs_at_once / methods) if _folder_each(task) else 1
    return [list(seeds[:LEAST_SEEDS]), *(list(seeds[k : k + size]) for k in range(LEAST_SEEDS, len(seeds), size))]


def folder_of(task: str, seeds: Sequence[int], out: Path) -> Path:
    """Where a round is trained: in one folder with all others if each of its runs has its own there, else apart."""
    return out if _folder_each(task) else out / "training" / f"seeds-{seeds[0]}-{seeds[-1]}"


def _folder_each(task: str) -> bool:
    """Whether the runs of a task have a folder each, in which they are found again; those of operators share one."""
    return tasks.load(task).train is not train_stacked


def joined(rounds: Sequence[Mapping[str, Any]], rule: comparison.StopEarly) -> dict[str, Any]:
    """The summary of all seeds so far.

    Args:
        rounds: summaries by ``grid.summary_of``, each of some seeds.
        rule: by which it may stop.

    Returns:
        As one by ``grid.summary_of`` of all these seeds, with intervals and p-values that allow for the looks.
    """
    first = rounds[0]
    scores = {
        name: {at: [value for each in rounds for value in each["methods"][name]["at"][at]] for at in own["at"]}
        for name, own in first["methods"].items()
    }
    found = comparison.summary(
        task=first["task"],
        metric=first["metric"],
        lower_is_better=first["lower_is_better"],
        scores=scores,
        recipe=first["recipe"],
        environment=first["environment"],
        baseline=first["baseline"],
        failures=[comparison.Failure(**failure) for each in rounds for failure in each["failures"]],
        stop_early=rule,
    )
    spent = sum(each["seconds"]["data_and_training"] for each in rounds)
    return {
        **first,
        **found,
        **({"details": _details(rounds)} if any("details" in each for each in rounds) else {}),
        "seconds": {"data_and_training": round(spent, 1), "resumed": first["seconds"]["resumed"]},
    }


def join_curves(out: Path, curves: Sequence[Mapping[str, Any]]) -> None:
    """Writes ``out/curves.json`` with the runs of all rounds, ordered as in a study of them all."""
    order = {variant: None for each in curves for variant in (run["variant"] for run in each["runs"])}
    by_variant = [run for name in order for each in curves for run in each["runs"] if run["variant"] == name]
    steps: list[int] = next((each["steps"] for each in curves if each["runs"]), [])
    runs.write_json(out / "curves.json", {"steps": steps, "runs": by_variant}, indent=None)


def gather_runs(out: Path) -> None:
    """Moves the folders of runs, as operators that keep features have them, from the rounds to ``out/training``."""
    for recipe in sorted((out / "training").glob("seeds-*/training/*/recipe.json")):
        place = out / "training" / recipe.parent.name
        if not place.exists():
            recipe.parent.rename(place)


def _details(rounds: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, dict[str, list[float]]]]:
    """Further scores of each variant, one a seed; NaN where a run has none."""
    found: dict[str, dict[str, dict[str, list[float]]]] = {}
    names = {
        (variant, at, name): None
        for each in rounds
        for variant, points in each.get("details", {}).items()
        for at, scores in points.items()
        for name in scores
    }
    for variant, at, name in names:
        values: list[float] = []
        for each in rounds:
            lacking = [math.nan] * len(each["methods"][variant]["values"])
            values += each.get("details", {}).get(variant, {}).get(at, {}).get(name, lacking)
        found.setdefault(variant, {}).setdefault(at, {})[name] = values
    return found
