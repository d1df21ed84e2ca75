"""A tuned comparison on tasks: whose rows are tuned on, what becomes of a trial's settings, what a stop leaves."""

import json

import numpy as np
import pytest
import torch

pytest.importorskip("optuna", reason="the search is Optuna's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")
pytest.importorskip("typer", reason="the command line is typer's")

from command_line import TINY, call, words
from ordinal_entropy import tasks
from ordinal_entropy.comparison.tuning import Budget
from ordinal_entropy.studies.custom import CustomStudy
from ordinal_entropy.studies.tuned import TunedStudy
from ordinal_entropy.tasks.tabular import recipe as tabular
from ordinal_entropy.tasks.tabular.data import Table
from ordinal_entropy.training import runner
from ordinal_entropy.training.plans import Plan

BUDGET = Budget(trials=6, seeds=2)


def rows_used(task, number, budget, count, use):
    """What the trials of one tuning see, and the test rows of its fresh runs; ``use(recipe, seed)`` gives both."""
    recipe = tasks.load(task).set_aside(use.recipe, number)
    seen = [use(recipe, seed)[0] for seed in budget.tuning_seeds(number)]
    tested = [use(recipe, seed)[1] for seed in budget.fresh_seeds(number, count)]
    return set().union(*seen), set().union(*tested)


@pytest.mark.parametrize("published", [False, True])
def test_no_row_of_a_table_that_is_tuned_on_is_a_test_row_of_a_fresh_run(published):
    n, rng = 150, np.random.default_rng(0)
    splits = tuple(rng.permutation(n)[:30] for _ in range(4)) if published else ()
    table = Table(rng.normal(size=(n, 2)), ("a", "b"), np.empty((n, 0), dtype=object), (), rng.normal(size=n), splits)
    budget = Budget(trials=6, seeds=3, tunings=5)

    def use(recipe, seed):
        rows = tabular.rows_of(table, seed, recipe)
        return {*rows.train.tolist(), *rows.validation.tolist()}, {*rows.test.tolist()}

    use.recipe = tasks.recipe("tabular", "quick", ["batch_size=16"])
    every = [rows_used("tabular", number, budget, 10, use) for number in range(budget.tunings)]
    assert all(seen and tested and not seen & tested for seen, tested in every)
    assert len(every[0][1]) == 30 and every[0][1] != every[1][1]  # other tunings have other test rows
    # without it, the test rows of seeds are drawn anew: most of the tuned rows would be among them
    own = [use(use.recipe, seed) for seed in (*budget.tuning_seeds(0), *range(10))]
    assert set().union(*(seen for seen, _ in own[:3])) & set().union(*(tested for _, tested in own[3:]))


def test_the_same_of_operators_and_faces(tmp_path, monkeypatch):
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(tmp_path))
    from ordinal_entropy.tasks.operators import recipe as operators

    def function_rows(recipe, seed):
        split = operators.split(recipe)
        train, validation, test = (
            {row.tobytes() for row in np.hstack([part.functions, part.places])} for part in split
        )
        return train | validation, test

    function_rows.recipe = tasks.recipe("linear", "quick", ["rows=30", "parts=3", "validation_rows=20", "test_rows=40"])
    seen, tested = rows_used("linear", 0, BUDGET, 4, function_rows)
    assert len(seen) == 3 * 30 + 20 and len(tested) == 40 and not seen & tested

    from ordinal_entropy.tasks.age.recipe import _Faces, split_for

    named = {"train": Named(range(50)), "val": Named(range(50, 60)), "test": Named(range(60, 70))}
    found = _Faces(named, {split: torch.rand(len(own), 1) for split, own in named.items()}, 0)

    def faces(recipe, seed):
        own = split_for(Plan("oe", seed, recipe), found)
        return {*own.train.images.rows, *own.validation.images.rows}, {*own.test.images.rows}

    faces.recipe = tasks.recipe("age", "quick", ["train_rows=20"])
    seen, tested = rows_used("age", 0, BUDGET, 4, faces)
    assert len(seen) > 20 + 10 and len(tested) == 10 and not seen & tested


class Named:
    """Images that are numbers."""

    def __init__(self, rows):
        self.rows = list(rows)

    def __len__(self):
        return len(self.rows)

    def take(self, rows):
        return Named(self.rows[row] for row in rows.tolist())


def a_study(*settings, methods=("baseline", "oe", "lds+ld")):
    recipe = tasks.recipe("tabular", "quick", settings)
    return TunedStudy("tabular", recipe, settings, methods, 3, BUDGET)


def test_what_is_searched_is_the_rows_own():
    ranges = a_study().ranges()
    assert list(ranges["baseline"]) == ["weight_decay"]
    assert list(ranges["oe"]) == ["weight_decay", "oe.balance", "oe.tightness_weight"]
    parts = ["weight_decay", "lds.bandwidth", "lds.power", "ld.balance"]
    assert list(ranges["lds+ld"]) == parts


