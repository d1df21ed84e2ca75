"""Many runs on tables trained as one: a batched product for all, and what each method adds for its runs.

A run's rows, first weights and batches come from its seed, and but for rounding its numbers do not depend on what
trains beside it. An epoch over n rows has ``steps = ceil(n / batch_size)`` steps of ``n // steps`` rows each, in an
order drawn anew; the few rows that are left, fewer than steps, sit the epoch out. So there is nothing to mask in a
step. Validation and test rows are padded to the longest, and the padding is masked in the scores.
"""

import itertools
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ordinal_entropy import methods
from ordinal_entropy.methods import Method
from ordinal_entropy.methods.ablations import Regularizer
from ordinal_entropy.tasks.tabular import model
from ordinal_entropy.tasks.tabular.added import TERMS, Called, Regularized, unit_regularizer
from ordinal_entropy.tasks.tabular.inputs import Part, Seen
from ordinal_entropy.tasks.tabular.metrics import NAMES, errors
from ordinal_entropy.tasks.tabular.model import Parameters, Pieces, Shape

PARTS = ("train", "validation", "test")
_BATCHES = 2  # a stream of a seed, behind those of the split
_BLOCK = 2**22  # numbers in one layer of all runs, in an evaluation
Scores = dict[str, dict[str, float]]  # of one epoch of one run: by part, then by metric


class Settings(NamedTuple):
    """What the runs of a stack share."""

    epochs: int
    batch_size: int  # rows of a step, at most
    learning_rate: float  # of AdamW
    weight_decay: float
    feature_rows: int  # training and test rows of which features are kept


@dataclass(frozen=True)
class Job:
    """One run: what it sees, how its network looks, what its method is."""

    seed: int
    seen: Seen
    shape: Shape
    method: str
    options: dict[str, Any] = field(default_factory=dict)  # of the method, without the range of the targets

    def key(self, settings: Settings) -> Hashable:
        """What runs of one stack have in common; inputs may differ in number."""
        return replace(self.shape, inputs=0), settings, self.steps_and_rows(settings)

    def steps_and_rows(self, settings: Settings) -> tuple[int, int]:
        """Steps of an epoch, and the rows of each."""
        return steps_and_rows(len(self.seen.train.targets), settings.batch_size)

    def created(self) -> Method:
        """The method, with bins over the range of the training targets where it asks for them."""
        y = self.seen.standardized()
        options = {**self.options, "low": float(y.min()), "high": float(y.max())}
        known = methods.options(self.method)
        return methods.create(self.method, **{name: value for name, value in options.items() if name in known})


@dataclass
class State:
    """Of one run between two epochs: all that a stack needs to go on with it."""

    epoch: int
    parameters: Parameters
    mean: Parameters  # of AdamW
    square: Parameters
    best: Parameters  # where validation was best
    best_score: float
    balance: Tensor  # (1 + TERMS + 1,) of a strength that sets itself: sums of squares, and the steps in them


class Scored(NamedTuple):
    """Rows that are scored, of each seed ``s``, padded."""

    inputs: Tensor  # (s, n, i)
    targets: Tensor  # (s, n) float64
    mask: Tensor  # (s, n)


def steps_and_rows(count: int, batch_size: int) -> tuple[int, int]:
    """Steps of an epoch over so many training rows, and the rows of each.

    Example:
        >>> steps_and_rows(742, 128), steps_and_rows(128, 128)
        ((6, 123), (1, 128))
    """
    steps = math.ceil(count / batch_size)
    return steps, count // steps


