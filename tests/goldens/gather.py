"""Loss and gradient of the joined batch on two ranks of uneven size."""

import numpy as np
import torch

import processes
from goldens import adapter, store

NAME = "gather"
ROWS = ((7, 5), (9, 0))  # of each rank; one of them has none
CASES = (
    {},
    {"grouping": "none", "distance": "cosine", "rescale": "authors"},
    {"grouping": 0.8, "centers": "average-first", "tightness_over": "shared", "weighting": "sqrt"},
    {"normalize": False, "weighting": "squared", "tightness_power": 2},
    {"max_samples": 6, "num_pairs": 8, "seed": 5},
    {"memory": 10},
    {"balance": 0.1},
)
STEPS = 3  # of a memory or a strength that sets itself


def inputs():
    """All rows of each step: features, targets and which count."""
    draw = torch.Generator().manual_seed(22)
    found = {}
    for place, sizes in enumerate(ROWS):
        n = STEPS, sum(sizes)
        found[f"features{place}"] = torch.randn(*n, 4, generator=draw, dtype=torch.float64).numpy()
        found[f"targets{place}"] = (torch.randint(5, n, generator=draw) / 2).double().numpy()
        found[f"mask{place}"] = (torch.rand(n, generator=draw) > 0.2).numpy()
    return found


def of_a_rank(rank, world, given):
    """Losses, gradients of the rank's own features and strengths: a vector for each case and batch."""
    given = {name: torch.from_numpy(value) for name, value in given.items()}
    found = {}
    for place, sizes in enumerate(ROWS):
        own = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        for number, case in enumerate(CASES):
            if "balance" in case and not min(sizes):
                continue  # no rows, no task loss
            options = {name: value for name, value in case.items() if name != "seed"}
            if "seed" in case:
                options["generator"] = torch.Generator().manual_seed(case["seed"])
            module, numbers = adapter.regularizer(gather=True, **options), []
            for step in range(STEPS if {"memory", "balance"} & case.keys() else 1):
                features, targets, mask = (
                    given[f"{name}{place}"][step, own].clone() for name in ("features", "targets", "mask")
                )
                features.requires_grad_()
                further = {"task_loss": features.square().mean()} if "balance" in case else {}
                loss = module(features, targets, mask, **further)
                (gradient,) = torch.autograd.grad(loss, features)
                numbers += [loss.detach().reshape(1), gradient.reshape(-1), torch.stack([*module.strengths]).double()]
            found[f"{place}-{number}"] = torch.cat(numbers)
    return found


class _Job:
    """What a process of its own can be given, with arrays that are read there."""

    def __init__(self, given):
        self.given = given

    def __call__(self, rank, world):
        return of_a_rank(rank, world, self.given)


def computed(given):
    """The vectors of both ranks, by name."""
    ranks = processes.run(_Job(given), 2)
    return {f"rank{rank}-{name}": value.numpy() for rank, own in enumerate(ranks) for name, value in own.items()}


def record():
    given = inputs()
    store.write_arrays(NAME, {**given, **computed(given)})


def recorded():
    """The inputs, and the vectors."""
    arrays = store.read_arrays(NAME)
    given = {name: value for name, value in arrays.items() if not name.startswith("rank")}
    return given, {name: np.asarray(value) for name, value in arrays.items() if name.startswith("rank")}