def test_options_that_the_user_set_are_left_alone_and_ranges_hold_the_recipes_own_strength():
    ranges = a_study("method.oe.strength=5", "method.lds.power=1").ranges()
    assert list(ranges["oe"]) == ["weight_decay", "oe.tightness_weight"]
    assert list(ranges["lds+ld"]) == ["weight_decay", "lds.bandwidth", "ld.balance"]
    low = tasks.recipe("linear").method.strength
    study = TunedStudy("linear", tasks.recipe("linear"), (), ["oe"], 3, BUDGET)
    assert study.ranges()["oe"]["oe.strength"].low == pytest.approx(low / 10)
    assert "oe.balance" not in study.ranges()["oe"]
    assert list(a_study("strength=2").ranges()["lds+ld"]) == [
        "weight_decay",
        "lds.bandwidth",
        "lds.power",
        "ld.strength",
    ]
    assert a_study("balance=5").ranges()["oe"]["oe.balance"].high == 50
    staged = a_study("method.rnc.stages=2", methods=("baseline", "rnc+ld")).ranges()["rnc+ld"]
    assert {"rnc.strength", "ld.strength"} <= staged.keys() and not {"rnc.balance", "ld.balance"} & staged.keys()
    assert list(a_study("method.oe.balance=0.1").ranges()["oe"]) == ["weight_decay", "oe.tightness_weight"]


def test_the_settings_of_a_trial_reach_its_recipe():
    study = a_study("method.lds.power=1")
    settings = {"learning_rate": 0.00123, "weight_decay": 2e-5, "oe.strength": 3.3}
    recipe = study.set_to(study.recipe, settings)
    assert (recipe.training.learning_rate, recipe.training.weight_decay) == (0.00123, 2e-5)
    assert recipe.method.options == ("lds.power=1", "oe.strength=3.3")
    variant = study.variant(study.recipe, "oe", settings)
    assert variant.name == "oe" and dict(variant.changes)["learning_rate"] == 0.00123
    assert tasks.recipe("tabular", "quick").training.learning_rate not in settings.values()


SMALL = ["compare", "tabular", "--preset", "quick", "--methods", "oe,baseline", "--seeds", 2, "--device", "cpu"]
SMALL += [f"--set={each}" for each in ("generated=100", "epochs=2", "batch_size=32", "hidden=8", "pieces=4")]
SMALL += ["--tune", "--trials", 6, "--tuning-seeds", 2]


@pytest.mark.slow
def test_the_command_tunes_trains_and_says_what_the_verdict_is_of(elsewhere, tmp_path):
    result = call(*SMALL, "--out", "there")
    said = words(result.stdout)
    assert "24 + 4 runs" in words(result.stderr) and "chosen on validation data: baseline:" in words(result.stderr)
    assert "Every row was tuned once (6 trials of 2 seeds each, on validation data). All runs share" in said
    assert "Before tuning, with the learning rate of the recipe in all rows: oe against baseline" in said
    assert "Against the learning rate, all else at its default: validation RMSE" in said
    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    assert list(summary["methods"]) == ["baseline", "oe"] and summary["paired"]["oe"]["n"] == 2
    for own in summary["tuning"].values():
        assert {"trials", "chosen", "validation", "seconds", "curve", "failed"} <= own.keys()
        assert own["trials"] == 6 and own["seconds"] > 0 and len(own["curve"]) >= 3
        assert own["validation"] <= min(score for _, score in own["curve"])
    chosen = summary["tuning"]["oe"]["chosen"]
    assert summary["variants"]["oe"]["learning_rate"] == chosen["learning_rate"]
    assert summary["recipe"]["data"]["split"] == 0
    runs = [json.loads(path.read_text()) for path in (tmp_path / "there" / "training").glob("*/recipe.json")]
    assert sorted(run["seed"] for run in runs) == [0, 0, 1, 1]
    again = call(*SMALL, "--out", "there")
    assert again.stdout == result.stdout.replace("Written to", "Read back from")
    assert "--tune --trials 6 --tuning-seeds 2 --tunings 1 --device cpu" in summary["command"]


