"""The page by the command line, alone and at the end of others."""

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")

from commands import call
from fake_trainer import Trainer
from kept_folders import make_run, make_study
from ordinal_entropy import report, runs
from ordinal_entropy.tasks.operators import recipe as operators


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def trainer(monkeypatch):
    monkeypatch.setattr(operators.train, "train", Trainer())
    monkeypatch.setattr(operators, "split", lambda recipe: None)


def test_report_names_what_it_leaves_out(tmp_path):
    make_study(tmp_path / "study", features=False)
    assert call("report", "study").stdout == "Drawn in study/report.html\n"
    make_run(tmp_path / "study" / "training" / "half", "oe", 9, over=False)
    said = call("report", "study").stdout
    assert "training/half: half-written" in said and said.endswith("Drawn in study/report.html\n")


def test_report_of_no_folder_is_one_sentence(tmp_path):
    result = call("report", "nowhere", status=2)
    assert "expected a folder, got nowhere, which is not there" in result.stderr and not result.stdout


def test_compare_and_reproduce_end_with_the_page_and_its_command(trainer, tmp_path):
    asked = ["compare", "linear", "--seeds", 3, "--set", "steps=4000", "--preset", "quick", "--device", "cpu"]
    assert "Drawn in a/report.html" in call(*asked, "--out", "a").stdout
    page = (tmp_path / "a" / "report.html").read_text()
    summary = runs.read_json(tmp_path / "a" / "summary.json")
    assert summary["command"] == (
        "ordinal-entropy compare linear --methods baseline,oe --seeds 3 --preset quick --set=steps=4000 --device cpu"
    )
    assert summary["command"] in page and "it shows how, not how much" in page
    assert summary["shown"]["paper_at"] == "best_test" and summary["shown"]["scale"] == 1e-3
    call("reproduce", "fig4b-linear", "--set", "seeds=2", "--device", "cpu", "--out", "b")
    page = (tmp_path / "b" / "report.html").read_text()
    assert "Scores against strength" in page and "Figure 4b, linear operator" in page and "as the paper" in page
    assert "ordinal-entropy reproduce fig4b-linear --preset paper --set=seeds=2 --device cpu" in page


def test_a_page_that_fails_does_not_hide_the_result(trainer, tmp_path, monkeypatch):
    def fails(folder, progress):
        raise RuntimeError("no ink")

    monkeypatch.setattr(report, "write", fails)
    result = call("compare", "linear", "--seeds", 3, "--device", "cpu", "--out", "there")
    assert "oe is better than baseline" in " ".join(result.stdout.split()) and "report.html" not in result.stdout
    assert "The page could not be drawn: no ink. ordinal-entropy report there tries again." in result.stderr


def test_without_plotly_a_sentence_says_how_to_draw_it_later(trainer, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "find_spec", lambda name: None if name == "plotly" else object())
    said = call("compare", "linear", "--seeds", 3, "--device", "cpu", "--out", "there").stdout
    assert "The page needs plotly: pip install 'ordinal-entropy[report]', then ordinal-entropy report there" in said
    assert not (tmp_path / "there" / "report.html").exists()
    assert "pip install 'ordinal-entropy[report]'" in call("report", "there", status=2).stderr


def test_runs_of_train_are_compared_by_their_page(trainer, tmp_path):
    for method in ("baseline", "oe"):
        for seed in (0, 1, 2):
            call(
                "train", "linear", "--method", method, "--seed", seed, "--device", "cpu", "--out", f"all/{method}{seed}"
            )
    assert call("report", "all").stdout == "Drawn in all/report.html\n"
    page = (tmp_path / "all" / "report.html").read_text()
    assert "6 runs of linear" in page and "n = 3 paired seeds" in page
