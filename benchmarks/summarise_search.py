"""What a search for the best composition has tried so far, from the runs in its folder; also of one that was cut off.

    python benchmarks/summarise_search.py runs/best-faces docs/results/best-faces/search.json

Of each stage and setting: the mean validation score, by which all choices are made, and beside it the mean test score
at the best validation epoch, which nothing looks at. Of the stages that confirm, the rows are also compared on these
test scores, seed by seed: their seeds had no part in choosing any setting.
"""

import argparse
import json
import math
import re
import shlex
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from ordinal_entropy import comparison, runs, tasks
from ordinal_entropy.training.plans import outcome

KEYS = ("learning_rate", "weight_decay")


def stage_of(folder: Path, metric: str) -> list[dict[str, Any]]:
    """Its finished runs, by method and settings."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(folder.glob("*/result.json")):
        run = runs.open(path.parent)
        result = run.result()
        assert result is not None
        scores = outcome(result, metric)
        own = run.recipe
        settings = {key: own["training"][key] for key in KEYS} | dict(
            option.split("=") for option in own["method"]["options"]
        )
        row = found.setdefault(
            json.dumps([run.method, settings]),
            {"method": run.method, "settings": settings, "seeds": [], "validation": [], "test": []},
        )
        for key, value in (
            ("seeds", run.seed),
            ("validation", scores.validation_score),
            ("test", scores.best_validation),
        ):
            row[key].append(value)
    rows = list(found.values())
    for row in rows:
        row |= {f"mean_{part}": round(fmean(row[part]), 4) for part in ("validation", "test")}
        for part in ("validation", "test"):
            row[part] = [round(value, 4) for value in row[part]]
    return rows


def compared(rows: list[dict[str, Any]], task: str, metric: str, lower: bool) -> dict[str, Any] | None:
    """The rows of a confirming stage on test data, against the composition that its round began with."""
    seeds = sorted(set.intersection(*({*row["seeds"]} for row in rows))) if rows else []
    if len(rows) < 2 or len(seeds) < 2:
        return None
    at = {row["method"]: [dict(zip(row["seeds"], row["test"], strict=True))[seed] for seed in seeds] for row in rows}
    shortest = min(at, key=len) if "baseline" not in at else "baseline"
    made = comparison.summary(
        task=task,
        metric=metric,
        lower_is_better=lower,
        scores={name: dict.fromkeys(comparison.POINTS, own) for name, own in at.items()},
        recipe={},
        environment={},
        baseline=shortest,
    )
    return {
        "seeds": seeds,
        "baseline": shortest,
        "paired": made["paired"],
        "verdict": comparison.verdict(made).sentences,
    }


def order(name: str) -> tuple[int, int, int]:
    """Stages as they followed each other."""
    place = re.match(r"round-(\d+)", name)
    stages = ("grid", "wider", "screening", "first", "search", "confirming", "again")
    own = max((k for k, each in enumerate(stages) if each in name), default=0)
    last = re.search(r"(\d+)$", name)
    return int(place[1]) if place else 100 if "again" in name else 0, own, int(last[1]) if last else 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--command", default="", help="that made the folder")
    options = parser.parse_args()
    label = json.loads((options.folder / "study.json").read_text())
    name = label["study"].split()[-1]
    task = tasks.load(name)
    stages = {}
    for folder in sorted((options.folder / "tuning").iterdir(), key=lambda path: order(path.name)):
        rows = [] if folder.name.startswith("probe") else stage_of(folder, task.metric)
        if rows:
            found = compared(rows, name, task.metric, task.lower_is_better) if "confirming" in folder.name else None
            stages[folder.name] = {"rows": rows, **({"test": found} if found else {})}
    first = next(options.folder.glob("tuning/*/*/recipe.json")).parent
    runs.write_json(
        options.out,
        {
            "command": shlex.join(["python", *sys.argv[:1]]) + f" of {options.command}",
            "metric": task.metric,
            "label": label,
            "environment": runs.open(first).environment,
            "seconds": json.loads((options.folder / "seconds.json").read_text()),
            "finished": (options.folder / "summary.json").exists(),
            "stages": stages,
        },
    )
    for stage, own in stages.items():
        for row in own["rows"]:
            scores = [row["mean_validation"], row["mean_test"]]
            assert all(map(math.isfinite, scores))
            print(f"{stage:24s} {row['method']:20s} {row['settings']} n={len(row['seeds'])} {scores}")
        for sentence in own.get("test", {}).get("verdict", []):
            print("   ", sentence)


if __name__ == "__main__":
    main()