@pytest.mark.slow
def test_a_stop_at_any_stage_resumes_and_no_trial_is_trained_twice(elsewhere, tmp_path, monkeypatch):
    whole = tmp_path / "whole"
    call(*SMALL, "--out", whole)
    trained, left = [], [0]
    train = runner.train

    def counted(task, plans, **options):
        waiting = {id(each) for each in plans}
        before = runner.gather(task, plans, folder=options["folder"])
        trained.extend(
            (str(options["folder"]), plan.method, plan.seed, plan.recipe.training.learning_rate)
            for plan, outcome in zip(plans, before, strict=True)
            if outcome.failure is not None and id(plan) in waiting
        )
        found = train(task, plans, **options)
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(runner, "train", counted)
    for stages in (1, 1, 2, 0):
        left[0] = stages
        call(*SMALL, "--out", "there", status=130 if stages else 0)
    assert len(trained) == len(set(trained)) == 2 * 6 * 2 + 4
    found, expected = (json.loads((each / "summary.json").read_text()) for each in (tmp_path / "there", whole))
    for row in ("baseline", "oe"):
        assert found["tuning"][row]["chosen"] == expected["tuning"][row]["chosen"]
        assert found["methods"][row] == expected["methods"][row]
    for path in (tmp_path / "there" / "tuning").rglob("result.json"):  # test scores of trials, which nothing looks at
        result = json.loads(path.read_text())
        for scores in result["history"]:
            scores["test"] = {name: -result["history"].index(scores) for name in scores["test"]}
        path.write_text(json.dumps(result))
    (tmp_path / "there" / "summary.json").unlink()
    call(*SMALL, "--out", "there")
    assert json.loads((tmp_path / "there" / "summary.json").read_text())["tuning"] == found["tuning"]
    assert len(trained) == 2 * 6 * 2 + 4


def test_trials_that_raise_are_counted_and_the_others_go_on(elsewhere, tmp_path, monkeypatch):
    from ordinal_entropy.tasks.operators import recipe as operators

    train_group = operators.train_group

    def failing(group, *rest):
        if any(plan.method == "oe" and plan.recipe.training.learning_rate > 5e-3 for plan, _ in group):
            raise FloatingPointError("diverged")
        train_group(group, *rest)

    task = operators.TASKS["linear"]
    broken = task._replace(training=task.training._replace(train_group=failing))
    monkeypatch.setitem(operators.TASKS, "linear", broken)
    options = [
        "compare",
        "linear",
        "--methods",
        "oe,baseline",
        "--seeds",
        2,
        "--tune",
        "--trials",
        6,
        "--tuning-seeds",
        1,
    ]
    result = call(*options, *TINY, "--out", "there")
    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    assert summary["tuning"]["oe"]["failed"] >= 1 and summary["tuning"]["baseline"]["failed"] == 0
    assert summary["tuning"]["oe"]["chosen"]["learning_rate"] <= 5e-3
    assert "failed)" in words(result.stdout) and "Traceback" not in result.output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--trials", 6], "expected --tune beside --trials"),
        (["--tune", "--trials", 5], "expected at least 6 trials of each row"),
        (["--tune", "--strengths", "0.1,1"], "expected --tune or --strengths, got both"),
        (["--tune", "--stop-early"], "expected --tune or --stop-early, got both"),
        (["--tune", "--seeds", 2000], "expected fresh seeds that no trial was trained with, got 1000 among both"),
    ],
)
def test_what_cannot_be_tuned_is_one_sentence(elsewhere, options, sentence):
    result = call("compare", "linear", "--methods", "baseline,oe", *options, status=2)
    assert sentence in words(result.stderr)


def test_a_folder_is_for_one_budget():
    def study(**options):
        recipe = tasks.recipe("linear", "quick")
        return CustomStudy("linear", "quick", [], recipe, methods=["baseline", "oe"], seeds=5, **options)

    assert study(tune=BUDGET).label() == {**study().label(), "tune": {"trials": 6, "seeds": 2, "tunings": 1}}


@pytest.mark.slow
def test_several_tunings_are_what_the_interval_is_over(elsewhere, tmp_path):
    options = ["compare", "linear", "--methods", "oe,baseline", "--seeds", 2, "--tune", "--trials", 6]
    result = call(*options, "--tuning-seeds", 1, "--tunings", 3, *TINY, "--out", "there")
    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    assert summary["paired"]["oe"]["n"] == len(summary["methods"]["oe"]["values"]) == 3
    curves = json.loads((tmp_path / "there" / "curves.json").read_text())
    assert sorted(run["seed"] for run in curves["runs"] if run["variant"] == "oe") == [*range(6)]
    assert "the verdict is of tuning and then training" in words(result.stdout)
    assert [own["trials"] for own in summary["tuning"]["oe"]["tunings"]] == [6, 6, 6]
    recipe = tasks.recipe("linear", "quick", [each.removeprefix("--set=") for each in TINY if "--set=" in str(each)])
    fresh = [Budget(6, 1, 3).fresh_seeds(number, 2) for number in range(3)]
    expected = [np.mean(tasks.load("linear").references(recipe, seeds, ())["constant"]) for seeds in fresh]
    assert summary["reference_values"] == {"constant": pytest.approx(expected)}
    assert summary["references"] == {"constant": pytest.approx(np.mean(expected))}
