"""The owner of runs, with a task whose training takes no time: its runs count, and raise what their method names."""

import errno
import math
import os
import pickle
import weakref
from dataclasses import dataclass

import pytest
import torch

from ordinal_entropy import runs
from ordinal_entropy.training import runner
from ordinal_entropy.training.plans import Plan, trained_in
from ordinal_entropy.training.runner import Trainable, gather, train


@dataclass(frozen=True)
class Counting:
    """A recipe."""

    length: int = 3
    stack: str = "a"  # runs of one train together; "": alone
    data: str = "here"
    processes: int = 1


READ = []  # data, as they are read


def read(recipe, device):
    if recipe.data == "nowhere":
        raise FileNotFoundError("expected data, got none")
    READ.append(recipe.data)
    return recipe.data


def group_key(plan, run, data):
    if plan.method == "unfit":
        raise ValueError("expected a fit run")
    return plan.recipe.stack or None


ERRORS = {
    "broken": RuntimeError("too\nhot"),
    "full": OSError(errno.ENOSPC, "no space"),
    "damaged": runs.FolderError("last.ckpt is damaged"),
    "bare": ModuleNotFoundError("no scipy"),
    "stopped": KeyboardInterrupt(),
}


def train_group(group, data, device, progress, on_scores):
    (length,) = {plan.recipe.length for plan, _ in group}
    histories = [[] for _ in group]
    for step in range(1, length + 1):
        scores = []
        for (plan, _), history in zip(group, histories, strict=True):
            if step == 2 and plan.method in ERRORS:
                raise ERRORS[plan.method]
            score = plan.seed + 1 / step
            history.append({part: {"error": score} for part in ("train", "validation", "test")})
            scores.append(history[-1])
        on_scores(step, scores, [{"beside": len(group)} for _ in group])
        if progress is not None:
            progress(step, length)
    for (_, run), history in zip(group, histories, strict=True):
        run.finish(
            {"history": history, "features": {}, "data": data, "threads": torch.get_num_threads(), "in": os.getpid()}
        )


def data_key(recipe):
    return recipe.data


def same_data(result, data):
    return result["data"] == data


def processes(recipe):
    return recipe.processes


TASK = Trainable("counting", "error", read, data_key, train_group, group_key, same_data, processes)


@pytest.fixture(autouse=True)
def nothing_read():
    READ.clear()


def plans_of(methods="one two", seeds=(0, 1), **recipe):
    return [Plan(method, seed, Counting(**recipe)) for method in methods.split() for seed in seeds]


def trained(plans, folder, **options):
    """Outcomes, and what progress was told."""
    told = []
    found = train(TASK, plans, device="cpu", folder=folder, progress=lambda *both: told.append(both), **options)
    return found, told


def beside(folder):
    """How many runs trained together, by the name of the run."""
    return {
        path.parent.name: int(runs.open(path.parent).metrics()[-1]["beside"]) for path in folder.glob("*/recipe.json")
    }


def test_runs_of_a_key_train_together_and_each_has_a_folder(tmp_path):
    plans = [*plans_of("one", stack="a"), *plans_of("two", stack="b"), *plans_of("three", stack="")]
    outcomes, told = trained(plans, tmp_path)
    assert told == [(done, 12) for done in range(1, 13)]  # two stacks, and two runs by themselves
    assert sorted(beside(tmp_path).values()) == [1, 1, 2, 2, 2, 2]
    assert [outcome.last for outcome in outcomes] == [1 / 3, 4 / 3] * 3
    assert all(outcome.steps == [1, 2, 3] for outcome in outcomes) and READ == ["here"]
    run = runs.open(tmp_path / "one-seed0-stack=a")
    assert (run.method, run.seed, run.recipe["task"], run.recipe["stack"]) == ("one", 0, "counting", "a")
    assert run.metrics()[1] == {"step": 2, "train_error": 0.5, "validation_error": 0.5, "test_error": 0.5, "beside": 2}


