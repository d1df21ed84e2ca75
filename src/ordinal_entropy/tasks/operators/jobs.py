"""What one run of a stack is, and which runs are computed together."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordinal_entropy import methods
from ordinal_entropy.methods import Method
from ordinal_entropy.methods.ablations import BALANCED, Regularizer

# Up to so many drawn rows a matrix of all pairs for each of several steps costs less than the fused operator.
FEW_ROWS = {"cpu": 128, "cuda": 32}


@dataclass(frozen=True)
class Job:
    """One run: a method, its options, the seed, and the part of the training rows it sees."""

    method: str  # a name of ``ordinal_entropy.methods``
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
    name: str = ""  # of its folder below that of the stack, for features that it keeps

    def __post_init__(self) -> None:
        """Values that no run can have."""
        if self.rows < 1 or (self.samples is not None and self.samples < 1):
            raise ValueError(f"expected rows and samples of at least 1, got rows={self.rows}, samples={self.samples}")


class Term(NamedTuple):
    """One call of a method, whose value is a mean over runs."""

    method: Method
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
    method: Method
    terms: tuple[Term, ...]  # what the method is called as on drawn rows
    samples: int  # rows drawn for them
    pairs: Pairs | None  # the same as the terms, where there is such a thing


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
        if end < len(jobs) and kinds[end] == kinds[start]:
            continue
        job, runs = jobs[start], slice(start, end)
        ranges = {"low": targets[runs].amin((1, 2)).to(like), "high": targets[runs].amax((1, 2)).to(like)}
        method = methods.create(job.method, **_options(job), **(ranges if _replaces_task_loss(job) else {}))
        terms = []
        for name, grouping in _terms(job, distinct[start]):
            options = {**_options(job), "per": "image", "grouping": grouping}
            term = methods.create(name, **{k: v for k, v in options.items() if k in methods.options(name)})
            terms.append(Term(term, name != "lt" and grouping == "unique", grouping == "none"))
        samples = job.rows if job.samples is None else min(job.samples, job.rows)
        alone = [term.method for term in terms if term.every_row_a_center]
        few = 2 <= samples <= FEW_ROWS[like.device.type]
        pairs = _pairs(alone[0]) if few and len(alone) == len(terms) == 1 else None
        found.append(Group(runs, method, tuple(terms), samples if terms else 0, pairs))
        start = end
    return found


def _pairs(method: Method) -> Pairs | None:
    if not isinstance(method, Regularizer):
        return None
    options = method.regularizer
    geometry = Geometry(options.distance, options.normalize or options.distance == "cosine")
    return Pairs(geometry, str(options.weighting), options.rescale, float(options.diversity_weight))


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
    taken = methods.options(job.method)  # an unknown name is an error here
    return {name: getattr(job, name) for name in ("strength", "balance", "rescale", "bins", "decode") if name in taken}
