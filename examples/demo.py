"""A small network with and without the regularizer, on generated data.

    python examples/demo.py            # under two minutes on a laptop; --seeds 5 for more runs

The task is the paper's first: a function u at 100 points of [0, 1] and a place x in, the integral of u from 0 to x out,
1,000 training rows, the authors' network, initialisation and strength. Every seed has its own rows and its own first
weights, the same for both runs. Printed are the error on new functions and the entropy of the features there.
"""

import argparse
import statistics

import torch
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from torch import Tensor, nn

import ordinal_entropy as oe

SENSORS = 100
LENGTH = 0.2  # how fast the random functions vary
STRENGTH = 1e-3  # the paper's


def integrals(rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs ``(rows, 101)``: a random smooth function at 100 points, and x; targets ``(rows, 1)``: its integral."""
    grid = torch.linspace(0, 1, SENSORS, dtype=torch.float64)
    kernel = torch.exp(-((grid[:, None] - grid) ** 2) / (2 * LENGTH**2)) + 1e-10 * torch.eye(SENSORS)
    normal = torch.randn(rows, SENSORS, generator=generator, dtype=torch.float64)
    u = normal @ torch.linalg.cholesky(kernel).T
    x = torch.rand(rows, 1, generator=generator, dtype=torch.float64)
    cell = (x * (SENSORS - 1)).long()  # the grid cell that holds x
    into = x * (SENSORS - 1) - cell  # how far into it, from 0 to 1
    up_to = nn.functional.pad(torch.cumulative_trapezoid(u, dim=1), (1, 0)).gather(1, cell)
    left, right = u.gather(1, cell), u.gather(1, (cell + 1).clamp_max(SENSORS - 1))
    y = (up_to + into * left + into**2 / 2 * (right - left)) / (SENSORS - 1)
    return torch.cat([u, x], dim=1).float(), y.float()


def train(strength: float, seed: int, steps: int, progress: Progress) -> tuple[float, float]:
    """Test error (MSE) and entropy of the test features of one run."""
    generator = torch.Generator().manual_seed(seed)
    inputs, targets = integrals(1000, generator)
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(SENSORS + 1, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 1))
    for layer in model:
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=1e-3)
            nn.init.zeros_(layer.bias)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    reg = oe.OrdinalEntropy(strength, strength, max_samples=100)
    tap = oe.capture(model)  # what enters the last linear layer
    task = progress.add_task(f"seed {seed}, {'with' if strength else 'without'} ordinal entropy", total=steps)
    for _ in range(steps):
        loss = nn.functional.mse_loss(model(inputs), targets) + reg(tap.features, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress.advance(task)
    progress.remove_task(task)
    inputs, targets = integrals(4000, torch.Generator().manual_seed(10_000))
    with torch.no_grad():
        error = nn.functional.mse_loss(model(inputs), targets).item()
        entropy = oe.estimators.mean_nn_entropy(tap.features, normalize=True, scale="entropy").item()
    return error, entropy


def main() -> None:
    """Trains, compares, prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="paired runs (default: 3)")
    parser.add_argument("--steps", type=int, default=3000, help="training steps of each run (default: 3000)")
    arguments = parser.parse_args()
    if arguments.seeds < 1 or arguments.steps < 1:
        parser.error("expected --seeds and --steps of at least 1")
    torch.set_num_threads(1)  # so small a network is faster on one core
    console = Console()
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    rows = []
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        everything = progress.add_task("all runs", total=2 * arguments.seeds, completed=0)
        for seed in range(arguments.seeds):
            pair = []
            for strength in (0.0, STRENGTH):
                pair.append(train(strength, seed, arguments.steps, progress))
                progress.advance(everything)
            rows.append(pair)

    table = Table(title="Integrals of random functions, 4,000 test rows")
    for heading in ("", "MSE x 1e-3", "entropy of the features"):
        table.add_column(heading, justify="left" if not heading else "right")
    for k, name in enumerate(("without", "with ordinal entropy")):
        errors, entropies = zip(*(pair[k] for pair in rows), strict=True)
        table.add_row(name, f"{1e3 * statistics.mean(errors):.2f}", f"{statistics.mean(entropies):.1f} nats")
    console.print(table)
    gains = [1e3 * (without[0] - with_[0]) for without, with_ in rows]
    better = sum(gain > 0 for gain in gains)
    console.print(
        f"The error is lower with ordinal entropy on {better} of {len(rows)} paired seeds "
        f"(differences x 1e-3: {', '.join(f'{gain:+.2f}' for gain in gains)}).\n"
        "A handful of seeds shows how it works, not whether it helps on your data."
    )


if __name__ == "__main__":
    main()