def test_what_is_finished_is_read_back(tmp_path):
    found, _ = trained(plans_of(seeds=(0,)), tmp_path)
    more, told = trained(plans_of(seeds=(0, 1)), tmp_path)
    assert told == [(1, 3), (2, 3), (3, 3)] and beside(tmp_path) == dict.fromkeys(beside(tmp_path), 2)
    assert [more[0], more[2]] == found
    READ.clear()
    assert trained(plans_of(seeds=(0, 1)), tmp_path) == (more, []) and READ == []
    assert gather(TASK, plans_of(seeds=(1,)), folder=tmp_path) == [more[1], more[3]]


def test_what_was_logged_before_a_stop_is_not_logged_again(tmp_path):
    plans, told = plans_of("one", seeds=(0,)), []

    def stop(step, scores):
        told.append((step, scores[0].test))
        if len(told) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(TASK, plans, device="cpu", folder=tmp_path, on_metrics=stop)
    train(TASK, plans, device="cpu", folder=tmp_path, on_metrics=stop)
    assert [step for step, _ in told] == [1, 2, 1, 2, 3] and told[-1] == (3, 1 / 3)
    assert [line["step"] for line in runs.open(tmp_path / "one-seed0").metrics()] == [1, 2, 3]


def test_a_stack_that_fails_trains_run_by_run(tmp_path):
    plans = plans_of("one broken two")
    outcomes, told = trained(plans, tmp_path, go_on=True)
    assert [outcome.failure is None for outcome in outcomes] == [True, True, False, False, True, True]
    assert (outcomes[2].failure["type"], outcomes[2].failure["message"]) == ("RuntimeError", "too hot")
    assert math.isnan(outcomes[2].best_validation) and outcomes[2].steps == []
    alone = [(1, 18), (2, 18), (3, 18), (4, 18), (5, 18), (6, 18), (7, 18), (10, 18), *((k, 18) for k in range(13, 19))]
    assert told == [(1, 3), *alone]
    with pytest.raises(RuntimeError, match="too\nhot"):
        trained(plans, tmp_path)
    assert gather(TASK, plans, folder=tmp_path)[4:] == outcomes[4:]


def test_a_large_stack_that_fails_trains_in_halves(tmp_path):
    """Most runs still share a stack."""
    plans = [*plans_of("one", seeds=range(30)), *plans_of("broken", seeds=(0,)), *plans_of("two", seeds=range(5))]
    outcomes, told = trained(plans, tmp_path, go_on=True)
    assert [plan.method for plan, own in zip(plans, outcomes, strict=True) if own.failure] == ["broken"]
    # 36 runs, 18 and 18 with the broken one, of which 9 and 9 with it, and these one by one; it logged a step at first
    assert sorted(beside(tmp_path).values()) == [1] * 8 + [9] * 9 + [18] * 18 + [36]
    assert all(done <= total for done, total in told)


def test_a_task_says_which_runs_are_too_many_for_one_stack(tmp_path):
    pairs = TASK._replace(stacks=lambda group, data, device: [group[:2], group[2:]])
    plans = [*plans_of("one two", stack="a"), *plans_of("three", seeds=range(3), stack="b")]
    train(pairs, plans, device="cpu", folder=tmp_path)
    assert sorted(beside(tmp_path).values()) == [1, 2, 2, 2, 2, 2, 2]
    for task in (pairs, TASK):
        found = train(task, plans, device="cpu", folder=tmp_path / "again")
        assert [outcome.last for outcome in found] == [plan.seed + 1 / 3 for plan in plans]


def test_a_run_that_cannot_begin_fails_alone(tmp_path):
    outcomes, told = trained(plans_of("one unfit"), tmp_path, go_on=True)
    assert [outcome.failure and outcome.failure["message"] for outcome in outcomes] == [None] * 2 + [
        "expected a fit run"
    ] * 2
    assert told[-1] == (3, 3)
    with pytest.raises(ValueError, match="expected a fit run"):
        trained(plans_of("one unfit"), tmp_path)


@pytest.mark.parametrize("method", ["full", "damaged", "bare", "stopped"])
def test_what_concerns_all_is_raised(method, tmp_path):
    with pytest.raises(type(ERRORS[method])):
        trained([*plans_of("one", stack="b"), *plans_of(method), *plans_of("two", stack="c")], tmp_path, go_on=True)
    assert not list(tmp_path.rglob("failure.json"))
    finished = {path.parent.name for path in tmp_path.rglob("result.json")}
    assert finished == {"one-seed0-stack=b", "one-seed1-stack=b"}


