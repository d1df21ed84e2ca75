"""The diversity on a CPU, forward and backward: the authors' way, the plain formula, and this library's kernels.

    python benchmarks/bench_pairwise_cpu.py            # about 5 minutes on 2 cores; writes bench_pairwise_cpu.json

All versions take turns in one run, so that a change of the clock meets all of them. Memory is the rise of the resident
set above what is there before the call, each in a process of its own, after a small call that loads the libraries.
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from formulas import Loss, authors, data, kernel, plain

import record


def plain_upper(features: Tensor, targets: Tensor) -> Tensor:
    """The plain formula, each pair taken once."""
    z, m = F.normalize(features, dim=1), features.shape[0]
    weights = torch.cdist(targets, targets)
    return (weights / weights.max() * torch.cdist(z, z)).triu(1).sum() * 2 / (m * (m - 1))


VERSIONS: dict[str, Loss] = {
    "authors": authors,
    "plain": plain,
    "plain i<j": plain_upper,
    "reference": kernel("reference", grouping="none"),
    "blocked": kernel("blocked", grouping="none"),
    "auto": kernel("auto"),  # grouping included: what a user calls
}
BASES = ("authors", "plain", "plain i<j")
PAIRED = {f"{k} pairs": kernel("auto", grouping="none", num_pairs=k) for k in (1_000, 10_000, 100_000)}


def step(loss: Loss, features: Tensor, targets: Tensor) -> tuple[float, Tensor, float]:
    """Value, gradient and seconds of one forward and backward pass."""
    features.grad = None
    start = time.perf_counter()
    value = loss(features, targets)
    value.backward()
    seconds = time.perf_counter() - start
    assert features.grad is not None
    return value.item(), features.grad, seconds


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def peak_memory(version: str, m: int, d: int) -> float:
    """MiB that one forward and backward pass takes beyond its inputs, in a process of its own."""
    answer = subprocess.run(
        [sys.executable, __file__, "--memory-of", version, str(m), str(d)], check=True, capture_output=True, text=True
    )
    return float(json.loads(answer.stdout))


def memory_of(version: str, m: int, d: int) -> None:
    def status(field: str) -> int:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(field):
                return int(line.split()[1])
        raise OSError(f"no {field} in /proc/self/status")

    loss = {**VERSIONS, **PAIRED}[version]
    step(loss, *data(1600, 64))
    features, targets = data(m, d)
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    step(loss, features, targets)
    print((status("VmHWM") - before) / 1024)


def compare(m: int, d: int, names: list[str], rounds: int, versions: dict[str, Loss]) -> list[dict[str, Any]]:
    features, targets = data(m, d)
    exact = features.detach().double().requires_grad_()
    of_value, of_gradient, _ = step(kernel("blocked", grouping="none"), exact, targets)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    rows = []
    for name in names:
        step(versions[name], features, targets)  # warm up
    for _ in range(rounds):
        for name in names:
            seconds[name].append(step(versions[name], features, targets)[2])
    for name in names:
        value, gradient, _ = step(versions[name], features, targets)
        rows.append(
            {
                "m": m,
                "d": d,
                "version": name,
                "ms": round(1000 * statistics.median(seconds[name]), 3),
                "ms_fastest": round(1000 * min(seconds[name]), 3),
                "extra_mib": round(peak_memory(name, m, d), 1),
                "relative_error_value": None if name == "authors" else abs(value - of_value) / abs(of_value),
                "relative_error_gradient": None
                if name == "authors"
                else ((gradient - of_gradient).norm() / of_gradient.norm()).item(),
            }
        )
    for row in rows:
        for base in BASES:
            if base in names:
                ratios = [a / b for a, b in zip(seconds[base], seconds[row["version"]], strict=True)]
                row[f"times_faster_than_{base}"] = round(statistics.median(ratios), 2)
    return rows


def line(row: dict[str, Any]) -> str:
    text = f"m={row['m']:<6} d={row['d']:<5} {row['version']:<10} {row['ms']:>10.2f} ms {row['extra_mib']:>8.1f} MiB"
    for base in BASES:
        if f"times_faster_than_{base}" in row:
            text += f"  {row[f'times_faster_than_{base}']:5.2f} x {base}"
    error = row["relative_error_gradient"]
    return text if error is None else f"{text}  gradient error {error:.1e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--memory-of", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    arguments = parser.parse_args()
    if arguments.memory_of:
        version, m, d = arguments.memory_of
        memory_of(version, int(m), int(d))
        return
    rows = []
    for m, d, names, rounds in [
        (32, 64, list(VERSIONS), 101),
        (100, 100, list(VERSIONS), 101),
        (256, 512, list(VERSIONS), 51),
        (1024, 512, list(VERSIONS), 21),
        (3536, 512, ["authors", "plain", "plain i<j", "blocked", "auto"], 41),
        (3536, 2048, ["authors", "plain", "plain i<j", "blocked", "auto"], 5),
        (50_000, 128, ["blocked"], 1),
    ]:
        rows += compare(m, d, names, rounds, VERSIONS)
        for row in rows[-len(names) :]:
            print(line(row), flush=True)
    pairs = []
    for m in (1_000, 10_000, 100_000):
        features, targets = data(m, 128)
        for name, loss in PAIRED.items():
            seconds = [step(loss, features, targets)[2] for _ in range(7)][1:]
            pairs.append({"m": m, "d": 128, "version": name, "ms": round(1000 * statistics.median(seconds), 3)})
            print(f"m={m:<6} d=128   {name:<14} {pairs[-1]['ms']:>10.2f} ms", flush=True)
    a = torch.randn(1024, 1024)
    seconds = sorted(timed(lambda: a @ a) for _ in range(50))
    print(f"matrix product of 1024^3: {2 * 1024**3 / seconds[25] / 1e9:.0f} GFlop/s")
    rate = {"shape": 1024, "gflops": round(2 * 1024**3 / seconds[25] / 1e9)}
    record.write(arguments.out, {"results": rows, "num_pairs": pairs, "matrix_product": rate})


if __name__ == "__main__":
    main()
