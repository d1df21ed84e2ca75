"""Options that several commands take: keys, presets, settings out of a file."""

import shlex

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

from command_line import call, words
from ordinal_entropy import runs, tasks


def test_keys_are_explained():
    said = words(call("compare", "linear", "--preset", "quick", "--keys").stdout)
    assert "steps 3000" in said and "rows drawn in each step" in said and " operator " not in said
    said = words(call("reproduce", "fig4b-linear", "--keys").stdout)
    assert "strengths" in said and "method.strength" not in said


@pytest.mark.parametrize("command", ["compare", "train"])
def test_help_names_the_default_preset_of_every_task(command):
    said = words(call(command, "--help").stdout.replace("│", " "))
    assert "[default: paper; tabular: small]" in said
    for task in tasks.names():
        assert tasks.preset_of(task) == ("small" if task == "tabular" else "paper")


def test_settings_come_out_of_a_file_and_set_wins(trainer, tmp_path, without_page):
    (tmp_path / "mine.yaml").write_text("task: linear\ntraining: {steps: 40, learning_rate: 3e-3}\nhidden: 9\n")
    call("compare", "linear", "--preset=quick", "--seeds=2", "--config=mine.yaml", "--set=hidden=8", "--out=there")
    summary = runs.read_json("there/summary.json")
    assert summary["recipe"]["training"]["steps"] == 40 and summary["recipe"]["training"]["learning_rate"] == 3e-3
    assert summary["recipe"]["model"]["hidden"] == 8
    options = "--set=training.steps=40 --set=training.learning_rate=3e-3 --set=hidden=9 --set=hidden=8"
    assert f"--preset quick {options} --device" in summary["command"]  # as if they had been given there
    shown = words(call("train", "linear", "--config=mine.yaml", "--keys").stdout)
    assert "training.steps 40 " in shown and "model.hidden 9 " in shown
    shown = words(call("reproduce", "table1-linear", "--config=mine.yaml", "--keys").stdout)
    assert "training.steps 40 " in shown


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("training:\n  epochs: 3\n", "line 2, column 3: expected a key like 'training.steps' or "),
        ("training:\n  step: 3\n", "line 2, column 3: expected a key like 'training.steps'"),
        ("steps: 3\ntraining: {steps: 3}\n", "line 2, column 12: training.steps is given twice, before in mine.yaml"),
        ("steps: many\n", "line 1, column 1: expected steps to be a whole number, got 'many'"),
        ("steps: [1, 2]\n", "line 1, column 1: expected one value of steps, got 1, 2"),
        ("method: {oe: {strenght: 3}}\n", "line 1, column 15: expected an option of oe like 'strength', got "),
        ("method: {oe: {strength: x}}\n", "line 1, column 15: expected a number for method.oe.strength, got 'x'"),
        ("task: age\n", "line 1, column 1: expected settings of the task linear, got those of age"),
        ("- steps\n", "line 1, column 1: expected keys with their values, as in epochs: 10, got a list"),
        ("steps: 3: 4\n", "line 1, column 9: expected YAML, got an error: mapping values are not allowed here"),
        ("", "expected keys and values in mine.yaml, got an empty file"),
        ("data: {rows: 5}\nmodel: {hidden: 9}\n", "line 1, column 8: expected samples from 2 to rows=5, or none"),
        ("learning_rate: 0\n", "line 1, column 1: expected learning_rate to be a positive number, got 0.0"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", [["train", "linear"], ["compare", "linear"], ["reproduce", "fig4b-linear"]])
def test_a_mistake_in_a_file_is_a_sentence_with_its_place(command, text, sentence, tmp_path):
    (tmp_path / "mine.yaml").write_text(text)
    result = call(*command, "--config=mine.yaml", status=2)
    assert sentence in words(result.stderr) and result.stderr.startswith("ordinal-entropy: ")
    assert len(result.stderr.splitlines()) == 1 and not result.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_file_is_the_task_of_tables(tmp_path, without_page):
    pytest.importorskip("sklearn", reason="tables are prepared by scikit-learn")
    tasks.load_data("tabular").make(tmp_path / "made", seed=0, count=120)
    small = ["--set=epochs=2", "--set=hidden=4", "--set=batch_size=32", "--set=feature_rows=0", "--device=cpu"]
    short, long = ["made/houses.csv", "--target=price"], ["tabular", "--set=data=made/houses.csv", "--set=target=price"]
    call("compare", *short, *small, "--seeds=2", "--out=short")
    call("compare", *long, *small, "--seeds=2", "--out=long")
    found = [runs.read_json(f"{place}/summary.json") for place in ("short", "long")]
    assert found[0]["methods"] == found[1]["methods"] and found[0]["recipe"] == found[1]["recipe"]
    again = shlex.split(found[0]["command"])
    assert again[:3] == ["ordinal-entropy", "compare", "tabular"]
    assert "Read back from" in call(*again[1:], "--out=short").stdout  # the same study: the folder is not refused
    assert "Read back from" in call("compare", *long, *small, "--seeds=2", "--out=short").stdout
    call("train", *short, *small, "--out=run")
    recipe = runs.read_json("run/recipe.json")["recipe"]
    assert (recipe["task"], recipe["data"]["path"], recipe["data"]["target"]) == ("tabular", "made/houses.csv", "price")
    keys = words(call("best", *short, "--keys").stdout)
    assert "data.path made/houses.csv" in keys and "data.target price" in keys and "preset small" in keys
    assert "data.target area" in words(call("train", "tabular", "--target", "area", "--keys").stdout)


@pytest.mark.parametrize("command", ["compare", "best", "train"])
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["linear", "--target", "price"], "expected --target beside a table, as in houses.csv --target price, got it"),
        (["nowhere.csv", "--target", "price"], "expected a table in nowhere.csv, got no such file"),
        (["folder.csv", "--target", "price"], "expected a table in folder.csv, got a folder"),
        (["mine.csv", "--set=data=other.csv"], "expected data.path once, got --set data.path=... beside mine.csv"),
        (["mine.csv", "--target=a", "--set=target=b"], "expected data.target once, got --set data.target=... beside a"),
        (["mine.csv"], "expected --target COLUMN, or the setting target=COLUMN, one of a, b"),
        (["mine.txt"], "expected the name of a task, got 'mine.txt'"),
    ],
)
def test_mistakes_with_files_are_a_sentence(command, given, sentence, tmp_path):
    (tmp_path / "mine.csv").write_text("a,b\n" + "1,2\n2,3\n" * 50)
    (tmp_path / "folder.csv").mkdir()
    result = call(command, *given, "--device=cpu", status=2)
    assert sentence in words(result.stderr) and len(result.stderr.splitlines()) == 1 and not result.stdout


def test_a_file_and_its_target_win_over_a_file_of_settings(tmp_path):
    (tmp_path / "mine.csv").write_text("a,b\n1,2\n")
    (tmp_path / "old.yaml").write_text("data: {path: old.csv, target: c}\nepochs: 7\n")
    keys = words(call("compare", "mine.csv", "--target=b", "--config=old.yaml", "--keys").stdout)
    assert "data.path mine.csv" in keys and "data.target b" in keys and "epochs 7" in keys
