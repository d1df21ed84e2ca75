"""What the fraction of a gradient-balanced strength does to the error on images and on an operator, with tiny networks.

    python benchmarks/look_fractions.py age --set data=utkface --set generated=0 --set train_rows=2000
    python benchmarks/look_fractions.py depth --set data=nyu --set generated=0
    python benchmarks/look_fractions.py linear --method ld --seeds 10

The preset quick, the same seeds for every fraction; each is held to the one baseline. Writes the summary as
``ordinal-entropy compare`` does.
"""

import argparse
import tempfile
from pathlib import Path

from ordinal_entropy import comparison, runs, tasks
from ordinal_entropy.studies import grid

import record

FRACTIONS = (0.03, 0.1, 0.3, 1.0)
RESULTS = Path(__file__).parents[1] / "docs" / "results" / "tables"


def main() -> None:
    """Trains everything, prints the verdict and writes the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=tasks.names())
    parser.add_argument("--method", choices=("ld", "oe"), default="oe")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows = [grid.Variant("baseline"), *(grid.Variant(options.method, (("balance", each),)) for each in FRACTIONS)]
    recipe = tasks.recipe(options.task, "quick", options.set)
    with tempfile.TemporaryDirectory() as folder:
        summary = grid.summary_of(
            options.task, rows, {"": recipe}, range(options.seeds), out=Path(folder), device="cpu", jobs=options.jobs
        )
    for sentence in comparison.verdict(summary).sentences:
        print(sentence)
    out = options.out or RESULTS / f"{options.task}-fractions.json"
    runs.write_json(out, {**summary, "command": record.command()})


if __name__ == "__main__":
    main()
