"""What one run of a stack is, and which runs are computed together."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordinal_entropy import methods
from ordinal_entropy.methods import Composition
from ordinal_entropy.methods.ordinal_entropy import BALANCED, FIXED, Regularizer

# Up to so many drawn rows a matrix of all pairs for each of several steps costs less than the fused operator.
FEW_ROWS = {"cpu": 128, "cuda": 32}


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


class Term(NamedTuple):
    """One call of a method, whose value is a mean over runs."""

    method: Composition
    only_with_pairs: bool  # the mean is over the runs that drew two different targets
    every_row_a_center: bool


class Geometry(NamedTuple):
    """How far two rows are apart."""

    distance: str
    normalize: bool


class Pairs(NamedTuple):
    """A diversity whose weights can be found ahead of the features."""

    geometry: Geometry
    weighting: str
    rescale: str
    strength: float


class Group(NamedTuple):
    """Runs next to each other in the stack that have a method and its options in common."""

    runs: slice
    method: Composition
    terms: tuple[Term, ...]  # what the method is called as on drawn rows
    samples: int  # rows drawn for them
    pairs: Pairs | None  # the same as the terms, where there is such a thing
    single: bool = False  # one run, whose step is taken by `methods.training_loss`


def in_stack_order(jobs: Sequence[Job], targets: Tensor) -> list[int]:
    """Positions of the jobs such that equal kinds come together, those that replace the task loss last.

    Args:
        jobs: the runs.
        targets: ``(r, n, 1)``, what each trains on, float64.
    """
    kinds = [_kind(job, _distinct(y)) for job, y in zip(jobs, targets, strict=True)]
    return sorted(range(len(jobs)), key=lambda k: (kinds[k], k))


def groups(jobs: Sequence[Job], targets: Tensor, like: Tensor) -> list[Group]:
    """The groups of jobs in stack order.

    Args:
        jobs: in the order of :func:`in_stack_order`.
        targets: ``(r, n, 1)``, what each trains on, float64; their range is that of the bins of a classification.
        like: has the dtype and the device of the methods' numbers.
    """
    distinct = [_distinct(y) for y in targets]
    kinds = [_kind(job, alone) for job, alone in zip(jobs, distinct, strict=True)]
    found = []
    start = 0
    for end in range(1, len(jobs) + 1):
        if end < len(jobs) and kinds[end] == kinds[start] and not is_single(jobs[start]):
            continue
        job, runs = jobs[start], slice(start, end)
        if is_single(job):
            found.append(Group(runs, method_of(job), (), 0, None, single=True))
            start = end
            continue
        ranges = {"low": targets[runs].amin((1, 2)).to(like), "high": targets[runs].amax((1, 2)).to(like)}
        method = methods.create(job.method, **_options(job), **(ranges if _replaces_task_loss(job) else {}))
        terms = []
        for name, grouping in _terms(job, distinct[start]):
            options = {**_options(job), "per": "image", "grouping": grouping}
            known = [option for option in methods.options(name) if option != "balance"]
            term = methods.create(name, **{k: v for k, v in options.items() if k in known})
            terms.append(Term(term, name != "lt" and grouping == "unique", grouping == "none"))
        samples = job.rows if job.samples is None else min(job.samples, job.rows)
        alone = [term.method for term in terms if term.every_row_a_center]
        few = 2 <= samples <= FEW_ROWS[like.device.type]
        pairs = _pairs(alone[0]) if few and len(alone) == len(terms) == 1 else None
        found.append(Group(runs, method, tuple(terms), samples if terms else 0, pairs))
        start = end
    return found


def is_single(job: Job) -> bool:
    """Whether a run takes its steps by itself: all but the baseline, ordinal entropy and its relatives, classification.

    Those are written out for the whole stack, see :mod:`ordinal_entropy.tasks.operators.stepping`, as far as a job has
    keys for their options.
    """
    return job.method not in ("baseline", "classification", *FIXED) or len(job.options) > 0


def with_options(job: Job, options: Iterable[tuple[str, str, Any]]) -> Job:
    """The job with those options that are of its method: in its keys where it has them."""
    own = [each for each in options if each[0] in methods.split(job.method)]
    if any(part != job.method or option not in _keys(job) for part, option, _ in own):
        return replace(job, options=tuple(own))
    return replace(job, **{option: value for _, option, value in own})


def regularizer_of(method: Composition) -> Regularizer:
    """The one part of a relative of ordinal entropy."""
    (part,) = method.parts.values()
    assert isinstance(part, Regularizer)
    return part


def method_of(job: Job) -> Composition:
    """The method of a run by itself; its regularizers draw as many rows as those of other runs."""
    found = {}
    for part in methods.split(job.method):
        known = methods.options(part)
        own = {"strength": job.strength, "rescale": job.rescale, "max_samples": job.samples, "bins": job.bins}
        if "strength" not in known:
            own["balance"] = job.balance
        if part in FIXED and BALANCED.get(part, part) not in ("oe", "lt"):  # as in _terms
            own["grouping"] = "none"
        found[part] = {name: value for name, value in own.items() if name in known}
        if "decode" in known:
            found[part]["decode"] = job.decode
    for part, option, value in job.options:
        if part in found:
            found[part].pop({"strength": "balance", "balance": "strength"}.get(option, ""), None)
            found[part][option] = value
    return methods.create(job.method, found)


def _pairs(method: Composition) -> Pairs | None:
    name, part = next(iter(method.parts.items()))
    if not isinstance(part, Regularizer):
        return None
    options = part.regularizer.options
    geometry = Geometry(options.distance, options.normalize or options.distance == "cosine")
    strength = method.strengths[name] * float(part.regularizer.diversity_weight)
    return Pairs(geometry, str(options.weighting), options.rescale, strength)


def _terms(job: Job, distinct: bool) -> tuple[tuple[str, str], ...]:
    """The methods that are called on drawn rows, and which of these share a center.

    A diversity has a center for every row, as in the authors' operator code. Ordinal entropy is called term by term:
    a mean over runs leaves out those of which all drawn targets are equal, but for the diversity only, so that the
    terms are means over different numbers of runs. Where no two targets are equal it is the diversity alone.
    """
    if job.method == "baseline" or _replaces_task_loss(job):
        return ()
    name = BALANCED.get(job.method, job.method)
    if name == "oe":
        return (("ld", "none"),) if distinct else (("ld", "unique"), ("lt", "unique"))
    if name == "lt":
        return () if distinct else (("lt", "unique"),)
    return ((name, "none"),)


def _kind(job: Job, distinct: bool) -> tuple[Any, ...]:
    """What jobs of one group have in common; sorts those that replace the task loss behind all others."""
    if is_single(job):
        made = method_of(job)
        return made.replaces_task_loss, made.outputs(1), len(methods.names()), job.method
    options, terms = _options(job), _terms(job, distinct)
    samples = (job.samples is None, job.samples or 0) if terms else (False, 0)
    first = _replaces_task_loss(job), options.get("bins", 1), methods.names().index(job.method)
    return *first, terms, *samples, *options.values()


def _distinct(targets: Tensor) -> bool:
    """Whether no two are equal."""
    return len(torch.unique(targets)) == targets.numel()


def _replaces_task_loss(job: Job) -> bool:
    return job.method == "classification"


def _options(job: Job) -> dict[str, Any]:
    """Those options of the job that its method takes."""
    return {name: getattr(job, name) for name in _keys(job)}


def _keys(job: Job) -> list[str]:
    """Keys of the job that are options of its method, if that is written out for the stack."""
    if job.method not in ("baseline", "classification", *FIXED):
        return []
    strength = "balance" if job.method in BALANCED else "strength"
    return [name for name in (strength, "rescale", "bins", "decode") if name in methods.options(job.method)]
