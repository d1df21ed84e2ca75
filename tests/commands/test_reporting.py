"""``summarize``; tests/report has the page."""

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

from command_line import call, words
from ordinal_entropy import runs


def test_summarize_gives_an_older_summary_todays_form_and_leaves_its_scores(tmp_path):
    scores = {"baseline": [3.0, 3.2, 2.9, None], "oe": [2.0, 2.3, 2.0, 2.2]}
    old = {
        "task": "linear",
        "metric": "mse",
        "lower_is_better": True,
        "methods": {name: {"values": own, "mean": 0.0, "std": 0.0, "n": 4} for name, own in scores.items()},
        "paired": {"oe": {"difference": 0.0, "ci_low": 0.0, "ci_high": 0.0, "p_value": 1.0, "n": 4}},
        "recipe": {"steps": 5},
        "command": "as it was",
    }
    path = tmp_path / "runs" / "old" / "summary.json"
    runs.write_json(path, old)
    assert f"{path}: rewritten" in words(call("summarize", tmp_path / "runs").stdout)
    new = runs.read_json(path)
    assert {name: own["values"] for name, own in new["methods"].items()} == scores
    assert new["paired"]["oe"]["verdict"] == "helps" and new["paired"]["oe"]["n"] == 3
    assert new["spread"].keys() == {"oe"} and new["recipe"] == {"steps": 5} and new["command"] == "as it was"
    assert f"{path}: up to date" in words(call("summarize", path).stdout)


def test_summarize_refuses_what_is_no_summary(tmp_path):
    assert "expected a folder with a summary.json, got" in call("summarize", tmp_path, status=2).stderr
    runs.write_json(tmp_path / "curves.json", {"steps": []})
    said = call("summarize", tmp_path / "curves.json", status=2).stderr
    assert "curves.json: expected a summary of a comparison, got one without task, metric" in words(said)