def test_so_are_data_that_cannot_be_read_or_are_others(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError, match="expected data, got none"):
        trained(plans_of(data="nowhere"), tmp_path / "nowhere", go_on=True)
    trained(plans_of(seeds=(0,)), tmp_path)
    monkeypatch.setattr(runner._Data, "__call__", lambda self, recipe: "elsewhere")
    with pytest.raises(
        runs.FolderError, match=r"expected the data that the run in .*one-seed0 was trained on, got other"
    ):
        trained(plans_of(), tmp_path, go_on=True)
    assert not list(tmp_path.rglob("failure.json"))


def test_a_run_of_several_processes_is_never_left_behind(tmp_path):
    with pytest.raises(RuntimeError, match="too\nhot"):
        trained(plans_of("broken one", processes=2, stack=""), tmp_path, go_on=True)
    assert not list(tmp_path.rglob("failure.json"))


@pytest.mark.parametrize("key", [None, group_key])
def test_one_set_of_data_is_in_memory_at_a_time(key, tmp_path):
    class Rows:
        """Data that can be watched."""

    living, most = weakref.WeakSet(), []

    def read_rows(recipe, device):
        most.append(len(living))
        rows = Rows()
        living.add(rows)
        return rows

    def of_rows(group, rows, *rest):
        train_group(group, "rows", *rest)

    task = TASK._replace(read=read_rows, train_group=of_rows, group_key=key)
    plans = [plan for data in ("here", "there") for plan in plans_of(data=data)]
    train(task, plans, device="cpu", folder=tmp_path)
    assert most == [0] * (2 if key is None else 4)  # once more to train, where runs are grouped by what they see


@pytest.mark.usefixtures("quick_processes")
def test_groups_side_by_side_are_those_one_after_the_other(tmp_path):
    plans = [plan for stack in "abc" for plan in plans_of(stack=stack)]
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        alone, _ = trained(plans, tmp_path / "alone")
        together, told = trained(plans, tmp_path / "together", jobs=2)
    finally:
        torch.set_num_threads(before)
    assert together == alone and all(done <= total for done, total in told)
    found = {path.parent.name: runs.read_json(path) for path in (tmp_path / "together").glob("*/result.json")}
    assert {own["threads"] for own in found.values()} == {3}
    assert len({own["in"] for own in found.values()}) == 2 and os.getpid() not in {own["in"] for own in found.values()}
    of_stack = [{own["in"] for name, own in found.items() if name.endswith(f"stack={stack}")} for stack in "abc"]
    assert all(len(each) == 1 for each in of_stack)


@pytest.mark.usefixtures("quick_processes")
def test_side_by_side_failures_stay_in_their_folders(tmp_path):
    plans = [*plans_of("one broken"), *plans_of("two", stack="b")]
    outcomes, _ = trained(plans, tmp_path, jobs=2, go_on=True)
    assert [outcome.failure is None for outcome in outcomes] == [True, True, False, False, True, True]
    with pytest.raises(RuntimeError, match="too\nhot"):
        trained(plans, tmp_path, jobs=2)


def test_groups_travel(tmp_path):
    run = runs.create(tmp_path, {}, "one", 0)
    group = [(Plan("one", 0, Counting()), run)]
    assert pickle.loads(pickle.dumps((TASK, group))) == (TASK, group)


def test_mistakes(tmp_path):
    with pytest.raises(ValueError, match="expected at least one run, got none"):
        trained([], tmp_path)
    with pytest.raises(ValueError, match="expected at least one job, got 0"):
        trained(plans_of(), tmp_path, jobs=0)
    with pytest.raises(FileNotFoundError, match=r"expected a checkpoint in .*one-seed0, got none"):
        trained_in(tmp_path, plans_of()[0], "last.ckpt")
    for result in ({"history": []}, {"features": {}}, {"history": [{"test": {"error": 1.0}}], "features": {}}):
        runs.create(tmp_path / "one-seed0", {"task": "counting", **vars(Counting())}, "one", 0).finish(result)
        with pytest.raises(runs.FolderError, match=r"one-seed0/result\.json is damaged or foreign"):
            trained(plans_of("one", seeds=(0,)), tmp_path)
