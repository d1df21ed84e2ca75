"""Runs on a table, trained and scored as stacks, each with a folder of its own.

Runs of a seed share what they see. Rows of several seeds are padded to the longest, and the padding is masked in the
scores. A run that was stopped goes on from its checkpoint, which is written every half a minute at the end of an epoch,
and ends in the numbers that it would have had, but for rounding if it goes on beside other runs than before.
"""

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordinal_entropy import runs
from ordinal_entropy.methods import Composition, first_epochs
from ordinal_entropy.models.embeddings import Pieces, pieces_of
from ordinal_entropy.tasks import spread_rows
from ordinal_entropy.tasks.tabular.inputs import Array, Part, Seen
from ordinal_entropy.training import saved_features
from ordinal_entropy.training.checkpoints import FILE, REMEDY, OfRun, load_run, save_run
from ordinal_entropy.training.plans import Progress, places
from ordinal_entropy.training.runner import OnScores
from ordinal_entropy.training.saved_features import saved_scores
from ordinal_entropy.training.stacked import loop
from ordinal_entropy.training.stacked.members import Member, Rows, order_of, steps_and_rows
from ordinal_entropy.training.stacked.network import Shape
from ordinal_entropy.training.stacked.stack import Stack

NAMES = ("rmse", "mae", "r2")
PARTS = ("train", "validation", "test")


class Errors(NamedTuple):
    """One number a run, each ``(r,)``."""

    rmse: Tensor
    mae: Tensor
    r2: Tensor  # 1 - squared error / variance of the targets; NaN where these are all equal


def errors(predictions: Tensor, targets: Tensor, mask: Tensor) -> Errors:
    """Root mean squared error, mean absolute error and coefficient of determination of each run.

    Args:
        predictions: ``(r, n)``.
        targets: ``(r, n)``.
        mask: ``(r, n)``, which rows count: runs may have different numbers of them.

    Example:
        >>> y = torch.tensor([[1.0, 2.0, 3.0, 0.0]])
        >>> errors(y + 0.5, y, torch.tensor([[True, True, True, False]]))
        Errors(rmse=tensor([0.5000]), mae=tensor([0.5000]), r2=tensor([0.6250]))
    """
    count = mask.sum(1)
    offset = torch.where(mask, predictions - targets, 0)
    mean = torch.where(mask, targets, 0).sum(1) / count
    spread = torch.where(mask, targets - mean[:, None], 0).square().sum(1)
    squares = offset.square().sum(1)
    r2 = torch.where(spread > 0, 1 - squares / spread, torch.nan)
    return Errors((squares / count).sqrt(), offset.abs().sum(1) / count, r2)


def scores_of(predict: Callable[[Array], Array], seen: Seen) -> dict[str, dict[str, float]]:
    """The errors on each part of one run, by part and name, of a function from inputs to predictions."""
    found = {}
    for name in PARTS:
        part: Part = getattr(seen, name)
        guesses, targets = (torch.as_tensor(each)[None] for each in (predict(part.inputs), part.targets))
        own = errors(guesses.double(), targets.double(), torch.ones_like(targets, dtype=torch.bool))
        found[name] = {key: float(error) for key, error in zip(NAMES, own, strict=True)}
    return found


class Settings(NamedTuple):
    """What the runs of a stack share."""

    epochs: int
    batch_size: int  # rows of a step, at most
    feature_rows: int  # training and test rows of which features are saved


@dataclass(frozen=True)
class Job:
    """One run: what it sees, how its network looks, what its method is."""

    seed: int
    seen: Seen
    shape: Shape
    method: Composition  # as made; a stack prepares a copy
    learning_rate: float  # of AdamW
    weight_decay: float

    def key(self, settings: Settings) -> Hashable:
        """What runs of one stack have in common; inputs and outputs may differ in number."""
        staged = first_epochs(self.method, settings.epochs)  # parameters of a stage step together
        steps = steps_and_rows(len(self.seen.train.targets), settings.batch_size)
        return replace(self.shape, inputs=0, outputs=1), settings, steps, staged

    def member(self) -> Member:
        """Of a stack."""
        return Member(self.seed, self.method, self.learning_rate, self.weight_decay, first=self.shape.first)


