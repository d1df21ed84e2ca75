"""The page by the command line, alone and at the end of others."""

import html
import re
import shlex

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")

import ordinal_entropy as oe
from command_line import call
from fake_trainer import Trainer, rows
from ordinal_entropy import recipes, report, runs, tasks
from ordinal_entropy.tasks.operators import recipe as operators
from saved_folders import make_run, make_study


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def trainer(monkeypatch):
    monkeypatch.setattr(operators.train, "train", Trainer())
    monkeypatch.setattr(operators, "split", rows)


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
    assert "6 runs of linear" in page and "; n = 3; p" in page
    assert "constant, reference" in page and "The constant is the training mean." in page
    assert "ordinal-entropy compare linear --methods baseline,oe --seeds 3 --preset paper --out NEW" in page


def test_the_command_of_a_run_makes_its_recipe_again(trainer, tmp_path):
    given = ["--preset", "quick", "--set", "steps=4000", "--set", "learning_rate=3e-4"]
    call("train", "linear", "--method", "ld", "--seed", 2, *given, "--device", "cpu", "--out", "one")
    call("report", "one")
    [command] = re.findall(r"<code>(ordinal-entropy train .*?)</code>", (tmp_path / "one" / "report.html").read_text())
    assert command.startswith("ordinal-entropy train linear --method ld --seed 2 --preset quick --set=")
    options = shlex.split(html.unescape(command))
    settings = [option.removeprefix("--set=") for option in options if option.startswith("--set=")]
    assert sorted(settings) == ["learning_rate=0.0003", "steps=4000"]
    made = recipes.described(tasks.recipe("linear", "quick", settings))
    assert {"task": "linear", **made} == runs.open(tmp_path / "one").recipe


@pytest.mark.parametrize(
    ("task", "preset", "settings"),
    [
        ("age", "small", ["data=faces and more", "milestones=3,4", "strength=5", "compile=true"]),
        ("crowd", "resnet50", []),
        ("depth", "quick", ["data=rooms"]),
        ("tabular", "small", ["data=a.csv", "target=price", "ignore=id,name"]),
        ("nonlinear", "paper", ["samples=all"]),
    ],
)
def test_options_make_any_recipe(task, preset, settings):
    recipe = tasks.recipe(task, preset, settings)
    options = tasks.arguments(task, recipes.described(recipe))
    assert options[:2] == ["--preset", preset] and len(options) == 2 + len(settings)
    again = [option.removeprefix("--set=") for option in options[2:]]
    assert tasks.recipe(task, options[1], again) == recipe


def test_options_make_a_recipe_that_was_written_before_a_key_existed():
    content = recipes.described(tasks.recipe("age", "quick", ["data=faces", "strength=5"]))
    older = {key: value for key, value in content.items() if key != "threads"}
    assert tasks.arguments("age", older) == ["--preset", "quick", "--set=data=faces", "--set=strength=5.0"]


def test_a_recipe_that_no_options_make_has_none():
    newer = {**recipes.described(tasks.recipe("linear")), "of_another_version": 5}
    assert tasks.arguments("linear", newer) is None and tasks.arguments("custom", {}) is None


@pytest.mark.parametrize("task", ["custom", "linear"])
def test_the_page_of_ones_own_loop_claims_no_command_and_no_validation(task, tmp_path):
    found = oe.compare(lambda method, seed: seed % 3 + (method == "oe") * (1 + seed % 2), seeds=6, task=task)
    found.write(tmp_path / "own")
    assert report.write(tmp_path / "own") == []
    page = (tmp_path / "own" / "report.html").read_text()
    text = page[: page.index("<script")] + page[page.rindex("</script>") :]
    assert "training loop of your own" in text and "ordinal-entropy compare" not in text
    assert "alidation" not in text and "best on" not in text
    assert "Published on" not in text and "What the methods are" not in text  # its names are the user's own


def test_the_page_of_a_folder_of_ones_own_loop_has_the_points_that_were_given(tmp_path):
    def train(method, seed):
        score = seed % 3 + (method == "oe") * (1 + seed % 2)
        return {"validation": [score, score - 0.5, score], "test": [score, score + 1, score + 2]}

    oe.compare(train, seeds=6, out=tmp_path / "own")
    assert report.write(tmp_path / "own") == []
    page = (tmp_path / "own" / "report.html").read_text()
    text = page[: page.index("<script")] + page[page.rindex("</script>") :]
    assert all(f">{point}<" in text for point in ("last step", "best on validation", "best on test"))
    assert "training loop of your own" in text
