"""Figures 1, 3, 4c and A: what they train, what is measured of the features, and one from end to end."""

import json
import math
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file, save_file

from command_line import call
from ordinal_entropy import runs, studies
from ordinal_entropy.recipes import changed, described
from ordinal_entropy.studies import claims
from ordinal_entropy.studies import saved_features as of_studies
from ordinal_entropy.tasks.depth import generated
from ordinal_entropy.tasks.depth import recipe as depth
from ordinal_entropy.training import saved_features
from ordinal_entropy.training.plans import Outcome, run_names

pytestmark = pytest.mark.usefixtures("elsewhere")
EPOCHS = 3
CLASSIFIED = ["classification bins=256", "classification bins=64"]
ROWS = {
    "fig1": ["baseline", *CLASSIFIED],
    "fig3": ["baseline", "ld-unweighted", "ld", "oe"],
    "fig4c": ["baseline", "classification bins=256", "ld", "oe"],
    "figA": ["baseline", *CLASSIFIED, "ld", "oe"],
}
PICTURES = {
    "fig1": ["fig1", "fig1-tsne", "fig1-ordinality"],
    "fig3": ["fig3", "fig3-sphere", "fig3-ordinality"],
    "fig4c": ["fig4c", "fig4c-ordinality"],
    "figA": ["figA", "figA-ordinality"],
}
# Spread of the saved features after each epoch, by method: as the paper has it.
SPREAD = {
    "baseline": (2.0, 1.5, 1.0),
    "classification": (3.0, 3.0, 3.0),
    "ld-unweighted": (9.0, 9.0, 9.0),
    "ld": (3.0, 4.0, 5.0),
    "oe": (1.0, 1.2, 1.4),
}
OUTCOME = Outcome([1, 2, 3], [1.0] * 3, [1.0] * 3, [1.0] * 3, 1.0, 1.0, 1.0)


@pytest.fixture
def trained(trained_by, monkeypatch):
    """Runs whose saved features are a cloud of the spread above, a little more with every seed."""
    fake = SimpleNamespace(spread=dict(SPREAD), draws=False)

    def outcomes(plans, folder):
        for plan, name in zip(plans, run_names(plans), strict=True):
            run = runs.create(folder / name, {"task": "depth", **described(plan.recipe)}, plan.method, plan.seed)
            (run.path / "features").mkdir()
            for epoch in range(1, EPOCHS + 1):
                for part in ("train", "test"):
                    generator = torch.Generator().manual_seed(0)
                    cloud = torch.randn(30, 4, generator=generator) * fake.spread[plan.method][epoch - 1]
                    content = {"features": cloud * (1 + plan.seed / 100), "targets": torch.rand(30, 1)}
                    save_file(content, saved_features.feature_file(run.path, part, epoch))
                content |= {"predictions": torch.full((30, 1), float(epoch)), "places": torch.zeros(30, 2)}
                save_file(content, saved_features.feature_file(run.path, "image", epoch))
            history = [{part: {"rms": score} for part in ("train", "validation", "test")} for score in (3.0, 1.0, None)]
            run.finish({"history": history, "features": {}})
        return [OUTCOME] * len(plans)

    fake.asked = trained_by(depth, outcomes)
    monkeypatch.setattr(studies, "find_spec", lambda name: name if fake.draws else None)
    return fake


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if len(PICTURES[name]) > 2 else ()) for name in ROWS]
)
def test_rows_and_runs(name, trained, tmp_path):
    trained.draws = True
    summary = studies.run(name, tmp_path, ["data=somewhere", "seeds=2", f"epochs={EPOCHS}"])
    assert list(summary["methods"]) == list(summary["entropies"]) == list(summary["features"]) == ROWS[name]
    assert [plan.seed for plan in trained.asked] == [0, 1] * len(ROWS[name])
    recipe = changed(depth.PRESETS["paper"], {"data": "somewhere", "epochs": EPOCHS})
    assert {changed(plan.recipe, {"bins": 256}) for plan in trained.asked} == {recipe}
    assert [plan.recipe.method.bins for plan in trained.asked if plan.method == "classification"] == [
        int(row.split("=")[1]) for row in ROWS[name] for _ in range(2) if row.startswith("classification")
    ]
    assert studies.get(name).keys.seeds == 3
    for picture in PICTURES[name]:
        assert (tmp_path / f"{picture}.png").exists() and (tmp_path / f"{picture}.svg").exists()
    assert len(list(tmp_path.glob("*.png"))) == len(PICTURES[name])