Scores = dict[str, dict[str, float]]  # of one epoch of one run: by part, then by metric


class Padded(NamedTuple):
    """Rows of each set ``s``."""

    inputs: Tensor  # (s, n, i)
    targets: Tensor  # (s, n) float64
    mask: Tensor  # (s, n)


class Scored:
    """Runs that train together. What it gives of them is in the order of the jobs.

    Args:
        jobs: all with the same ``key(settings)``.
        settings: of all.
        device: "cpu", "cuda", ...
        states: to go on from, of each run the folder that it was read from and what it was: its "epoch", the same of
            all, and the rest. None: from the beginning.
    """

    def __init__(
        self,
        jobs: Sequence[Job],
        settings: Settings,
        *,
        device: str,
        states: Sequence[tuple[Path, dict[str, Any]]] | None = None,
    ) -> None:
        if len({job.key(settings) for job in jobs}) != 1:
            raise ValueError("expected runs of one shape in a stack, got several")
        self.jobs = list(jobs)
        shape = max((job.shape for job in jobs), key=lambda shape: shape.inputs)
        by_seen = {id(job.seen): job for job in jobs}
        views = [job.seen for job in by_seen.values()]
        self.parts = {name: _padded([getattr(view, name) for view in views], shape, device) for name in PARTS}
        self.counts = {name: [len(getattr(view, name).targets) for view in views] for name in PARTS}
        sets = [list(by_seen).index(id(job.seen)) for job in jobs]
        self.order = order_of([job.member() for job in jobs], self._rows(range(len(jobs)), sets, settings))
        self.place = sorted(range(len(jobs)), key=self.order.__getitem__)  # in the stack, of each job
        self.center, self.scale = (
            torch.tensor([getattr(jobs[k].seen, name) for k in self.order], dtype=torch.float64, device=device)[:, None]
            for name in ("center", "scale")
        )
        self.stack = Stack(
            [jobs[k].member() for k in self.order],
            shape,
            self._rows(self.order, sets, settings),
            device=torch.device(device),
            pieces=_pieces([jobs[k] for k in self.order], device),
        )
        if states:
            for (folder, state), place in zip(states, self.place, strict=True):
                with runs.reading(folder / FILE, REMEDY):
                    self.stack.check_run(place, state)
            self.stack.restore_runs([states[k][1] for k in self.order], states[0][1]["epoch"])

    def _rows(self, order: Sequence[int], sets: Sequence[int], settings: Settings) -> Rows:
        """To train on, of the jobs in an order."""
        train, which = self.parts["train"], [sets[k] for k in order]
        targets = [
            (train.targets[own].cpu() - self.jobs[k].seen.center) / self.jobs[k].seen.scale
            for k, own in zip(order, which, strict=True)
        ]
        seeds = [self.jobs[sets.index(k)].seed for k in range(len(train.inputs))]
        counts = self.counts["train"]
        own = torch.stack(targets)[..., None]
        return Rows(train.inputs, own, which, counts, seeds, settings.epochs, settings.batch_size)

    def record(self) -> list[Scores]:
        """The scores after an epoch, by which the best parameters are kept.

        Those of the training rows are of the predictions in the epoch, as they were trained on. In the first of two
        stages, whose head is not trained yet, there are none: NaN.
        """
        stack = self.stack
        trained = (stack.squared_errors / (stack.epoch_steps * stack.step_rows)).sqrt() * self.scale[:, 0]
        rest = self.scores(("validation", "test"))
        each = zip(trained[self.place].tolist(), rest, strict=True)
        found = [{"train": {"rmse": own}, **others} for own, others in each]
        if stack.in_first_stage():
            found = [{part: dict.fromkeys(own, math.nan) for part, own in each.items()} for each in found]
        stack.note_best([found[k]["validation"]["rmse"] for k in self.order])
        return found

    def scores(self, parts: Sequence[str] = PARTS, *, best: bool = False) -> list[Scores]:
        """Of each run, computed from its parameters as they are, or as they were where validation was best."""
        found: list[Scores] = [{} for _ in self.jobs]
        which = self.stack.which
        for part in parts:
            scored = self.parts[part]
            _, predictions = self.predictions(scored.inputs, best=best, features=False)
            own = torch.stack(errors(predictions, scored.targets[which], scored.mask[which]), dim=1)
            for scores, numbers in zip(found, own[self.place].tolist(), strict=True):
                scores[part] = dict(zip(NAMES, numbers, strict=True))
        return found

    def predictions(self, inputs: Tensor, *, best: bool = False, features: bool = True) -> tuple[list[Tensor], Tensor]:
        """Features, some rows ``(r, n, hidden)`` at a time, and predictions ``(r, n)`` in float64 in the targets' unit.

        In the order of the stack.

        Args:
            inputs: rows of each set ``(s, n, i)``.
            best: by the parameters that were best on validation.
            features: whether they are collected.
        """
        kept, found = [], []
        for some, predictions in self.stack.predictions(inputs, best=best):
            kept += [some] if features else []
            found.append(predictions[..., 0].double() * self.scale + self.center)
        return kept, torch.cat(found, dim=1)

    def scalars(self) -> list[dict[str, float]]:
        """Numbers of the method of each run, for its log."""
        return [self.stack.scalars(place) for place in self.place]

    def state(self, run: int) -> dict[str, Any]:
        """Of one run."""
        return {"epoch": self.stack.epoch, **self.stack.run_state(self.place[run])}


