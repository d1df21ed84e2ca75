"""The best composition on a task: the command, what it leaves, what a stop leaves, what it refuses."""

import json
import math
import shlex

import pytest

pytest.importorskip("optuna", reason="the search is Optuna's")
pytest.importorskip("scipy", reason="the distributions are SciPy's")
pytest.importorskip("typer", reason="the command line is typer's")

import ordinal_entropy as oe
from command_line import call, words
from ordinal_entropy import comparison, tasks
from ordinal_entropy.comparison.tuning import FIRST_SEED
from ordinal_entropy.methods import registry
from ordinal_entropy.results import tables
from ordinal_entropy.studies import best
from ordinal_entropy.studies.best import BestStudy
from ordinal_entropy.training import runner

SETTINGS = ["generated=100", "epochs=2", "batch_size=32", "hidden=8", "pieces=4"]
SMALL = ["best", "tabular", "--preset", "quick", "--parts", "lds,huber", "--seeds", 3, "--device", "cpu"]
SMALL += [*(f"--set={each}" for each in SETTINGS), "--budget", "10m"]


def a_study(*settings, task="tabular", preset="quick", **further):
    recipe = tasks.recipe(task, preset, settings)
    return BestStudy(task, preset, settings, recipe, further.pop("budget", 60.0), **further)


def test_compositions_are_those_that_join_and_that_the_task_can_train():
    study = a_study()
    assert study.joined("baseline", "lds") == "lds" and study.joined("lds", "huber") == "lds+huber"
    assert study.joined("huber", "hl-gauss") is None  # two losses
    depth = a_study("generated=20", task="depth")
    assert depth.joined("baseline", "lds") == "lds" and depth.joined("baseline", "ranksim") is None  # rows, not maps


def test_controls_are_tried_where_they_are_asked_for_alone():
    assert not {"koleo", "ld-sqrt", "baseline"} & {*a_study().chosen}
    assert a_study(parts=["koleo", "lds"]).chosen == ["koleo", "lds"]
    ours = {name for name in oe.methods.names() if registry._entry(name).make.__module__.startswith("ordinal_entropy")}
    assert {*best.PARTS, *best.NOT_TRIED, "baseline"} == ours  # none is forgotten


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--budget", "soon"], "expected a duration like 20m, 90s or 1h30m, got 'soon'"),
        (["--budget", "0s"], "expected a budget above 0 seconds, got 0"),
        (["--parts", "lds+oe"], "expected single parts of methods to choose from, got 'lds+oe'"),
        (["--parts", "baseline"], "expected single parts of methods to choose from, got 'baseline'"),
        (["--parts", "ldss"], "expected a method like 'lds'"),
        (["--seeds", "1"], "expected at least 2 seeds"),
        (["--budget", "1ms"], "expected a duration like 20m"),
    ],
)
def test_mistakes_are_one_sentence(elsewhere, arguments, expected):
    result = call("best", "tabular", "--preset", "quick", *arguments, status=2)
    assert expected in words(result.stderr) and "Traceback" not in result.output


def test_too_small_a_budget_is_said_with_the_smallest_that_works(elsewhere, tmp_path):
    result = call(*SMALL[:-1], "0.01s", "--out", "there", status=2)
    assert "expected a budget of at least" in words(result.stderr) and "since a run takes about" in words(result.stderr)
    assert not (tmp_path / "there" / "training").exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("best") / "there"
    return folder, call(*SMALL, "--out", folder)


def test_the_command_finds_compares_and_leaves_a_model(whole):
    folder, result = whole
    summary = json.loads((folder / "summary.json").read_text())
    own, said = summary["best"], words(result.stdout)
    assert set(own["rounds"][0]["screened"]) == {"lds", "huber"} and own["parts"] == ["lds", "huber"]
    assert next(iter(summary["methods"])) == "baseline" and len(summary["methods"]) == 2
    assert all(len(each["values"]) == 3 for each in summary["methods"].values())
    assert summary["tuning"]["baseline"]["trials"] >= 16 and summary["recipe"]["data"]["split"] == 0
    assert "all on validation data" in said and "Round 1, beside baseline: validation RMSE" in said
    assert (folder / own["model"] / "result.json").exists()
    verdict = comparison.verdict(summary)
    gained = own["winner"] != "baseline"
    first = f"on validation data is {own['winner']}." if gained else "No gain on the tuned baseline was confirmed on"
    assert first in verdict.headline and first in said
    assert [table.title for table in tables.selection(summary, 1.0)] == [
        f"Round {place}, beside {each['best']}: validation RMSE" for place, each in enumerate(own["rounds"], 1)
    ]
    assert (
        summary["command"].endswith("--seeds 3 --parts lds,huber --device cpu")
        and "--budget 600s" in summary["command"]
    )
    again = words(call(*SMALL, "--out", folder).stdout)
    assert "Read back from" in again and said.split("Written to")[0] == again.split("Read back from")[0]


def test_the_model_is_that_of_the_best_validation_score_among_the_winners_runs(whole):
    folder, _ = whole
    summary = json.loads((folder / "summary.json").read_text())
    run = folder / summary["best"]["model"]
    method = json.loads((run / "recipe.json").read_text())["method"]
    assert method == summary["variants"][summary["best"]["winner"]]["method"]

    def score(path):
        history = json.loads((path / "result.json").read_text())["history"]
        return min(each["validation"]["rmse"] for each in history)

    same = [path.parent for path in (folder / "training").glob("*/recipe.json")]
    same = [path for path in same if path.name.split("-seed")[0] == run.name.split("-seed")[0]]
    assert len(same) == 3 and score(run) == min(map(score, same))


