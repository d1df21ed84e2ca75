"""Ten small networks trained at once and one after the other: time of a run and step.

    python benchmarks/bench_stacked.py                 # about a minute on 2 cores; writes bench_stacked.json
    python benchmarks/bench_stacked.py --device cuda --runs 80 --rounds 3 --out benchmarks/bench_stacked_gpu.json

The networks and rows of the linear operator: 1000 rows of 101 numbers, 101 -> 100 -> 100 -> 1, full batch, AdamW.
"Alone" is the plain way: ``nn.Sequential``, ``torch.optim.AdamW``, autograd, ``functional.diversity`` on ten drawn
rows, one network after the other. "Stacked" is ``training.stacked`` (on a GPU its CUDA graph). Both take turns;
the smallest of all rounds counts, since other programs can only add to a time. Float32.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from ordinal_entropy import functional
from ordinal_entropy.tasks.operators.train import Job
from ordinal_entropy.training.stacked.members import Rows
from ordinal_entropy.training.stacked.network import Shape
from ordinal_entropy.training.stacked.stack import Stack

import record

ROWS, INPUTS, HIDDEN, SAMPLES, STRENGTH, RATE, DECAY = 1000, 101, 100, 10, 1e-3, 1e-3, 0.01


def alone(method: str, x: torch.Tensor, y: torch.Tensor) -> Callable[[int], None]:
    """Steps of one network after the other, the way one writes it."""
    networks = []
    for _ in x:
        layers = nn.Linear(INPUTS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, 1)
        network = nn.Sequential(*layers).to(x.device)
        networks.append((network, torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)))

    def advance(steps: int) -> None:
        for k, (network, adamw) in enumerate(networks):
            for _ in range(steps):
                features = network[:-1](x[k])
                loss = F.mse_loss(network[-1](features), y[k])
                if method == "ld":
                    drawn = torch.randperm(ROWS, device=x.device)[:SAMPLES]
                    options = {"rescale": "authors", "grouping": "none"}
                    loss = loss - STRENGTH * functional.diversity(features[drawn], y[k, drawn], **options)
                adamw.zero_grad()
                loss.backward()
                adamw.step()

    return advance


def stacked(method: str, x: torch.Tensor, y: torch.Tensor, at_once: int) -> Callable[[int], None]:
    """Steps of all networks at once."""
    job = Job(
        method,
        seed=0,
        rows=ROWS,
        samples=SAMPLES,
        strength=STRENGTH,
        initial="default",
        learning_rate=RATE,
        weight_decay=DECAY,
    )
    runs = len(x)
    stack = Stack(
        [replace(job, seed=k).member() for k in range(runs)],
        Shape(0, INPUTS, hidden=HIDDEN),
        Rows(x, y.double(), range(runs), [ROWS] * runs, range(runs), epochs=0),
        device=x.device,
    )
    stack.at_once(at_once)  # on a GPU as a graph

    def advance(steps: int) -> None:
        for _ in range(steps // at_once):
            stack.advance(at_once)

    return advance


def seconds(advance: Callable[[int], None], steps: int, device: torch.device) -> float:
    start = time.perf_counter()
    advance(steps)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def compare(method: str, runs: int, rounds: int, device: torch.device) -> list[dict[str, Any]]:
    at_once = 50 if device.type == "cuda" else 10
    random = np.random.default_rng(0)
    x = torch.tensor(random.standard_normal((runs, ROWS, INPUTS)), dtype=torch.float32, device=device)
    y = torch.tensor(random.standard_normal((runs, ROWS, 1)), dtype=torch.float32, device=device)
    ways = {"alone": alone(method, x, y), "stacked": stacked(method, x, y, at_once)}
    times: dict[str, list[float]] = {way: [] for way in ways}
    for advance in ways.values():
        for _ in range(3):  # warm-up
            seconds(advance, at_once, device)
    for _ in range(rounds):
        for way, advance in ways.items():
            times[way].append(1e3 * seconds(advance, at_once, device) / (at_once * runs))
    rows = []
    for way, of_way in times.items():
        rows.append(
            {
                "method": method,
                "way": way,
                "runs": runs,
                "ms_per_run_and_step": round(min(of_way), 4),
                "median_ms": round(statistics.median(of_way), 4),
                "times_faster": round(min(times["alone"]) / min(of_way), 2),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    for method in ("baseline", "ld"):
        rows += compare(method, arguments.runs, arguments.rounds, torch.device(arguments.device))
    for row in rows:
        print(
            f"{row['method']:<9} {row['way']:<8} {row['ms_per_run_and_step']:>8.4f} ms a run and step "
            f"(median {row['median_ms']:.4f})  {row['times_faster']:>5.2f}x"
        )
    record.write(arguments.out, {"device": arguments.device, "results": rows})


if __name__ == "__main__":
    main()
