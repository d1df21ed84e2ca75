"""Features that the runs of a stack keep: which rows, at which steps, and that a stop loses none."""

import math
import signal
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from ordinal_entropy import runs
from ordinal_entropy.recipes import changed
from ordinal_entropy.tasks import spread_rows
from ordinal_entropy.tasks.operators import recipe, train
from ordinal_entropy.tasks.operators.data import Triplets
from ordinal_entropy.tasks.operators.train import Job, Split, StackOptions
from ordinal_entropy.training import saved_features
from ordinal_entropy.training.plans import Plan
from ordinal_entropy.training.saved_features import feature_file, saved_entropies
from plain_network import layers, plain_network

JOBS = (
    Job("ld", seed=0, rows=40, initial="default", strength=0.1, name="one"),
    Job("classification", seed=1, rows=40, part=1, initial="default", bins=5, name="two"),
    Job("baseline", seed=2, rows=40, part=2, initial="default", name="three"),
)
SETTINGS = StackOptions(steps=47, hidden=8, evaluate_every=15, dtype="float64", feature_rows=12)
STEPS = (15, 30, 45, 47)


def a_split():
    random = np.random.default_rng(0)

    def some(n):
        functions, places = random.standard_normal((n, 5)), random.random((n, 1))
        return Triplets(functions, places, np.sin(functions.sum(1, keepdims=True)) + 3 * places)

    return Split(*(some(n) for n in (120, 33, 50)))


def files(folder):
    """All that is kept, as bytes, by path; temporary files would be among them."""
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.parent.name == "features"}


@pytest.mark.parametrize(("count", "most"), [(1, 1), (7, 7), (7, 100), (100, 7), (100_000, 600), (1000, 999)])
def test_rows_are_spread_evenly(count, most):
    rows = spread_rows(count, most).tolist()
    assert len(rows) == min(count, most) and rows[0] == 0 and rows[-1] < count
    gaps = np.diff([*rows, count])
    assert gaps.min() >= 1 and gaps.max() - gaps.min() <= 1