class Stack:
    """Runs that train together.

    Args:
        jobs: all with the same ``key(settings)``; those of one method lie side by side, to be computed together.
        settings: of all.
        device: "cpu", "cuda", ...
        states: to go on from, all after the same epoch; None: from the beginning.
    """

    def __init__(
        self, jobs: Sequence[Job], settings: Settings, *, device: str, states: Sequence[State] | None = None
    ) -> None:
        if len({job.key(settings) for job in jobs}) != 1:
            raise ValueError("expected runs of one shape in a stack, got several")
        self.jobs = list(jobs)
        self.shape = max((job.shape for job in jobs), key=lambda shape: shape.inputs)
        self.methods = [job.created() for job in jobs]
        by_seed = {id(job.seen): job for job in jobs}  # runs of a seed share what they see
        order = list(by_seed)
        self.seeds = [job.seed for job in by_seed.values()]
        self.which = torch.tensor([order.index(id(job.seen)) for job in jobs], device=device)  # (r,) into the seeds
        views = [job.seen for job in by_seed.values()]
        self.counts = [len(view.train.targets) for view in views]
        self.steps, self.rows = jobs[0].steps_and_rows(settings)
        self.parts = {name: _scored([getattr(view, name) for view in views], self.shape, device) for name in PARTS}
        self.center = torch.tensor([job.seen.center for job in jobs], dtype=torch.float64, device=device)[:, None]
        self.scale = torch.tensor([job.seen.scale for job in jobs], dtype=torch.float64, device=device)[:, None]
        own = (self.parts["train"].targets[self.which] - self.center) / self.scale  # (r, n)
        self.targets = own.to(self.shape.dtype)[..., None]
        self.pieces = _pieces(jobs, device)

        given = states or [begun(job) for job in jobs]
        self.epoch = given[0].epoch
        kept = [model.stacked([getattr(own, name) for own in given]) for name in ("parameters", "mean", "square")]
        self.parameters, mean, square = ({key: value.to(device) for key, value in each.items()} for each in kept)
        self.best = {name: value.to(device) for name, value in model.stacked([own.best for own in given]).items()}
        self.best_score = torch.tensor([own.best_score for own in given], dtype=torch.float64, device=device)
        self.balance = torch.stack([own.balance for own in given], dim=1).to(device)  # (1 + TERMS + 1, r)
        self.groups = _groups(self.jobs, self.methods, self.balance)
        for tensor in self.parameters.values():
            tensor.requires_grad_()
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
        )
        done = torch.tensor(float(self.epoch * self.steps), device=device)
        for name, tensor in self.parameters.items():
            self.optimizer.state[tensor] = {"step": done.clone(), "exp_avg": mean[name], "exp_avg_sq": square[name]}

    def train_epoch(self, on_step: Callable[[], None] = lambda: None) -> list[Scores]:
        """One more epoch, and the scores after it.

        Those of the training rows are of the predictions in the epoch, as they were trained on.
        """
        squares = torch.zeros(len(self.jobs), dtype=torch.float64, device=self.which.device)
        inputs = self.parts["train"].inputs
        place = torch.arange(len(inputs), device=inputs.device)[:, None]
        runs = torch.arange(len(self.jobs), device=inputs.device)[:, None]
        for rows in self._batches():  # (s, b)
            x, y = inputs[place, rows][self.which], self.targets[runs, rows[self.which]]  # (r, b, i), (r, b, 1)
            features, outputs = model.forward(self.parameters, x, self.shape, self.pieces)
            self.optimizer.zero_grad()
            self._loss(features, outputs, y).backward()
            self.optimizer.step()
            with torch.no_grad():
                squares += (self._decoded(outputs) - y).double().square().sum((1, 2))
            on_step()
        self.epoch += 1
        trained = (squares / (self.steps * self.rows)).sqrt() * self.scale[:, 0]
        scores = self.scores(("validation", "test"))
        self._note_best([own["validation"]["rmse"] for own in scores])
        return [{"train": {"rmse": own}, **rest} for own, rest in zip(trained.tolist(), scores, strict=True)]

    def scores(self, parts: Sequence[str] = PARTS, *, best: bool = False) -> list[Scores]:
        """Of each run, computed from its parameters as they are, or as they were where validation was best."""
        found: list[Scores] = [{} for _ in self.jobs]
        for part in parts:
            scored = self.parts[part]
            predictions = [some for _, some in self.predictions(scored.inputs, best=best)]
            own = errors(torch.cat(predictions, dim=1), scored.targets[self.which], scored.mask[self.which])
            for scores, numbers in zip(found, torch.stack(own, dim=1).tolist(), strict=True):
                scores[part] = dict(zip(NAMES, numbers, strict=True))
        return found

    def predictions(self, inputs: Tensor, *, best: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
        """Features ``(r, n, hidden)``, and predictions ``(r, n)`` in float64 in the targets' unit, some rows at a time.

        Args:
            inputs: rows of each seed ``(s, n, i)``.
            best: by the parameters that were best on validation.
        """
        parameters = self.best if best else self.parameters
        width = max(self.shape.hidden, self.shape.first, self.shape.numbers * self.shape.encoded)
        block = max(1, _BLOCK // (len(self.jobs) * width))
        for some in inputs.split(block, dim=1):
            with torch.no_grad():
                features, outputs = model.forward(parameters, some[self.which], self.shape, self.pieces)
                found = self._decoded(outputs)[..., 0].double() * self.scale + self.center
            yield features, found

    def state(self, run: int) -> State:
        """Of one run, on the CPU."""
        own = self.optimizer.state
        moments = [{name: own[tensor][key] for name, tensor in self.parameters.items()} for key in _MOMENTS]
        every = (self.parameters, *moments, self.best)
        parameters, mean, square, best = (
            {name: tensor.cpu() for name, tensor in model.of_run(each, run, self.jobs[run].shape).items()}
            for each in every
        )
        sums = self.balance[:, run].cpu().clone()
        return State(self.epoch, parameters, mean, square, best, float(self.best_score[run]), sums)

    def _batches(self) -> list[Tensor]:
        """Rows of each step of the epoch ``(s, b)``: of each seed its own."""
        drawn = [
            np.random.default_rng([seed, _BATCHES, self.epoch]).permutation(count)[: self.steps * self.rows]
            for seed, count in zip(self.seeds, self.counts, strict=True)
        ]
        rows = torch.from_numpy(np.stack(drawn)).to(self.which.device)
        return list(rows.split(self.rows, dim=1))

    def _loss(self, features: Tensor, outputs: Tensor, targets: Tensor) -> Tensor:
        """A sum over all runs, whose gradient is each run's own."""
        task_losses = (outputs - targets).square().mean((1, 2)) if outputs.shape[2] == 1 else outputs.new_zeros(0)
        head = self.parameters["head.weight"].detach()
        parts = []
        for runs, group in self.groups:
            if not self.methods[runs.start].replaces_task_loss:
                parts.append(task_losses[runs].sum())
            if isinstance(group, Regularized):
                parts.append(group.loss(features[runs], targets[runs], task_losses[runs].detach(), head[runs]))
            elif group is not None:
                parts.append(group.loss(features[runs], targets[runs], outputs[runs]))
        return torch.stack(parts).sum()

    def _decoded(self, outputs: Tensor) -> Tensor:
        """Standardized predictions ``(r, n, 1)``."""
        return torch.stack([method.decode(own) for method, own in zip(self.methods, outputs, strict=True)])

    @torch.no_grad()
    def _note_best(self, validation: Sequence[float]) -> None:
        """Keeps the parameters of the runs that were never better on validation."""
        score = self.best_score.new_tensor(validation)
        better = score < self.best_score
        self.best_score = torch.where(better, score, self.best_score)
        for name, tensor in self.parameters.items():
            of_run = better.view(-1, *[1] * (tensor.dim() - 1))
            self.best[name] = torch.where(of_run, tensor.detach(), self.best[name])


_MOMENTS = ("exp_avg", "exp_avg_sq")


def _groups(
    jobs: Sequence[Job], created: Sequence[Method], sums: Tensor
) -> list[tuple[slice, Regularized | Called | None]]:
    """Runs side by side that are computed together, with what their method adds; None: nothing."""
    units = [unit_regularizer(job.method, job.options) for job in jobs]
    kinds = [job.method if unit is None else repr(unit) for job, unit in zip(jobs, units, strict=True)]
    found: list[tuple[slice, Regularized | Called | None]] = []
    for kind, group in itertools.groupby(range(len(jobs)), key=lambda run: kinds[run]):
        own = list(group)
        runs = slice(own[0], own[-1] + 1)
        unit = units[runs.start]
        if kind == "baseline":
            found.append((runs, None))
        elif unit is None:
            found.append((runs, Called(created[runs])))
        else:
            found.append((runs, Regularized(unit, *_strengths(created[runs], sums), sums[:-1, runs], sums[-1, runs])))
    return found


def _strengths(created: Sequence[Method], like: Tensor) -> tuple[Tensor, bool, Tensor]:
    """Weights of both terms ``(2, g)``, whether any set themselves, and the fractions ``(g,)`` of those that do."""
    regularizers = [method.regularizer for method in created if isinstance(method, Regularizer)]
    weights = [[own.diversity_weight, own.tightness_weight] for own in regularizers]
    fractions = [0.0 if own.balance is None else own.balance.fraction for own in regularizers]
    return like.new_tensor(weights).mT, any(fractions), like.new_tensor(fractions)


def begun(job: Job) -> State:
    """Of a run before its first epoch."""
    first = model.initial(job.shape, job.seed)
    mean, square = ({name: torch.zeros_like(tensor) for name, tensor in first.items()} for _ in range(2))
    sums = torch.zeros(1 + TERMS + 1, dtype=job.shape.dtype)
    return State(0, first, mean, square, dict(first), math.inf, sums)


def _scored(parts: Sequence[Part], shape: Shape, device: str) -> Scored:
    """Rows of each seed, with zeros up to the most rows and inputs that any has."""
    most = max(len(part.targets) for part in parts)
    inputs = torch.zeros(len(parts), most, shape.inputs, dtype=shape.dtype)
    targets = torch.zeros(len(parts), most, dtype=torch.float64)
    mask = torch.zeros(len(parts), most, dtype=torch.bool)
    for place, part in enumerate(parts):
        n, own = part.inputs.shape
        inputs[place, :n, :own] = torch.from_numpy(part.inputs)
        targets[place, :n] = torch.from_numpy(part.targets)
        mask[place, :n] = True
    return Scored(inputs.to(device), targets.to(device), mask.to(device))


def _pieces(jobs: Sequence[Job], device: str) -> Pieces | None:
    """Of each run ``(r, p, t)``."""
    shape = jobs[0].shape
    if shape.embedding != "piecewise" or not shape.encoded:
        return None
    by_seed = {id(job.seen): job.seen for job in jobs}
    found = {key: model.pieces_of(view.train.inputs[:, : view.numbers], shape.pieces) for key, view in by_seed.items()}
    every = zip(*(found[id(job.seen)] for job in jobs), strict=True)
    return Pieces(*(torch.stack(each).to(device, shape.dtype) for each in every))