def test_entropies_are_of_the_kept_files(trained, tmp_path):
    summary = studies.run("figA", tmp_path, ["seeds=2", f"epochs={EPOCHS}"])
    content = json.loads((tmp_path / "entropies.json").read_text())
    assert content["epochs"] == [1, 2, 3] and len(content["runs"]) == 2 * len(ROWS["figA"])
    for run in content["runs"]:
        kept = summary["features"][run["variant"]][run["seed"]]
        assert kept["seed"] == run["seed"]
        assert (kept["last"], kept["best_validation"]) == ("image-0003.safetensors", "image-0002.safetensors")
        for part in ("train", "test"):
            for epoch in content["epochs"]:
                file = tmp_path / kept["folder"] / f"{part}-{epoch:04d}.safetensors"
                own = {name: run[part][name][epoch - 1] for name in run[part]}
                assert own == pytest.approx(saved_features.entropies(**load_file(file)))
    ends = summary["entropies"]["ld"]["test"]["E1"]
    assert ends["last"] == [run["test"]["E1"][-1] for run in content["runs"] if run["variant"] == "ld"]
    assert ends["last"][0] - ends["first"][0] == pytest.approx(4 * math.log(5 / 3), abs=1e-4)  # of 4 dimensions


def judged(summary, part="test", estimator="E1"):
    return {
        claim["claim"]: (claim["held"], claim["seeds"], claim["since"])
        for claim in summary["claims"]
        if (claim["part"], claim["estimator"]) == (part, estimator)
    }


def test_the_papers_claims_hold_where_they_do(trained, tmp_path):
    summary = studies.run("figA", tmp_path, ["seeds=2", f"epochs={EPOCHS}"])
    expected = {
        "classification bins=256 is always above baseline": (True, 2, None),
        "classification bins=64 is always above baseline": (True, 2, None),
        "baseline falls": (True, 2, None),
        "ld is the highest in the end": (True, 2, None),
        "oe overtakes baseline": (True, 2, 3),
    }
    assert judged(summary) == expected
    assert judged(summary, "train") == dict(list(expected.items())[:2])  # all that the paper says of them
    assert not judged(summary, estimator="E2")["baseline falls"][0]  # a scale does not change directions
    assert len(summary["claims"]) == 3 * (len(expected) + 2)


def test_they_do_not_hold_where_they_do_not(trained, tmp_path):
    trained.spread |= {"baseline": (1.0, 4.0, 1.1), "ld": (1.0, 1.0, 2.0), "oe": (2.0, 2.0, 1.0)}
    summary = studies.run("fig4c", tmp_path, ["seeds=1", f"epochs={EPOCHS}"])
    assert judged(summary) == {
        "classification bins=256 is always above baseline": (False, 0, None),
        "baseline falls": (False, 0, None),
        "ld is the highest in the end": (False, 0, None),  # classification is
        "oe overtakes baseline": (False, 0, None),
    }


def test_the_highest_is_not_held_to_the_unweighted(trained, tmp_path):
    """Figure 3: which spreads the features farther, the paper says, and loses their order."""
    summary = studies.run("fig3", tmp_path, ["seeds=1", f"epochs={EPOCHS}"])
    assert judged(summary)["ld is the highest in the end"] == (True, 1, None)


