"""The one owner of runs: it plans them, trains what is left, in groups, and gathers their scores.

Every run has a folder of its own. Runs that a task can train as one stack are a group, the others one each. A group
can be carried out anywhere: it can be pickled, needs nothing but the folders of its runs, and leaves everything there.
"""

import time
import traceback
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch

from ordinal_entropy import runs
from ordinal_entropy.recipes import completed, described
from ordinal_entropy.training.plans import PARTS, Outcome, Plan, Progress, Scores, failed, outcome, run_names
from ordinal_entropy.training.side_by_side import side_by_side

Group = list[tuple[Plan, runs.Run]]  # runs that train as one
OnMetrics = Callable[[int, list[Scores]], None]  # step, scores of the runs of a group
_SMALL = 16  # runs of a stack that train one by one where it failed
OnScores = Callable[..., None]  # (step, scores of each run by part and name, further numbers of each run to be logged)


def _one_process(recipe: Any) -> int:
    return 1


class Trainable(NamedTuple):
    """How the runs of a task train: functions of a module, or partial ones, so that other processes can have them."""

    name: str  # of the task
    metric: str  # the score that decides; lower is better
    read: Callable[[Any, str], Any]  # (recipe, device): its data
    data_key: Callable[[Any], Hashable]  # of a recipe; data of equal ones are the same
    # (group, data, device, progress, on_scores): goes on from the folders of the runs, and finishes each of them
    train_group: Callable[[Group, Any, str, Progress | None, OnScores], None]
    # (plan, run, data): runs of equal ones train as one stack; None: alone, as all do where there is no such function
    group_key: Callable[[Plan, runs.Run, Any], Hashable | None] | None = None
    same_data: Callable[[Mapping[str, Any], Any], bool] | None = None  # (result, data): what the run was trained on
    processes: Callable[[Any], int] = _one_process  # of a run with this recipe
    # (runs of one key, data, device): the stacks that they train as; where there is no such function, one
    stacks: Callable[[Group, Any, str], list[Group]] | None = None


def train(
    task: Trainable,
    plans: Sequence[Plan],
    *,
    device: str,
    folder: Path,
    progress: Progress | None = None,
    on_metrics: OnMetrics | None = None,
    jobs: int = 1,
    go_on: bool = False,
    timed: bool = False,
) -> list[Outcome]:
    """Trains runs, each in a folder of its own inside the given one.

    A run that is finished there is not trained again, one that was stopped goes on.

    Args:
        task: of the runs.
        plans: the runs; methods, seeds and all keys may differ.
        device: "cpu", "cuda", ...
        folder: of all the runs together.
        progress: is told the steps done, and the steps in all runs that were not finished.
        on_metrics: is told the step and the scores of the runs of a group; with one job only.
        jobs: so many processes train groups side by side on the device. On a CPU the numbers are the same with any.
        go_on: a group that raises an exception trains run by run, a large one in halves first, and a run that raises
            one says so in its folder and in its outcome; the others go on. Not where it concerns all: data or folders
            that cannot be read, a full disk; and not of runs of several processes, which wait for each other. Else the
            exception is raised here.
        timed: the folder of each run has the seconds that it took; runs of one stack share them evenly.

    Returns:
        Outcomes in the order of the plans.
    """
    if not plans:
        raise ValueError("expected at least one run, got none")
    if jobs < 1:
        raise ValueError(f"expected at least one job, got {jobs}")
    left: Group = []
    finished: Group = []
    for plan, run in _runs(task, plans, folder):
        (left if _outcome(task, run) is None else finished).append((plan, run))
    if left:
        data = _Data(task, device)
        for plan, run in finished:
            if task.same_data is not None and not task.same_data(run.result() or {}, data(plan.recipe)):
                raise runs.FolderError(
                    f"expected the data that the run in {run.path} was trained on, got other; choose another folder"
                )
        groups = _groups(left, data, go_on=go_on)
        if jobs > 1 and len(groups) > 1:
            alone = partial(_train, data=_Data(task, device), go_on=go_on, threads=torch.get_num_threads(), timed=timed)
            side_by_side(alone, groups, jobs, progress)
        else:
            _train(groups, progress, data=data, go_on=go_on, on_metrics=on_metrics, timed=timed)
    return gather(task, plans, folder=folder)


def gather(task: Trainable, plans: Sequence[Plan], *, folder: Path) -> list[Outcome]:
    """Outcomes of runs that have been trained in a folder, or have failed, in the order of the plans."""
    return [_outcome(task, run) or failed(run.failure() or {}) for _, run in _runs(task, plans, folder)]


