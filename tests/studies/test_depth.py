"""Studies on the depth of rooms: their rows beside the paper's, and one from end to end on rendered rooms."""

import itertools
import json
import math

import pytest

from command_line import call
from ordinal_entropy import studies
from ordinal_entropy.recipes import changed
from ordinal_entropy.results import tables
from ordinal_entropy.results.summary_figures import paired_differences
from ordinal_entropy.studies import paper
from ordinal_entropy.tasks.depth import generated
from ordinal_entropy.tasks.depth import recipe as depth

pytestmark = pytest.mark.usefixtures("elsewhere")
NAMES = ("table1-depth", "table2-depth", "classification-depth")
SIZE = (48, 64)
TINY = [
    "height=48",
    "width=64",
    "backbone=test_resnet",
    "channels=32",
    "epochs=1",
    "feature_rows=0",
    "seeds=2",
    "train_rows=8",
]


@pytest.fixture
def plans(scored_by):
    """The runs that a study asks for; errors are 0.5 + seed / 100, less by the strength, half as large of NeW-CRFs."""

    def scores(plan, gain):
        error = (0.5 + plan.seed / 100 - gain / 100) / (1 + (plan.recipe.model.name == "newcrfs"))
        return {"delta1": 0.8, "rel": math.nan, "rms": error, "log10": 0.06}

    return scored_by(depth, scores)


def test_table1_is_the_papers_recipe_with_eight_methods(plans, tmp_path):
    summary = studies.run("table1-depth", tmp_path, ["data=somewhere"])
    methods = (
        "baseline", "ld-unweighted", "ld", "oe", "ld-cosine", "ld-no-norm", "ld-squared", "ld-sqrt",
    )  # fmt: skip
    assert [(plan.method, plan.seed) for plan in plans] == list(itertools.product(methods, range(5)))
    assert {plan.recipe for plan in plans} == {changed(depth.PRESETS["paper"], {"data": "somewhere"})}
    assert summary["paper"] == {name: {"mean": own["rms"], "std": None} for name, own in paper.TABLE1_DEPTH.items()}
    assert summary["paper_details"] == paper.TABLE1_DEPTH
    assert paper.TABLE1_DEPTH["oe"] == {"delta1": 0.811, "rel": 0.143, "rms": 0.478, "log10": 0.060}
    assert (tmp_path / "table1-depth.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("preset", "others"), [("paper", "newcrfs"), ("small", "small-newcrfs"), ("quick", "quick-newcrfs")]
)
def test_table2_has_both_models_each_with_its_recipe_and_baseline(plans, tmp_path, preset, others):
    summary = studies.run("table2-depth", tmp_path, ["seeds=2", "epochs=3"], preset=preset)
    rows = ["baseline", "ld", "oe", "baseline newcrfs", "ld newcrfs", "oe newcrfs"]
    assert list(summary["methods"]) == rows
    own, other = (changed(depth.PRESETS[name], {"epochs": 3, "strength": 1.0}) for name in (preset, others))
    assert [plan.recipe for plan in plans] == [own] * 6 + [other] * 6
    assert (
        summary["recipe"]["model"]["name"] == "decoder" and summary["recipes"]["newcrfs"]["model"]["name"] == "newcrfs"
    )
    assert summary["paired"]["oe"]["difference"] == pytest.approx(-0.01)
    assert summary["paired"]["oe newcrfs"]["difference"] == pytest.approx(-0.005)
    assert set(summary["paired"]) == set(rows) - {"baseline", "baseline newcrfs"}
    assert summary["held_to"]["ld newcrfs"] == "baseline newcrfs" and summary["held_to"]["ld"] == "baseline"
    assert paired_differences(summary)["oe newcrfs"].seeds == pytest.approx([-0.005, -0.005])
    published = {*rows, *paper.TABLE2_CITED} - {"ld newcrfs"}  # for which the paper has no number
    assert set(summary["paper"]) == set(summary["paper_details"]) == published
    assert summary["paper_details"]["oe newcrfs"]["rms"] == 0.321


def test_cited_rows_stand_below_ours(plans, tmp_path):
    summary = studies.run("table2-depth", tmp_path, ["seeds=2"], preset="quick")
    table = tables.scores(summary, 1e-3, "best_test")
    assert [row.name for row in table.rows][-4:] == list(paper.TABLE2_CITED)
    *points, published = zip(*(row.cells for row in table.rows), strict=True)
    assert published[:3] == ("502.0", "483.0", "478.0") and published[-4:] == ("573.0", "509.0", "392.0", "364.0")
    assert all(column[-4:] == ("-",) * 4 for column in points) and points[0][0].startswith("505")
    (table,) = tables.details(summary, {"Scores": {"delta1": "delta1", "REL": "rel", "log10": "log10"}})
    rows = [(row.name, *row.cells) for row in table.rows]
    assert rows[0] == ("baseline", "0.80 ± 0.00", "no number", "0.060 ± 0.00")
    assert rows[1] == ("paper", "0.793", "0.148", "0.064")
    assert rows[-1] == ("AdaBins, cited, paper", "0.903", "0.103", "0.044") and len(rows) == 6 + 5 + 4


