"""The training of a stack of runs on a table, each with a folder of its own.

A run that was stopped goes on from its checkpoint, which is written every half a minute at the end of an epoch, and
ends in the numbers that it would have had, but for rounding if it goes on beside other runs than before.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from ordinal_entropy import runs
from ordinal_entropy.tasks import spread_rows
from ordinal_entropy.tasks.tabular import checkpoint
from ordinal_entropy.tasks.tabular.checkpoint import Checkpoint
from ordinal_entropy.tasks.tabular.stack import Job, Scores, Settings, Stack
from ordinal_entropy.training.outcomes import places
from ordinal_entropy.training.plans import Progress
from ordinal_entropy.training.runner import OnScores
from ordinal_entropy.vision.features import kept_file, kept_scores

METRIC = "rmse"
_SECONDS = 30.0  # between two checkpoints, at least
_KEPT = ("train", "test")  # parts of which features are kept


class Waiting(NamedTuple):
    """A run to be trained."""

    job: Job
    run: runs.Run
    settings: Settings
    table: str  # digest
    left_out: int  # rows of the table
    there: Checkpoint | None  # where it was stopped


def begun(run: runs.Run, job: Job, settings: Settings, table: str) -> Checkpoint | None:
    """Where a run was stopped; a FolderError where its checkpoint is of something else."""
    there = checkpoint.load(run.path)
    if there is not None and there.table != table:
        raise runs.FolderError(
            f"expected the table that the run in {run.path} began with, got another; choose another folder"
        )
    if there is not None:
        checkpoint.check(run.path, there, job, settings.epochs)
    return there


def train_stack(waiting: Sequence[Waiting], device: str, progress: Progress | None, on_scores: OnScores) -> None:
    """Trains one stack to its end; all of its runs are finished then.

    Args:
        waiting: the runs, with shapes, settings and the epoch they begin at in common; those of a method side by side.
        device: "cpu", "cuda", ...
        progress: told the steps done and the steps in all.
        on_scores: told the epoch, the scores of the runs, and what else is logged of each, after each epoch.
    """
    settings = waiting[0].settings
    states = [each.there.state for each in waiting if each.there is not None]
    histories = [[] if each.there is None else list(each.there.history) for each in waiting]
    stack = Stack([each.job for each in waiting], settings, device=device, states=states or None)
    steps = [stack.epoch * stack.steps]
    saved = time.monotonic()

    def on_step() -> None:
        steps[0] += 1
        if progress is not None:
            progress(steps[0], settings.epochs * stack.steps)

    while stack.epoch < settings.epochs:
        scores = stack.train_epoch(on_step)
        for history, own in zip(histories, scores, strict=True):
            history.append(own)
        scalars = [stack.scalars(place) for place in range(len(waiting))]
        on_scores(stack.epoch, scores, [{f"method_{key}": value for key, value in own.items()} for own in scalars])
        if stack.epoch == 1:
            _keep(stack, waiting, [1] * len(waiting), best=False)
        if time.monotonic() - saved > _SECONDS:
            _save(stack, waiting, histories)
            saved = time.monotonic()
    _keep(stack, waiting, [places(history, METRIC)["best_validation"] + 1 for history in histories], best=True)
    _keep(stack, waiting, [stack.epoch] * len(waiting), best=False)
    _save(stack, waiting, histories)
    for each, history in zip(waiting, histories, strict=True):
        features = {at: kept_scores(each.run.path, "test", place + 1) for at, place in places(history, METRIC).items()}
        each.run.finish({"history": history, "features": features, "table": each.table, "left_out": each.left_out})


def _save(stack: Stack, waiting: Sequence[Waiting], histories: Sequence[list[Scores]]) -> None:
    for place, (each, history) in enumerate(zip(waiting, histories, strict=True)):
        checkpoint.save(each.run.path, Checkpoint(each.table, stack.state(place), history))


def _keep(stack: Stack, waiting: Sequence[Waiting], epochs: Sequence[int], *, best: bool) -> None:
    """Writes features, targets and predictions of fixed training and test rows of each run."""
    from safetensors.torch import save

    most = waiting[0].settings.feature_rows
    if not most:
        return
    for part in _KEPT:
        scored = stack.parts[part]
        counts = scored.mask.sum(1).tolist()  # of each seed
        rows = torch.zeros(len(counts), min(most, max(counts)), dtype=torch.long)
        for place, count in enumerate(counts):
            own = spread_rows(count, most)
            rows[place, : len(own)] = own
        place_of = torch.arange(len(counts))[:, None]
        found = zip(*stack.predictions(scored.inputs[place_of, rows], best=best), strict=True)
        features, predictions = (torch.cat(some, dim=1) for some in found)
        targets = scored.targets[place_of, rows][stack.which]
        for run, (each, epoch) in enumerate(zip(waiting, epochs, strict=True)):
            n = min(most, counts[int(stack.which[run])])
            content = {"features": features[run, :n], "targets": targets[run, :n, None]}
            content["predictions"] = predictions[run, :n, None]
            with runs.replacing(kept_file(each.run.path, part, epoch)) as file:
                file.write(save({name: value.to("cpu", torch.float32).contiguous() for name, value in content.items()}))
