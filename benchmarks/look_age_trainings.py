"""A first look at other trainings of the age task with 2,000 faces from scratch: does ``oe`` at 5 help in one of them?

    python benchmarks/look_age_trainings.py utkface                # 30 runs, minutes on a GPU
    python benchmarks/look_age_trainings.py utkface --runs DIR     # runs that are finished there are not trained again

The preset small, changed in one thing at a time; each row is held to the baseline of the same training. Writes the
summary as ``ordinal-entropy compare`` does; its environment is that of the machine that trained the runs.
"""

import argparse
import tempfile
from pathlib import Path

from ordinal_entropy import runs, tasks
from ordinal_entropy.recipes import changed
from ordinal_entropy.studies import grid
from ordinal_entropy.studies.grid import Variant

import record

OUT = Path(__file__).parents[1] / "docs" / "results" / "age-first-looks" / "summary.json"
CHANGES = {
    "60 epochs": {"epochs": 60, "milestones": (40, 54)},
    "batches of 64": {"batch_size": 64},
    "zero_last_norm": {"zero_last_norm": True},
}
FIVE = (("strength", 5.0),)
VARIANTS = [
    Variant("baseline"),
    Variant("oe", FIVE),
    Variant("lt", FIVE),
    *(Variant(method, strength, label) for label in CHANGES for method, strength in (("baseline", ()), ("oe", FIVE))),
    Variant("oe", (("strength", None),), "batches of 64"),
]


def main() -> None:
    """Trains everything, prints a line for each row and writes the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", help="a folder as `ordinal-entropy data check age` takes it")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=14)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--runs", type=Path, help="where the runs are kept; by default they are not")
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    recipe = tasks.recipe("age", "small", [f"data={options.data}", "train_rows=2000", "strength=1"])
    with tempfile.TemporaryDirectory() as unkept:
        summary = grid.summary_of(
            "age",
            VARIANTS,
            {"": recipe, **{label: changed(recipe, {**changes}) for label, changes in CHANGES.items()}},
            range(options.seeds),
            out=options.runs or Path(unkept),
            device=options.device,
            jobs=options.jobs,
        )
    for name, found in summary["methods"].items():
        pair = summary["paired"].get(name)
        held = f", {pair['difference']:+.2f} ({pair['ci_low']:+.2f} to {pair['ci_high']:+.2f})" if pair else ""
        print(f"{name}: {found['mean']:.2f}{held}")
    runs.write_json(options.out, {**summary, "command": record.command()})


if __name__ == "__main__":
    main()