def test_one_model_alone(plans, tmp_path):
    summary = studies.run("table2-depth", tmp_path, ["seeds=2", "models=newcrfs", "strengths=1,5"], preset="small")
    rows = ["baseline newcrfs", "ld strength=1 newcrfs", "ld strength=5 newcrfs"]
    assert list(summary["methods"])[:3] == rows and summary["baseline"] == rows[0]
    assert {plan.recipe.model.name for plan in plans} == {"newcrfs"} and summary["recipe"]["model"]["name"] == "newcrfs"
    assert "held_to" not in summary
    assert {"baseline newcrfs", "oe strength=1 newcrfs"} == set(summary["paper"]) - set(paper.TABLE2_CITED)


def test_classification_stands_beside_regression(plans, tmp_path):
    summary = studies.run("classification-depth", tmp_path, ["seeds=2", "bins=100,10,50"])
    rows = ["baseline", "ld", "oe", "classification bins=100", "classification bins=10", "classification bins=50"]
    assert list(summary["methods"]) == rows
    assert [plan.recipe.method.bins for plan in plans if plan.method == "classification"] == [100, 100, 10, 10, 50, 50]
    assert set(summary["paper"]) == {"baseline", "ld", "oe"}  # the paper has none for classification
    assert studies.get("classification-depth").keys.bins == (256, 64)


@pytest.mark.parametrize(
    ("name", "setting", "preset", "sentence"),
    [
        ("table1-depth", "strength=5", "paper", "table1-depth sets strength itself; the keys it takes: seeds, methods"),
        ("table1-depth", "strengths=1,1", "paper", "expected different strengths, got 1, 1"),
        ("table1-depth", "methods=oe", "paper", "expected methods to begin with baseline, got oe"),
        ("table2-depth", "models=unet", "paper", "expected the name of a value of models, got 'unet'"),
        ("table2-depth", "models=decoder,decoder", "paper", "expected different models, got decoder, decoder"),
        (
            "table2-depth",
            "seeds=2",
            "newcrfs",
            "table2-depth with newcrfs, got 'newcrfs'; there are paper, small, quick",
        ),
        ("classification-depth", "bins=1", "paper", "expected bins to be at least 2, got 1"),
        ("classification-depth", "bins=9,9", "paper", "expected different bins, got 9, 9"),
        ("classification-depth", "methods=baseline,classification", "paper", "expected methods of regression"),
    ],
)
def test_a_mistake_is_found_before_anything_is_written(name, setting, preset, sentence, plans, tmp_path):
    with pytest.raises(ValueError) as error:
        studies.run(name, tmp_path / "out", [setting], preset=preset)
    assert sentence in str(error.value) and not (tmp_path / "out").exists() and not plans


@pytest.mark.parametrize("name", NAMES)
def test_without_data_nothing_is_left_behind(name, tmp_path):
    for more in ([], ["--set=data=nowhere"], ["--preset=small", f"--set=data={tmp_path}"]):
        said = call("reproduce", name, *more, status=2).stderr
        assert said.count("\n") == 1 and "github.com/cleinc/bts" in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_page")
def test_a_study_from_end_to_end_and_again(tmp_path):
    generated.make(tmp_path / "rooms", count=40, size=SIZE)
    command = ["reproduce", "table2-depth", "--preset=quick", f"--set=data={tmp_path / 'rooms'}"]
    command += [*(f"--set={setting}" for setting in TINY), "--set=methods=baseline,oe", "--device=cpu", "--out=there"]
    said = call(*command)
    assert "8 runs of 1 epochs on cpu, in there" in said.stderr
    lines = [line.split() for line in said.stdout.splitlines()]
    assert ["AdaBins,", "cited", "-", "-", "-", "364.0"] in lines
    assert ["paper", "0.811", "0.143", "0.478", "0.060"] in lines and ["BTS,", "cited"] in [line[:2] for line in lines]
    assert "Test scores" in said.stdout and "SILog" in said.stdout
    assert "held to the baseline with newcrfs" in said.stdout and (tmp_path / "there" / "table2-depth.png").exists()
    summary = json.loads((tmp_path / "there" / "summary.json").read_text())
    assert len({value for own in summary["methods"].values() for value in own["values"]}) == 8
    assert summary["details"]["oe newcrfs"]["last"]["rms"] == summary["methods"]["oe newcrfs"]["at"]["last"]
    assert "Read back from" in call(*command).stdout


def test_a_command_resolves_the_settings_of_a_study_once(monkeypatch, tmp_path):
    from ordinal_entropy.commands import reproducing

    asked, real = [], studies.resolve
    monkeypatch.setattr(studies, "resolve", lambda *args: asked.append(args[0]) or real(*args))
    monkeypatch.setattr(studies, "carry_out", lambda resolved, *args: asked.append(resolved.variants[3].name) or {})
    monkeypatch.setattr(studies, "check", lambda resolved: asked.append(list(resolved.recipes)))
    monkeypatch.setattr(reproducing, "show_study", lambda *args, **options: None)
    monkeypatch.setattr(reproducing.reporting, "draw_page", lambda place: None)
    call("reproduce", "table2-depth", "--out", tmp_path / "out", "--device", "cpu")
    assert asked == ["table2-depth", ["", "newcrfs"], "baseline newcrfs"]


def test_variants_with_a_label_have_their_own_preset(tmp_path):
    resolved = studies.resolve("table2-depth", ["epochs=7"], "small")
    small, newcrfs = (depth.PRESETS[name] for name in ("small", "small-newcrfs"))
    assert resolved.recipes == {
        "": changed(small, {"epochs": 7, "strength": 1.0}),
        "newcrfs": changed(newcrfs, {"epochs": 7, "strength": 1.0}),
    }
