"""What a memory gives small batches: a perceptron on a real table, in batches of 4 with and without, and in large ones.

    python benchmarks/bench_memory.py uci/concrete.npz              # ten minutes on a core; writes bench_memory.json
    python benchmarks/bench_memory.py uci/yacht.npz --splits 2 --epochs 3 --out /tmp/a.json

The file has ``X``, ``y``, ``n_splits`` and ``test_0``, ``test_1``, ...: the test rows of each published split. All rows
of the comparison see as many epochs, share split, first weights and, with one batch size, batches; ``oe`` is ordinal
entropy with a gradient-balanced strength, bins of a fifth of the target's standard deviation, and so many rows
remembered. Scores are test errors in the unit of the target after the last epoch; differences are from the baseline of
the same batch size, paired over the splits, with Student's 95% interval. Of the test rows' features: diversity,
tightness and MeanNN entropy on the unit sphere. ``cosine`` is between the gradients of a term in the parameters of the
network as trained, of batches of 4 with what a memory holds, and of as many rows in one batch (without a memory: of
256), means over many batches each: 1 says that small batches push, or pull, as large ones do.
"""

import argparse
import statistics
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity, mse_loss

from ordinal_entropy import OrdinalEntropy
from ordinal_entropy.comparison import paired
from ordinal_entropy.estimators import mean_nn_entropy

import record

WIDTH = 64
BINS = 0.2
SMALL = 4
LOOKS = 200  # batches of which a gradient is the mean


class Row(NamedTuple):
    """One line of the comparison."""

    batch: int
    method: str
    memory: int

    def __str__(self) -> str:
        return f"batch {self.batch}, {self.method}" + (f", memory {self.memory}" if self.memory else "")


ROWS = [
    Row(SMALL, "baseline", 0),
    *(Row(SMALL, "oe", memory) for memory in (0, 28, 60, 252)),
    *(Row(batch, method, 0) for batch in (32, 64, 256) for method in ("baseline", "oe")),
]


def split_of(path: Path, number: int) -> tuple[Tensor, Tensor, Tensor, Tensor, float]:
    """Standardised training and test rows, and the standard deviation of the training targets."""
    with np.load(path) as file:
        x, y, test = file["X"].astype(np.float64), file["y"].astype(np.float64).reshape(-1, 1), file[f"test_{number}"]
    train = np.setdiff1d(np.arange(len(x)), test)
    scale_x, scale_y = x[train].std(0), y[train].std(0)
    x = (x - x[train].mean(0)) / np.where(scale_x > 0, scale_x, 1)
    y = (y - y[train].mean(0)) / scale_y
    parts = (torch.from_numpy(part).float() for part in (x[train], y[train], x[test], y[test]))
    return *parts, float(scale_y[0])


def regularizer(row: Row, **options: Any) -> OrdinalEntropy:
    """As the row has it."""
    return OrdinalEntropy(grouping=BINS, memory=row.memory or None, **options)


def trained(row: Row, x: Tensor, y: Tensor, seed: int, epochs: int) -> tuple[nn.Sequential, nn.Linear, OrdinalEntropy]:
    """Network, head and regularizer after so many epochs."""
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Linear(x.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    head, own = nn.Linear(WIDTH, 1), regularizer(row, balance=0.1)
    optimizer = torch.optim.AdamW([*body.parameters(), *head.parameters()], lr=1e-3)
    order = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(x), generator=order)[: len(x) // row.batch * row.batch].split(row.batch):
            features = body(x[rows])
            loss = mse_loss(head(features), y[rows])
            if row.method == "oe":
                loss = loss + own(features, y[rows], task_loss=loss)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return body, head, own


def gradients(body: nn.Sequential, x: Tensor, y: Tensor, row: Row) -> dict[str, Tensor]:
    """Means over many batches of the gradients of both terms in the parameters; the network stays as it is."""
    order = torch.Generator().manual_seed(0)
    weights = {"diversity": (1.0, 0.0), "tightness": (0.0, 1.0)}
    found = {}
    for name, pair in weights.items():
        own = regularizer(row)
        own.diversity_weight, own.tightness_weight = pair
        for rows in torch.randint(len(x), (row.memory, row.batch), generator=order):
            own(body(x[rows]), y[rows])  # fills the memory
        total = torch.zeros(sum(p.numel() for p in body.parameters()))
        for rows in torch.randint(len(x), (LOOKS, row.batch), generator=order):
            each = torch.autograd.grad(own(body(x[rows]), y[rows]), list(body.parameters()))
            total += torch.cat([gradient.flatten() for gradient in each])
        found[name] = total / LOOKS
    return found


def scores(row: Row, path: Path, number: int, epochs: int) -> dict[str, float]:
    """Of one split."""
    x, y, test_x, test_y, unit = split_of(path, number)
    body, head, _ = trained(row, x, y, number, epochs)
    with torch.no_grad():
        features = body(test_x)
        error = unit * mse_loss(head(features), test_y).sqrt().item()
        terms = OrdinalEntropy(grouping=BINS).terms(features, test_y)
        entropy = mean_nn_entropy(features, normalize=True, scale="entropy").item()
    answer = {"rmse": error, "entropy": entropy, **{name: value.item() for name, value in terms._asdict().items()}}
    if row.method == "oe" and row.batch == SMALL:
        together = Row(row.batch + row.memory, "oe", 0) if row.memory else Row(256, "oe", 0)
        small, large = gradients(body, x, y, row), gradients(body, x, y, together)
        for name in small:
            answer[f"cosine_{name}"] = cosine_similarity(small[name], large[name], dim=0).item()
    return answer


def main() -> None:
    """Trains everything, prints a table and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    found: dict[Row, list[dict[str, float]]] = {}
    for row in ROWS:
        found[row] = [scores(row, options.table, number, options.epochs) for number in range(options.splits)]
        print(f"{row}: rmse {statistics.mean(each['rmse'] for each in found[row]):.4g}", flush=True)
    results = []
    for row, each in found.items():
        line: dict[str, Any] = {**row._asdict(), "splits": len(each)}
        line |= {name: round(statistics.mean(one[name] for one in each), 4) for name in each[0]}
        line["rmse_std"] = round(statistics.stdev(one["rmse"] for one in each), 4)
        base = [one["rmse"] for one in found[Row(row.batch, "baseline", 0)]]
        if row.method != "baseline":
            difference = paired([one["rmse"] for one in each], base)
            line["difference"] = {name: round(value, 5) for name, value in difference._asdict().items()}
        results.append(line)
        print(line)
    record.write(options.out, {"table": options.table.name, "epochs": options.epochs, "results": results})


if __name__ == "__main__":
    main()
