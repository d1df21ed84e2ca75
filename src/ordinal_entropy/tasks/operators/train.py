"""Training of many small networks at once, each as it would be alone but for rounding.

All runs of a stack take their steps together, in products over the whole stack (on a GPU in a CUDA graph). What trains
beside a run changes its numbers by rounding at most; a run that diverges does not disturb the others.
"""

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ordinal_entropy import methods
from ordinal_entropy.balance import FRACTION
from ordinal_entropy.methods import Composition
from ordinal_entropy.methods.ordinal_entropy import FIXED
from ordinal_entropy.runs import save_tensors
from ordinal_entropy.tasks import spread_rows
from ordinal_entropy.tasks.operators.data import Array, Triplets
from ordinal_entropy.training import checkpoints, saved_features
from ordinal_entropy.training.checkpoints import OfStack
from ordinal_entropy.training.plans import Scores
from ordinal_entropy.training.stacked import loop
from ordinal_entropy.training.stacked.members import Member, order_of
from ordinal_entropy.training.stacked.members import Rows as StackRows
from ordinal_entropy.training.stacked.network import Shape
from ordinal_entropy.training.stacked.stack import Stack


@dataclass(frozen=True)
class Job:
    """One run: a method, its options, the seed, and the part of the training rows it sees."""

    method: str  # a name of ``ordinal_entropy.methods``, or several joined by +
    seed: int  # of the first parameters and of the draws
    part: int = 0  # trains on rows [part * rows, (part + 1) * rows) of the training rows, past their end from the start
    rows: int = 1000
    learning_rate: float = 1e-3  # of AdamW
    weight_decay: float = 0.01
    strength: float | None = 1e-3  # of terms, fixed; None: gradient-balanced
    balance: float = FRACTION  # of these
    samples: int | None = 10  # rows drawn in each step, without replacement, for all terms of the method; None: all
    rescale: str = "authors"
    initial: str = "authors"
    bins: int = 100  # of heads, over the range of the run's training targets
    decode: str = "center"  # classification only
    options: tuple[tuple[str, str, Any], ...] = ()  # of one part each, beyond the keys above: part, option, value
    name: str = ""  # of its folder below that of the stack, for features that it keeps

    def __post_init__(self) -> None:
        """Values that no run can have."""
        if self.rows < 1 or (self.samples is not None and self.samples < 1):
            raise ValueError(f"expected rows and samples of at least 1, got rows={self.rows}, samples={self.samples}")

    def rows_of(self, available: int) -> Array:
        """Those of the training rows that it trains on ``(rows,)``."""
        return (self.part * self.rows + np.arange(self.rows)) % available

    def member(self) -> Member:
        """Of a stack, which draws the rows of a regularizer alone by itself."""
        return Member(self.seed, method_of(self), self.learning_rate, self.weight_decay, self.samples, self.initial)


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
        own: dict[str, Any] = {"rescale": job.rescale, "max_samples": samples}
        if part in FIXED and part not in ("oe", "lt"):  # as in the authors' operator code
            own["grouping"] = "none"
        found[part] = {name: value for name, value in own.items() if name in known}
        if "decode" in known:
            found[part]["decode"] = job.decode
        if methods.kind(part) == "head" and "bins" in known:
            found[part]["bins"] = job.bins
    for part, option, value in job.options:
        if part in found:
            found[part][option] = value
    return methods.with_default(job.method, found, strength=job.strength, balance=job.balance)


def _keys(job: Job) -> list[str]:
    """Keys of the job that are options of its method."""
    if job.method not in ("baseline", "classification", *FIXED):
        return []
    return [name for name in ("strength", "rescale", "bins", "decode") if name in methods.options(job.method)]


__all__ = ["DTYPES", "History", "Job", "Scores", "Split", "StackOptions", "evaluate", "train"]

DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class StackOptions:
    """What all runs of a stack share."""

    steps: int
    hidden: int = 100  # width of both hidden layers
    evaluate_every: int = 1000  # steps; also before the first and after the last
    dtype: str = "float32"  # or "float64"
    tf32: bool = False  # products of lower precision on a GPU
    checkpoint_every: int | None = None  # steps
    checkpoint_seconds: float = 30.0  # whichever comes first
    feature_rows: int = 0  # training and test rows whose features are saved at each evaluation but that before step 1

    def __post_init__(self) -> None:
        """Values that no training can have."""
        if self.dtype not in DTYPES:
            raise ValueError(f"expected dtype to be one of {', '.join(DTYPES)}, got {self.dtype!r}")
        if self.steps < 0 or self.hidden < 1 or self.evaluate_every < 1 or self.feature_rows < 0:
            raise ValueError(f"expected positive steps, hidden and evaluate_every, got {self}")
        if self.checkpoint_every is not None and self.checkpoint_every < 1:
            raise ValueError(f"expected checkpoint_every to be at least 1, got {self.checkpoint_every}")


def shape_of(options: StackOptions, inputs: int, outputs: int = 1) -> Shape:
    """Of a network."""
    return Shape(0, inputs, outputs, options.hidden, dtype=DTYPES[options.dtype])


class Split(NamedTuple):
    """Rows to train on (each run on a part of them), to choose a step by, and to report."""

    train: Triplets
    validation: Triplets
    test: Triplets


class History(NamedTuple):
    """The scores of one run at the steps it was evaluated at: mean squared errors in the units of the targets."""

    steps: list[int]
    train: list[float]
    validation: list[float]
    test: list[float]


def train(
    jobs: Sequence[Job],
    split: Split,
    options: StackOptions,
    *,
    device: str | torch.device = "cpu",
    folder: Path | None = None,
    progress: Callable[[int, int], None] | None = None,
    on_metrics: Callable[[int, list[Scores]], None] | None = None,
) -> list[History]:
    """Trains all jobs as one stack: full batch, mean squared error and what the method adds, AdamW.

    Args:
        jobs: the runs; all with the same number of ``rows``.
        split: the rows.
        options: what the runs share.
        device: where to train.
        folder: for the checkpoint. Training again with the same folder goes on from there and ends in the same
            numbers; a checkpoint of other jobs, options or rows is an error. An interrupt writes one first. And for
            the features that jobs keep, each in a folder of its name inside.
        progress: told the steps done and the steps in all, from time to time.
        on_metrics: told the step and the scores of all jobs at each evaluation; again, where training went on from
            before it.

    Returns:
        One history a job, in their order.
    """
    if not jobs:
        raise ValueError("expected at least one job, got none")
    with _precision(options, device):
        training = _Training(jobs, split, options, torch.device(device), folder)
        training.load()

        def evaluate() -> Callable[[], None]:
            training.keep()  # first: what a checkpoint says is evaluated is not evaluated again
            scores = training.record()
            return lambda: None if on_metrics is None else on_metrics(training.stack.step, scores)

        loop.train(
            training.stack,
            training.loop,
            evaluated=lambda: (training.histories[0].steps or [-1])[-1],
            evaluate=evaluate,
            save=training.save,
            progress=progress,
        )
        if folder is not None and len({job.name for job in jobs}) == len(jobs):
            for job, model in zip(jobs, training.models(), strict=True):
                save_tensors(folder / job.name / MODEL, model)
    return training.histories


MODEL = "model.pt"  # what a trained run needs to be used
OF_MODEL = {"last": {"learned": {str: Tensor}, "residuals": Tensor, "epoch": int}}


def models(
    jobs: Sequence[Job], split: Split, options: StackOptions, *, device: str | torch.device = "cpu", folder: Path
) -> list[dict[str, Any]]:
    """What jobs that are not over, or of an earlier version, would have written at their end; arguments as above."""
    with _precision(options, device):
        training = _Training(jobs, split, options, torch.device(device), folder)
        if not training.load():
            raise FileNotFoundError(f"expected a checkpoint in {folder}, got none")
        return training.models()


