"""Trained runs on images in use: the predictions that are scored, of images that nobody has a target for."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ordinal_entropy as oe
from ordinal_entropy import tasks
from ordinal_entropy.recipes import changed
from ordinal_entropy.tasks.on_images.training import restored
from ordinal_entropy.training.checkpoints import load_images
from ordinal_entropy.training.large.batches import predicted
from ordinal_entropy.training.plans import Plan
from ordinal_entropy.vision import images

SLOW = pytest.mark.slow
SETTINGS = {
    "age": "backbone=test_resnet image_size=32 padding=2 epochs=2 batch_size=16 milestones=1 feature_rows=9 bins=20",
    "crowd": "front=test_resnet widths=16 crop=64 epochs=1 batch_size=4 feature_rows=4 repeats=1 bins=20",
    "depth": "backbone=test_resnet channels=8 height=48 width=64 epochs=1 batch_size=4 feature_rows=4 bins=20",
}
FOLDERS = {"age": "AgeDB", "crowd": "test_data/images", "depth": "."}
COUNTS = {"age": 100, "crowd": 18, "depth": 40}


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    """A small dataset of each task."""
    found = {}
    for task, count in COUNTS.items():
        found[task] = tmp_path_factory.mktemp(task) / "set"
        more = {"size": (60, 80)} if task == "depth" else {}
        tasks.load_data(task).make(found[task], seed=0, count=count, **more)
    return found


@pytest.fixture
def trained(drawn, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def train(task, method="oe", *settings):
        given = [f"data={drawn[task]}", *SETTINGS[task].split(), *settings]
        plan = Plan(method, 0, tasks.recipe(task, "quick", given))
        tasks.load(task).train([plan], device="cpu", folder=Path("runs"))
        return plan, Path("runs") / f"{method}-seed0"

    return train


def of_the_test_images(task, plan, folder, name):
    """Predictions, and truth, of the test images of the dataset, as they are scored."""
    own = tasks.load(task).evaluate.args[0]
    made, network = restored(own, plan, load_images(folder / name))
    split, found = made.data.test, [None] * len(made.data.test)
    settings = plan.recipe.training
    for rows, (predictions, seen) in zip(
        split.batches(settings.batch_size), predicted(network, made.method, split, settings, device="cpu"), strict=True
    ):
        ours, theirs = split.scored(predictions, seen)
        for place, row in enumerate(rows.tolist()):
            found[row] = ours[place].squeeze(), theirs[place].squeeze()
    ours, truth = (torch.stack(each).numpy() for each in zip(*found, strict=True))
    return split, ours, truth


@pytest.mark.parametrize("method", ["hl-gauss", *(pytest.param(name, marks=SLOW) for name in ("oe", "coral", "ema"))])
def test_ages_are_those_that_are_scored(trained, drawn, method):
    plan, folder = trained("age", method)
    for at, name in (("best_validation", "best.ckpt"), ("last", "last.ckpt")):
        split, wanted, truth = of_the_test_images("age", plan, folder, name)
        run = oe.load(folder, at=at)
        np.testing.assert_allclose(run.predict(list(split.images.paths)), wanted, rtol=1e-5)
    pixels = np.stack([images.read(path) for path in split.images.paths])
    np.testing.assert_allclose(run.predict(pixels), wanted, rtol=1e-5)
    as_tensor = torch.from_numpy(pixels).permute(0, 3, 1, 2)
    np.testing.assert_allclose(run.predict(as_tensor), wanted, rtol=1e-5)
    np.testing.assert_allclose(run.predict(as_tensor.float() / 255), wanted, rtol=1e-5)
    assert run.features(pixels).shape[0] == len(pixels) and run.features(pixels).ndim == 2
    half, rows = run.halfwidth(0.8)
    assert rows == "9 test images of the run" and half in run._used.residuals().values
    away = np.sort(np.abs(wanted - truth))
    own = changed(plan.recipe, {"data.path": str(drawn["age"])})
    assert own == plan.recipe
    assert run.halfwidth(0.8, drawn["age"])[0] == pytest.approx(away[int(np.ceil(0.8 * (len(away) + 1))) - 1], rel=1e-4)


def test_no_dataset_is_needed_and_images_of_other_sizes_are_resized(trained, drawn, tmp_path):
    _, folder = trained("age", "oe")
    run = oe.load(folder)
    faces = sorted((drawn["age"]).rglob("*.jpg"))[:5]
    wanted = run.predict(faces)
    shutil.copytree(faces[0].parent, tmp_path / "new")
    larger = images.read(faces[0])
    larger = Image.fromarray(larger).resize((90, 70))
    larger.save(tmp_path / "large.png")
    by_hand = np.array(larger.resize((32, 32), Image.Resampling.BILINEAR))[None]
    assert run.predict("large.png") == pytest.approx(run.predict(by_hand))
    assert len(run.predict("new")) == len(list((tmp_path / "new").rglob("*.jpg")))
    (tmp_path / "list.csv").write_text("path,more\n" + "".join(f"{face},0\n" for face in faces))
    np.testing.assert_array_equal(run.predict("list.csv"), wanted)
    read = run.read("list.csv")
    assert read.heading == "file" and read.names[0] == str(faces[0])
    with pytest.raises(images.ImageError, match=r"expected an image in nowhere.jpg, got: missing"):
        run.predict("nowhere.jpg")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"expected images \(.jpg, .* in empty, got none"):
        run.predict("empty")
    (tmp_path / "bare.csv").write_text("file\nx.jpg\n")
    with pytest.raises(ValueError, match=r"expected a column path in bare.csv, got file"):
        run.predict("bare.csv")
    with pytest.raises(ValueError, match=r"expected images \(n, h, w, 3\), got \(2, 3, 8, 8\)"):
        run.predict(np.zeros((2, 3, 8, 8), np.uint8))
    with pytest.raises(ValueError, match="expected images in bytes, or floats from 0 to 1, got float64"):
        run.predict(np.full((2, 8, 8, 3), 255.0))
    with pytest.raises(ValueError, match="expected a task that predicts maps, got age"):
        run.map_of_each(faces)


@pytest.mark.parametrize(
    "settings",
    [[], *(pytest.param(own, marks=SLOW) for own in (["crop=0", "batch_size=1"], ["max_side=96", "reduce=bicubic"]))],
)
def test_counts_are_those_that_are_scored(trained, drawn, settings):
    plan, folder = trained("crowd", "oe", *settings)
    _, wanted, truth = of_the_test_images("crowd", plan, folder, "best.ckpt")
    run = oe.load(folder)
    files = sorted((drawn["crowd"] / "test_data" / "images").iterdir(), key=lambda path: int(path.stem.split("_")[1]))
    found = run.predict(files)
    np.testing.assert_allclose(np.sort(found), np.sort(wanted), rtol=1e-5)
    maps = list(run.map_of_each(files))
    assert [float(each.sum()) for each in maps] == pytest.approx(found.tolist(), rel=1e-4)
    height, width, _ = images.read(files[0]).shape
    if not settings:
        assert maps[0].shape == (-(-height // 8), -(-width // 8))
    features = run.features(files[:3])
    assert {each.shape[0] for each in features} == {16}
    half, rows = run.halfwidth(0.5)
    away = np.sort(np.abs(wanted - truth))
    assert half == pytest.approx(away[int(np.ceil(0.5 * (len(away) + 1))) - 1], rel=1e-4)
    assert rows == f"{len(away)} test images of the dataset of the run"


@pytest.mark.parametrize(
    "settings", [["flip=true"], *(pytest.param(own, marks=SLOW) for own in ([], ["precision=float64"]))]
)
def test_depths_are_those_that_are_scored(trained, settings):
    plan, folder = trained("depth", "oe", *settings)
    split, wanted, _ = of_the_test_images("depth", plan, folder, "best.ckpt")
    run = oe.load(folder)
    files = [record.image for record in split.records]
    found = run.predict(files)
    assert found.shape == (len(files), 48, 64) and run.maps == "metres"
    small = torch.from_numpy(wanted)[:, None]
    larger = torch.nn.functional.interpolate(small, size=(48, 64), mode="bilinear", align_corners=False)
    np.testing.assert_allclose(found, larger[:, 0], rtol=1e-4, atol=1e-5)
    some = next(iter(run.each(files[:2])))
    assert some.numbers == pytest.approx(found[:2].mean((1, 2)), rel=1e-5)
    assert some.images[0].shape == (48, 64, 3)
    assert run.features(files[:2]).shape[:2] == (2, 8)
    with pytest.raises(ValueError, match="expected a task with one number a row or image for intervals, got depth"):
        run.halfwidth(0.9)


def test_a_run_without_saved_predictions_needs_images_to_calibrate_on(trained, tmp_path):
    plan, folder = trained("age", "baseline", "feature_rows=0")

    content = (folder / "recipe.json").read_text()
    (folder / "recipe.json").write_text(content.replace(str(plan.recipe.data.path), str(tmp_path / "gone")))
    run = oe.load(folder)
    with pytest.raises(ValueError, match="expected the dataset of the run, or other images with targets"):
        run.halfwidth(0.9)
