"""The summary of a comparison on images of which some runs were stopped before the measures of their features.

    ordinal-entropy compare depth --methods baseline,oe --seeds 5 --preset small --set data=nyu --out DIR
    python benchmarks/summarise_logged.py depth DIR --preset small --set data=nyu --out summary.json

Their scores are in their logs, and what is said of their features is null. A run that was stopped before its last epoch
is refused. DIR stays as it is; the environment is that of its runs.
"""

import argparse
import shutil
import tempfile
from pathlib import Path

from ordinal_entropy import comparison, runs, tasks
from ordinal_entropy.studies import grid

import record


def main() -> None:
    """Prints the verdict and writes the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=("age", "crowd", "depth"))
    parser.add_argument("folder", type=Path, help="--out of the comparison")
    parser.add_argument("--preset", required=True)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    study = runs.read_json(options.folder / "study.json")
    recipe = tasks.recipe(options.task, options.preset, options.set)
    with tempfile.TemporaryDirectory() as copy:
        shutil.copytree(options.folder / "training", Path(copy) / "training")
        finished = [
            path.name for path in sorted((Path(copy) / "training").iterdir()) if from_log(path, recipe.training.epochs)
        ]
        summary = grid.summary_of(
            options.task,
            [grid.Variant(name) for name in study["methods"]],
            {"": recipe},
            range(study["seeds"]),
            out=Path(copy),
            device="cpu",
        )
    for sentence in comparison.verdict(summary).sentences:
        print(sentence)
    # Neither the seconds nor the device of this reading matter: those of the training are in no file.
    kept = {key: value for key, value in summary.items() if key not in ("seconds", "device")}
    runs.write_json(options.out, {**kept, "command": record.command(), "scores_from_logs": finished})


def from_log(folder: Path, epochs: int) -> bool:
    """Finishes a run that has logged all its epochs by what it has logged; False if it is finished anyway."""
    run = runs.open(folder)
    if run.result() is not None:
        return False
    lines = run.metrics()
    if [line["step"] for line in lines] != list(range(1, epochs + 1)):
        raise SystemExit(f"expected {epochs} epochs in {folder / 'metrics.jsonl'}, got {len(lines)} lines")
    history = [
        {
            part: {name.removeprefix(f"{part}_"): value for name, value in line.items() if name.startswith(f"{part}_")}
            for part in ("train", "validation", "test")
        }
        for line in lines
    ]
    run.finish({"history": history, "left_out": None, "features": {"last": {}, "best_validation": {}}})
    return True


if __name__ == "__main__":
    main()
