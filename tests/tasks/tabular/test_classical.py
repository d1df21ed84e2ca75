"""Models that are no networks, as rows of comparisons on tables."""

import builtins
import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor

from command_line import call
from ordinal_entropy import runs, tasks
from ordinal_entropy.report import missing as report_missing
from ordinal_entropy.tasks.tabular import classical, generated
from ordinal_entropy.tasks.tabular.inputs import Part, Seen
from ordinal_entropy.tasks.tabular.train import scores_of

SMALL = ["--device=cpu", "--preset=quick"] + [
    f"--set={each}" for each in ("generated=120", "epochs=2", "hidden=8", "batch_size=32", "feature_rows=0")
]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(classical, "_TREES", 20)


def seen(n=(80, 40, 30), noise=1.0):
    """A line through four columns, of which two are of little use, with rows to validate and to test."""
    random = np.random.default_rng(0)
    parts = []
    for count in n:
        x = random.normal(size=(count, 4)).astype(np.float32) * [1, 10, 1, 0.1]
        parts.append(Part(x, 50 + x @ [3.0, 0.2, 0.0, 5.0] + noise * random.normal(size=count)))
    return Seen(*parts, numbers=4, center=float(parts[0].targets.mean()), scale=float(parts[0].targets.std()))


def error(predict, part):
    return np.sqrt(np.mean((predict(part.inputs) - part.targets) ** 2))


def test_a_constant_is_the_mean_of_the_training_targets():
    rows = seen()
    assert set(classical.fitted("constant", rows, 0)(rows.test.inputs)) == {rows.train.targets.mean()}


@pytest.mark.parametrize("noise", [0.001, 30.0])
def test_ridge_is_its_closed_form_with_the_penalty_that_validation_rows_choose(noise):
    rows = seen(noise=noise)
    center, scale = rows.train.inputs.mean(0), rows.train.inputs.std(0)
    z, y = (rows.train.inputs - center) / scale, rows.train.targets
    found = {}
    for alpha in classical._ALPHAS:
        weights = np.linalg.solve(z.T @ z + alpha * np.eye(4), z.T @ (y - y.mean()))
        found[alpha] = lambda x, weights=weights: y.mean() + (x - center) / scale @ weights
    alpha = min(found, key=lambda each: error(found[each], rows.validation))
    assert (alpha < 1) if noise < 1 else (alpha > 1)
    np.testing.assert_allclose(
        classical.fitted("ridge", rows, 0)(rows.test.inputs), found[alpha](rows.test.inputs), rtol=1e-5
    )


def test_validation_rows_choose_the_number_of_trees():
    rows = seen(noise=6.0)
    alone = [
        HistGradientBoostingRegressor(max_iter=trees, early_stopping=False, random_state=3).fit(*rows.train)
        for trees in range(1, 21)
    ]
    best = min(alone, key=lambda model: error(model.predict, rows.validation))
    assert best.max_iter < 20
    found = classical.fitted("hist-gradient-boosting", rows, 3)(rows.test.inputs)
    np.testing.assert_allclose(found, best.predict(rows.test.inputs))


def test_scores_are_those_of_networks():
    rows = seen()
    predict = classical.fitted("ridge", rows, 0)
    scores = scores_of(predict, rows)
    assert scores.keys() == {"train", "validation", "test"} and scores["test"].keys() == {"rmse", "mae", "r2"}
    for name, own in scores.items():
        assert own["rmse"] == pytest.approx(error(predict, getattr(rows, name)))
    assert scores_of(classical.fitted("constant", rows, 0), rows)["train"]["r2"] == pytest.approx(0)


@pytest.mark.usefixtures("without_page")
def test_rows_beside_methods_in_a_comparison():
    arguments = ["compare", "tabular", "--methods=baseline,hist-gradient-boosting,ridge,constant", "--seeds=2"]
    said = " ".join(call(*arguments, *SMALL, "--out=all").stdout.split())
    assert "ridge against baseline" in said and "constant against baseline" in said
    summary = runs.read_json("all/summary.json")
    assert list(summary["methods"]) == ["baseline", "hist-gradient-boosting", "ridge", "constant"]
    recipe = tasks.recipe("tabular", "quick", [each.removeprefix("--set=") for each in SMALL[2:]])
    found = tasks.load("tabular").training.read(recipe, "cpu")
    for place, seed in enumerate((0, 1)):
        rows = found.of_seed(seed)
        expected = error(classical.fitted("ridge", rows, seed), rows.test)
        for at in ("last", "best_validation", "best_test"):
            assert summary["methods"]["ridge"]["at"][at][place] == pytest.approx(expected)
    assert summary["details"]["ridge"]["best_validation"]["r2"][0] > 0.3
    assert summary["reference_values"] == {name: summary["methods"][name]["values"] for name in classical.ROWS}
    assert ", reference" not in said  # they are rows
    curves = runs.read_json("all/curves.json")
    assert curves["steps"] == [1, 2] and {len(each["test"]) for each in curves["runs"]} == {2}
    folders = sorted(Path("all/training").iterdir())
    before = {folder: os.stat(folder / "result.json").st_mtime_ns for folder in folders}
    Path("all/summary.json").unlink()
    call(*arguments, *SMALL, "--out=all")
    assert before == {folder: os.stat(folder / "result.json").st_mtime_ns for folder in folders} and len(folders) == 8
    assert runs.read_json("all/summary.json")["methods"] == summary["methods"]