def test_a_run_without_a_number_is_left_out(trained, tmp_path):
    summary = studies.run("fig4c", tmp_path / "a", ["seeds=2", f"epochs={EPOCHS}"])
    content = json.loads((tmp_path / "a" / "entropies.json").read_text())
    content["runs"][0]["test"]["E1"][1] = None  # baseline, seed 0
    found = {(c["part"], c["estimator"], c["claim"]): c for c in claims.judged(content)}
    assert found["test", "E1", "baseline falls"] == {
        **{"part": "test", "claim": "baseline falls", "estimator": "E1", "held": True, "since": None},
        **{"seeds": 1, "of": 2},
    }
    content["runs"][1]["test"]["E1"][1] = None
    held = [claim["held"] for claim in claims.judged(content) if (claim["part"], claim["estimator"]) == ("test", "E1")]
    assert held == [None, None, None, None]  # each looks at the baseline
    assert all(claim["held"] is not None for claim in summary["claims"])


def test_what_is_measured_is_not_measured_again(trained, trained_by, tmp_path, monkeypatch):
    settings = ["seeds=1", f"epochs={EPOCHS}"]
    first = studies.run("fig1", tmp_path, settings)
    (tmp_path / "summary.json").unlink()  # as after a stop between the two files
    monkeypatch.setattr(saved_features, "saved_entropies", None)
    monkeypatch.setattr(depth.DEPTH.__class__, "train", None)
    trained_by(depth, lambda plans, folder: [OUTCOME] * 3)
    again = studies.run("fig1", tmp_path, settings)
    assert again["entropies"] == first["entropies"] and again["claims"] == first["claims"]


def test_layouts_are_of_the_last_epoch_of_the_first_run(trained, tmp_path, monkeypatch):
    """All methods in one layout, in the colours of what they predict."""
    from ordinal_entropy.figures import embedding

    trained.draws = True
    laid_out, shown = [], []
    monkeypatch.setattr(
        embedding, "layout", lambda own, *, dimensions: laid_out.append((own, dimensions)) or "the layout"
    )
    monkeypatch.setattr(embedding, "draw", lambda places, values, path, **more: shown.append((places, values, more)))
    monkeypatch.setattr(of_studies, "_LAID_OUT", {2: 120, 3: 40})
    studies.run("fig3", tmp_path, ["seeds=2", f"epochs={EPOCHS}"])
    assert [dimensions for _, dimensions in laid_out] == [2, 3]
    for (own, dimensions), (places, values, more) in zip(laid_out, shown, strict=True):
        assert list(own) == list(values) == list(more["names"]) == ROWS["fig3"] and places == "the layout"
        for name in ROWS["fig3"]:
            kept = load_file(tmp_path / "training" / f"{name}-seed0" / "features" / "image-0003.safetensors")
            rows = slice(None) if dimensions == 2 else embedding.drawn(30, 10)
            assert (own[name] == kept["features"].numpy()[rows]).all() and (values[name] == EPOCHS).all()
            assert len(own[name]) == len(values[name]) == (30 if dimensions == 2 else 10)
    assert [more["title"].split(" places")[0] for *_, more in shown] == ["Figure 3, 30", "Figure 3, 10 of 30"]
    assert {more["label"] for *_, more in shown} == {"predicted depth (m)"}


def test_a_run_that_diverged_has_an_empty_panel(trained, tmp_path):
    trained.draws = True
    trained.spread |= {"oe": (1.0, math.nan, math.nan)}
    studies.run("fig3", tmp_path, ["seeds=1", f"epochs={EPOCHS}"])
    for picture in ("fig3", "fig3-sphere"):
        assert "no number" in (tmp_path / f"{picture}.svg").read_text()
    assert (tmp_path / "fig3-ordinality.svg").read_text().count(": ordinality") == 3
    trained.spread |= dict.fromkeys(SPREAD, (1.0, 1.0, math.nan))
    studies.run("fig3", tmp_path / "all", ["seeds=1", f"epochs={EPOCHS}"])
    assert (tmp_path / "all" / "fig3.svg").read_text().count("no number</text>") == 4


