"""Studies on ages of faces: their rows beside the paper's, and one from end to end on drawn faces."""

import itertools
import json
import math
import os

import pytest

from command_line import call
from ordinal_entropy import studies
from ordinal_entropy.recipes import changed
from ordinal_entropy.results import tables
from ordinal_entropy.studies import paper
from ordinal_entropy.tasks.age import generated
from ordinal_entropy.tasks.age import recipe as age
from ordinal_entropy.training.saved_features import SCORES

pytestmark = pytest.mark.usefixtures("elsewhere")
NAMES = ("table4-age", "table5-lambda-t", "classification-age")
TINY = [
    "backbone=test_resnet", "image_size=32", "padding=2", "epochs=2", "batch_size=64", "milestones=1",
    "learning_rate=5e-3", "bins=10", "seeds=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("faces") / "set"
    generated.make(folder, count=400)  # 70 test images: enough for their features to be measured
    return folder


@pytest.fixture
def plans(scored_by):
    """The runs that a study asks for; each has the error 8 + seed, less its strength."""
    return scored_by(age, lambda plan, gain: {"mae": 8.0 + plan.seed - gain, "mae_few": math.nan})


def test_table4_is_the_papers_recipe_with_three_methods(plans, tmp_path):
    summary = studies.run("table4-age", tmp_path, ["data=somewhere"])
    assert [(plan.method, plan.seed) for plan in plans] == list(itertools.product(("baseline", "ld", "oe"), range(6)))
    assert {plan.recipe for plan in plans} == {changed(age.Age(), {"data": "somewhere"})}
    assert summary["paper"] == {name: {"mean": own["mae"], "std": None} for name, own in paper.TABLE4.items()}
    assert summary["paper_details"] == paper.TABLE4
    assert (tmp_path / "table4-age.png").read_bytes().startswith(b"\x89PNG")


def test_several_strengths_stand_side_by_side_and_the_papers_numbers_beside_its_own(plans, tmp_path):
    settings = ["methods=baseline,oe,classification", "strengths=1,5", "seeds=2"]
    summary = studies.run("table4-age", tmp_path / "several", settings)
    assert {(plan.method, plan.recipe.method.strength) for plan in plans} == {
        ("baseline", 1.0), ("oe", 1.0), ("oe", 5.0), ("classification", 1.0),
    }  # fmt: skip
    assert list(summary["methods"]) == ["baseline", "oe strength=1", "oe strength=5", "classification"]
    assert set(summary["paper"]) == set(summary["paper_details"]) == {"baseline", "oe strength=1"}
    assert summary["paired"]["oe strength=5"]["difference"] == -5.0
    stronger = studies.run("table4-age", tmp_path / "one", ["strengths=5", "seeds=2"])
    assert list(stronger["methods"]) == ["baseline", "ld", "oe"] and set(stronger["paper"]) == {"baseline"}
    assert stronger["recipe"]["method"]["strength"] == 5.0


def test_table5_varies_the_weight_of_the_tightness(plans, tmp_path):
    summary = studies.run("table5-lambda-t", tmp_path)
    rows = [("baseline", 0.0), ("oe", 0.0), ("oe", 0.1), ("oe", 1.0), ("oe", 10.0)]
    assert [(plan.method, plan.recipe.method.tightness_weight) for plan in plans] == [
        row for row in rows for _ in range(6)
    ]
    assert [own["mae"] for own in summary["paper_details"].values()] == [7.77, 7.60, 7.50, 7.46, 7.49]
    assert summary["paper_details"]["oe tightness_weight=10"]["gm_few"] == 10.21
    some = studies.run("table5-lambda-t", tmp_path / "some", ["tightness_weights=0.1,3", "seeds=2"])
    assert set(some["paper"]) == {"baseline", "oe tightness_weight=0.1"}


def test_classification_stands_beside_regression(plans, tmp_path):
    summary = studies.run("classification-age", tmp_path, ["seeds=2"])
    assert list(summary["methods"]) == ["baseline", "ld", "oe", "classification"]
    assert set(summary["paper"]) == {"baseline", "ld", "oe"}  # the paper has none for classification


def test_the_preset_is_that_of_the_recipe(plans, tmp_path):
    studies.run("table4-age", tmp_path, ["seeds=2", "epochs=3"], preset="small")
    assert {(plan.recipe.model.backbone, plan.recipe.training.epochs) for plan in plans} == {("resnet18", 3)}


@pytest.mark.parametrize(
    ("name", "setting", "sentence"),
    [
        ("table4-age", "strength=5", "table4-age sets strength itself; the keys it takes: seeds, methods, strengths"),
        ("table4-age", "strengths=1,1", "expected different strengths, got 1, 1"),
        ("table4-age", "strengths=1,-1", "expected strength to be a number from 0 on, got -1.0"),
        ("table4-age", "methods=oe,ld", "expected methods to begin with baseline, got oe, ld"),
        ("table5-lambda-t", "tightness_weights=-1", "expected tightness_weight to be a number from 0 on, got -1.0"),
        ("table5-lambda-t", "tightness_weight=1", "table5-lambda-t sets tightness_weight itself"),
        ("classification-age", "seeds=1", "expected at least 2 seeds"),
    ],
)
def test_a_mistake_is_found_before_anything_is_written(name, setting, sentence, plans, tmp_path):
    with pytest.raises(ValueError) as error:
        studies.run(name, tmp_path / "out", [setting])
    assert sentence in str(error.value) and not (tmp_path / "out").exists() and not plans


@pytest.mark.parametrize("name", NAMES)
def test_without_data_nothing_is_left_behind(name, tmp_path):
    for more in ([], ["--set=data=nowhere"], ["--preset=small", f"--set=data={tmp_path}"]):
        said = call("reproduce", name, *more, status=2).stderr
        assert said.count("\n") == 1 and "github.com/YyzHarry/imbalanced-regression" in said
    call("reproduce", name, "--out=there", status=2)
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="data=ROOT"):
        studies.run(name, tmp_path / "there")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_page")
