"""Many runs on tables trained as one: a batched product for all, and what each method does for its runs.

A run's rows, first weights and batches come from its seed, and but for rounding its numbers do not depend on what
trains beside it. An epoch over n rows has ``steps = ceil(n / batch_size)`` steps of ``n // steps`` rows each, in an
order drawn anew; the few rows that are left, fewer than steps, sit the epoch out. So there is nothing to mask in a
step. Validation and test rows are padded to the longest, and the padding is masked in the scores.
"""

import copy
import itertools
import logging
import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from ordinal_entropy.methods import Batch, Composition, Step, first_epochs, require, squared_error, stage_of
from ordinal_entropy.tasks.tabular import model
from ordinal_entropy.tasks.tabular.added import TERMS, Regularized, strengths_of, unit_regularizer
from ordinal_entropy.tasks.tabular.inputs import Part, Seen
from ordinal_entropy.tasks.tabular.metrics import NAMES, errors
from ordinal_entropy.tasks.tabular.model import Parameters, Pieces, Shape

PARTS = ("train", "validation", "test")
_LOG = logging.getLogger(__name__)
_BATCHES, _DRAWS = 2, 3  # streams of a seed, behind those of the split
_CAN = {"head", "loss", "weights", "mixing", "smoothing", "term", "parameters", "stages"}
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
    method: Composition  # as made; a stack prepares a copy

    def key(self, settings: Settings) -> Hashable:
        """What runs of one stack have in common; inputs may differ in number."""
        staged = first_epochs(self.method, settings.epochs)  # parameters of a stage step together
        return replace(self.shape, inputs=0), settings, self.steps_and_rows(settings), staged

    def steps_and_rows(self, settings: Settings) -> tuple[int, int]:
        """Steps of an epoch, and the rows of each."""
        return steps_and_rows(len(self.seen.train.targets), settings.batch_size)

    def prepared(self) -> "Own":
        """A copy of the method that has seen the training rows, with the head that it brings, if any."""
        require_trainable(self.method)
        method = copy.deepcopy(self.method).to(self.shape.dtype)
        targets = torch.from_numpy(self.seen.standardized()).to(self.shape.dtype)[:, None]
        method.prepare(targets, torch.from_numpy(self.seen.train.inputs), self.shape.hidden)
        head: nn.Module = nn.Identity()
        if method.own_head:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                head = method.head(self.shape.hidden, 1).to(self.shape.dtype)
        return Own(method, head)


class Own(nn.Module):
    """What a run has beside its slices of the stack."""

    def __init__(self, method: Composition, head: nn.Module) -> None:
        super().__init__()
        self.method = method
        self.head = head  # nn.Identity: the linear one of the stack


def require_trainable(method: Composition) -> None:
    """A ValueError where a method needs what a stack cannot do."""
    views = "views" in method.requirements()
    because = "rows of a table have no augmented views" if views else "its runs share one step"
    require(method, _CAN, "a stack of tables", because)


