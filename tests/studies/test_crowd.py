"""Table 3: its rows beside the paper's, and from end to end on drawn crowds."""

import itertools
import json

import pytest

from command_line import call
from ordinal_entropy import studies
from ordinal_entropy.recipes import changed
from ordinal_entropy.studies import paper
from ordinal_entropy.tasks.crowd import generated
from ordinal_entropy.tasks.crowd import recipe as crowd

pytestmark = pytest.mark.usefixtures("elsewhere")
TINY = [
    "max_side=96", "front=test_resnet", "widths=8", "batch_norm=true", "crop=64", "epochs=1", "repeats=1",
    "batch_size=6", "loss=mse", "optimizer=adamw", "learning_rate=5e-3", "stride=2", "seeds=2", "feature_rows=0",
]  # fmt: skip


@pytest.fixture
def plans(scored_by):
    """The runs that a study asks for; each has the error 100 + seed, less its strength."""

    def scores(plan, gain):
        error = 100.0 + plan.seed - gain
        return {"mae": error, "rmse": 2 * error}

    return scored_by(crowd, scores)


@pytest.mark.parametrize("part", ["A", "B"])
def test_table3_is_the_papers_recipe_with_three_methods(plans, tmp_path, part):
    summary = studies.run("table3-crowd", tmp_path, ["data=somewhere", f"part={part}"])
    assert [(plan.method, plan.seed) for plan in plans] == list(itertools.product(("baseline", "ld", "oe"), range(3)))
    kernel = {} if part == "A" else {"kernel": "fixed", "border": "kept"}
    assert {plan.recipe for plan in plans} == {changed(crowd.Crowd(), {"data": "somewhere", **kernel})}
    assert {plan.recipe.method.strength for plan in plans} == {10.0}
    assert summary["paper"]["oe"] == {"mean": {"A": 65.6, "B": 9.1}[part], "std": None}
    assert summary["paper_details"] == paper.TABLE3[part]
    assert summary["paper_details"]["baseline"]["rmse"] == {"A": 115.0, "B": 16.0}[part]
    assert (tmp_path / "table3-crowd.png").read_bytes().startswith(b"\x89PNG")


def test_several_strengths_stand_side_by_side_and_the_papers_numbers_beside_its_own(plans, tmp_path):
    summary = studies.run("table3-crowd", tmp_path / "several", ["methods=baseline,oe", "strengths=1,10", "seeds=2"])
    assert {(plan.method, plan.recipe.method.strength) for plan in plans} == {
        ("baseline", 1.0),
        ("oe", 1.0),
        ("oe", 10.0),
    }
    assert list(summary["methods"]) == ["baseline", "oe strength=1", "oe strength=10"]
    assert set(summary["paper"]) == {"baseline", "oe strength=10"}
    assert summary["paired"]["oe strength=10"]["difference"] == -10.0
    weaker = studies.run("table3-crowd", tmp_path / "one", ["strengths=5", "seeds=2"])
    assert list(weaker["methods"]) == ["baseline", "ld", "oe"] and set(weaker["paper"]) == {"baseline"}
    assert weaker["recipe"]["method"]["strength"] == 5.0


def test_without_strengths_it_is_1_in_the_preset_small(plans, tmp_path):
    studies.run("table3-crowd", tmp_path, ["seeds=2", "epochs=3"], preset="small")
    own = crowd.PRESETS["small"]
    assert {(plan.recipe.model.front, plan.recipe.training.epochs, plan.recipe.method.strength) for plan in plans} == {
        (own.model.front, 3, 1.0)
    }
    plans.clear()
    studies.run("table3-crowd", tmp_path / "other", ["seeds=2", "strength=3"])
    assert {plan.recipe.method.strength for plan in plans} == {3.0}


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        (["strengths=1,1"], "expected different strengths, got 1, 1"),
        (["strengths=1,-1"], "expected strength to be a number from 0 on, got -1.0"),
        (["strengths=1", "strength=5"], "table3-crowd sets strength itself"),
        (["kernel=fixed"], "table3-crowd sets kernel itself; the keys it takes: part, seeds, methods, strengths"),
        (["methods=oe,ld"], "expected methods to begin with baseline, got oe, ld"),
        (["part=C"], "expected the name of a value of part, got 'C'; there are A, B"),
        (["seeds=1"], "expected at least 2 seeds"),
    ],
)
def test_a_mistake_is_found_before_anything_is_written(setting, sentence, plans, tmp_path):
    with pytest.raises(ValueError) as error:
        studies.run("table3-crowd", tmp_path / "out", setting)
    assert sentence in str(error.value) and not (tmp_path / "out").exists() and not plans


def test_without_data_nothing_is_left_behind(tmp_path):
    for more in ([], ["--set=data=nowhere"], ["--preset=small", f"--set=data={tmp_path}"]):
        said = call("reproduce", "table3-crowd", *more, "--out=there", status=2).stderr
        assert said.count("\n") == 1 and "github.com/desenzhou/ShanghaiTechDataset" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_page")
def test_a_study_from_end_to_end(tmp_path):
    generated.make(tmp_path / "set", count=12)
    command = ["reproduce", "table3-crowd", "--set=data=set", *(f"--set={setting}" for setting in TINY)]
    said = call(*command, "--device=cpu", "--out=there")
    assert "6 runs of 1 epochs on cpu, in there" in said.stderr
    lines = [line.split() for line in said.stdout.splitlines()]
    assert ["paper", "65.6", "105.0"] in lines and ["paper", "68.2", "115.0"] in lines
    assert next(line for line in lines if line[:1] == ["ld"])[-1] == "66.9"
    assert "as the paper" in said.stdout  # where the paper scores its runs
    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    for name, points in summary["details"].items():
        for at, own in points.items():
            assert own["mae"] == summary["methods"][name]["at"][at] and len(own["rmse"]) == 2
    assert "Read back" in call(*command, "--device=cpu", "--out=there").stdout


def test_a_study_of_finished_runs_names_the_machine_that_trained_them(plans, tmp_path):
    for k, gpus in enumerate((["this"] * 6, ["this"] * 5 + ["that"])):
        out = tmp_path / str(k)
        for run, gpu in enumerate(gpus):
            folder = out / "training" / f"run{run}"
            folder.mkdir(parents=True)
            content = {"recipe": {}, "method": "oe", "seed": run, "environment": {"gpu": gpu}}
            (folder / "recipe.json").write_text(json.dumps(content))
        found = studies.run("table3-crowd", out, ["seeds=2", "data=somewhere"])["environment"]
        assert (found == {"gpu": "this"}) == (len(set(gpus)) == 1)
        assert ("python" in found) == (len(set(gpus)) == 2)  # of several machines: this one, which summed it up
