"""The recipe: its rows, its jobs, and a training of a few steps from it."""

import math
from dataclasses import fields

import numpy as np
import pytest

pytest.importorskip("scipy", reason="the splines are SciPy's")

from ordinal_entropy import runs
from ordinal_entropy.methods.classification import Classification
from ordinal_entropy.recipes import changed, described, flat, override
from ordinal_entropy.tasks.operators import data, recipe
from ordinal_entropy.tasks.operators import train as operators_train
from ordinal_entropy.tasks.operators.recipe import Operators
from ordinal_entropy.training.plans import Plan
from ordinal_entropy.training.stacked import memory
from ordinal_entropy.training.stacked.network import Shape
from ordinal_entropy.training.stacked.stack import Stack

LINEAR = recipe.TASKS["linear"]
TINY = changed(
    Operators(),
    {
        "rows": 30,
        "parts": 3,
        "validation_rows": 20,
        "test_rows": 40,
        "steps": 20,
        "hidden": 8,
        "evaluate_every": 10,
        "paths": 50,
        "samples": 5,
    },
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
    tiny = changed(TINY, {"operator": operator})
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
    other = recipe.split(changed(TINY, {"data_seed": 1}))
    assert not set(other.train.places[:, 0]) & places[1]


def test_signs_of_the_modes_are_switchable():
    eig, drawn = (
        recipe.split(changed(TINY, {"operator": "nonlinear", "signs": signs})).train for signs in ("eig", "random")
    )
    assert not np.array_equal(eig.functions, drawn.functions)
    assert eig.functions.shape == drawn.functions.shape


def test_with_files_the_last_tenth_of_the_test_rows_validates(tmp_path):
    train, test = data.generate("linear", train=30, test=50)
    data.write(tmp_path, "linear", train, test)
    split = recipe.split(changed(TINY, {"data": str(tmp_path)}))
    assert np.array_equal(split.train.values, train.values)
    assert np.array_equal(split.validation.values, test.values[45:])
    assert np.array_equal(split.test.values, test.values[:40])  # test_rows=40
    everything = recipe.split(changed(TINY, {"data": str(tmp_path), "test_rows": 1000}))
    assert np.array_equal(everything.test.values, test.values[:45])


def test_files_with_too_few_rows_are_refused(tmp_path):
    data.write(tmp_path, "linear", *data.generate("linear", train=29, test=50))
    with pytest.raises(ValueError, match=r"expected at least rows=30 training rows in .*, got 29"):
        recipe.split(changed(TINY, {"data": str(tmp_path)}))
    data.write(tmp_path, "linear", *data.generate("linear", train=30, test=9))
    with pytest.raises(ValueError, match=r"expected at least 10 test rows in .*, got 9"):
        recipe.split(changed(TINY, {"data": str(tmp_path)}))
    with pytest.raises(FileNotFoundError, match=r"got no \.npz file"):
        recipe.split(changed(TINY, {"data": str(tmp_path / "nowhere")}))


def test_jobs_are_paired():
    jobs = recipe.jobs_of(
        changed(TINY, {"strength": 0.5, "rescale": "none", "initial": "default"}), ["baseline", "ld"], range(5)
    )
    assert [(job.method, job.seed, job.part) for job in jobs[:5]] == [("baseline", k, k % 3) for k in range(5)]
    assert [(job.seed, job.part) for job in jobs[:5]] == [(job.seed, job.part) for job in jobs[5:]]
    assert {(job.strength, job.rescale, job.initial, job.rows, job.samples) for job in jobs} == {
        (0.5, "none", "default", 30, 5)
    }


def test_settings_and_jobs_take_every_key_of_the_recipe_that_they_know():
    """A key that is added to the recipe and forgotten on the way would be silently without effect."""
    own = {"learning_rate": 0.5, "weight_decay": 0.25, "dtype": "float64", "tf32": True, "bins": 7, "decode": "left"}
    other = changed(TINY, own)
    values = flat(described(other))
    (job,) = recipe.jobs_of(other, ["ld"], [0])
    for made in (job, recipe.stack_options(other)):
        for field in fields(made):
            if field.name in values and field.name != "options":
                assert getattr(made, field.name) == values[field.name]


def test_the_weight_of_the_tightness_reaches_the_parts_that_have_one():
    own = changed(TINY, {"tightness_weight": 0.5})
    made = {job.method: job.options for job in recipe.jobs_of(own, ["baseline", "ld", "oe"], [0])}
    assert made == {"baseline": (), "ld": (), "oe": (("oe", "tightness_weight", 0.5),)}
    (told,) = recipe.jobs_of(override(own, ["method.oe.tightness_weight=2"]), ["oe"], [0])
    assert told.options[-1] == ("oe", "tightness_weight", 2)


def test_the_outcomes_of_a_stack_are_in_the_order_of_its_plans(tmp_path):
    plans = [
        Plan("ld", 1, changed(TINY, {"strength": 1.0})),
        Plan("baseline", 0, TINY),
        Plan("classification", 0, TINY),
    ]
    told = []
    outcomes = LINEAR.train(plans, device="cpu", folder=tmp_path / "run", progress=lambda *x: told.append(x))
    assert [outcome.steps for outcome in outcomes] == [[0, 10, 20]] * 3
    assert told[-1] == (20, 20)
    for number, (plan, outcome) in enumerate(zip(plans, outcomes, strict=True)):
        (alone,) = LINEAR.train([plan], device="cpu", folder=tmp_path / f"alone-{number}")
        assert outcome.test == pytest.approx(alone.test, rel=1e-4)
        assert outcome.last == outcome.test[-1]
        assert outcome.best_test == min(outcome.test)
        assert outcome.best_validation == outcome.test[int(np.argmin(outcome.validation))]


def test_evaluation_gives_the_last_scores_again(tmp_path):
    plan = Plan("ld", 1, TINY)
    (outcome,) = LINEAR.train([plan], device="cpu", folder=tmp_path)
    again = recipe.evaluate(plan, device="cpu", folder=tmp_path)
    assert again == {
        "step": 20,
        "train": pytest.approx(outcome.train[-1]),
        "validation": pytest.approx(outcome.validation[-1]),
        "test": pytest.approx(outcome.last),
    }


RATES = [changed(TINY, {"learning_rate": rate, "weight_decay": decay}) for rate, decay in ((1e-3, 0.01), (1e-2, 0.3))]


def test_runs_of_several_learning_rates_are_one_stack_and_each_as_alone(tmp_path):
    plans = [Plan(method, seed, own) for method in ("baseline", "ld") for own in RATES for seed in (0, 1)]
    told = []
    outcomes = LINEAR.train(plans, device="cpu", folder=tmp_path / "all", progress=lambda *both: told.append(both))
    assert told == [(10, 20), (20, 20)]
    for number, (plan, outcome) in enumerate(zip(plans, outcomes, strict=True)):
        (alone,) = LINEAR.train([plan], device="cpu", folder=tmp_path / str(number))
        assert outcome.test == pytest.approx(alone.test, rel=1e-4)
    assert outcomes[0].test[1:] != outcomes[2].test[1:]


def test_runs_that_do_not_fit_into_memory_are_several_stacks(tmp_path, monkeypatch):
    plans = [Plan(method, seed, own) for method in ("baseline", "ld") for own in RATES for seed in (0, 1)]
    whole = LINEAR.train(plans, device="cpu", folder=tmp_path / "whole")
    own = memory.bytes_of(Shape(0, 101, hidden=TINY.model.hidden), TINY.data.rows)
    monkeypatch.setattr(memory, "CPU_BYTES", 3.5 * own)
    told = []
    parts = LINEAR.train(plans, device="cpu", folder=tmp_path / "parts", progress=lambda *both: told.append(both))
    assert told[-1] == (60, 60)  # 3, 3 and 2 runs
    for one, other in zip(parts, whole, strict=True):
        assert one.test == pytest.approx(other.test, rel=1e-4)


@pytest.mark.parametrize("bound", [None, 1])  # one at a time, but for what began together
def test_a_stack_that_was_stopped_when_one_learning_rate_made_a_stack_goes_on(bound, tmp_path, monkeypatch):
    def stop(done, total):
        raise KeyboardInterrupt

    key = lambda plan, run, rows: plan.recipe.training.learning_rate  # noqa: E731
    before = LINEAR._replace(training=LINEAR.training._replace(group_key=key, stacks=None))
    plans = [Plan("ld", seed, own) for own in RATES for seed in (0, 1)]
    with pytest.raises(KeyboardInterrupt):
        before.train(plans, device="cpu", folder=tmp_path / "runs", progress=stop)  # after 10 steps of the first
    if bound:
        monkeypatch.setattr(memory, "CPU_BYTES", bound)
    seen, advance = [], Stack.advance

    def noted(self, steps):
        seen.append((len(self.members), self.step))
        advance(self, steps)

    monkeypatch.setattr(Stack, "advance", noted)
    outcomes = LINEAR.train(plans, device="cpu", folder=tmp_path / "runs")
    assert seen == [(2, 10), *([(1, 0), (1, 10)] * 2 if bound else [(2, 0), (2, 10)])]
    monkeypatch.setattr(Stack, "advance", advance)
    for one, other in zip(outcomes, LINEAR.train(plans, device="cpu", folder=tmp_path / "whole"), strict=True):
        assert one.test == pytest.approx(other.test, rel=1e-4)


def test_a_checkpoint_names_settings_in_common_where_it_did_when_all_runs_shared_them(tmp_path):
    split, options = recipe.split(TINY), recipe.stack_options(TINY)
    alike = recipe.jobs_of(TINY, ["baseline", "ld"], [0])
    found = operators_train._identity(alike, split, options, [0, 1])
    assert (found["settings"]["learning_rate"], found["settings"]["weight_decay"]) == (1e-3, 0.01)
    assert not {"learning_rate", "weight_decay"} & found["jobs"][0].keys()
    apart = [*alike, *recipe.jobs_of(RATES[1], ["ld"], [0])]
    found = operators_train._identity(apart, split, options, [0, 1, 2])
    assert [own["learning_rate"] for own in found["jobs"]] == [1e-3, 1e-3, 1e-2]
    assert "learning_rate" not in found["settings"]


def test_runs_that_differ_in_more_than_their_method_are_stacks_of_their_own(tmp_path):
    wide = changed(TINY, {"hidden": 9})
    plans = [Plan(method, 0, own) for method in ("baseline", "ld") for own in (TINY, wide)]
    told = []
    outcomes = LINEAR.train(plans, device="cpu", folder=tmp_path / "both", progress=lambda *x: told.append(x))
    assert told == [(10, 40), (20, 40), (30, 40), (40, 40)]
    for own in (TINY, wide):
        chosen = [k for k, plan in enumerate(plans) if plan.recipe == own]
        apart = LINEAR.train([plans[k] for k in chosen], device="cpu", folder=tmp_path / str(own.model.hidden))
        assert [outcomes[k] for k in chosen] == apart
    with pytest.raises(ValueError, match="expected at least one run, got none"):
        LINEAR.train([], device="cpu", folder=tmp_path)


TOO_HOT = RuntimeError("the device\nis too hot")


def broken(*runs, error=TOO_HOT):
    """Steps of a stack, which raise an exception after the tenth where it has one of these runs; none: any."""
    real = Stack.advance

    def advance(self, steps):
        own = {(member.method.name, member.seed) for member in self.members}
        if self.step >= 10 and (not runs or own & set(runs)):
            raise error
        real(self, steps)

    return advance


class TestGoOn:
    plans = tuple(Plan(method, seed, TINY) for method in ("baseline", "ld") for seed in (0, 1))
    names = "baseline-seed0", "baseline-seed1", "ld-seed0", "ld-seed1"

    def trained(self, folder, plans=plans):
        """Outcomes, and what progress was told."""
        told = []
        found = LINEAR.train(
            plans, device="cpu", folder=folder, progress=lambda *numbers: told.append(numbers), go_on=True
        )
        return found, told

    def same(self, outcomes, expected):
        for outcome, other in zip(outcomes, expected, strict=True):
            assert outcome.failure is None and outcome.steps == other.steps
            assert outcome.test == pytest.approx(other.test, rel=1e-4)

    def test_a_stack_without_a_failure_is_one_stack(self, tmp_path):
        outcomes, told = self.trained(tmp_path)
        assert told == [(10, 20), (20, 20)]
        (checkpoint,) = tmp_path.rglob("checkpoint.pt")
        assert {path.name for path in tmp_path.iterdir()} == {*self.names, checkpoint.parent.name}
        for name in self.names:
            run = runs.open(tmp_path / name)
            assert run.result() is not None and [line["step"] for line in run.metrics()] == [0, 10, 20]
        assert self.trained(tmp_path) == (outcomes, [])

    def test_where_a_run_fails_the_others_go_on(self, tmp_path, monkeypatch):
        expected, _ = self.trained(tmp_path / "whole")
        tmp_path = tmp_path / "broken"
        with monkeypatch.context() as patch:
            patch.setattr(Stack, "advance", broken(("baseline", 1)))
            outcomes, told = self.trained(tmp_path)
        failure = outcomes[1].failure
        assert (failure["type"], failure["message"]) == ("RuntimeError", "the device is too hot")
        assert math.isnan(outcomes[1].best_validation) and outcomes[1].test == []
        self.same([outcomes[k] for k in (0, 2, 3)], [expected[k] for k in (0, 2, 3)])
        assert told == [(10, 20), *((done, 80) for done in (10, 20, 30, 50, 60, 70, 80))]
        assert "too hot" in runs.read_json(tmp_path / self.names[1] / "failure.json")["traceback"]
        found = [runs.open(tmp_path / name) for name in self.names]
        assert [run.result() is None for run in found] == [run.failure() is not None for run in found]
        assert [run.failure() is not None for run in found] == [False, True, False, False]
        again = recipe.evaluate(self.plans[3], device="cpu", folder=found[3].path)
        assert again["step"] == 20 and again["test"] == pytest.approx(outcomes[3].last)

        once_more, told = self.trained(tmp_path)  # the run that failed, only
        assert told == [(10, 20), (20, 20)]
        self.same(once_more, expected)
        assert [once_more[k] for k in (0, 2, 3)] == [outcomes[k] for k in (0, 2, 3)]
        assert found[1].failure() is None and found[1].result() is not None
        assert self.trained(tmp_path) == (once_more, [])

    def test_a_run_that_cannot_begin_fails_alone(self, tmp_path, monkeypatch):
        real = Classification.prepare

        def prepare(method, targets, *rest):
            if targets.min() == targets.max():
                raise ValueError("expected targets that differ")
            real(method, targets, *rest)

        monkeypatch.setattr(Classification, "prepare", prepare)
        rows, test = data.generate("linear", train=90, test=50)
        rows.values[30:60] = 1.0  # of seed 1: no range for the bins
        data.write(tmp_path / "rows", "linear", rows, test)
        own = changed(TINY, {"data": str(tmp_path / "rows")})
        plans = [Plan(method, seed, own) for method in ("baseline", "classification") for seed in range(3)]
        outcomes, _ = self.trained(tmp_path / "runs", plans)
        assert [outcome.failure is not None for outcome in outcomes] == [False] * 4 + [True, False]
        assert outcomes[4].failure["message"].startswith("expected targets that differ")
        assert all(math.isfinite(outcome.last) for outcome in outcomes if outcome.failure is None)

    def test_one_by_one_a_stop_is_gone_on_from(self, tmp_path, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(Stack, "advance", broken(("baseline", 0)))
            expected, _ = self.trained(tmp_path / "straight")

            def stop(done, total):
                if (done, total) == (50, 80):
                    raise KeyboardInterrupt

            with pytest.raises(KeyboardInterrupt):
                LINEAR.train(self.plans, device="cpu", folder=tmp_path / "stopped", progress=stop, go_on=True)
            outcomes, told = self.trained(tmp_path / "stopped")
        stack, alone = (10, 40), [(10, 60), (30, 60), (40, 60)]  # of the first and the last; the third goes on
        assert told == [stack, *alone, (60, 60)]
        assert outcomes[1:] == expected[1:] and outcomes[0].failure["message"] == expected[0].failure["message"]

    def test_features_lie_where_those_of_a_stack_do(self, tmp_path, monkeypatch):
        plans = [plan._replace(recipe=changed(TINY, {"feature_rows": 9})) for plan in self.plans]
        self.trained(tmp_path / "stack", plans)
        monkeypatch.setattr(Stack, "advance", broken(("ld", 1)))
        self.trained(tmp_path / "alone", plans)
        files = [
            {path.relative_to(tmp_path / folder) for path in (tmp_path / folder).rglob("*.safetensors")}
            for folder in ("stack", "alone")
        ]
        assert len(files[0]) == 4 * 2 * 2
        assert {str(path) for path in files[0] - files[1]} == {
            f"ld-seed1/features/{part}-0020.safetensors" for part in ("train", "test")
        }

    def test_all_fail(self, tmp_path, monkeypatch):
        with monkeypatch.context() as patch:
            patch.setattr(Stack, "advance", broken())
            outcomes, told = self.trained(tmp_path)
            assert all(outcome.failure["type"] == "RuntimeError" for outcome in outcomes)
            assert all(done <= total for done, total in told)
            with pytest.raises(RuntimeError, match="too hot"):
                LINEAR.train(self.plans, device="cpu", folder=tmp_path)
        outcomes, _ = self.trained(tmp_path)
        self.same(outcomes, self.trained(tmp_path / "whole")[0])

    @pytest.mark.parametrize("error", [KeyboardInterrupt(), ModuleNotFoundError("no scipy")])
    def test_what_is_no_failure_of_a_run_is_raised(self, error, tmp_path, monkeypatch):
        monkeypatch.setattr(Stack, "advance", broken(("ld", 1), error=error))
        with pytest.raises(type(error)):
            self.trained(tmp_path)
        assert not list(tmp_path.rglob("failure.json"))

    def test_so_is_what_hits_all_runs_before_they_begin(self, tmp_path):
        data.write(tmp_path / "rows", "linear", *data.generate("linear", train=90, test=50))
        own = [plan._replace(recipe=changed(TINY, {"data": str(tmp_path / "rows")})) for plan in self.plans]
        self.trained(tmp_path / "runs", own)
        for result in tmp_path.glob("runs/*/result.json"):
            result.unlink()
        data.write(tmp_path / "rows", "linear", *data.generate("linear", train=90, test=50, seed=1))
        with pytest.raises(
            ValueError, match=r"expected a checkpoint of the same training in .*, got one with other rows"
        ):
            self.trained(tmp_path / "runs", own)
        plans = [plan._replace(recipe=changed(plan.recipe, {"data_seed": 1})) for plan in own]
        with pytest.raises(
            ValueError, match=r"expected recipe\.data\.data_seed to be 0 as in the run that .* holds, got 1"
        ):
            self.trained(tmp_path / "runs", plans)
        plans = [plan._replace(recipe=changed(TINY, {"data": str(tmp_path / "nowhere")})) for plan in self.plans]
        with pytest.raises(FileNotFoundError, match=r"got no \.npz file"):
            self.trained(tmp_path / "other", plans)
        assert not list(tmp_path.rglob("failure.json"))


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