@pytest.mark.slow
def test_the_command_that_trains_it_again_gives_the_same_run(whole, tmp_path):
    folder, _ = whole
    own = json.loads((folder / "summary.json").read_text())["best"]
    call(*shlex.split(own["train"])[1:], "--device", "cpu", "--out", tmp_path / "again")
    first, again = (json.loads((each / "result.json").read_text()) for each in _runs(folder / own["model"], tmp_path))
    for one, other in zip(first["history"], again["history"], strict=True):
        assert one["validation"]["rmse"] == pytest.approx(other["validation"]["rmse"], rel=1e-4)


def _runs(model, place):
    """The run folder of a model, and that inside of what ``train`` wrote."""
    (inside,) = (place / "again").glob("*/result.json")
    return model, inside.parent


def test_no_run_that_chose_anything_has_a_fresh_seed(whole):
    folder, _ = whole
    seeds = {json.loads(path.read_text())["seed"] for path in (folder / "tuning").rglob("recipe.json")}
    probes = {json.loads(path.read_text())["seed"] for path in (folder / "tuning").glob("probe-*/*/recipe.json")}
    assert min(seeds - probes) >= FIRST_SEED


@pytest.mark.slow
def test_a_stop_resumes_and_no_run_is_trained_twice(whole, elsewhere, tmp_path, monkeypatch):
    folder, _ = whole
    train, left, trained = runner.train, [0], []

    def stopping(task, plans, **options):
        before = runner.gather(task, plans, folder=options["folder"])
        trained.extend(
            (str(options["folder"]), plan)
            for plan, outcome in zip(plans, before, strict=True)
            if outcome.failure is not None
        )
        found = train(task, plans, **options)
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(runner, "train", stopping)
    seconds = json.loads((folder / "seconds.json").read_text())
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "seconds.json").write_text(json.dumps(seconds))  # the same decisions as of the whole one
    for stages in (6, 3, 0):
        left[0] = stages
        call(*SMALL, "--out", "there", status=130 if stages else 0)
    assert len(trained) == len({repr(each) for each in trained})
    found, expected = (json.loads((each / "summary.json").read_text()) for each in (tmp_path / "there", folder))
    for key in ("winner", "rounds", "ended", "trials"):
        assert found["best"][key] == expected["best"][key]
    assert found["methods"] == expected["methods"]


def test_in_python(whole):
    folder, _ = whole
    found = oe.best("tabular", SETTINGS, preset="quick", parts=["lds", "huber"], seeds=3, budget="10m", out=folder)
    assert found.winner == found.summary["best"]["winner"] and found.model.is_dir()
    assert "learning_rate" in found.settings and str(found) == "\n".join(found.verdict)
    with pytest.raises(AttributeError, match="has no attribute 'bset'"):
        oe.bset  # noqa: B018


@pytest.mark.parametrize(
    ("winner", "values", "said"),
    [
        ("lds", [0.5, 0.6, 0.7], "The best composition found on validation data is lds. lds is better than baseline"),
        (
            "baseline",
            [0.5, 0.6, 0.7],
            "confirmed on validation data; lds, which came nearest, is better on fresh seeds.",
        ),
        ("baseline", [1.0, 1.2, 1.1], "No gain on the tuned baseline was confirmed on validation data: use that. lds"),
    ],
)
def test_what_to_use_is_said_first(winner, values, said):
    at = {"baseline": [1.0, 1.1, 1.2], "lds": values}
    scores = {name: dict.fromkeys(comparison.POINTS, own) for name, own in at.items()}
    found = comparison.summary(task="t", metric="mse", lower_is_better=True, scores=scores, recipe={}, environment={})
    tuned = {"row": {"validation": 1.0, "chosen": {}}}
    rounds = [{"best": "baseline", "screened": {"lds": 1.0}, "tuned": tuned, "confirmed": {}, "added": None}]
    found["best"] = {"winner": winner, "trials": 20, "rounds": rounds, "ended": "the budget is spent", "spent": 75.0}
    found["tuned"] = {"axis": "learning_rate", "trials": 16, "seeds": 3, "tunings": 1}
    verdict = comparison.verdict(found)
    assert said in verdict.headline
    assert "The search took 1 min 15 s: 16 trials of 3 seeds each for baseline, then 1 composition" in verdict.notes[1]


def test_a_winner_that_turns_out_worse_leaves_the_baselines_model(monkeypatch):
    study, recipe = a_study(), tasks.recipe("tabular", "quick")
    values = {"baseline": [1.0, 1.1, 1.2], "lds": [2.0, 2.2, 2.1]}
    from ordinal_entropy.studies.grid import Variant
    from ordinal_entropy.training.plans import Outcome

    at = {name: dict.fromkeys(comparison.POINTS, own) for name, own in values.items()}
    summary = comparison.summary(
        task="tabular", metric="rmse", lower_is_better=True, scores=at, recipe={}, environment={}
    )
    summary["best"] = {"winner": "lds"}
    outcomes = [
        Outcome([], [], [], [], own, own, own, validation_score=own) for each in values.values() for own in each
    ]
    task = tasks.load("tabular")

    class Stub:
        lower_is_better = True

        @staticmethod
        def gather(plans, *, folder):
            assert len(plans) == len(outcomes)
            return outcomes

    monkeypatch.setattr(tasks, "load", lambda name: Stub if name == "tabular" else task)
    monkeypatch.setattr(tasks, "arguments", lambda *own: [])
    from pathlib import Path

    variants = [Variant("baseline", title="baseline"), Variant("lds", title="lds")]
    found = best._model(study, summary, variants, recipe, [0, 1, 2], Path("out"))
    assert "baseline-seed0" in found["model"] and math.isfinite(values["lds"][0])
