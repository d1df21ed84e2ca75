"""The entropy estimators against closed forms, and what they cost.

python benchmarks/bench_estimators.py              # about 3 minutes on 2 cores; writes bench_estimators.json
"""

import argparse
import json
import math
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from ordinal_entropy import estimators

import record

CALLS = {
    "mean_nn_entropy": lambda z, y: estimators.mean_nn_entropy(z),
    "mean_nn_entropy and gradient": lambda z, y: estimators.mean_nn_entropy(z.requires_grad_()).backward(),
    "knn_entropy": lambda z, y: estimators.knn_entropy(z),
    "conditional_entropy": estimators.conditional_entropy,
    "mutual_information": estimators.mutual_information,
    "ordinality": estimators.ordinality,
    "effective_rank": lambda z, y: estimators.effective_rank(z),
}


def gaussian_errors() -> list[dict[str, Any]]:
    """Estimate minus truth on unit Gaussian features, in nats; one draw."""
    rows = []
    for d in (1, 4, 16, 64, 128):
        z = torch.randn(5000, d, generator=torch.Generator().manual_seed(d), dtype=torch.float64)
        truth = d / 2 * math.log(2 * math.pi * math.e)
        row: dict[str, Any] = {"d": d, "entropy": round(truth, 2)}
        for n in (500, 5000):
            row[f"knn_error_n{n}"] = round(estimators.knn_entropy(z[:n]).item() - truth, 2)
            absolute = estimators.mean_nn_entropy(z[:n], scale="absolute").item()
            row[f"mean_nn_absolute_error_n{n}"] = round(absolute - truth, 2)
        rows.append(row)
        print(row, flush=True)
    return rows


def cost(name: str) -> None:
    """Seconds and MiB of one call on 20,000 rows of 128 features, in a process of its own."""
    fields = {}

    def memory(field: str) -> float:
        for line in Path("/proc/self/status").read_text().splitlines():
            key, _, value = line.partition(":")
            fields[key] = value
        return int(fields[field].split()[0]) / 1024

    generator = torch.Generator().manual_seed(0)
    CALLS[name](torch.randn(300, 4, generator=generator), torch.rand(300, generator=generator))
    z, y = torch.randn(20_000, 128, generator=generator), torch.rand(20_000, generator=generator)
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    start = time.perf_counter()
    CALLS[name](z, y)
    seconds = time.perf_counter() - start
    print(json.dumps({"call": name, "seconds": round(seconds, 2), "extra_mib": round(memory("VmHWM") - before)}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cost-of", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.cost_of:
        cost(arguments.cost_of)
        return
    costs = []
    for name in CALLS:
        command = [sys.executable, __file__, "--cost-of", name]
        costs.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(costs[-1], flush=True)
    results = {"gaussian": gaussian_errors(), "cost_n20000_d128": costs}
    record.write(Path(__file__).with_suffix(".json"), results)


if __name__ == "__main__":
    main()
