"""What a training step costs in time and memory: variants measured in turn, and their summary."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ordinal_entropy import comparison, environment
from ordinal_entropy.recipes import described
from ordinal_entropy.studies import paper
from ordinal_entropy.studies.grid import Variant
from ordinal_entropy.training.plans import Progress

_MB = 2**20


class Measured(NamedTuple):
    """Of one step."""

    seconds: float
    megabytes: float | None  # the peak; None where the system does not tell


def measured(steps: Callable[[int], None], device: torch.device, *, warm_up: int, timed: int) -> Measured:
    """Time and peak of memory of steps, in the mean over those that are timed.

    Args:
        steps: carries out that number of steps.
        device: where.
        warm_up: steps before, not timed.
        timed: steps.
    """
    steps(warm_up)
    _synchronize(device)
    _forget_peak(device)
    start = time.perf_counter()
    steps(timed)
    _synchronize(device)
    return Measured((time.perf_counter() - start) / timed, _peak(device))


def summary_of(
    task: str,
    metric: str,
    variants: Sequence[Variant],
    measure: Callable[[Variant], Measured],
    recipe: Any,
    *,
    rounds: int,
    times: float,
    device: str,
    published: Mapping[str, paper.Cost],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Measures every variant once a round, so that a machine that slows down slows all.

    Args:
        task: whose step it is.
        metric: what the seconds are of.
        variants: the first is what the others are held to.
        measure: of one step of a variant.
        recipe: of the step.
        rounds: two at least.
        times: steps that the metric has.
        device: "cpu", "cuda", ...
        published: of the paper, by the variants' names.
        progress: told the measurements done and those in all.

    Returns:
        The content of summary.json.
    """
    seconds: dict[str, list[float]] = {variant.name: [] for variant in variants}
    memory: dict[str, float | None] = {}
    total = rounds * len(variants)
    for number in range(total):
        variant = variants[number % len(variants)]
        took, peak = measure(variant)
        seconds[variant.name].append(took * times)
        before = memory.get(variant.name)
        memory[variant.name] = peak if before is None or peak is None else max(before, peak)
        if progress is not None:
            progress(number + 1, total)
    first = variants[0].name
    found = comparison.summary(
        task=task,
        metric=metric,
        lower_is_better=True,
        scores={name: dict.fromkeys(comparison.POINTS, values) for name, values in seconds.items()},
        recipe=described(recipe),
        environment=environment.environment(),
        baseline=first,
    )
    return {
        **found,
        "baseline": first,
        "memory_mb": memory,
        "memory_is": "peak of tensors on the GPU" if device.startswith("cuda") else "peak of the whole process",
        "variants": {variant.name: {"method": variant.method, **dict(variant.changes)} for variant in variants},
        "paper": {name: published[name]._asdict() for name in seconds if name in published},
        "device": device,
    }


def check_counts(keys: Any, **least: int) -> None:
    """A ValueError unless these keys of a study are at least so much; of several values, all of them."""
    for name, bound in least.items():
        value = getattr(keys, name)
        lowest = min(value, default=bound) if isinstance(value, tuple) else value
        if lowest < bound:
            raise ValueError(f"expected {name} to be at least {bound}, got {lowest}")


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
