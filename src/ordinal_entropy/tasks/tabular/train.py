"""Runs on a table, trained in as few stacks as their shapes allow, each in a folder of its own.

A finished run is not trained again. One that was stopped goes on from its checkpoint, which is written every half a
minute at the end of an epoch, and ends in the numbers that it would have had, but for rounding if it goes on beside
other runs than before.
"""

import math
import time
import traceback
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import torch

from ordinal_entropy import runs
from ordinal_entropy.tasks import Progress, spread_rows
from ordinal_entropy.tasks.on_images import Scores as MainScores
from ordinal_entropy.tasks.tabular import checkpoint
from ordinal_entropy.tasks.tabular.checkpoint import Checkpoint
from ordinal_entropy.tasks.tabular.stack import PARTS, Job, Scores, Settings, Stack
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


def train(
    waiting: Sequence[Waiting],
    *,
    device: str,
    progress: Progress | None = None,
    on_metrics: Callable[..., None] | None = None,
    go_on: bool = False,
) -> None:
    """Trains the runs, in stacks of those that have shapes, settings and the epoch they begin at in common.

    Args:
        waiting: the runs.
        device: "cpu", "cuda", ...
        progress: told the steps done and the steps in all.
        on_metrics: told the epoch and the scores of the runs of a stack, after each.
        go_on: where a stack raises an exception, its runs train one by one, and those that still raise it say so in
            their folders; not where the disk is full.
    """
    found = [checkpoint.load(each.run.path) for each in waiting]
    stacks: dict[Hashable, list[int]] = {}
    for place, (each, there) in enumerate(zip(waiting, found, strict=True)):
        if there is not None and there.table != each.table:
            raise ValueError(
                f"expected the table that the run in {each.run.path} began with, got another; choose another folder"
            )
        if there is not None:
            checkpoint.check(each.run.path, there, each.job, each.settings.epochs)
        epoch = 0 if there is None else there.state.epoch
        stacks.setdefault((epoch, each.job.key(each.settings)), []).append(place)
    lengths = [_steps(waiting[first]) for first, *_ in stacks.values()]
    for number, own in enumerate(stacks.values()):

        def tell(steps: int, before: int = sum(lengths[:number])) -> None:
            if progress is not None:
                progress(before + steps, sum(lengths))

        stack = [waiting[place] for place in own]
        try:
            _train_stack(stack, [found[place] for place in own], device, tell, on_metrics)
        except Exception as error:
            if not go_on or runs.concerns_all(error):
                raise
            if len(stack) == 1:
                stack[0].run.fail(error)
                continue
            traceback.clear_frames(error.__traceback__)  # what the stack held is free for the single runs
            for each in stack:
                _train_alone(each, device, on_metrics)


def _train_alone(waiting: Waiting, device: str, on_metrics: Callable[..., None] | None) -> None:
    """Trains one run as a stack of its own, from where its checkpoint is."""
    if waiting.run.result() is not None:  # the stack failed behind it
        return
    try:
        _train_stack([waiting], [checkpoint.load(waiting.run.path)], device, lambda steps: None, on_metrics)
    except Exception as error:
        if runs.concerns_all(error):
            raise
        waiting.run.fail(error)


def _steps(waiting: Waiting) -> int:
    """Of a run, in all."""
    return waiting.settings.epochs * waiting.job.steps_and_rows(waiting.settings)[0]


def _train_stack(
    waiting: Sequence[Waiting],
    begun: Sequence[Checkpoint | None],
    device: str,
    tell: Callable[[int], None],
    on_metrics: Callable[..., None] | None,
) -> None:
    """Trains one stack to its end; all of its runs are finished then."""
    settings = waiting[0].settings
    states = [there.state for there in begun if there is not None]
    histories = [[] if there is None else list(there.history) for there in begun]
    stack = Stack([each.job for each in waiting], settings, device=device, states=states or None)
    logged = [{line["step"] for line in each.run.metrics()} for each in waiting]
    steps = [stack.epoch * stack.steps]
    saved = time.monotonic()

    def on_step() -> None:
        steps[0] += 1
        tell(steps[0])

    while stack.epoch < settings.epochs:
        scores = stack.train_epoch(on_step)
        for place, (each, history, own, steps_logged) in enumerate(
            zip(waiting, histories, scores, logged, strict=True)
        ):
            history.append(own)
            if stack.epoch not in steps_logged:
                numbers = {f"method_{name}": value for name, value in stack.scalars(place).items()}
                each.run.log(step=stack.epoch, **_flat(own), **numbers)
        if on_metrics is not None:
            on_metrics(stack.epoch, [MainScores(*(own[part][METRIC] for part in PARTS)) for own in scores])
        if stack.epoch == 1:
            _keep(stack, waiting, [1] * len(waiting), best=False)
        if time.monotonic() - saved > _SECONDS:
            _save(stack, waiting, histories)
            saved = time.monotonic()
    _keep(stack, waiting, [places(history)["best_validation"] + 1 for history in histories], best=True)
    _keep(stack, waiting, [stack.epoch] * len(waiting), best=False)
    _save(stack, waiting, histories)
    for each, history in zip(waiting, histories, strict=True):
        features = {at: kept_scores(each.run.path, "test", place + 1) for at, place in places(history).items()}
        each.run.finish({"history": history, "features": features, "table": each.table, "left_out": each.left_out})


def places(history: Sequence[Any]) -> dict[str, int]:
    """The last epoch and the one with the smallest validation score, from 0 on; the first where none is a number."""
    scores = [epoch["validation"][METRIC] for epoch in history]
    found = [math.inf if score is None or math.isnan(score) else score for score in scores]
    return {"last": len(found) - 1, "best_validation": found.index(min(found))}


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


def _flat(scores: Scores) -> dict[str, float]:
    return {f"{part}_{name}": score for part, own in scores.items() for name, score in own.items()}