def seconds(task: Trainable, plans: Sequence[Plan], *, folder: Path) -> list[float]:
    """What runs that were ``timed`` took to train, in the order of the plans."""
    return [run.seconds() for _, run in _runs(task, plans, folder)]


def _runs(task: Trainable, plans: Sequence[Plan], folder: Path) -> Group:
    """The plans with their folders, which are made where they are missing."""
    found = []
    for plan, name in zip(plans, run_names(plans), strict=True):
        recipe = {"task": task.name, **described(plan.recipe)}
        run = runs.create(folder / name, recipe, plan.method, plan.seed, read=partial(completed, plan.recipe))
        found.append((plan, run))
    return found


def _outcome(task: Trainable, run: runs.Run) -> Outcome | None:
    """Of a run that is finished."""
    result = run.result()
    with runs.reading(run.path / "result.json", runs.RESULT_REMEDY):
        return None if result is None else outcome(result, task.metric)


@dataclass
class _Data:
    """Reads the data of recipes; those read last are kept, one at a time in memory."""

    task: Trainable
    device: str
    key: Hashable = None
    found: Any = None

    def __call__(self, recipe: Any) -> Any:
        key = self.task.data_key(recipe)
        if key != self.key:
            self.key = self.found = None
            self.found, self.key = self.task.read(recipe, self.device), key
        return self.found


def _groups(left: Group, data: _Data, *, go_on: bool) -> list[Group]:
    """The runs, those of one stack together; one that says already that it cannot be trained has failed."""
    group_key = data.task.group_key
    if group_key is None:
        return [[each] for each in left]
    stacks = data.task.stacks
    groups: dict[Hashable, Group] = {}
    for plan, run in left:
        data(plan.recipe)  # what cannot be read is no failure of a run
        try:
            own = group_key(plan, run, data(plan.recipe))
        except Exception as error:
            if not go_on or runs.concerns_all(error):
                raise
            run.fail(error)
        else:
            key = run.path if own is None else (data.key, own)
            groups.setdefault(key, []).append((plan, run))
    if stacks is None:
        return list(groups.values())
    return [stack for own in groups.values() for stack in stacks(own, data(own[0][0].recipe), data.device)]


def _train(
    groups: Sequence[Group],
    progress: Progress | None,
    *,
    data: _Data,
    go_on: bool,
    on_metrics: OnMetrics | None = None,
    threads: int | None = None,
    timed: bool = False,
) -> None:
    """Trains one group after the other, with so many threads on a CPU, since rounding follows from them."""
    if threads is not None and torch.device(data.device).type == "cpu":
        torch.set_num_threads(threads)
    waiting, before, length = list(groups), 0, 0

    def tell(done: int, total: int) -> None:
        nonlocal length
        length = total
        if progress is not None:  # groups of equal length, the usual case
            progress(before + done, before + total * (1 + len(waiting)))

    while waiting:
        group = waiting.pop(0)
        recipe, first = group[0][0].recipe, group[0][1]
        data(recipe)  # what cannot be read is no failure of a run
        on_scores = _logging(data.task, group, on_metrics)
        start = time.perf_counter()
        try:
            data.task.train_group(group, data(recipe), data.device, None if progress is None else tell, on_scores)
        except Exception as error:
            if not go_on or data.task.processes(recipe) > 1 or runs.concerns_all(error):
                raise
            if len(group) > 1:
                traceback.clear_frames(error.__traceback__)  # what the stack held is free for the single runs
                waiting[:0] = _parts([each for each in group if each[1].result() is None])
                continue
            first.fail(error)
        finally:
            if timed:
                for _, run in group:
                    run.spend((time.perf_counter() - start) / len(group))
        before += length


def _parts(failed: Group) -> list[Group]:
    """What trains in place of a stack that failed: halves of a large one, so that most runs still share a stack."""
    if len(failed) <= _SMALL:
        return [[each] for each in failed]
    half = len(failed) // 2
    return [failed[:half], failed[half:]]


def _logging(task: Trainable, group: Group, on_metrics: OnMetrics | None) -> OnScores:
    """Logs the scores of each evaluation in the folders of the runs, unless they were logged before a stop."""
    logged = [{line["step"] for line in run.metrics()} for _, run in group]

    def on_scores(step: int, scores: Sequence[Any], further: Sequence[Mapping[str, float]] = ()) -> None:
        for place, ((_, run), own) in enumerate(zip(group, scores, strict=True)):
            if step not in logged[place]:
                flat = {f"{part}_{name}": score for part in own for name, score in own[part].items()}
                run.log(step=step, **flat, **(further[place] if further else {}))
        if on_metrics is not None:
            on_metrics(step, [Scores(*(own[part][task.metric] for part in PARTS)) for own in scores])

    return on_scores
