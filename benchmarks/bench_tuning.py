"""What a tuned comparison costs: two source trees, measured in turns on one machine.

    python benchmarks/bench_tuning.py --before 01d2c7d      # about 4 minutes a turn on an idle core

Each turn runs `ordinal-entropy compare tabular --tune` in a process of its own, with the source tree of a commit, then
with that of this checkout: two rows, 16 trials of each with three tuning seeds, ten fresh seeds, a generated table of
1,000 rows. "cpu" is what the process and all that it started computed, "wall" what a clock said: other programs on the
machine add to the second, hardly to the first, as long as there is one thread. The smallest of the turns counts. What
was chosen, and the scores of the fresh runs, stand beside: rounding apart, they should not depend on the tree.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import record

HERE = Path(__file__).parent
GIVEN = "compare tabular --set generated=1000 --methods baseline,oe --seeds 10 --tune --trials 16"


def source_of(commit: str, folder: Path) -> Path:
    """The source tree of a commit, unpacked."""
    packed = subprocess.run(["git", "archive", commit, "src"], cwd=HERE.parent, stdout=subprocess.PIPE, check=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def turn_of(tree: Path, given: str, threads: int) -> dict[str, Any]:
    """Seconds of the command with that tree, and what it found."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "ordinal_entropy", *given.split(), "--out", str(Path(place) / "out")]
        start = time.perf_counter()
        environment = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": str(threads)}
        process = subprocess.Popen(command, env=environment, cwd=place, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(process.pid, 0)
        wall = time.perf_counter() - start
        if status:
            raise SystemExit(f"{' '.join(command)} ended with status {os.waitstatus_to_exitcode(status)}")
        summary = json.loads((Path(place) / "out" / "summary.json").read_text())
    return {
        "wall": round(wall, 1),
        "cpu": round(used.ru_utime + used.ru_stime, 1),
        "chosen": {row: own["chosen"] for row, own in summary["tuning"].items()},
        "means": {row: own["mean"] for row, own in summary["methods"].items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", required=True, help="the commit to compare with")
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of a process")
    parser.add_argument("--given", default=GIVEN, help="the command, after ordinal-entropy")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    turns: dict[str, list[dict[str, Any]]] = {"before": [], "after": []}
    with tempfile.TemporaryDirectory() as folder:
        trees = {"before": source_of(arguments.before, Path(folder)), "after": HERE.parent / "src"}
        for _ in range(arguments.turns):
            for name, tree in trees.items():
                turns[name].append(turn_of(tree, arguments.given, arguments.threads))
                print(f"{name}: {turns[name][-1]}", flush=True)
    results = {
        name: {
            **{kind: min(turn[kind] for turn in own) for kind in ("wall", "cpu")},
            "chosen": own[0]["chosen"],
            "means": own[0]["means"],
            "turns": [[turn["wall"], turn["cpu"]] for turn in own],
        }
        for name, own in turns.items()
    }
    record.write(
        arguments.out, {"given": arguments.given, "threads": arguments.threads, "unit": "seconds", "results": results}
    )


if __name__ == "__main__":
    main()