def _padded(parts: Sequence[Part], shape: Shape, device: str) -> Padded:
    """Rows of each set, with zeros up to the most rows and inputs that any has."""
    most = max(len(part.targets) for part in parts)
    inputs = torch.zeros(len(parts), most, shape.inputs, dtype=shape.dtype)
    targets = torch.zeros(len(parts), most, dtype=torch.float64)
    mask = torch.zeros(len(parts), most, dtype=torch.bool)
    for place, part in enumerate(parts):
        n, own = part.inputs.shape
        inputs[place, :n, :own] = torch.from_numpy(part.inputs)
        targets[place, :n] = torch.from_numpy(part.targets)
        mask[place, :n] = True
    return Padded(inputs.to(device), targets.to(device), mask.to(device))


def _pieces(jobs: Sequence[Job], device: str) -> Pieces | None:
    """Of each run ``(r, p, t)``."""
    shape = jobs[0].shape
    if shape.embedding != "piecewise" or not shape.encoded:
        return None
    by_seen = {id(job.seen): job.seen for job in jobs}
    found = {key: pieces_of(view.train.inputs[:, : view.numbers], shape.pieces) for key, view in by_seen.items()}
    every = zip(*(found[id(job.seen)] for job in jobs), strict=True)
    return Pieces(*(torch.stack(each).to(device, shape.dtype) for each in every))


METRIC = "rmse"
_SECONDS = 30.0  # between two checkpoints, at least
_SAVED = ("train", "test")  # parts of which features are saved


class Waiting(NamedTuple):
    """A run to be trained."""

    job: Job
    run: runs.Run
    settings: Settings
    table: str  # digest
    left_out: int  # rows of the table
    there: OfRun | None  # where it was stopped


def begun(run: runs.Run, settings: Settings, table: str) -> OfRun | None:
    """Where a run was stopped; a FolderError where its checkpoint is of something else."""
    there = load_run(run.path, metric=METRIC, epochs=settings.epochs)
    if there is not None and there.table != table:
        raise runs.FolderError(
            f"expected the table that the run in {run.path} began with, got another; choose another folder"
        )
    return there


