"""One seed of every method on the preset quick of every task that admits it: is it finite, and does it learn?

    python benchmarks/first_light.py --device cuda --jobs 8                  # everything anew, in one file
    python benchmarks/first_light.py --device cuda --jobs 8 --tasks crowd,depth --resume   # after a stop: the rest

A method learns if its test score, best on validation, is below that of the constant: the reference of the task that
sees no input.
One seed of a short training compares no methods: that takes ``ordinal-entropy compare --tune``. A method that fails is
recorded with its error, and a task that cannot be trained at all among the failures; the others go on.
"""

import argparse
import json
import math
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from ordinal_entropy import methods, tasks
from ordinal_entropy.training.plans import Plan

import record

HERE = Path(__file__).parent
TASKS: dict[str, list[str]] = {  # settings over the preset: a step on operators takes all rows, fewer images will do
    "linear": ["steps=1000", "rows=200", "test_rows=2000"],
    "nonlinear": ["rows=200", "test_rows=2000", "initial=default"],
    "tabular": [],
    "age": ["generated=2000"],
    "crowd": ["generated=60"],
    "depth": [],
}


def lit(name: str, wanted: list[str], device: str, jobs: int, folder: Path) -> dict[str, Any]:
    """What every method did on a task."""
    task, recipe = tasks.load(name), tasks.recipe(name, "quick", TASKS[name])
    plans, refused = [], {}
    for method in wanted:
        plan = Plan(method, 0, recipe)
        try:
            task.check_method(plan)
        except ValueError as error:
            refused[method] = str(error)
        else:
            plans.append(plan)
    start = time.perf_counter()
    outcomes = task.train(plans, device=device, folder=folder / name, jobs=jobs, go_on=True)
    others = [each for each in tasks.classical(name) if each != "constant"]
    (constant,) = task.references(recipe, [0], others)["constant"]
    rows: dict[str, Any] = {}
    for plan, outcome in zip(plans, outcomes, strict=True):
        score = outcome.best_validation
        rows[plan.method] = {"score": round(score, 6), "learns": bool(score < constant)}
        if outcome.failure is not None:
            rows[plan.method] = {"score": None, "learns": False, "failure": dict(outcome.failure)}
    print(f"{name}, {task.metric}, constant {constant:.4g}, {time.perf_counter() - start:.0f} s", flush=True)
    for method, row in rows.items():
        score = row["score"]
        odd = "" if row["learns"] else "  FAILED: " + row["failure"]["message"] if "failure" in row else "  no better"
        print(f"  {method:24s} {math.nan if score is None else score:10.4g}{'' if row['learns'] else odd}", flush=True)
    return {
        "settings": TASKS[name],
        "metric": task.metric,
        "constant": round(constant, 6),
        "methods": rows,
        "refused": refused,
    }


def before(path: Path) -> dict[str, Any]:
    """Results of a file, each with the command that it is of."""
    if not path.exists():
        return {}
    found = json.loads(path.read_text())
    return {name: {"command": found["command"], **own} for name, own in found["results"].items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", default=",".join(TASKS))
    parser.add_argument("--methods", default=",".join(methods.names()))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1, help="runs on images side by side")
    parser.add_argument("--runs", type=Path, help="where the runs are kept; a temporary folder")
    parser.add_argument("--out", type=Path, default=HERE / "first_light.json")
    parser.add_argument("--resume", action="store_true", help="keep what the file has of other tasks; else it is new")
    options = parser.parse_args()
    results: dict[str, Any] = before(options.out) if options.resume else {}
    failures: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for name in options.tasks.split(","):
            folder = options.runs or Path(temporary)
            try:
                found = lit(name, options.methods.split(","), options.device, options.jobs, folder)
            except Exception as error:  # the other tasks are still worth their results
                traceback.print_exc()
                failures[name] = f"{type(error).__name__}: {error}"
                results.pop(name, None)
            else:
                results[name] = {"command": record.command(), **found} if options.resume else found
            failed = {"failures": failures} if failures else {}
            record.write(options.out, {**failed, "results": {task: results[task] for task in TASKS if task in results}})
    if failures:
        sys.exit(f"failed: {', '.join(failures)}")


if __name__ == "__main__":
    main()
