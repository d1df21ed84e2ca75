"""Options that several commands take: keys, presets, settings out of a file."""

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