def test_a_study_from_end_to_end_and_again(drawn, tmp_path):
    command = ["reproduce", "table4-age", f"--set=data={drawn}", *(f"--set={setting}" for setting in TINY)]
    command += ["--device=cpu", "--out=there"]
    said = call(*command)
    assert "6 runs of 2 epochs on cpu, in there" in said.stderr
    lines = [line.split() for line in said.stdout.splitlines()]
    assert ["paper", "7.46", "6.73", "8.18", "12.38"] in lines and ["paper", "4.72", "4.21", "5.36", "9.70"] in lines
    assert next(line for line in lines if line[:1] == ["ld"])[-1] == "7.60"
    titles = list(age.TASKS["age"].details)
    assert all(title in said.stdout for title in titles) and len(titles) == 4
    assert (
        "as the paper" in said.stdout and "Best on validation, mean" in said.stdout
    )  # where the paper scores its runs
    assert "The paper's numbers are of AgeDB-DIR" in said.stdout
    assert (tmp_path / "there" / "table4-age.png").exists()

    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    for name, points in summary["details"].items():
        assert set(points) == {"last", "best_validation"}
        for at, own in points.items():
            assert own["mae"] == summary["methods"][name]["at"][at]
            assert {*SCORES, *(f"train_{score}" for score in SCORES), "gm", "mae_few", "gm_many"} <= set(own)
            assert all(len(values) == 2 for values in own.values())

    runs_there = tmp_path / "there" / "training"
    before = {path: os.stat(path).st_mtime_ns for path in runs_there.glob("*/*.*")}
    (tmp_path / "there" / "summary.json").unlink()
    (runs_there / "oe-seed1" / "result.json").unlink()  # as if it had been stopped after its last epoch
    call(*command)
    again = json.loads((tmp_path / "there" / "summary.json").read_text())
    assert all(again[key] == summary[key] for key in ("methods", "paired", "details"))
    finished = {path: time for path, time in before.items() if path.parent.name != "oe-seed1"}
    assert len(finished) >= 20 and all(os.stat(path).st_mtime_ns == time for path, time in finished.items())


@pytest.mark.slow
@pytest.mark.usefixtures("without_page")
def test_a_weight_of_zero_is_the_diversity_alone(drawn, tmp_path):
    settings = [f"data={drawn}", *TINY, "epochs=1", "strength=5"]
    weights = studies.run("table5-lambda-t", tmp_path / "5", [*settings, "tightness_weights=0,10"])["methods"]
    settings[-1] = "strengths=5"
    rows = studies.run("table4-age", tmp_path / "4", [*settings, "methods=baseline,ld"])["methods"]
    assert weights["baseline"] == rows["baseline"]
    assert weights["oe tightness_weight=0"]["values"] == pytest.approx(rows["ld"]["values"], rel=1e-5)
    assert weights["oe tightness_weight=10"]["values"] != pytest.approx(rows["ld"]["values"], rel=1e-5)


def test_a_table_of_details_leaves_out_what_the_runs_do_not_have():
    summary = {"details": {"oe": {"best_validation": {"mae": [7.0, 9.0], "gm": [None, None]}}}}
    (table,) = tables.details(summary, {"Errors": {"all": "mae", "GM": "gm", "entropy": "entropy"}})
    assert table.headings == ["all", "GM"]
    assert [list(row.cells) for row in table.rows] == [["8.0 ± 1.4", "no number"]]
    assert tables.details(summary, {"Entropies": {"entropy": "entropy"}}) == []


def test_operators_have_no_details(tmp_path):
    settings = ["rows=30", "parts=2", "validation_rows=20", "test_rows=40", "hidden=8", "steps=4", "seeds=2"]
    summary = studies.run("table1-linear", tmp_path, [*settings, "methods=baseline,ld", "samples=5"])
    assert "details" not in summary and "paper_details" not in summary
    assert set(summary["paper"]["ld"]) == {"mean", "std"}
