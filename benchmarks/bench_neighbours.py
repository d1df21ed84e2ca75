"""What close pairs cost: the diversity, forward and backward, on features that have neighbours.

    python benchmarks/bench_neighbours.py                  # a minute on 2 cores; writes bench_neighbours.json
    python benchmarks/bench_neighbours.py --device cuda    # writes bench_neighbours_cuda.json

Features that are drawn at random are all far apart; those of a network are not, and pairs too close for a product form
are done again in float64. All kinds of features take turns in one run; the plain formula stands beside them.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from formulas import Loss, kernel, plain

import record

SIZES = [(256, 2048), (1000, 100), (3536, 128), (3536, 512)]


def random(m: int, d: int, generator: torch.Generator) -> Tensor:
    """Far apart."""
    return torch.randn(m, d, generator=generator)


def some_neighbours(m: int, d: int, generator: torch.Generator) -> Tensor:
    """Every 64th row within a hundredth of the first."""
    points = torch.randn(m, d, generator=generator)
    points[::64] = points[:1] + 0.01 * torch.randn(len(points[::64]), d, generator=generator)
    return points


def smooth(m: int, d: int, generator: torch.Generator) -> Tensor:
    """A function of three numbers, as of place and light: everywhere dense."""
    hidden = torch.tanh(torch.randn(m, 3, generator=generator) @ torch.randn(3, 64, generator=generator))
    return torch.relu(hidden @ torch.randn(64, d, generator=generator))


def five_places(m: int, d: int, generator: torch.Generator) -> Tensor:
    """Collapsed to within a thousandth of five directions."""
    places = torch.randn(5, d, generator=generator)
    return places[torch.arange(m) % 5] + 1e-3 * torch.randn(m, d, generator=generator)


KINDS: list[Callable[[int, int, torch.Generator], Tensor]] = [random, some_neighbours, smooth, five_places]


def close_pairs(points: Tensor) -> float:
    """The part of the pairs whose squared distance is below 2**-10 of the sum of their squared norms, centered."""
    z = torch.nn.functional.normalize(points.double(), dim=1)
    z = z - z.mean(0)
    sizes = z.square().sum(1)
    squares = torch.cdist(z, z).square() + torch.eye(len(z)) * 1e9
    return float((squares <= 2.0**-10 * (sizes[:, None] + sizes)).double().mean())


def step(loss: Loss, points: Tensor, targets: Tensor) -> tuple[float, Tensor]:
    """Milliseconds and gradient of one forward and backward pass."""
    points.grad = None
    if points.is_cuda:
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        start.record()
        loss(points, targets).backward()
        end.record()
        torch.cuda.synchronize()
        milliseconds = float(start.elapsed_time(end))
    else:
        begin = time.perf_counter()
        loss(points, targets).backward()
        milliseconds = 1000 * (time.perf_counter() - begin)
    assert points.grad is not None
    return milliseconds, points.grad


def measured(m: int, d: int, device: str, rounds: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(m + d)
    ours = "fused" if device == "cuda" else "blocked"
    versions = {ours: kernel(ours, grouping="none"), "plain": plain}
    targets = (torch.randperm(m, generator=generator)[:, None] * (10.0 / m)).to(device)
    kinds = {kind.__name__: kind(m, d, generator) for kind in KINDS}
    points = {name: x.clone().to(device).requires_grad_() for name, x in kinds.items()}
    times: dict[tuple[str, str], list[float]] = {(kind, version): [] for kind in kinds for version in versions}
    for round_ in range(rounds + 2):
        for (kind, version), own in times.items():
            milliseconds, _ = step(versions[version], points[kind], targets)
            if round_ > 1:  # warm
                own.append(milliseconds)
    rows = []
    for (kind, version), own in times.items():
        exact = kinds[kind].double().requires_grad_()
        _, expected = step(kernel("reference", grouping="none"), exact, targets.cpu().double())
        gradient = step(versions[version], points[kind], targets)[1].double().cpu()
        rows.append(
            {
                "m": m,
                "d": d,
                "features": kind,
                "close_pairs": close_pairs(kinds[kind]),
                "version": version,
                "ms": round(statistics.median(own), 4),
                "ms_fastest": round(min(own), 4),
                "relative_error_gradient": float((gradient - expected).norm() / expected.norm()),
            }
        )
        print(
            f"m={m:<5} d={d:<5} {kind:<16} {100 * rows[-1]['close_pairs']:6.2f}% close  {version:<8} "
            f"{rows[-1]['ms']:9.3f} ms  gradient error {rows[-1]['relative_error_gradient']:.1e}",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    name = "bench_neighbours.json" if arguments.device == "cpu" else "bench_neighbours_cuda.json"
    rows = [row for m, d in SIZES for row in measured(m, d, arguments.device, arguments.rounds)]
    record.write(arguments.out or Path(__file__).with_name(name), {"results": rows})


if __name__ == "__main__":
    main()
