"""The recipe: its rows, its jobs, and a training of a few steps from it."""

from dataclasses import fields, replace

import numpy as np
import pytest

pytest.importorskip("scipy", reason="the splines are SciPy's")

from ordinal_entropy import tasks
from ordinal_entropy.recipes import explained, override
from ordinal_entropy.tasks import Plan
from ordinal_entropy.tasks.operators import data, recipe
from ordinal_entropy.tasks.operators.recipe import Operators

TINY = Operators(
    rows=30, parts=3, validation_rows=20, test_rows=40, steps=20, hidden=8, evaluate_every=10, paths=50, samples=5
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Generated rows, which the tests share."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def shared_rows(cache, monkeypatch):
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(cache))


@pytest.mark.parametrize("operator", data.NAMES)
def test_rows_are_as_many_as_asked_for_and_kept(operator, tmp_path, monkeypatch):
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(tmp_path))
    tiny = replace(TINY, operator=operator)
    split = recipe.split(tiny)
    assert [len(part.values) for part in split] == [90, 20, 40]
    again = recipe.split(tiny)  # from the cache
    assert all(
        np.array_equal(a, b) for one, other in zip(split, again, strict=True) for a, b in zip(one, other, strict=True)
    )
    assert len(list(tmp_path.iterdir())) == 2


def test_parts_of_the_split_share_no_row():
    split = recipe.split(TINY)
    places = [set(part.places[:, 0]) for part in split]
    assert not places[0] & places[1] and not places[1] & places[2] and not places[0] & places[2]
    other = recipe.split(replace(TINY, data_seed=1))
    assert not set(other.train.places[:, 0]) & places[1]


def test_signs_of_the_modes_are_switchable():
    eig, drawn = (recipe.split(replace(TINY, operator="nonlinear", signs=signs)).train for signs in ("eig", "random"))
    assert not np.array_equal(eig.functions, drawn.functions)
    assert eig.functions.shape == drawn.functions.shape


def test_with_files_the_last_tenth_of_the_test_rows_validates(tmp_path):
    train, test = data.generate("linear", train=30, test=50)
    data.write(tmp_path, "linear", train, test)
    split = recipe.split(replace(TINY, data=str(tmp_path)))
    assert np.array_equal(split.train.values, train.values)
    assert np.array_equal(split.validation.values, test.values[45:])
    assert np.array_equal(split.test.values, test.values[:40])  # test_rows=40
    everything = recipe.split(replace(TINY, data=str(tmp_path), test_rows=1000))
    assert np.array_equal(everything.test.values, test.values[:45])


def test_files_with_too_few_rows_are_refused(tmp_path):
    data.write(tmp_path, "linear", *data.generate("linear", train=29, test=50))
    with pytest.raises(ValueError, match=r"expected at least rows=30 training rows in .*, got 29"):
        recipe.split(replace(TINY, data=str(tmp_path)))
    data.write(tmp_path, "linear", *data.generate("linear", train=30, test=9))
    with pytest.raises(ValueError, match=r"expected at least 10 test rows in .*, got 9"):
        recipe.split(replace(TINY, data=str(tmp_path)))
    with pytest.raises(FileNotFoundError, match=r"got no \.npz file"):
        recipe.split(replace(TINY, data=str(tmp_path / "nowhere")))


def test_jobs_are_paired():
    jobs = recipe.jobs_of(replace(TINY, strength=0.5, rescale="none", initial="default"), ["baseline", "ld"], range(5))
    assert [(job.method, job.seed, job.part) for job in jobs[:5]] == [("baseline", k, k % 3) for k in range(5)]
    assert [(job.seed, job.part) for job in jobs[:5]] == [(job.seed, job.part) for job in jobs[5:]]
    assert {(job.strength, job.rescale, job.initial, job.rows, job.samples) for job in jobs} == {
        (0.5, "none", "default", 30, 5)
    }


