"""Does it help on my data? A paired comparison over seeds. Put your own rows and network in the place of these.

    python examples/own_data.py                          # 10 seeds, half a minute
    python examples/own_data.py --seeds 30 --steps 2000  # more seeds find smaller differences
    python examples/own_data.py --seeds 30 --stop-early  # no more of them than it takes
    python examples/own_data.py --out runs/own_data      # keeps every run: resumes, and takes more seeds later

It needs SciPy, which the extra brings: pip install 'ordinal-entropy[train]'.
"""

import argparse
import functools

import torch
from torch import nn
from torch.nn.functional import mse_loss

import ordinal_entropy as oe

METHODS = {"baseline": {}, "ld": {"strength": 0.01}, "oe": {"strength": 0.01, "grouping": 0.2}}  # bins of 0.2


def table() -> tuple[torch.Tensor, torch.Tensor]:
    """Your rows: here Friedman's function of five of ten numbers, with noise; targets of about unit variance."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(1400, 10, generator=generator)
    y = 10 * torch.sin(torch.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]
    return x, ((y + torch.randn(1400, generator=generator) - 14) / 5)[:, None]


def train(method: str, seed: int, steps: int) -> dict[str, list[float]]:
    """One run: the seed decides the split and the first weights, the same for every method."""
    torch.manual_seed(seed)
    x, y = table()
    fit, choose, test = torch.randperm(len(x)).split([200, 200, 1000])
    model = nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    regularizer = oe.methods.create(method, **METHODS[method])
    scores: dict[str, list[float]] = {"validation": [], "test": []}
    with oe.capture(model) as tap:  # what enters the last linear layer
        for step in range(steps):
            loss = mse_loss(model(x[fit]), y[fit]) + regularizer(tap.features, y[fit])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % 20 == 19 or step == steps - 1:
                with torch.no_grad():
                    for part, rows in (("validation", choose), ("test", test)):
                        scores[part].append(mse_loss(model(x[rows]), y[rows]).item())
    return scores  # compared is the test score where that on the validation rows is best


def main() -> None:
    """Trains every method at every seed, and prints the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10, help="runs of each method (default: 10)")
    parser.add_argument("--steps", type=int, default=500, help="of each run (default: 500)")
    parser.add_argument("--stop-early", action="store_true", help="train so many seeds at most, until it is settled")
    parser.add_argument("--out", help="folder that keeps every run, and the summary")
    arguments = parser.parse_args()
    if arguments.seeds < (4 if arguments.stop_early else 2) or arguments.steps < 1:
        parser.error("expected --seeds of at least 2, or 4 to stop early, and --steps of at least 1")
    torch.set_num_threads(1)  # so small a network is faster on one core
    one = functools.partial(train, steps=arguments.steps)
    found = oe.compare(
        one,
        methods=list(METHODS),
        seeds=arguments.seeds,
        metric="MSE",
        task=f"own data, {arguments.steps} steps",  # a folder of other steps is refused
        stop_early=arguments.stop_early,
        out=arguments.out,
    )
    trained = len(found.summary["recipe"]["seeds"])
    print(f"{found}\n\nThis holds for these rows, this network and these strengths, over {trained} splits of the rows.")


if __name__ == "__main__":
    main()