def evaluate(
    jobs: Sequence[Job], split: Split, options: StackOptions, *, device: str | torch.device = "cpu", folder: Path
) -> tuple[int, list[Scores]]:
    """The step of the checkpoint in a folder, and the scores of its parameters, computed again; one a job."""
    with _precision(options, device):
        training = _Training(jobs, split, options, torch.device(device), folder)
        if not training.load():
            raise FileNotFoundError(f"expected a checkpoint in {folder}, got none")
        return training.stack.step, training.scores()


class _Training:
    """A stack, the rows it is scored on, and what has been found so far."""

    def __init__(
        self, jobs: Sequence[Job], split: Split, options: StackOptions, device: torch.device, folder: Path | None
    ) -> None:
        if len({job.rows for job in jobs}) != 1:
            raise ValueError(f"expected jobs with the same rows, got {sorted({job.rows for job in jobs})}")
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"expected a device of type cpu or cuda, got {device}")
        if device.type == "cuda" and not torch.cuda.is_available():
            raise ValueError(f"expected a device that is there, got {device} and no GPU")
        rows, available = jobs[0].rows, len(split.train.values)
        if rows > available:
            raise ValueError(f"expected at least rows={rows} training rows, got {available}")
        self.options, self.folder = options, folder
        self.histories = [History([], [], [], []) for _ in jobs]
        x, y = _table(split.train)
        own = torch.stack([torch.from_numpy(job.rows_of(available)) for job in jobs])  # (r, rows)
        members = [job.member() for job in jobs]
        seen = _rows(x[own], y[own], jobs, options)
        self.order = order_of(members, seen)
        self.identity = {} if folder is None else _identity(jobs, split, options, self.order)
        own, sorted_jobs = own[self.order], [jobs[k] for k in self.order]
        dtype = DTYPES[options.dtype]
        self.stack = Stack(
            [members[k] for k in self.order],
            shape_of(options, x.shape[1]),
            _rows(x[own], y[own], sorted_jobs, options),
            device=device,
        )
        self.parts = [(self.stack.inputs, y[own].to(device))]  # training, validation, test; targets in float64
        for part in (split.validation, split.test):
            x, y = _table(part)
            self.parts.append((x.to(device, dtype), y.to(device)))
        self.folders = [] if folder is None or not options.feature_rows else [folder / job.name for job in jobs]
        if len(set(self.folders)) < len(self.folders):
            raise ValueError(f"expected jobs of different names, got {', '.join(repr(job.name) for job in jobs)}")
        every = options.evaluate_every
        often = options.checkpoint_every, options.checkpoint_seconds
        self.loop = loop.Loop(options.steps, every, self.stack.at_once(every), *often)

    def scores(self) -> list[Scores]:
        """Of all jobs, in the order they were given."""
        found = torch.stack([self._mean_squared_errors(x, y) for x, y in self.parts], 1)
        if self.stack.in_first_stage():  # in which the head is not trained
            found = torch.full_like(found, math.nan)
        by_job = dict(zip(self.order, found.tolist(), strict=True))
        return [Scores(*by_job[k]) for k in range(len(by_job))]

    def _mean_squared_errors(self, x: Tensor, y: Tensor) -> Tensor:
        """Of the predictions, ``(r,)`` in float64."""
        total, start = y.new_zeros(len(self.order)), 0
        for _, predictions in self.stack.predictions(x):
            some = slice(start, start + predictions.shape[1])
            start = some.stop
            total += (predictions.double() - y[..., some, :]).square().sum((1, 2))
        return total / y.shape[-2]

    def record(self) -> list[Scores]:
        """The scores, put into the histories."""
        found = self.scores()
        for history, scores in zip(self.histories, found, strict=True):
            history.steps.append(self.stack.step)
            history.train.append(scores.train)
            history.validation.append(scores.validation)
            history.test.append(scores.test)
        return found

    def keep(self) -> None:
        """Writes the features of fixed training and test rows of each job, where that is asked for."""
        if not self.folders or self.stack.step == 0:
            return
        for part, (x, y) in (("train", self.parts[0]), ("test", self.parts[2])):
            rows = spread_rows(x.shape[-2], self.options.feature_rows).to(x.device)
            found = zip(*self.stack.predictions(x[..., rows, :]), strict=True)
            features, predictions = (torch.cat(each, dim=1) for each in found)
            targets = y[..., rows, :].expand(predictions.shape)
            for place, k in enumerate(self.order):
                own = features[place], targets[place], predictions[place]
                saved_features.write(self.folders[k], part, self.stack.step, *own)

    def models(self) -> list[dict[str, Any]]:
        """Of each job: what it predicts by, and its errors on the test rows."""
        x, y = self.parts[2]
        predictions = torch.cat([each for _, each in self.stack.predictions(x)], dim=1)  # (r, n, 1)
        away = (predictions.double() - y).abs().float().cpu()[..., 0].sort(dim=1).values
        found: list[dict[str, Any]] = [{} for _ in self.order]
        for place, k in enumerate(self.order):
            learned = self.stack.learned(place, best=False)
            found[k]["last"] = {"learned": learned, "residuals": away[place].clone(), "epoch": self.stack.step}
        return found

    def save(self) -> None:
        """Writes the checkpoint, where there is a folder for it."""
        if self.folder is not None:
            state = {name: tensor.detach().cpu() for name, tensor in self.stack.state.items()}
            own = OfStack(self.stack.step, [list(each) for each in self.histories], state)
            checkpoints.save_stack(self.folder, self.identity, own)

    def load(self) -> bool:
        """Goes on from the checkpoint; False where there is none."""
        if self.folder is None:
            return False
        count, steps = len(self.histories), self.options.steps
        found = checkpoints.load_stack(self.folder, self.identity, self.stack.state, count=count, steps=steps)
        if found is None:
            return False
        self.histories = [History(*series) for series in found.histories]
        self.stack.restore(found.state)
        return True