@dataclass
class State:
    """Of one run between two epochs: all that a stack needs to go on with it."""

    epoch: int
    parameters: Parameters
    mean: Parameters  # of AdamW
    square: Parameters
    best: Parameters  # where validation was best
    best_score: float
    balance: Tensor  # (1 + TERMS + 1,) of a gradient-balanced strength: sums of squares, and the steps in them
    own: Parameters = field(default_factory=dict)  # of the method, and of the head that it brings
    own_best: Parameters = field(default_factory=dict)  # where validation was best
    own_mean: Parameters = field(default_factory=dict)  # of AdamW, of what is optimised of them
    own_square: Parameters = field(default_factory=dict)
    own_steps: Parameters = field(default_factory=dict)  # of AdamW, which of two stages may have left out


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
        self.epochs, self.own = settings.epochs, [job.prepared().to(device) for job in jobs]
        by_seed = {id(job.seen): job for job in jobs}  # runs of a seed share what they see
        order = list(by_seed)
        self.seeds = [job.seed for job in by_seed.values()]
        self.which = torch.tensor([order.index(id(job.seen)) for job in jobs], device=device)  # (r,) into the seeds
        views = [job.seen for job in by_seed.values()]
        for note in dict.fromkeys(note for own in self.own for note in own.method.notes):
            _LOG.warning("%s", note)
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
        self.groups = _groups([own.method for own in self.own], self.balance)
        self.single = [run for runs, group in self.groups if group is None for run in range(runs.start, runs.stop)]
        self.single = [run for run in self.single if self.own[run].method.requirements()]
        for tensor in self.parameters.values():
            tensor.requires_grad_()
        every = [*self.parameters.values(), *(tensor for own in self.own for tensor in own.parameters())]
        self.optimizer = torch.optim.AdamW(
            every, lr=settings.learning_rate, weight_decay=settings.weight_decay, fused=True
        )
        for name, tensor in self.parameters.items():
            done = self._done(name.startswith("head."), device)
            self.optimizer.state[tensor] = {"step": done, "exp_avg": mean[name], "exp_avg_sq": square[name]}
        for brought, state in zip(self.own, given, strict=True):
            if state.own:
                brought.load_state_dict(state.own)
            for name, tensor in brought.named_parameters():
                if name in state.own_mean:
                    saved = state.own_mean[name], state.own_square[name], state.own_steps[name]
                    named = zip((*_MOMENTS, "step"), saved, strict=True)
                    self.optimizer.state[tensor] = {key: value.to(device).clone() for key, value in named}
        self.own_best = [state.own_best or _copied(own) for own, state in zip(self.own, given, strict=True)]

    def train_epoch(self, on_step: Callable[[], None] = lambda: None) -> list[Scores]:
        """One more epoch, and the scores after it.

        Those of the training rows are of the predictions in the epoch, as they were trained on. In the first of two
        stages, whose head is not trained yet, there are none: NaN.
        """
        squares = torch.zeros(len(self.jobs), dtype=torch.float64, device=self.which.device)
        inputs = self.parts["train"].inputs
        place = torch.arange(len(inputs), device=inputs.device)[:, None]
        runs = torch.arange(len(self.jobs), device=inputs.device)[:, None]
        stage = stage_of(self.own[0].method, self.epoch, self.epochs)  # of all
        for number, rows in enumerate(self._batches()):  # (s, b)
            x, y = inputs[place, rows][self.which], self.targets[runs, rows[self.which]]  # (r, b, i), (r, b, 1)
            batches = self._changed(x, y, number)
            if batches:
                x, y = (
                    _replaced(all_, {run: getattr(own, name) for run, own in batches.items()})
                    for all_, name in ((x, "inputs"), (y, "targets"))
                )
            with torch.set_grad_enabled(stage != "head"):
                features = model.forward(self.parameters, x, self.shape, self.pieces)
            own = {run: features[run] for run in batches}  # that losses and heads of single runs have in common
            outputs = self._outputs(self.parameters, self._calibrated(features, own, batches))
            self.optimizer.zero_grad()
            self._loss(features, own, outputs, y, batches, stage, number).backward()
            self.optimizer.step()
            with torch.no_grad():
                squares += (self._decoded(outputs) - y).double().square().sum((1, 2))
            on_step()
        for run in self.single:
            self.own[run].method.end_epoch()
        self.epoch += 1
        trained = (squares / (self.steps * self.rows)).sqrt() * self.scale[:, 0]
        scores = self.scores(("validation", "test"))
        found = [{"train": {"rmse": own}, **rest} for own, rest in zip(trained.tolist(), scores, strict=True)]
        if stage == "encoder":
            found = [{part: dict.fromkeys(own, math.nan) for part, own in each.items()} for each in found]
        self._note_best([own["validation"]["rmse"] for own in found])
        return found

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
            with torch.no_grad(), self._own_at(best):
                features = model.forward(parameters, some[self.which], self.shape, self.pieces)
                outputs = self._outputs(parameters, features)
                found = self._decoded(outputs)[..., 0].double() * self.scale + self.center
            yield features, found

    def scalars(self, run: int) -> dict[str, float]:
        """Numbers of the method of a run, for its log."""
        for runs, group in self.groups:
            if group is not None and runs.start <= run < runs.stop:
                return group.strengths(run - runs.start)
        return {name: float(value) for name, value in self.own[run].method.scalars().items()}

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
        named = {name: own[tensor] for name, tensor in self.own[run].named_parameters() if tensor in own}
        brought = ({name: each[key].cpu().clone() for name, each in named.items()} for key in (*_MOMENTS, "step"))
        every_own = (_copied(self.own[run]), self.own_best[run], *brought)
        return State(self.epoch, parameters, mean, square, best, float(self.best_score[run]), sums, *every_own)

    def _batches(self) -> list[Tensor]:
        """Rows of each step of the epoch ``(s, b)``: of each seed its own."""
        drawn = [
            np.random.default_rng([seed, _BATCHES, self.epoch]).permutation(count)[: self.steps * self.rows]
            for seed, count in zip(self.seeds, self.counts, strict=True)
        ]
        rows = torch.from_numpy(np.stack(drawn)).to(self.which.device)
        return list(rows.split(self.rows, dim=1))

    def _done(self, head: bool, device: str) -> Tensor:
        """Steps that the optimizer has made of the head, or of all else: of two stages each has its own."""
        first = first_epochs(self.own[0].method, self.epochs)
        epochs = self.epoch if not first else max(self.epoch - first, 0) if head else min(self.epoch, first)
        return torch.tensor(float(epochs * self.steps), device=device)

    def _changed(self, x: Tensor, y: Tensor, number: int) -> dict[int, Batch]:
        """The batches of single runs as their methods want them, by run.

        Args:
            x: inputs ``(r, b, i)``.
            y: targets ``(r, b, 1)``.
            number: of the step in its epoch: with it and the seed come the draws.
        """
        found = {}
        for run in self.single:
            generator = torch.Generator().manual_seed(self._drawn(run, number))
            found[run] = self.own[run].method.change(Batch(x[run], y[run]), generator)
        return found

    def _drawn(self, run: int, number: int) -> int:
        """The seed of what a method draws in a step of the epoch."""
        return int(np.random.default_rng([self.jobs[run].seed, _DRAWS, self.epoch, number]).integers(2**62))

    def _calibrated(self, features: Tensor, own: dict[int, Tensor], batches: dict[int, Batch]) -> Tensor:
        """Features as the heads are to see them."""
        return _replaced(features, {run: self.own[run].method.calibrate(own[run], batches[run]) for run in own})

    def _outputs(self, parameters: Parameters, features: Tensor) -> Tensor:
        """Of the stack's linear heads, and of those that methods bring."""
        brought = {run: self.own[run].head(features[run]) for run in self.single if self.own[run].method.own_head}
        return _replaced(model.outputs(parameters, features), brought)

    def _loss(
        self,
        features: Tensor,
        own: dict[int, Tensor],
        outputs: Tensor,
        targets: Tensor,
        batches: dict[int, Batch],
        stage: str,
        number: int,
    ) -> Tensor:
        """A sum over all runs, whose gradient is each run's own."""
        task_losses = (outputs - targets).square().mean((1, 2)) if outputs.shape[2] == 1 else outputs.new_zeros(0)
        head = self.parameters["head.weight"].detach()
        parts = []
        for runs, group in self.groups:
            if group is not None:
                parts.append(task_losses[runs].sum())
                parts.append(group.loss(features[runs], targets[runs], task_losses[runs].detach(), head[runs]))
            elif runs.start not in batches:  # the baseline
                parts.append(task_losses[runs].sum())
            else:
                parts += [
                    self._single_loss(run, own[run], outputs[run], batches[run], stage, number)
                    for run in range(runs.start, runs.stop)
                ]
        return torch.stack(parts).sum()

    def _single_loss(
        self, run: int, features: Tensor, outputs: Tensor, batch: Batch, stage: str, number: int
    ) -> Tensor:
        """As :func:`ordinal_entropy.methods.training_loss` has it, of what the stack has computed."""
        method = self.own[run].method
        method.observe(features.detach(), batch.targets)
        step = Step(batch, features, None if stage == "encoder" else outputs, squared_error)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self._drawn(run, number))  # of regularizers that draw rows
            return method.loss(step, stage)

    def _decoded(self, outputs: Tensor) -> Tensor:
        """Standardized predictions ``(r, n, 1)``."""
        return torch.stack([own.method.decode(each) for own, each in zip(self.own, outputs, strict=True)])

    @contextmanager
    def _own_at(self, best: bool) -> Iterator[None]:
        """With what methods and their heads were where validation was best, if so wanted."""
        now = {run: _copied(self.own[run]) for run in self.single} if best else {}
        for run in now:
            self.own[run].load_state_dict(self.own_best[run])
        try:
            yield
        finally:
            for run, state in now.items():
                self.own[run].load_state_dict(state)

    @torch.no_grad()
    def _note_best(self, validation: Sequence[float]) -> None:
        """Keeps the parameters of the runs that were never better on validation."""
        score = self.best_score.new_tensor(validation)
        better = score < self.best_score
        self.best_score = torch.where(better, score, self.best_score)
        for name, tensor in self.parameters.items():
            of_run = better.view(-1, *[1] * (tensor.dim() - 1))
            self.best[name] = torch.where(of_run, tensor.detach(), self.best[name])
        for run in self.single:
            if bool(better[run]):
                self.own_best[run] = _copied(self.own[run])


