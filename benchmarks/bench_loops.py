"""Whether a change made training slower: whole trainings of two source trees, in turns on one device.

    python benchmarks/bench_loops.py --before ../other-checkout/src      # about 10 minutes on two CPU cores

Each turn is a process of its own, which imports one of the trees and trains, through the tasks that both have: tables
(twelve methods and two seeds as one stack), operators (likewise), the scikit-learn regressor, and faces with a small
network, one method after the other. Seconds are those that one thread of the processor was busy with the training
(on a GPU, those on the clock), after one that is not counted. The ratio is that of the medians.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import record

HERE = Path(__file__).parent
METHODS = ("baseline", "ld-unweighted", "ld", "ld-cosine", "ld-no-norm", "ld-squared", "ld-sqrt", "lt", "oe")
FIXED, BALANCED = "strength=1", "strength=none"
BOTH = (FIXED, BALANCED)
SETTINGS = {
    "tabular": ["epochs=6", "generated=2000", "feature_rows=0"],
    "linear": ["steps=200", "evaluate_every=200", "test_rows=1000"],
    "age": ["generated=1000", "epochs=2", "feature_rows=0", "workers=0"],
}


def trained(
    task: str, methods: tuple[str, ...], seeds: int, device: str, strengths: tuple[str, ...] = (FIXED,)
) -> Callable[[], None]:
    """A training of these runs, each time in a new folder."""
    from ordinal_entropy import tasks

    recipes = [tasks.recipe(task, "quick", [*SETTINGS[task], each]) for each in strengths]
    plans = [tasks.Plan(method, seed, own) for own in recipes for method in methods for seed in range(seeds)]

    def train() -> None:
        with tempfile.TemporaryDirectory() as folder:
            tasks.load(task).train(plans, device=device, folder=Path(folder))

    return train


def fitted() -> Callable[[], None]:
    """A regressor on a table."""
    import numpy as np

    from ordinal_entropy.integrations.sklearn import OrdinalEntropyRegressor

    x = np.random.default_rng(0).normal(size=(1000, 8))
    y = (x[:, 0] + np.sin(x[:, 1])).round(1)

    def fit() -> None:
        OrdinalEntropyRegressor(method="oe", epochs=60, random_state=0).fit(x, y)

    return fit


def measure(device: str) -> dict[str, float]:
    """Seconds of each training, of the tree that is imported here."""
    loops = {
        "tables, 9 methods x 2 strengths x 2 seeds": trained("tabular", METHODS, 2, device, BOTH),
        "tables, classification x 2 seeds": trained("tabular", ("classification",), 2, device),
        "operators, 10 methods x 2 strengths x 2 seeds": trained(
            "linear", (*METHODS, "classification"), 2, device, BOTH
        ),
        "faces, baseline": trained("age", ("baseline",), 1, device),
        "faces, oe": trained("age", ("oe",), 1, device),
        "faces, oe, gradient-balanced": trained("age", ("oe",), 1, device, (BALANCED,)),
        "regressor, oe": fitted(),
    }
    clock = time.process_time if device == "cpu" else time.perf_counter
    found = {}
    for name, train in loops.items():
        train()
        begin = clock()
        train()
        found[name] = round(clock() - begin, 4)
    return found


def turn_of(tree: Path, device: str) -> dict[str, float]:
    """What a process with that tree measures."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(HERE)]), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "--measure", "--device", device]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="the source tree to compare with")
    parser.add_argument("--device", default="cpu", choices=["cuda", "cpu"])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, default=HERE / "bench_loops.json")
    parser.add_argument("--measure", action="store_true", help="of the tree on the path alone, to standard output")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.device)))
        return
    if options.before is None or not (options.before / "ordinal_entropy").is_dir():
        parser.error(f"expected --before to be a source tree with ordinal_entropy in it, got {options.before}")
    trees = {"before": options.before, "after": HERE.parent / "src"}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for turn in range(options.turns):
        for name in sorted(trees, reverse=turn % 2 == 0):  # each is first as often as the other, but for one
            found[name].append(turn_of(trees[name], options.device))
            print(f"{name}: {found[name][-1]}", flush=True)
    rows: list[dict[str, Any]] = []
    for what in found["after"][0]:
        row: dict[str, Any] = {"what": what}
        row |= {f"seconds_{name}": [turn[what] for turn in turns] for name, turns in found.items()}
        before, after = (statistics.median(row[f"seconds_{name}"]) for name in ("before", "after"))
        row["ratio"] = round(after / before, 4)
        rows.append(row)
        print(f"{what:34s} {before:8.3f} s before, {after:8.3f} s after, x {row['ratio']:.3f}")
    record.write(options.out, {"results": rows})


if __name__ == "__main__":
    main()
