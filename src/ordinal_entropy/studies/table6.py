"""Table 6: what the regularizer costs in time and memory, against M.

One run alone, step by step as in anyone's training loop, not as part of a stack. Rounds over all M alternate, so that a
machine that slows down slows all. A part of the run is timed and scaled to its whole length.
"""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import torch
from torch import nn

from ordinal_entropy import comparison, environment, methods
from ordinal_entropy.recipes import described
from ordinal_entropy.studies import paper
from ordinal_entropy.studies.grid import Variant
from ordinal_entropy.studies.study import Study
from ordinal_entropy.tasks import Progress

_MB = 2**20


@dataclass(frozen=True)
class Table6:
    """What is varied."""

    samples: tuple[int, ...] = (2, 10, 100, 1000)  # M; the baseline, M = 0, comes first in any case
    rounds: int = 3  # each times every M once
    timed_steps: int = 1000  # of each
    warm_up: int = 50  # steps before, not timed

    def __post_init__(self) -> None:
        """Checked before anything is measured."""
        for name, least in (("rounds", 2), ("timed_steps", 1), ("warm_up", 1), ("samples", 2)):
            value = min(self.samples) if name == "samples" else getattr(self, name)
            if value < least:
                raise ValueError(f"expected {name} to be at least {least}, got {value}")


def _summary(keys: Table6, chosen: Any, device: str, progress: Progress | None) -> dict[str, Any]:
    from ordinal_entropy.tasks.operators.recipe import split

    rows = split(chosen).train
    inputs = torch.cat([torch.from_numpy(part[: chosen.rows]) for part in (rows.functions, rows.places)], dim=1)
    inputs = inputs.to(device, torch.float32)
    targets = torch.from_numpy(rows.values[: chosen.rows]).to(device, torch.float32)
    every = (0, *keys.samples)
    seconds: dict[str, list[float]] = {_name(m): [] for m in every}
    memory: dict[str, float | None] = {}
    total = keys.rounds * len(every)
    for number in range(total):
        m = every[number % len(every)]
        took, peak = _measured(m, inputs, targets, keys, chosen)
        seconds[_name(m)].append(took * chosen.steps)
        before = memory.get(_name(m))
        memory[_name(m)] = peak if before is None or peak is None else max(before, peak)
        if progress is not None:
            progress(number + 1, total)
    base = seconds[_name(0)]
    return {
        "task": "linear",
        "metric": f"seconds for {chosen.steps} steps",
        "lower_is_better": True,
        "methods": {
            name: {"values": values, "mean": mean(values), "std": stdev(values), "n": len(values)}
            for name, values in seconds.items()
        },
        "paired": {
            name: comparison.paired(values, base)._asdict() for name, values in seconds.items() if name != _name(0)
        },
        "recipe": described(chosen),
        "environment": environment.environment(),
        "baseline": _name(0),
        "memory_mb": memory,
        "memory_is": "peak of tensors on the GPU" if device.startswith("cuda") else "peak of the whole process",
        "variants": {_name(m): {"method": "ld" if m else "baseline", "samples": m} for m in every},
        "paper": {_name(m): cost._asdict() for m, cost in paper.TABLE6.items() if m in every},
        "device": device,
    }


def _name(m: int) -> str:
    return _variant(m).name


def _variant(m: int) -> Variant:
    return Variant("ld", (("samples", m),)) if m else Variant("baseline")


def _measured(m: int, inputs: torch.Tensor, targets: torch.Tensor, keys: Table6, chosen: Any) -> tuple[float, Any]:
    """Seconds of a step, and the peak of memory in MB."""
    torch.manual_seed(0)
    width = chosen.hidden
    body = nn.Sequential(nn.Linear(inputs.shape[1], width), nn.ReLU(), nn.Linear(width, width), nn.ReLU())
    head = nn.Linear(width, 1)
    model = nn.Sequential(body, head).to(inputs.device)
    options = {"strength": chosen.strength, "rescale": chosen.rescale, "grouping": "none", "max_samples": m}
    method = methods.create("ld", **options) if m else methods.create("baseline")
    optimizer = torch.optim.AdamW(model.parameters(), lr=chosen.learning_rate, weight_decay=chosen.weight_decay)

    def steps(count: int) -> None:
        for _ in range(count):
            features = body(inputs)
            loss = nn.functional.mse_loss(head(features), targets) + method(features, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    steps(keys.warm_up)
    _synchronize(inputs.device)
    _forget_peak(inputs.device)
    start = time.perf_counter()
    steps(keys.timed_steps)
    _synchronize(inputs.device)
    return (time.perf_counter() - start) / keys.timed_steps, _peak(inputs.device)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # Linux: the peak of resident memory starts anew


def _peak(device: torch.device) -> float | None:
    """In MB; None where the system does not tell."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / _MB
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), None)


STUDIES = {
    "table6": Study(
        about="Table 6, linear operator: time and memory of one run against M",
        keys=Table6(),
        task=lambda keys: "linear",
        fixed=lambda keys: {"operator": "linear", "samples": None, "tf32": False, "dtype": "float32"},
        variants=lambda keys: [_variant(m) for m in (0, *keys.samples)],
        measured=_summary,
        notes=("The paper's memory is that of the whole process on its GPU.",),
    )
}
