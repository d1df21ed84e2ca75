"""A stack of runs on tables, and the rows that it is trained and scored on.

Runs of a seed share what they see. Rows of several seeds are padded to the longest, and the padding is masked in the
scores.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordinal_entropy import runs
from ordinal_entropy.tasks.tabular.inputs import Part
from ordinal_entropy.tasks.tabular.jobs import Job, Settings
from ordinal_entropy.tasks.tabular.metrics import NAMES, errors
from ordinal_entropy.training.checkpoints import FILE, REMEDY
from ordinal_entropy.training.stacked.members import Rows, order_of
from ordinal_entropy.training.stacked.network import Pieces, Shape, pieces_of
from ordinal_entropy.training.stacked.stack import Stack

PARTS = ("train", "validation", "test")
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
            learning_rate=settings.learning_rate,
            weight_decay=settings.weight_decay,
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
            features: whether they are kept.
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