_MOMENTS = ("exp_avg", "exp_avg_sq")


def _groups(methods: Sequence[Composition], sums: Tensor) -> list[tuple[slice, Regularized | None]]:
    """Runs side by side that are computed together, with what their method adds; None: run by run."""
    units = [unit_regularizer(method) for method in methods]
    kinds = [method.name if unit is None else repr(unit) for method, unit in zip(methods, units, strict=True)]
    found: list[tuple[slice, Regularized | None]] = []
    for _, group in itertools.groupby(range(len(methods)), key=lambda run: kinds[run]):
        own = list(group)
        runs = slice(own[0], own[-1] + 1)
        unit = units[runs.start]
        if unit is None:
            found.append((runs, None))
        else:
            found.append((runs, Regularized(unit, *strengths_of(methods[runs], sums), sums[:-1, runs], sums[-1, runs])))
    return found


def _replaced(stacked: Tensor, by_run: dict[int, Tensor]) -> Tensor:
    """Tensors of all runs, those of some runs replaced."""
    if not by_run:
        return stacked
    return torch.stack([by_run.get(run, own) for run, own in enumerate(stacked)])


def _copied(own: Own) -> Parameters:
    """The state of what a run has of its own, on the CPU."""
    return {name: tensor.detach().cpu().clone() for name, tensor in own.state_dict().items()}


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