def test_files_hold_what_a_plain_network_gives(tmp_path):
    """Of the parameters in the last checkpoint, in the order of the jobs."""
    split = a_split()
    train.train(JOBS, split, SETTINGS, folder=tmp_path)
    training = train._Training(JOBS, split, SETTINGS, torch.device("cpu"), tmp_path)
    assert training.load()
    for k, job in enumerate(JOBS):
        network = plain_network(layers(training.stack.network.parameters.of_run(training.order.index(k))))
        own = slice(40 * job.part, 40 * (job.part + 1))
        values = torch.from_numpy(split.train.values[own])
        for part, rows, which in (
            ("train", Triplets(*(each[own] for each in split.train)), [k * 40 // 12 for k in range(12)]),
            ("test", split.test, [k * 50 // 12 for k in range(12)]),
        ):
            content = load_file(feature_file(tmp_path / job.name, part, 47))
            assert {name: (tuple(value.shape), value.dtype) for name, value in content.items()} == {
                "features": ((12, 8), torch.float32),
                "targets": ((12, 1), torch.float32),
                "predictions": ((12, 1), torch.float32),
            }
            x = torch.from_numpy(np.hstack([rows.functions, rows.places])[which])
            with torch.no_grad():
                features = network[:-1](x)
                out = network[-1](features)
            if job.method == "classification":
                width = (values.max() - values.min()) / job.bins
                out = values.min() + (out.argmax(1, keepdim=True) + 0.5) * width
            expected = {"features": features, "targets": torch.from_numpy(rows.values[which]), "predictions": out}
            for name, value in expected.items():
                torch.testing.assert_close(
                    content[name], value.float(), rtol=1e-5, atol=1e-6, msg=f"{job} {part} {name}"
                )


def test_at_every_evaluation_but_the_one_before_the_first_step(tmp_path):
    histories = train.train(JOBS, a_split(), SETTINGS, folder=tmp_path)
    assert histories[0].steps == [0, *STEPS]
    expected = {f"{part}-{step:04d}.safetensors" for part in ("train", "test") for step in STEPS}
    for job in JOBS:
        assert {path.name for path in (tmp_path / job.name / "features").iterdir()} == expected
    assert histories == train.train(JOBS, a_split(), replace(SETTINGS, feature_rows=0))  # what is kept changes nothing


@pytest.mark.parametrize("stop", [pytest.param(1, marks=pytest.mark.slow), 3, pytest.param(5, marks=pytest.mark.slow)])
@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_a_stopped_training_ends_with_the_same_files(tmp_path, error, stop):
    """After an interrupt, which writes a checkpoint first, and after a failure, which does not."""
    train.train(JOBS, a_split(), SETTINGS, folder=tmp_path / "straight")
    calls = []

    def fail(done, steps):
        calls.append(done)
        if len(calls) == stop:
            raise error

    with pytest.raises(error):
        train.train(JOBS, a_split(), replace(SETTINGS, checkpoint_every=20), folder=tmp_path / "stopped", progress=fail)
    train.train(JOBS, a_split(), SETTINGS, folder=tmp_path / "stopped")
    assert files(tmp_path / "stopped") == files(tmp_path / "straight")
    assert len(files(tmp_path / "straight")) == 3 * 2 * len(STEPS)


@pytest.mark.parametrize("during", ["write", "record"])
def test_an_interrupt_within_an_evaluation_loses_nothing(tmp_path, monkeypatch, during):
    train.train(JOBS, a_split(), SETTINGS, folder=tmp_path / "straight")
    where, name = (saved_features, "write") if during == "write" else (train._Training, "record")
    real = getattr(where, name)

    def interrupted(*given):
        monkeypatch.setattr(where, name, real)
        signal.raise_signal(signal.SIGINT)
        return real(*given)

    monkeypatch.setattr(where, name, interrupted)
    with pytest.raises(KeyboardInterrupt):
        train.train(JOBS, a_split(), SETTINGS, folder=tmp_path / "stopped")
    train.train(JOBS, a_split(), SETTINGS, folder=tmp_path / "stopped")
    assert files(tmp_path / "stopped") == files(tmp_path / "straight")


def test_without_a_folder_or_rows_nothing_is_kept(tmp_path):
    train.train(JOBS, a_split(), SETTINGS)
    train.train(JOBS, a_split(), replace(SETTINGS, feature_rows=0), folder=tmp_path)
    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {"checkpoint.pt", "model.pt"}


def test_a_diverged_run_keeps_what_is_no_number_and_the_others_theirs(tmp_path):
    split = a_split()
    broken = split.train.functions.copy()
    broken[40:80] = np.nan  # the second job's
    train.train(JOBS, split._replace(train=split.train._replace(functions=broken)), SETTINGS, folder=tmp_path)
    for job in JOBS:
        found = saved_entropies(tmp_path / job.name, "test", 47)
        assert all(math.isnan(value) if job.name == "two" else math.isfinite(value) for value in found.values())


def test_mistakes(tmp_path):
    alike = [replace(job, name="same") for job in JOBS]
    with pytest.raises(ValueError, match="expected jobs of different names, got 'same', 'same', 'same'"):
        train.train(alike, a_split(), SETTINGS, folder=tmp_path)
    with pytest.raises(ValueError, match="expected positive"):
        StackOptions(steps=1, feature_rows=-1)
    with pytest.raises(ValueError, match="expected feature_rows to be a number from 0 on, got -1"):
        changed(recipe.Operators(), {"feature_rows": -1})


class TestRunFolders:
    tiny = changed(
        recipe.Operators(),
        {
            "rows": 30,
            "parts": 3,
            "validation_rows": 20,
            "test_rows": 40,
            "steps": 20,
            "hidden": 8,
            "evaluate_every": 10,
            "feature_rows": 9,
        },
    )

    @pytest.fixture(autouse=True)
    def rows(self, tmp_path, monkeypatch):
        pytest.importorskip("scipy", reason="the splines are SciPy's")
        monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(tmp_path / "cache"))

    def test_a_run_has_its_recipe_and_scores_beside_its_features(self, tmp_path):
        plans = [
            Plan("baseline", 1, self.tiny),
            *(Plan("ld", 1, changed(self.tiny, {"strength": s})) for s in (0.1, 1.0)),
        ]
        outcomes = recipe.TASKS["linear"].train(plans, device="cpu", folder=tmp_path / "stack")
        names = "baseline-seed1-strength=0.001", "ld-seed1-strength=0.1", "ld-seed1-strength=1"
        for plan, outcome, name in zip(plans, outcomes, names, strict=True):
            run = runs.open(tmp_path / "stack" / name)
            assert (run.method, run.seed, run.recipe["method"]["strength"]) == (
                plan.method,
                1,
                plan.recipe.method.strength,
            )
            assert run.recipe["task"] == "linear" and run.recipe["training"]["feature_rows"] == 9
            history = run.result()["history"]
            for part in ("train", "validation", "test"):
                assert [scores[part]["mse"] for scores in history] == getattr(outcome, part)
            for part in ("train", "test"):
                content = load_file(feature_file(run.path, part, 20))
                assert content["features"].shape == (9, 8)
        same = recipe.TASKS["linear"].train(plans, device="cpu", folder=tmp_path / "stack")  # read back
        assert same == outcomes

    def test_without_feature_rows_there_are_none(self, tmp_path):
        plan = Plan("ld", 0, changed(self.tiny, {"feature_rows": 0}))
        recipe.TASKS["linear"].train([plan], device="cpu", folder=tmp_path / "run")
        assert not list((tmp_path / "run").rglob("features"))
