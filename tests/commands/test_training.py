"""``train`` and ``evaluate``: one run, its folder, and folders of before."""

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

from command_line import TINY, call, words
from ordinal_entropy import runs
from ordinal_entropy.recipes import flat
from ordinal_entropy.tasks.operators import recipe as operators


def test_train_writes_a_run_folder_that_evaluate_reads(tmp_path):
    first = call("train", "linear", "--method", "ld", "--seed", 1, "--out", "mine", *TINY)
    run = runs.open(tmp_path / "mine")
    assert (run.method, run.seed, run.recipe["task"], run.recipe["training"]["steps"]) == ("ld", 1, "linear", 20)
    assert [line["step"] for line in run.metrics()] == [0, 10, 20]
    result = run.result()
    assert result["last"] == run.metrics()[-1]["test"]
    assert f"{result['last']:.4g}" in first.stdout
    evaluated = call("evaluate", "mine", "--device", "cpu").stdout
    assert "step 20 of 20" in evaluated and f"{result['last']:.4g}" in evaluated
    again = call("train", "linear", "--method", "ld", "--seed", 1, "--out", "mine", *TINY)
    assert "holds this run already" in again.stderr
    assert again.stdout == first.stdout
    assert len(run.metrics()) == 3


def test_a_stopped_run_goes_on(tmp_path, monkeypatch):
    real = operators.train.train

    def stopping(*arguments, progress, **options):
        def stop(done, total):
            if done == 20:
                raise KeyboardInterrupt

        return real(*arguments, progress=stop, **options)

    longer = [*TINY, "--set=steps=40"]
    monkeypatch.setattr(operators.train, "train", stopping)
    stopped = call("train", "linear", "--out", "mine", *longer, status=130)
    assert words(stopped.stderr).endswith("Stopped; to go on from what mine holds, give the same command again.")
    assert runs.open(tmp_path / "mine").result() is None
    assert "step 20 of 40" in call("evaluate", "mine", "--device", "cpu").stdout
    monkeypatch.setattr(operators.train, "train", real)
    went_on = call("train", "linear", "--out", "mine", *longer)
    straight = call("train", "linear", "--out", "other", *longer)
    assert went_on.stdout.replace("mine", "other") == straight.stdout
    assert runs.open(tmp_path / "mine").metrics() == runs.open(tmp_path / "other").metrics()


def test_a_run_folder_of_another_program_is_refused(tmp_path):
    runs.create(tmp_path / "other", {"steps": 3}, "ld", 0)
    assert "whose recipe names no task" in words(call("evaluate", "other", status=2).stderr)
    runs.create(tmp_path / "newer", {"task": "linear", "steps": 3, "momentum": 1}, "ld", 0)
    said = words(call("evaluate", "newer", status=2).stderr)
    assert "got momentum, which this version does not have: a newer version" in said and "newer/recipe.json" in said


def test_a_run_that_was_written_before_a_key_existed_is_scored_and_gone_on_with(tmp_path):
    command = ["train", "linear", *TINY, "--out", "older"]
    call(*command)
    scores = call("evaluate", "older", "--device=cpu").stdout
    content = runs.read_json("older/recipe.json")
    del content["recipe"]["method"]["balance"], content["recipe"]["training"]["feature_rows"]
    runs.write_json("older/recipe.json", content)
    assert call("evaluate", "older", "--device=cpu").stdout == scores
    (tmp_path / "older" / "result.json").unlink()
    call(*command)
    assert "recipe.method.balance to be 0.1" in words(call(*command, "--set=balance=0.2", status=2).stderr)


def test_a_run_is_repeated_from_its_folder_and_from_one_of_before(tmp_path):
    call("train", "linear", *TINY, "--method=ld", "--set=method.ld.strength=2", "--out=first")
    again = ["train", "linear", "--preset=quick", "--method=ld", "--device=cpu"]
    call(*again, "--config=first/recipe.json", "--out=second")
    assert runs.open("second").recipe == runs.open("first").recipe
    assert runs.read_json("second/result.json") == runs.read_json("first/result.json")

    content = runs.read_json("first/recipe.json")
    older = flat(content["recipe"])
    older["method_options"] = older.pop("options")
    runs.write_json("older/recipe.json", {**content, "recipe": older})
    call(*again, "--config=older/recipe.json", "--out=third")
    assert runs.open("third").recipe == runs.open("first").recipe
    said = words(call("train", "nonlinear", "--config=first/recipe.json", status=2).stderr)
    assert "first/recipe.json, line 3, column 5: expected settings of the task nonlinear, got those of linear" in said