@pytest.mark.usefixtures("without_page")
def test_references_beside_a_comparison_with_ridge(monkeypatch):
    fits, real = [], classical.fitted
    monkeypatch.setattr(classical, "fitted", lambda name, *rest: fits.append(name) or real(name, *rest))
    arguments = ["compare", "tabular", "--methods=baseline,ridge", "--seeds=2", *SMALL, "--out=mine"]
    said = " ".join(call(*arguments).stdout.split())
    assert sorted(fits) == ["constant"] * 2 + ["hist-gradient-boosting"] * 2 + ["ridge"] * 2  # each once a seed
    summary = runs.read_json("mine/summary.json")
    recipe = tasks.recipe("tabular", "quick", [each.removeprefix("--set=") for each in SMALL[2:]])
    expected = tasks.load("tabular").references(recipe, [0, 1], [])
    assert summary["reference_values"].keys() == expected.keys() == summary["references"].keys()
    for name, values in expected.items():
        assert summary["reference_values"][name] == pytest.approx(values)
        assert summary["references"][name] == pytest.approx(np.mean(values))
    assert "constant, reference" in said and "hist-gradient-boosting, reference" in said
    assert "ridge, reference" not in said and "The constant is the training mean." in said
    worse = "baseline is worse than predicting the training mean"  # after two epochs
    assert (worse in said) == (summary["methods"]["baseline"]["mean"] > summary["references"]["constant"])
    assert "hist-gradient-boosting has a lower RMSE than" in said
    assert call(*arguments).stdout.count("constant, reference") == 1  # read back


def test_a_run_is_printed_beside_its_references():
    said = " ".join(call("train", "tabular", "--method=baseline", *SMALL, "--out=mine").stdout.split())
    result = runs.read_json("mine/result.json")
    assert list(result["references"]) == ["constant", "hist-gradient-boosting", "ridge"]
    for name, score in result["references"].items():
        assert f"{name}, reference" in said and f"{score:.4g}" in said
    assert "has a lower RMSE than baseline" in said
    page = Path(call("report", "mine").stdout.split()[-1]).read_text() if report_missing() is None else said
    assert "has a lower RMSE than baseline" in page
    older = {key: value for key, value in result.items() if "reference" not in key and key != "constant"}
    runs.write_json("mine/result.json", older)
    again = call("train", "tabular", "--method=baseline", *SMALL, "--out=mine").stdout
    assert "test RMSE" in again and "reference" not in again


def test_one_run_and_no_checkpoint():
    said = call("train", "tabular", "--method=constant", *SMALL, "--out=mine")
    result = runs.read_json("mine/result.json")
    assert "test RMSE" in said.stdout and result["last"] == result["best_validation"] == result["best_test"]
    assert [line["step"] for line in runs.open("mine/constant-seed0").metrics()] == [1, 2]
    answer = call("evaluate", "mine", status=2)
    assert "expected a run of a network to evaluate, got one of 'constant'" in answer.stderr


@pytest.mark.parametrize(
    ("task", "names", "sentence"),
    [
        ("tabular", "baseline,ridge+oe", "expected 'ridge' by itself, which is a model of its own"),
        ("tabular", "baseline,oe+ridge", "expected 'ridge' by itself, which is a model of its own"),
        ("tabular", "baseline,rigde", "expected a row of tabular like 'ridge', got 'rigde'"),
        ("tabular", "baseline,ooe", "expected a method like 'oe'"),
        ("linear", "baseline,ridge", "expected a method, got 'ridge', which is a row of tabular alone"),
    ],
)
def test_names_that_are_no_rows(task, names, sentence):
    answer = call("compare", task, f"--methods={names}", "--preset=quick", status=2)
    assert sentence in answer.stderr and answer.stderr.count("\n") == 1


def test_a_row_has_no_options():
    answer = call("compare", "tabular", "--methods=baseline,ridge", *SMALL, "--set=method.oe.strength=2", status=2)
    assert "got method.oe.strength, which none of them has" in answer.stderr
    with pytest.raises(ValueError, match="expected the name of a method, got 'ridge'"):
        tasks.recipe("tabular", "quick", ["method.ridge.alpha=2"])


def test_without_scikit_learn_a_sentence(monkeypatch):
    rows, real = seen(), builtins.__import__

    def no_sklearn(name, *rest):
        if name.startswith("sklearn"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", no_sklearn)
    for name in ("ridge", "hist-gradient-boosting"):
        with pytest.raises(ImportError, match=r"tables need scikit-learn: pip install 'ordinal-entropy\[sklearn\]'"):
            classical.fitted(name, rows, 0)


def test_they_are_listed_apart_from_the_methods():
    methods, _, rows = call("methods").stdout.partition("Rows of tabular that are no methods")
    assert "ridge" not in methods and all(name in rows for name in classical.ROWS)
    assert "which is no method and joins none" in call("methods", "ridge").stdout


def test_houses_are_predicted_far_better_than_by_a_constant():
    generated.make("made", count=300)
    recipe = tasks.recipe("tabular", "small", ["data=made/houses.csv", "target=price"])
    rows = tasks.load("tabular").training.read(recipe, "cpu").of_seed(0)
    errors = {name: error(classical.fitted(name, rows, 0), rows.test) for name in classical.ROWS}
    assert max(errors["ridge"], errors["hist-gradient-boosting"]) < 0.8 * errors["constant"]
