"""The training of a stack of runs on a table, each with a folder of its own.

A run that was stopped goes on from its checkpoint, which is written every half a minute at the end of an epoch, and
ends in the numbers that it would have had, but for rounding if it goes on beside other runs than before.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from ordinal_entropy import runs
from ordinal_entropy.tasks import spread_rows
from ordinal_entropy.tasks.tabular.jobs import Job, Settings
from ordinal_entropy.tasks.tabular.scored import Scored
from ordinal_entropy.training.checkpoints import OfRun, load_run, save_run
from ordinal_entropy.training.outcomes import places
from ordinal_entropy.training.plans import Progress
from ordinal_entropy.training.runner import OnScores
from ordinal_entropy.training.stacked import loop, saved_features
from ordinal_entropy.vision.features import kept_scores

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
    there: OfRun | None  # where it was stopped


def begun(run: runs.Run, job: Job, settings: Settings, table: str) -> OfRun | None:
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
            _keep(scored, waiting, [1] * len(waiting), best=False)
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
    _keep(scored, waiting, [places(history, METRIC)["best_validation"] + 1 for history in histories], best=True)
    _keep(scored, waiting, [stack.epoch] * len(waiting), best=False)
    for each, history in zip(waiting, histories, strict=True):
        features = {at: kept_scores(each.run.path, "test", place + 1) for at, place in places(history, METRIC).items()}
        each.run.finish({"history": history, "features": features, "table": each.table, "left_out": each.left_out})


def _keep(scored: Scored, waiting: Sequence[Waiting], epochs: Sequence[int], *, best: bool) -> None:
    """Writes features, targets and predictions of fixed training and test rows of each run."""
    most = waiting[0].settings.feature_rows
    if not most:
        return
    for part in _KEPT:
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
