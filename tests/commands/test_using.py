"""``predict`` and ``export`` on the command line."""

import csv
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")
pytest.importorskip("sklearn", reason="tables are prepared by scikit-learn")

import ordinal_entropy as oe
from command_line import TINY, call, words
from ordinal_entropy import runs, tasks
from ordinal_entropy.tasks.tabular import generated
from ordinal_entropy.training.plans import Plan

SMALL = ["epochs=3", "hidden=8", "pieces=4", "embedding_size=2", "batch_size=32", "feature_rows=0", "target=price"]


@pytest.fixture
def mine():
    """A run on a table of houses, and new houses without a price."""
    generated.make("made", count=300)
    call("train", "tabular", "--set=data=made/houses.csv", *(f"--set={each}" for each in SMALL), "--out=mine")
    rows = [row.rsplit(",", 1)[0] for row in Path("made/houses.csv").read_text().splitlines()]
    Path("new.csv").write_text("\n".join([f"name,{rows[0]}", *(f"house {k},{row}" for k, row in enumerate(rows[1:]))]))
    return Path("mine")


def read(path="predictions.csv"):
    return list(csv.DictReader(Path(path).read_text().splitlines()))


def test_predict_writes_a_row_for_each(mine):
    said = call("predict", mine, "new.csv", "--out=found.csv", "--id=name", "--intervals=0.9")
    found = read("found.csv")
    assert list(found[0]) == ["row", "name", "prediction", "low", "high"]
    assert (len(found), found[7]["row"], found[7]["name"]) == (300, "8", "house 7")
    run = oe.load(mine)
    wanted = run.intervals("new.csv", 0.9)
    np.testing.assert_allclose([float(each["prediction"]) for each in found], wanted.predictions, rtol=1e-8)
    np.testing.assert_allclose([float(each["low"]) for each in found], wanted.low, rtol=1e-6)
    said = words(said.stdout)
    assert "tabular, oe, seed 0, best on validation: epoch" in said and "300 predictions are in found.csv" in said
    assert f"Intervals of 0.9: plus and minus {wanted.halfwidth:.4g}, calibrated on 60 test rows of the run" in said
    plain = call("predict", mine, "new.csv", "--at=last")
    assert list(read()[0]) == ["row", "prediction"] and "last: epoch 3" in words(plain.stdout)
    other = words(call("predict", mine, "new.csv", "--intervals=0.8", "--calibrate=made/houses.csv").stdout)
    assert "calibrated on 300 rows of made/houses.csv" in other and "not seen" not in other


def test_mistakes_are_one_sentence(mine):
    Path("other.csv").write_text("area,rooms\n1,2\n")
    said = words(call("predict", mine, "other.csv", status=2).stderr)
    assert "expected the columns that the run was trained on, got no 'year'" in said and "other.csv" in said
    assert "got none" in words(call("predict", mine, "new.csv", "--calibrate=new.csv", status=2).stderr)
    assert "between 0 and 1" in words(call("predict", mine, "new.csv", "--intervals=90", status=2).stderr)
    assert "expected a column" in words(call("predict", mine, "new.csv", "--id=nam", status=2).stderr)
    assert "expected one table, got 2" in words(call("predict", mine, "new.csv", "new.csv", status=2).stderr)
    assert "run folder with recipe.json" in words(call("predict", "nowhere", "new.csv", status=2).stderr)
    assert "expected a table in gone.csv" in words(call("predict", mine, "gone.csv", status=2).stderr)
    assert not Path("predictions.csv").exists()
    assert "expected --to to be one of" in words(call("export", mine, "--to=tflite", status=2).stderr)


def test_a_run_of_another_version_is_refused_with_its_version(mine):
    for path in (mine / "recipe.json", mine / "oe-seed0" / "recipe.json"):
        content = runs.read_json(path)
        content["recipe"]["model"]["depth"] = 3
        content["environment"]["ordinal_entropy"] = "9.1"
        runs.write_json(path, content)
    said = words(call("predict", mine, "new.csv", status=2).stderr)
    assert "got model.depth, which this version does not have" in said and "written by version 9.1" in said


def test_export_writes_the_network_and_its_preprocessing(mine):
    said = call("export", mine, "--to=torch-export").stdout
    assert sorted(path.name for path in (mine / "export-torch-export").iterdir()) == ["model.pt2", "preprocessing.json"]
    assert "mine/export-torch-export/model.pt2" in words(said)
    call("export", mine, "--to=safetensors", "--out=served", "--at=last")
    assert runs.read_json("served/config.json")["at"] == "last"


def test_an_operator():
    call("train", "linear", "--out=mine", *TINY)
    rng = np.random.default_rng(0)
    np.savez("new.npz", functions=rng.normal(size=(5, 100)), places=rng.random((5, 1)))
    said = call("predict", "mine", "new.npz").stdout
    assert "linear, oe, seed 0, last: step 20" in words(said) and len(read()) == 5


def test_counts_with_their_maps_and_pictures():
    pytest.importorskip("PIL", reason="images are Pillow's")
    pytest.importorskip("safetensors", reason="features are saved by safetensors")
    from PIL import Image

    tasks.load_data("crowd").make(Path("crowd"), seed=0, count=18)
    settings = "front=test_resnet widths=16 crop=64 epochs=1 batch_size=4 feature_rows=0 repeats=1"
    plan = Plan("oe", 0, tasks.recipe("crowd", "quick", ["data=crowd", *settings.split()]))
    tasks.load("crowd").train([plan], device="cpu", folder=Path("runs"))
    images = Path("crowd/test_data/images")
    (Path("more")).mkdir()
    first = min(images.iterdir())
    (Path("more") / first.name).write_bytes(first.read_bytes())
    call("predict", "runs/oe-seed0", images, "more", "--out=counts.csv")
    found = read("counts.csv")
    assert list(found[0]) == ["file", "count", "map"] and len({each["map"] for each in found}) == len(found)
    assert found[-1]["map"] == f"counts/{first.stem}-2.npy"
    for each in found:
        density = np.load(each["map"])
        assert density.dtype == np.float32 and density.sum() == pytest.approx(float(each["count"]), rel=1e-3, abs=1e-4)
    with Image.open(Path(found[0]["map"]).with_suffix(".png")) as picture, Image.open(found[0]["file"]) as image:
        assert picture.size == (2 * image.size[0], image.size[1])
