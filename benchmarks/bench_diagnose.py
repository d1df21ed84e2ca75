"""Time and memory of `ordinal-entropy diagnose` on a million rows of 512 features.

    python benchmarks/bench_diagnose.py                # some minutes on 2 cores; writes bench_diagnose.json
    python benchmarks/bench_diagnose.py --rows 20000   # seconds, to see that it runs; writes nothing

The features (float32, 2 GB) and targets are written to a temporary folder in each format; the command then runs in a
process of its own, from its start to ``diagnosis.json`` and without the page. ``peak_mib`` is the most memory that it
had (``VmHWM``; ``ru_maxrss`` of a child begins at its parent's), of which ``started_mib`` is what Python, torch and the
command line take before anything is read. The files were just written: reading them is reading the system's cache.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import record

DIMENSIONS = 512
BLOCK = 10_000


def blocks(rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Features after a ReLU that follow a curve, with noise, and their targets."""
    random = np.random.default_rng(0)
    waves = random.normal(size=(8, DIMENSIONS)).astype(np.float32)
    for start in range(0, rows, BLOCK):
        targets = random.random(min(BLOCK, rows - start), dtype=np.float32)
        angles = np.outer(targets, np.arange(1, 5, dtype=np.float32))
        curve = np.concatenate([np.sin(angles), np.cos(angles)], 1) @ waves
        noise = random.standard_normal(curve.shape, dtype=np.float32)
        yield np.maximum(curve + noise, 0), targets


def write(folder: Path, rows: int) -> None:
    """``features.npy`` and ``targets.npy``, a block at a time."""
    shape = {"features": (rows, DIMENSIONS), "targets": (rows,)}
    files = {
        name: np.lib.format.open_memmap(folder / f"{name}.npy", "w+", np.float32, size) for name, size in shape.items()
    }
    for number, (features, targets) in enumerate(blocks(rows)):
        here = slice(number * BLOCK, number * BLOCK + len(targets))
        files["features"][here], files["targets"][here] = features, targets


@contextmanager
def as_npz(folder: Path, save: Any) -> Iterator[list[str]]:
    """The arguments of the command for an .npz file of these arrays."""
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("features", "targets")}
    save(folder / "both.npz", **arrays)
    yield [str(folder / "both.npz")]
    (folder / "both.npz").unlink()


@contextmanager
def as_safetensors(folder: Path) -> Iterator[list[str]]:
    """The same for a .safetensors file."""
    from safetensors.numpy import save_file

    path = folder / "both.safetensors"
    save_file({name: np.load(folder / f"{name}.npy") for name in ("features", "targets")}, path)
    yield [str(path)]
    path.unlink()


CHILD = """
import json, sys, time
start = time.perf_counter()
from ordinal_entropy import report
from ordinal_entropy.commands.app import app
report.missing = lambda: "nothing"  # the page is not drawn
peak = lambda: int(open("/proc/self/status").read().split("VmHWM:")[1].split()[0]) / 1024
before = peak()
try:
    app(sys.argv[1:], standalone_mode=False)
finally:
    print(json.dumps({"seconds": time.perf_counter() - start, "peak_mib": peak(), "started_mib": before}))
"""


def measured(arguments: list[str], folder: Path) -> dict[str, Any]:
    """Of the command in a process of its own."""
    command = [sys.executable, "-c", CHILD, "diagnose", *arguments, "--out", str(folder / "out")]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[-1]
    found = json.loads((folder / "out" / "diagnosis.json").read_text())
    result = {name: round(value, 1) for name, value in json.loads(answer).items()}
    return {**result, "sampling": found["sampling"], "alarms": found["alarms"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    arguments = parser.parse_args()
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = time.perf_counter()
        write(folder, arguments.rows)
        print(f"wrote {arguments.rows:,} rows in {time.perf_counter() - start:.0f} s", flush=True)
        found["npy"] = measured([str(folder / "features.npy"), "--targets", str(folder / "targets.npy")], folder)
        print(found["npy"], flush=True)
        for label, file in (
            ("npz", as_npz(folder, np.savez)),
            ("npz, compressed", as_npz(folder, np.savez_compressed)),
            ("safetensors", as_safetensors(folder)),
        ):
            with file as paths:
                found[label] = measured(paths, folder)
            print(label, found[label], flush=True)
    if arguments.rows == 1_000_000:
        results = {"rows": arguments.rows, "dimensions": DIMENSIONS, "files": found}
        record.write(Path(__file__).with_suffix(".json"), results)


if __name__ == "__main__":
    main()
