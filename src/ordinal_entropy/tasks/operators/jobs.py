"""What one run of a stack is."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from ordinal_entropy import methods
from ordinal_entropy.methods import Composition
from ordinal_entropy.methods.ordinal_entropy import BALANCED, FIXED
from ordinal_entropy.training.stacked.members import Member


@dataclass(frozen=True)
class Job:
    """One run: a method, its options, the seed, and the part of the training rows it sees."""

    method: str  # a name of ``ordinal_entropy.methods``, or several joined by +
    seed: int  # of the first parameters and of the draws
    part: int = 0  # trains on rows [part * rows, (part + 1) * rows) of the training rows, past their end from the start
    rows: int = 1000
    strength: float = 1e-3
    balance: float = 0.1  # of a strength that sets itself, in its place
    samples: int | None = 10  # rows drawn in each step, without replacement, for all terms of the method; None: all
    rescale: str = "authors"
    initial: str = "authors"
    bins: int = 100  # classification only, over the range of the run's training targets
    decode: str = "center"  # classification only
    options: tuple[tuple[str, str, Any], ...] = ()  # of one part each, beyond the keys above: part, option, value
    name: str = ""  # of its folder below that of the stack, for features that it keeps

    def __post_init__(self) -> None:
        """Values that no run can have."""
        if self.rows < 1 or (self.samples is not None and self.samples < 1):
            raise ValueError(f"expected rows and samples of at least 1, got rows={self.rows}, samples={self.samples}")

    def member(self) -> Member:
        """Of a stack, which draws the rows of a regularizer alone by itself."""
        return Member(self.seed, method_of(self), self.samples, self.initial)


def with_options(job: Job, options: Iterable[tuple[str, str, Any]]) -> Job:
    """The job with those options that are of its method: in its keys where it has them."""
    own = [each for each in options if each[0] in methods.split(job.method)]
    if any(part != job.method or option not in _keys(job) for part, option, _ in own):
        return replace(job, options=tuple(own))
    return replace(job, **{option: value for _, option, value in own})


def method_of(job: Job) -> Composition:
    """The method of a run; the regularizers among several parts draw as many rows as one alone."""
    found = {}
    parts = methods.split(job.method)
    samples = None if len(parts) == 1 and parts[0] in FIXED else job.samples
    for part in parts:
        known = methods.options(part)
        own = {"strength": job.strength, "rescale": job.rescale, "max_samples": samples, "bins": job.bins}
        if "strength" not in known:
            own["balance"] = job.balance
        if part in FIXED and BALANCED.get(part, part) not in ("oe", "lt"):  # as in the authors' operator code
            own["grouping"] = "none"
        found[part] = {name: value for name, value in own.items() if name in known}
        if "decode" in known:
            found[part]["decode"] = job.decode
    for part, option, value in job.options:
        if part in found:
            found[part].pop({"strength": "balance", "balance": "strength"}.get(option, ""), None)
            found[part][option] = value
    return methods.create(job.method, found)


def _keys(job: Job) -> list[str]:
    """Keys of the job that are options of its method."""
    if job.method not in ("baseline", "classification", *FIXED):
        return []
    strength = "balance" if job.method in BALANCED else "strength"
    return [name for name in (strength, "rescale", "bins", "decode") if name in methods.options(job.method)]
