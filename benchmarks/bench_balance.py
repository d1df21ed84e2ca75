"""What the smoothing and the warm-up of gradient-balanced strengths do to the error, on small tables and an operator.

    python benchmarks/bench_balance.py uci/yacht.npz uci/energy.npz uci/concrete.npz   # a quarter of an hour on a core
    python benchmarks/bench_balance.py --operator-from 6 --operator-seeds 14 --out benchmarks/bench_balance_again.json
    python benchmarks/bench_balance.py uci/yacht.npz --seeds 2 --epochs 3 --steps 100 --out /tmp/a.json

Each file has published splits, as docs/tabular.md has them; seed k is split k. ``decay`` of the running means and
``warm_up`` in steps are changed one at a time from those that ``ordinal_entropy.balance`` has. Tables: ``oe``,
with centers of equal targets (``bin_width`` 0) and of those of a fifth of a standard deviation (0.2). The operator: the
linear one of the preset quick, ``ld``. Scores are test errors, best on validation; differences are paired over
the seeds, with Student's 95% interval: from the baseline, and from the same with the defaults. The second command
looks at other seeds of the operator: what the first found there was to be seen once more.
"""

import argparse
import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ordinal_entropy import balance, tasks
from ordinal_entropy.comparison import paired
from ordinal_entropy.recipes import changed
from ordinal_entropy.training.plans import Plan

import record


class Smoothing(NamedTuple):
    """How the strengths follow the gradients."""

    decay: float
    warm_up: int


DEFAULT = Smoothing(balance.DECAY, balance.WARM_UP)
EVERY = [
    DEFAULT,
    *(DEFAULT._replace(decay=decay) for decay in (0.9, 0.995)),
    *(DEFAULT._replace(warm_up=steps) for steps in (0, 300)),
]


def errors(task: str, recipe: Any, method: str, seeds: Sequence[int], smoothing: Smoothing = DEFAULT) -> list[float]:
    """Of each seed, best on validation."""
    balance.DECAY, balance.WARM_UP = smoothing
    plans = [Plan(method, seed, recipe) for seed in seeds]
    with tempfile.TemporaryDirectory() as folder:
        found = tasks.load(task).train(plans, device="cpu", folder=Path(folder))
    return [run.best_validation for run in found]


def compared(task: str, recipe: Any, method: str, seeds: Sequence[int], about: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for each smoothing."""
    base = errors(task, recipe, "baseline", seeds)
    found = {each: errors(task, recipe, method, seeds, each) for each in EVERY}
    lines = []
    for each, own in found.items():
        line = {"task": task, **about, "method": method, **each._asdict(), "seeds": len(seeds), "values": own}
        line |= {"mean": statistics.mean(own), "std": statistics.stdev(own), "baseline_mean": statistics.mean(base)}
        line["from_baseline"] = paired(own, base)._asdict()
        if each != DEFAULT:
            line["from_default"] = paired(own, found[DEFAULT])._asdict()
        lines.append(line)
        share = 100 * line["from_baseline"]["difference"] / line["baseline_mean"]
        print(f"{task} {about} {tuple(each)}: {line['mean']:.4g}, {share:+.1f}% of the baseline's", flush=True)
    return lines


def main() -> None:
    """Trains everything, prints a line for each setting and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help=".npz files with published splits")
    parser.add_argument("--seeds", type=int, default=20, help="of the tables")
    parser.add_argument("--operator-seeds", type=int, default=6)
    parser.add_argument("--operator-from", type=int, default=0, help="the first seed of the operator")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = []
    for table in options.tables:
        for width in (0.0, 0.2):
            recipe = tasks.recipe("tabular", "small", [f"data={table}", f"epochs={options.epochs}", "feature_rows=0"])
            about = {"table": Path(table).stem, "bin_width": width}
            recipe = changed(recipe, {"bin_width": width})
            results += compared("tabular", recipe, "oe", range(options.seeds), about)
    recipe = tasks.recipe("linear", "quick", [f"steps={options.steps}"])
    seeds = range(options.operator_from, options.operator_from + options.operator_seeds)
    results += compared("linear", recipe, "ld", seeds, {})
    record.write(options.out, {"default": DEFAULT._asdict(), "results": results})


if __name__ == "__main__":
    main()