def test_pictures_wait_for_what_they_need(trained, tmp_path, monkeypatch):
    trained.draws, settings = True, ["seeds=1", f"epochs={EPOCHS}"]
    with monkeypatch.context() as bare:
        bare.setattr(studies, "find_spec", lambda name: None if name == "sklearn" else name)
        studies.run("fig1", tmp_path, settings)
    assert not list(tmp_path.glob("*.png"))
    studies.run("fig1", tmp_path, settings)
    assert sorted(path.stem for path in tmp_path.glob("*.png")) == sorted(PICTURES["fig1"])
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.png")}
    (tmp_path / "fig1-tsne.png").unlink()
    studies.run("fig1", tmp_path, settings)  # draws what is missing, and nothing else
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("*.png")}
    assert {path.stem for path in before if before[path] != after[path]} == {"fig1-tsne"}


@pytest.mark.parametrize(
    ("name", "setting", "sentence"),
    [
        ("fig1", "seeds=0", "expected at least 1 seed, got 0"),
        ("fig1", "bins=9,9", "expected one to 4 different bins, got 9, 9"),
        ("figA", "bins=8,9,10,11,12", "expected one to 4 different bins, got 8, 9, 10, 11, 12"),
        ("fig4c", "bins=1", "expected bins to be at least 2, got 1"),
        ("fig3", "feature_rows=0", "expected feature_rows to be at least 1, got 0"),
    ],
)
def test_a_mistake_is_found_before_anything_is_written(name, setting, sentence, trained, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        studies.run(name, tmp_path / "out", [setting])
    assert not (tmp_path / "out").exists() and not trained.asked


@pytest.mark.usefixtures("without_page")
def test_a_figure_from_end_to_end_and_again(tmp_path):
    generated.make(tmp_path / "rooms", count=40, size=(48, 64))
    command = [
        "reproduce",
        "fig4c",
        "--preset=quick",
        f"--set=data={tmp_path / 'rooms'}",
        "--device=cpu",
        "--out=there",
    ]
    tiny = ["height=48", "width=64", "channels=8", "epochs=2", "feature_rows=4", "seeds=1", "train_rows=8", "bins=16"]
    command += [f"--set={setting}" for setting in tiny]
    said = call(*command)
    assert "4 runs of 2 epochs on cpu, in there" in said.stderr
    lines = [" ".join(line.split()) for line in said.stdout.splitlines()]
    note = "One run; lower is better. The constant is the mean depth map of the training images."
    assert "Test RMS x 1e-3" in lines and note in lines
    assert any(line.startswith("paper: baseline falls") and line.count("held") == 3 for line in lines)
    assert any(line.startswith("oe training/oe-seed0 image-0002 image-000") for line in lines)
    assert "Drawn in there/fig4c.png" in lines and "Drawn in there/fig4c-ordinality.png" in lines

    kept = [load_file(path) for path in sorted((tmp_path / "there").glob("training/*/features/image-0002.safetensors"))]
    assert len(kept) == 4
    for content in kept:
        assert set(content) == {"features", "targets", "predictions", "places", "row"}
        assert content["features"].shape == (24 * 32, 8) and content["features"].dtype == torch.float16
        assert content["row"].tolist() == kept[0]["row"].tolist() and torch.equal(
            content["targets"], kept[0]["targets"]
        )
    classified = load_file(tmp_path / "there/training/classification-seed0/features/test-0002.safetensors")
    bins = classified["predictions"] / (10 / 16) - 0.5
    torch.testing.assert_close(bins, bins.round())
    assert len(classified["predictions"]) == len(classified["targets"]) == len(classified["features"]) == 4 * 24

    (tmp_path / "there" / "fig4c.png").unlink()
    again = call(*command)
    assert "Read back from" in again.stdout and (tmp_path / "there" / "fig4c.png").exists()
