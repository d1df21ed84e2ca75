"""Which gradient-balanced strength is a safe default? Fractions, annealed or not, of ``oe`` and ``ld``, on many sets.

    python benchmarks/look_safe_default.py --sets concrete,kin8nm,linear --device cuda

Every row, the baseline first, has its learning rate chosen from one grid by validation data and seeds of its own, all
else at its default; then all rows train with fresh seeds at the rate that was chosen for them and are held to the
baseline, pair by pair. Real tables lie where ``ORDINAL_ENTROPY_DATA`` says.
"""

import argparse
import json
import math
import os
from pathlib import Path
from typing import Any

from ordinal_entropy import comparison, studies, tasks
from ordinal_entropy.comparison import tuning
from ordinal_entropy.comparison.tuning import Found
from ordinal_entropy.recipes import changed
from ordinal_entropy.studies.grid import Variant, summary_of
from ordinal_entropy.training.plans import Plan

import record

HERE = Path(__file__).parent
DATA = Path(os.environ.get("ORDINAL_ENTROPY_DATA", "."))
TABLES = ("yacht", "energy", "concrete", "wine-quality-red", "kin8nm", "california-housing")
SETS: dict[str, tuple[str, str, list[str]]] = {  # task, preset, settings
    **{name: ("tabular", "small", [f"data={DATA}/uci/{name}.npz"]) for name in TABLES},
    "linear": ("linear", "quick", []),
    "nonlinear": ("nonlinear", "quick", ["initial=default"]),
}
FRACTIONS = (0.03, 0.1, 0.3)
ANNEALED = (0.0, 1.0)
SEEDS = [tuning.FIRST_SEED + k for k in range(3)]  # that learning rates are chosen by
GRID = 6


def rows() -> dict[str, tuple[str, tuple[str, ...]]]:
    """Method and options of each row."""
    found: dict[str, tuple[str, tuple[str, ...]]] = {"baseline": ("baseline", ())}
    for name in ("oe", "ld"):
        for fraction in FRACTIONS:
            for share in ANNEALED:
                title = f"{name} {fraction:g}{' annealed' if share else ''}"
                found[title] = name, (f"{name}.balance={fraction:g}", f"{name}.anneal={share:g}")
    return found


def looked(name: str, device: str, seeds: int, folder: Path, jobs: int) -> dict[str, Any]:
    """The comparison on one set."""
    task_name, preset, settings = SETS[name]
    task = tasks.load(task_name)
    recipe = task.set_aside(tasks.recipe(task_name, preset, settings), 0)
    axis = tuning.around("learning_rate", recipe.training.learning_rate, GRID)
    own = {row: (method, changed(recipe, {"method.options": given})) for row, (method, given) in rows().items()}
    tried = [
        (row, rate, Plan(method, seed, changed(one, {"training.learning_rate": rate, "training.feature_rows": 0})))
        for row, (method, one) in own.items()
        for rate in axis.values
        for seed in SEEDS
    ]
    outcomes = task.train([plan for *_, plan in tried], device=device, folder=folder / "tuning", jobs=jobs, go_on=True)
    curves: dict[str, dict[float, list[float]]] = {row: {rate: [] for rate in axis.values} for row in own}
    for (row, rate, _), outcome in zip(tried, outcomes, strict=True):
        curves[row][rate].append(outcome.validation_score)
    means = {row: {rate: Found(scores).mean for rate, scores in curve.items()} for row, curve in curves.items()}
    chosen = {
        row: min((mean, rate) for rate, mean in curve.items() if math.isfinite(mean))[1] for row, curve in means.items()
    }
    variants = [
        Variant(own[row][0], (("learning_rate", chosen[row]), ("options", own[row][1].method.options)), title=row)
        for row in own
    ]
    made = summary_of(task_name, variants, {"": recipe}, range(seeds), out=folder, device=device, jobs=jobs, go_on=True)
    content = studies.write_summary(
        folder, made, about=f"Safe default on {name}", scale=1.0, command=["see", "benchmarks/look_safe_default.py"]
    )
    adjusted = comparison.adjusted(content)
    return {
        "metric": task.metric,
        "baseline": content["methods"]["baseline"]["mean"],
        "seeds": seeds,
        "chosen": chosen,
        "curves": {row: [[rate, mean] for rate, mean in curve.items()] for row, curve in means.items()},
        "rows": {row: {**pair, "p_after_holm": adjusted[row]} for row, pair in content["paired"].items()},
        "values": {row: method["values"] for row, method in content["methods"].items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--runs", type=Path, default=Path("runs/safe-default"))
    parser.add_argument("--out", type=Path, default=HERE / "look_safe_default.json")
    options = parser.parse_args()
    results: dict[str, Any] = json.loads(options.out.read_text())["results"] if options.out.exists() else {}
    for name in options.sets.split(","):
        results[name] = looked(name, options.device, options.seeds, options.runs / name, options.jobs)
        record.write(options.out, {"results": results})  # as they come
        for row, pair in results[name]["rows"].items():
            share = 100 * pair["difference"] / results[name]["baseline"]
            print(f"{name:20s} {row:20s} {share:+6.2f}%  p {pair['p_value']:.3f}", flush=True)


if __name__ == "__main__":
    main()