def test_settings_and_jobs_take_every_key_of_the_recipe_that_they_know():
    """A key that is added to the recipe and forgotten on the way would be silently without effect."""
    changed = replace(TINY, learning_rate=0.5, weight_decay=0.25, dtype="float64", tf32=True, bins=7, decode="left")
    (job,) = recipe.jobs_of(changed, ["ld"], [0])
    for made in (job, recipe.settings(changed)):
        for field in fields(made):
            if hasattr(changed, field.name):
                assert getattr(made, field.name) == getattr(changed, field.name)


def test_a_stack_trains_in_the_order_of_its_plans(tmp_path):
    plans = [Plan("ld", 1, replace(TINY, strength=1.0)), Plan("baseline", 0, TINY), Plan("classification", 0, TINY)]
    told = []
    outcomes = recipe.train_stacked(plans, device="cpu", folder=tmp_path / "run", progress=lambda *x: told.append(x))
    assert [outcome.steps for outcome in outcomes] == [[0, 10, 20]] * 3
    assert told[-1] == (20, 20)
    for plan, outcome in zip(plans, outcomes, strict=True):
        (alone,) = recipe.train_stacked([plan], device="cpu")
        assert outcome.test == pytest.approx(alone.test, rel=1e-4)
        assert outcome.last == outcome.test[-1]
        assert outcome.best_test == min(outcome.test)
        assert outcome.best_validation == outcome.test[int(np.argmin(outcome.validation))]


def test_evaluation_gives_the_last_scores_again(tmp_path):
    plan = Plan("ld", 1, TINY)
    (outcome,) = recipe.train_stacked([plan], device="cpu", folder=tmp_path)
    again = recipe.evaluate(plan, device="cpu", folder=tmp_path)
    assert again == {
        "step": 20,
        "train": pytest.approx(outcome.train[-1]),
        "validation": pytest.approx(outcome.validation[-1]),
        "test": pytest.approx(outcome.last),
    }


def test_runs_of_a_stack_share_all_but_their_method():
    with pytest.raises(ValueError, match="expected runs of a stack to differ in strength, balance, samples"):
        recipe.train_stacked([Plan("ld", 0, TINY), Plan("ld", 0, replace(TINY, hidden=9))], device="cpu")
    with pytest.raises(ValueError, match="expected at least one run, got none"):
        recipe.train_stacked([], device="cpu")


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("steps=0", "expected steps to be at least 1, got 0"),
        ("rows=-1", "expected rows to be at least 1, got -1"),
        ("strength=-1", "expected strength to be a number from 0 on, got -1.0"),
        ("learning_rate=0", "expected learning_rate to be a positive number, got 0.0"),
        ("samples=1", "expected samples from 2 to rows=1000, or none for all, got 1"),
        ("samples=1001", "expected samples from 2 to rows=1000, or none for all, got 1001"),
        ("bins=1", "expected bins to be at least 2, got 1"),
        ("operator=linaer", "expected a value of operator like 'linear'"),
    ],
)
def test_what_no_run_can_have_is_refused(setting, sentence):
    with pytest.raises(ValueError) as error:
        override(Operators(), [setting])
    assert sentence in str(error.value)


def test_presets_are_the_published_recipe_and_a_quick_one():
    assert {name: tasks.recipe(name).steps for name in recipe.PRESETS} == {
        "linear": 50_000,
        "nonlinear": 100_000,
        "nonlinear-paths": 100_000,
    }
    for name in recipe.PRESETS:
        assert tasks.recipe(name).operator == tasks.recipe(name, "quick").operator == name
    with pytest.raises(
        ValueError, match="expected the name of a preset of linear, got 'small'; there are paper, quick"
    ):
        tasks.recipe("linear", "small")
    with pytest.raises(ValueError, match="expected a task like 'linear'"):
        tasks.load("lineer")


def test_most_keys_have_a_comment():
    said = {key: comment for key, _, comment in explained(Operators())}
    assert said["samples"].startswith("rows drawn in each step")
    assert [key for key, comment in said.items() if not comment] == ["learning_rate", "dtype"]
