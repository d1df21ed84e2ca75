"""Whether a change made the loss slower: two source trees, measured in turns on one device.

    python benchmarks/bench_before_after.py --before ../other-checkout/src      # about 3 minutes on a GPU

Each turn is a process of its own, which imports one of the trees and times forward and backward passes: the diversity
with and without grouping, and the whole loss. "ms" is the time on the device while the host is ahead, "call_ms" that of
one of many calls that follow each other, the host's time included. The ratio is that of the fastest turns.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import record

HERE = Path(__file__).parent
SIZES = "100x100,3536x512,16384x512"


def measure(sizes: str, device: str) -> dict[str, dict[str, float]]:
    """Milliseconds by size and version, of the tree that is imported here."""
    from bench_pairwise import VERSIONS, Version, burst, data, step
    from ordinal_entropy.functional import ordinal_entropy

    names = ("fused", "fused tf32", "auto") if device == "cuda" else ("blocked", "auto")
    versions = {name: VERSIONS[name] for name in names} | {"ordinal_entropy": Version(ordinal_entropy)}
    found = {}
    for size in sizes.split(","):
        m, d = map(int, size.split("x"))
        features, targets = data(m, d, device)
        times: dict[str, list[float]] = {name: [] for name in versions}
        bursts: dict[str, list[float]] = {name: [] for name in versions}
        for turn in range(24):
            for name, version in versions.items():
                seconds = step(version, features, targets)[2]
                many = burst(version, features, targets, 50 if m < 1000 else 3)
                if turn >= 3:  # warm
                    times[name].append(seconds)
                    bursts[name].append(many)
        for name in versions:
            ms, call_ms = (1000 * statistics.median(seconds[name]) for seconds in (times, bursts))
            found[f"{size} {name}"] = {"ms": round(ms, 4), "call_ms": round(call_ms, 4)}
    return found


def turn_of(tree: Path, sizes: str, device: str) -> dict[str, dict[str, float]]:
    """What a process with that tree measures."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tree), str(HERE)])}
    command = [sys.executable, __file__, "--measure", "--sizes", sizes, "--device", device]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="the source tree to compare with")
    parser.add_argument("--sizes", default=SIZES)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--out", type=Path, default=HERE / "bench_before_after.json")
    parser.add_argument("--measure", action="store_true", help="of the tree on the path alone, to standard output")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.sizes, options.device)))
        return
    if options.before is None or not (options.before / "ordinal_entropy").is_dir():
        parser.error(f"expected --before to be a source tree with ordinal_entropy in it, got {options.before}")
    trees = {"before": options.before, "after": HERE.parent / "src"}
    found: dict[str, list[dict[str, dict[str, float]]]] = {name: [] for name in trees}
    for _ in range(options.turns):
        for name, tree in trees.items():
            found[name].append(turn_of(tree, options.sizes, options.device))
            print(f"{name}: {found[name][-1]}", flush=True)
    rows: list[dict[str, Any]] = []
    for what in found["after"][0]:
        row: dict[str, Any] = {"what": what}
        for kind in ("ms", "call_ms"):
            both = {name: [turn[what][kind] for turn in turns] for name, turns in found.items()}
            row |= {f"{kind}_{name}": values for name, values in both.items()}
            row[f"{kind}_ratio"] = round(min(both["after"]) / min(both["before"]), 4)
        rows.append(row)
        print(f"{what:32s} device x {row['ms_ratio']:.3f}, calls x {row['call_ms_ratio']:.3f}")
    record.write(options.out, {"results": rows})


if __name__ == "__main__":
    main()
