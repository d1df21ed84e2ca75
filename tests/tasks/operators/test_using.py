"""A trained operator in use: the numbers of the stack it was trained in, without its rows."""

from pathlib import Path

import numpy as np
import pytest
import torch

pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

import ordinal_entropy as oe
from ordinal_entropy import tasks
from ordinal_entropy.tasks.operators import data, train
from ordinal_entropy.tasks.operators.recipe import jobs_of, split, stack_options
from ordinal_entropy.training.plans import Plan

TINY = ["rows=30", "parts=3", "validation_rows=20", "test_rows=40", "hidden=8", "steps=20", "samples=5"]
TINY += ["evaluate_every=10", "learning_rate=0.01", "bins=20"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def trained(method, *settings, seeds=(0,)):
    plans = [Plan(method, seed, tasks.recipe("linear", "quick", [*TINY, *settings])) for seed in seeds]
    tasks.load("linear").train(plans, device="cpu", folder=Path("runs"))
    return plans


@pytest.mark.parametrize("method", ["baseline", "oe", "classification", "hl-gauss", "coral", "ema+huber"])
def test_a_run_predicts_what_its_stack_does(method):
    (plan,) = trained(method)
    folder, rows = Path("runs") / f"{method}-seed0", split(plan.recipe).test
    run = oe.load(folder)
    assert (run.at, run.epoch, run.task) == ("last", 20, "linear")
    found = run.predict((rows.functions, rows.places))
    error = float(np.mean((found - rows.values[:, 0]) ** 2))
    assert error == pytest.approx(tasks.load("linear").evaluate(plan, device="cpu", folder=folder)["test"], rel=1e-5)
    np.testing.assert_array_equal(run.predict(np.hstack([rows.functions, rows.places])), found)
    data.write(Path("files"), "linear", rows, rows)
    np.testing.assert_array_equal(run.predict("files/test.npz"), found)
    assert run.features(rows[:2]).shape == (40, 8)
    found = run.intervals("files/test.npz", 0.9, "files/test.npz")
    assert found.halfwidth == pytest.approx(run.halfwidth(0.9)[0], rel=1e-5)
    assert found.rows == "40 rows of files/test.npz" and run.halfwidth(0.9)[1] == "40 test rows of the run"
    (folder / train.MODEL).unlink()  # as runs of before lack it
    np.testing.assert_allclose(oe.load(folder).predict(rows[:2]), found.predictions, rtol=1e-6, atol=1e-7)


def test_runs_of_one_stack_are_kept_each_by_itself():
    plans = trained("oe", seeds=(0, 1, 2))
    rows = split(plans[0].recipe).test
    found = [oe.load(f"runs/oe-seed{seed}").predict(rows[:2]) for seed in range(3)]
    jobs = [job for plan in plans for job in jobs_of(plan.recipe, [plan.method], [plan.seed])]
    histories = train.train(jobs, split(plans[0].recipe), stack_options(plans[0].recipe))
    for own, history in zip(found, histories, strict=True):
        assert np.mean((own - rows.values[:, 0]) ** 2) == pytest.approx(history.test[-1], rel=1e-5)


def test_inputs_that_do_not_fit():
    trained("baseline")
    run = oe.load("runs/baseline-seed0")
    with pytest.raises(ValueError, match=r"expected functions at 100 sensors and a place, \(n, 101\), got \(3, 7\)"):
        run.predict(np.zeros((3, 7)))
    with pytest.raises(ValueError, match="expected finite numbers, got 1 others"):
        run.predict((np.zeros((1, 100)), [np.nan]))
    np.savez("other.npz", X=np.zeros(3))
    with pytest.raises(ValueError, match=r"expected functions and places, or X_test0 and X_test1, in other.npz, got X"):
        run.predict("other.npz")
    np.savez("bare.npz", functions=np.zeros((3, 100)), places=np.zeros(3))
    assert run.predict("bare.npz").shape == (3,)
    with pytest.raises(ValueError, match=r"expected values beside functions and places in bare.npz, got none"):
        run.halfwidth(0.9, "bare.npz")
    with pytest.raises(ValueError, match="expected at to be last, got 'best_validation'"):
        oe.load("runs/baseline-seed0", at="best_validation")
    assert isinstance(run.exportable().module(torch.zeros(2, 101)), torch.Tensor)