def train_stack(waiting: Sequence[Waiting], device: str, progress: Progress | None, on_scores: OnScores) -> None:
    """Trains one stack to its end; all of its runs are finished then.

    Args:
        waiting: the runs, with shapes, settings and the epoch they begin at in common.
        device: "cpu", "cuda", ...
        progress: told the steps done and the steps in all.
        on_scores: told the epoch, the scores of the runs, and what else is logged of each, after each epoch.
    """
    settings = waiting[0].settings
    states = [(each.run.path, each.there.state) for each in waiting if each.there is not None]
    histories = [[] if each.there is None else list(each.there.history) for each in waiting]
    scored = Scored([each.job for each in waiting], settings, device=device, states=states)
    stack = scored.stack

    def evaluate() -> Callable[[], None]:
        found = scored.record()
        for history, own in zip(histories, found, strict=True):
            history.append(own)
        if stack.epoch == 1:
            _save_features(scored, waiting, [1] * len(waiting), best=False)
        logged = [{f"method_{key}": value for key, value in own.items()} for own in scored.scalars()]
        return lambda: on_scores(stack.epoch, found, logged)

    def save() -> None:
        if 0 < len(histories[0]) * stack.epoch_steps == stack.step:  # at the end of an epoch that has been scored
            for run, (each, history) in enumerate(zip(waiting, histories, strict=True)):
                save_run(each.run.path, OfRun(each.table, scored.state(run), history))

    steps = stack.epoch_steps
    often = loop.Loop(settings.epochs * steps, steps, checkpoint_seconds=_SECONDS, checkpoint_at=steps)
    evaluated = lambda: len(histories[0]) * steps  # noqa: E731
    loop.train(stack, often, evaluated=evaluated, evaluate=evaluate, save=save, progress=progress)
    epochs = [epochs_of(history) for history in histories]
    _save_features(scored, waiting, [own["best_validation"] for own in epochs], best=True)
    _save_features(scored, waiting, [stack.epoch] * len(waiting), best=False)
    save_models(scored, [each.run.path for each in waiting], epochs)
    for each, history in zip(waiting, histories, strict=True):
        features = {at: saved_scores(each.run.path, "test", place + 1) for at, place in places(history, METRIC).items()}
        each.run.finish({"history": history, "features": features, "table": each.table, "left_out": each.left_out})


MODEL, PREPARATION = "model.pt", "preparation.json"  # what a trained run needs to be used
_POINTS = ("best_validation", "last")
OF_MODEL = {point: {"learned": {str: Tensor}, "residuals": Tensor, "epoch": int} for point in _POINTS}


def epochs_of(history: Sequence[Scores]) -> dict[str, int]:
    """Of each point, counted from 1."""
    return {point: place + 1 for point, place in places(history, METRIC).items()}


def models(scored: Scored, epochs: Sequence[Mapping[str, int]]) -> list[dict[str, Any]]:
    """Of each run, at the best validation point and the last: what it predicts by, and its errors on test rows.

    Args:
        scored: the runs.
        epochs: of each run, by point.
    """
    found: list[dict[str, Any]] = [{} for _ in scored.jobs]
    test = scored.parts["test"]
    which = scored.stack.which
    for point in _POINTS:
        _, predictions = scored.predictions(test.inputs, best=point == "best_validation", features=False)
        away = (predictions - test.targets[which]).abs().cpu()
        for model, place, own in zip(found, scored.place, epochs, strict=True):
            model[point] = {
                "learned": scored.stack.learned(place, best=point == "best_validation"),
                "residuals": away[place, test.mask[which[place]].cpu()].sort().values,
                "epoch": own[point],
            }
    return found


def save_models(scored: Scored, folders: Sequence[Path], epochs: Sequence[Mapping[str, int]]) -> None:
    """Writes what runs need to be used, each into its folder: neither the table nor scikit-learn is asked for then."""
    for job, folder, model in zip(scored.jobs, folders, models(scored, epochs), strict=True):
        assert job.seen.preparation is not None
        runs.save_tensors(folder / MODEL, model)
        runs.write_json(folder / PREPARATION, job.seen.preparation.described())


def _save_features(scored: Scored, waiting: Sequence[Waiting], epochs: Sequence[int], *, best: bool) -> None:
    """Writes features, targets and predictions of fixed training and test rows of each run."""
    most = waiting[0].settings.feature_rows
    if not most:
        return
    for part in _SAVED:
        padded, counts = scored.parts[part], scored.counts[part]
        rows = torch.zeros(len(counts), min(most, max(counts)), dtype=torch.long)
        for number, count in enumerate(counts):
            own = spread_rows(count, most)
            rows[number, : len(own)] = own
        sets = torch.arange(len(counts))[:, None]
        found, predictions = scored.predictions(padded.inputs[sets, rows], best=best)
        features, targets = torch.cat(found, dim=1), padded.targets[sets, rows]
        for each, epoch, place in zip(waiting, epochs, scored.place, strict=True):
            own_set = scored.stack.rows.which[place]
            n = min(most, counts[own_set])
            content = features[place, :n], targets[own_set, :n, None], predictions[place, :n, None]
            saved_features.write(each.run.path, part, epoch, *content)
