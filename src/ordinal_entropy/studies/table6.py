"""Table 6: what the regularizer costs in time and memory, against M.

One run alone, step by step as in anyone's training loop, not as part of a stack. Rounds over all M alternate, so that a
machine that slows down slows all. A part of the run is timed and scaled to its whole length.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ordinal_entropy import methods
from ordinal_entropy.studies import cost, paper
from ordinal_entropy.studies.cost import Measured
from ordinal_entropy.studies.grid import Variant
from ordinal_entropy.studies.study import Study
from ordinal_entropy.studies.table1 import STRENGTH
from ordinal_entropy.training.plans import Progress


@dataclass(frozen=True)
class Table6:
    """What is varied."""

    samples: tuple[int, ...] = (2, 10, 100, 1000)  # M; the baseline, M = 0, comes first in any case
    rounds: int = 3  # each times every M once
    timed_steps: int = 1000  # of each
    warm_up: int = 50  # steps before, not timed

    def __post_init__(self) -> None:
        """Checked before anything is measured."""
        cost.check_counts(self, rounds=2, timed_steps=1, warm_up=1, samples=2)


def _summary(keys: Table6, chosen: Any, device: str, progress: Progress | None) -> dict[str, Any]:
    from ordinal_entropy.tasks.operators.recipe import split

    rows = split(chosen).train
    inputs = torch.cat([torch.from_numpy(part[: chosen.data.rows]) for part in (rows.functions, rows.places)], dim=1)
    inputs = inputs.to(device, torch.float32)
    targets = torch.from_numpy(rows.values[: chosen.data.rows]).to(device, torch.float32)
    return cost.summary_of(
        "linear",
        f"seconds for {chosen.training.steps} steps",
        [_variant(m) for m in (0, *keys.samples)],
        lambda variant: _measured(dict(variant.changes).get("samples", 0), inputs, targets, keys, chosen),
        chosen,
        rounds=keys.rounds,
        times=chosen.training.steps,
        device=device,
        published={_variant(m).name: own for m, own in paper.TABLE6.items()},
        progress=progress,
    )


def _variant(m: int) -> Variant:
    return Variant("ld", (("samples", m),)) if m else Variant("baseline")


def _measured(m: int, inputs: torch.Tensor, targets: torch.Tensor, keys: Table6, chosen: Any) -> Measured:
    torch.manual_seed(0)
    width, training = chosen.model.hidden, chosen.training
    body = nn.Sequential(nn.Linear(inputs.shape[1], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    head = nn.Linear(width, 1)
    model = nn.Sequential(body, head).to(inputs.device)
    own = chosen.method
    options = {"ld": {"rescale": own.rescale, "grouping": "none", "max_samples": m}} if m else {}
    name = "ld" if m else "baseline"
    method = methods.with_default(name, options, strength=own.strength, balance=own.balance)
    optimizer = torch.optim.AdamW(model.parameters(), lr=training.learning_rate, weight_decay=training.weight_decay)

    def steps(count: int) -> None:
        for _ in range(count):
            features = body(inputs)
            task = nn.functional.mse_loss(head(features), targets)
            loss = task + method(features, targets, task_loss=task)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return cost.measured(steps, inputs.device, warm_up=keys.warm_up, timed=keys.timed_steps)


STUDIES = {
    "table6": Study(
        about="Table 6, linear operator: time and memory of one run against M",
        keys=Table6(),
        task=lambda keys: "linear",
        fixed=lambda keys: {"operator": "linear", "samples": None, "tf32": False, "dtype": "float32"},
        variants=lambda keys: [_variant(m) for m in (0, *keys.samples)],
        strength=STRENGTH,
        measured=_summary,
        notes=("The paper's memory is that of the whole process on its GPU.",),
    )
}