def _rows(inputs: Tensor, targets: Tensor, jobs: Sequence[Job], options: StackOptions) -> StackRows:
    """Of a stack whose runs have a set of rows each, and take all of them in every step."""
    r, n, _ = inputs.shape
    return StackRows(inputs, targets, range(r), [n] * r, [job.seed for job in jobs], epochs=options.steps)


def _identity(jobs: Sequence[Job], split: Split, options: StackOptions, order: Sequence[int]) -> dict[str, Any]:
    """What the numbers of a training depend on, and the order of the runs in its state."""
    shared = {key: value for key, value in asdict(options).items() if not key.startswith(("checkpoint", "feature"))}
    left_out = {"name", *(() if any(job.options for job in jobs) else ("options",))}  # a later key
    optimizers = [{"learning_rate": job.learning_rate, "weight_decay": job.weight_decay} for job in jobs]
    if all(each == optimizers[0] for each in optimizers):  # once all runs of a stack shared them
        shared, left_out = {**shared, **optimizers[0]}, left_out | optimizers[0].keys()
    own = [{key: value for key, value in asdict(job).items() if key not in left_out} for job in jobs]
    found = {"jobs": own, "settings": shared, "rows": [_digest(part) for part in split]}
    return found if len(jobs) == 1 else {**found, "order": list(order)}


def _table(rows: Triplets) -> tuple[Tensor, Tensor]:
    """Inputs ``(n, sensors + 1)`` and targets ``(n, 1)`` in float64."""
    return torch.from_numpy(np.hstack([rows.functions, rows.places])), torch.from_numpy(np.asarray(rows.values))


def _digest(rows: Triplets) -> str:
    digest = hashlib.sha256()
    for array in rows:
        contiguous: Array = np.ascontiguousarray(array, dtype=np.float64)
        digest.update(repr(contiguous.shape).encode())
        digest.update(contiguous.data)
    return digest.hexdigest()


@contextmanager
def _precision(options: StackOptions, device: str | torch.device) -> Iterator[None]:
    """Products in full float32, or in TF32 where the options ask for it, whatever is set outside."""
    before = torch.get_float32_matmul_precision()
    fast = options.tf32 and torch.device(device).type == "cuda"
    torch.set_float32_matmul_precision("high" if fast else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
