"""The crowd task as its user meets it, on drawn crowds."""

import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from command_line import call
from ordinal_entropy import capture, methods, runs, tasks
from ordinal_entropy.models import csrnet
from ordinal_entropy.recipes import changed, described, override
from ordinal_entropy.tasks.crowd import data, density, generated
from ordinal_entropy.tasks.crowd.recipe import CROWD, PRESETS, Crowd, crowds, prepare, split_for
from ordinal_entropy.training.checkpoints import load_images
from ordinal_entropy.training.plans import Plan, run_names
from ordinal_entropy.vision.sets import mixed, training_steps
from ordinal_entropy.vision.split import normalized

SEED, RATE = 3, 0.1
TINY = changed(
    Crowd(),
    {
        "border": "kept",
        "reduce": "sum",
        "max_side": 96,
        "front": "test_resnet",
        "widths": (8,),
        "batch_norm": True,
        "crop": 64,
        "mirror": True,
        "epochs": 2,
        "repeats": 1,
        "batch_size": 6,
        "loss": "mse",
        "optimizer": "adamw",
        "learning_rate": 5e-3,
        "strength": 0.1,
        "stride": 2,
        "bins": 8,
        "feature_rows": 4,
    },
)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crowds") / "set"
    generated.make(folder, count=18)  # 12 to train on, one of them for validation
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch, cache):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)


def tiny(root, *settings) -> Crowd:
    return override(TINY, [f"data={root}", *settings])


def as_settings(recipe: Crowd) -> list[str]:
    return ["--device=cpu", *tasks.arguments("crowd", described(recipe))]


def damaged(drawn, folder):
    """A copy of a set: an image truncated, an annotation missing, points outside of another image."""
    shutil.copytree(drawn, folder)
    first, second, third, *_ = [record.path for record in data.records(folder)[0] if record.split == "train"]
    first.write_bytes(first.read_bytes()[:300])
    (folder / "train_data" / "ground-truth" / f"GT_{second.stem}.mat").unlink()
    Image.new("RGB", (16, 16)).save(third)
    return folder


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_has_a_network(name, drawn):
    recipe = changed(PRESETS[name], {"data": str(drawn), "max_side": 64, "pretrained": ""})
    found = crowds(recipe)
    for method, channels in (("oe", 1), ("classification", recipe.method.bins)):
        make_network = prepare(Plan(method, 0, recipe), found, None).make_network
        with torch.device("meta"):
            network = make_network()
        assert network.head.out_channels == channels and network.head.in_channels == recipe.model.widths[-1] == 64


def test_train_evaluate_and_go_on(drawn, tmp_path):
    said = call("train", "crowd", "--method=oe", f"--set=data={drawn}", *as_settings(TINY), "--out=mine")
    assert "2 epochs on cpu" in said.stderr and "test MAE" in said.stdout
    result = runs.read_json("mine/result.json")
    assert [line["step"] for line in runs.open("mine").metrics()] == [1, 2]
    own = tmp_path / "mine" / "oe-seed0"
    assert {file.name for file in own.iterdir()} >= {"last.ckpt", "best.ckpt", "csv", "features", "metrics.jsonl"}
    kept = [f"{part}-000{epoch}.safetensors" for part in ("image", "test", "train") for epoch in (1, 2)]
    assert sorted(file.name for file in (own / "features").iterdir()) == sorted([*kept, "image.png"])
    evaluated = call("evaluate", "mine", "--device=cpu").stdout
    assert "epoch 2 of 2" in evaluated and f"{result['last']:.4g}" in evaluated and "root MSE" in evaluated
    assert f"{result['best_validation']:.4g}" in evaluated.split("best on validation")[1]

    generated.make(tmp_path / "other", seed=1, count=12)
    other = call("evaluate", "mine", "--device=cpu", f"--set=data={tmp_path / 'other'}").stdout
    assert "epoch 2 of 2" in other and other != evaluated


def test_double_precision_from_the_first_step_to_the_checkpoint(drawn, tmp_path):
    """The scores of training are those of the weights that were written, to the last digits of float64."""
    recipe = tiny(drawn, "precision=float64")
    plan = Plan("oe", 0, recipe)
    (outcome,) = CROWD.train([plan], device="cpu", folder=tmp_path / "runs")
    (single,) = CROWD.train([plan._replace(recipe=tiny(drawn))], device="cpu", folder=tmp_path / "single")
    folder = tmp_path / "runs" / run_names([plan])[0]
    weights = load_images(folder / "last.ckpt").weights
    assert {value.dtype for value in weights.values()} == {torch.float64, torch.int64}  # BatchNorm counts
    assert any(not torch.equal(value, value.float().double()) for value in weights.values())
    assert outcome.test == pytest.approx(single.test, rel=1e-2) and outcome.test != single.test
    found = CROWD.evaluate(plan, device="cpu", folder=folder)
    assert [found["test"], found["validation"]] == pytest.approx([outcome.last, outcome.validation[-1]], rel=1e-13)


@pytest.mark.usefixtures("without_page")
def test_compare_two_methods_and_skip_what_is_finished(drawn, tmp_path):
    arguments = ["compare", "crowd", "--methods=baseline,classification", "--seeds=2", f"--set=data={drawn}"]
    arguments += [*as_settings(changed(TINY, {"epochs": 1})), "--out=both"]
    said = call(*arguments).stdout
    assert "Test errors of counts" in said and "root MSE" in said
    summary = runs.read_json("both/summary.json")
    assert summary["metric"] == "mae" and set(summary["methods"]) == {"baseline", "classification"}
    assert all(len(own["values"]) == 2 for own in summary["methods"].values())
    (tmp_path / "both" / "summary.json").unlink()
    places = list((tmp_path / "both" / "training").glob("*/last.ckpt"))
    before = [os.stat(place).st_mtime_ns for place in places]
    call(*arguments)
    assert runs.read_json("both/summary.json")["methods"] == summary["methods"]
    assert len(before) == 4 and [os.stat(place).st_mtime_ns for place in places] == before


def test_goes_on_from_every_epoch(drawn, tmp_path):
    plan = Plan("oe", 1, tiny(drawn, "repeats=2", "schedule=one-cycle", "clip=1"))
    (whole,) = CROWD.train([plan], device="cpu", folder=tmp_path / "whole")

    def stop(epoch, scores):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CROWD.train([plan], device="cpu", folder=tmp_path / "stopped", on_metrics=stop)
    (resumed,) = CROWD.train([plan], device="cpu", folder=tmp_path / "stopped")
    assert resumed == whole


def test_runs_of_one_seed_share_first_weights_and_images(drawn, tmp_path):
    recipe = tiny(drawn, "epochs=1", "train_rows=7", "strength=0")
    plans = [Plan(method, seed, recipe) for method in ("baseline", "oe") for seed in (0, 1)]
    first, second, same, _ = CROWD.train(plans, device="cpu", folder=tmp_path)
    assert first.test == pytest.approx(same.test) and first.test != second.test
    found = crowds(recipe)
    people = [split_for(plan, found).train.people.tolist() for plan in plans]
    assert len(people[0]) == 7 and people[0] == people[2] and people[0] != people[1]
    with pytest.raises(ValueError, match="expected train_rows of at most 11, got 12"):
        split_for(Plan("oe", 0, tiny(drawn, "train_rows=12")), found)


def formula(predictions, targets, loss):
    """The slope of the task loss at each prediction, in a loop."""
    slopes = torch.zeros_like(predictions)
    cells = sum(not math.isnan(target) for target in targets.flatten().tolist())
    for place in np.ndindex(*predictions.shape):
        if not math.isnan(targets[place]):
            error = 2 * (predictions[place] - targets[place]).item()
            slopes[place] = error / len(predictions) if loss == "sum-mse" else 4 * error / cells  # loss_scale 2
    return slopes


@pytest.mark.parametrize(("loss", "crop"), [("mse", 64), ("sum-mse", 64), ("sum-mse", 0)])
def test_a_step_is_that_of_the_formula(drawn, tmp_path, loss, crop):
    """From files to weights; with the regularizer, whose own formula is tested elsewhere."""
    rows = 11 if crop else 1
    settings = f"loss={loss}", f"crop={crop}", f"batch_size={rows}", "epochs=1", "optimizer=sgd", "momentum=0"
    settings += f"learning_rate={RATE}", "feature_rows=0", "strength=0.5", f"train_rows={rows}", "batch_norm=false"
    settings += "weight_decay=0", "channels_last=false"  # else other rounding, of directions of small features too
    recipe = tiny(drawn, *settings)
    plan = Plan("oe", SEED, recipe)
    CROWD.train([plan], device="cpu", folder=tmp_path)
    found = load_images(tmp_path / f"oe-seed{SEED}" / "last.ckpt").weights

    split = split_for(plan, crowds(recipe)).train
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        network = csrnet.create("test_resnet", widths=(8,))
    ((order,),) = training_steps(rows, rows, seed=SEED, least=1)
    draws = split.draws(torch.Generator().manual_seed(mixed(SEED, 0, 0, 1)))
    frames, targets = [], []
    for row in order.tolist():
        top, left, mirrored = draws[row].tolist()
        begin, height, width = split.images.table[row].tolist()
        image = split.images.values[begin : begin + height * width].view(height, width, 3)
        begin, high, wide = split.cells.table[row].tolist()
        cells = split.cells.values[begin : begin + high * wide].view(high, wide)
        size = (crop // 8, crop // 8) if crop else (high, wide)
        frame = np.zeros((8 * (top + size[0]), 8 * (left + size[1]), 3), np.uint8)
        frame[:height, :width] = image[: frame.shape[0], : frame.shape[1]]
        target = np.full((top + size[0], left + size[1]), np.nan, np.float32)
        target[:high, :wide] = cells[: target.shape[0], : target.shape[1]]
        step = -1 if mirrored else 1
        frames.append(torch.from_numpy(frame[8 * top :, 8 * left :][:, ::step].copy()).permute(2, 0, 1))
        targets.append(torch.from_numpy(target[top:, left:][None, :, ::step].copy()))
    targets = torch.stack(targets)
    with capture(network, "head") as tap:
        predictions = network.train()(normalized(torch.stack(frames), (0.5,) * 3, (0.5,) * 3))
    regularizer = methods.create("oe", strength=0.5, grouping=0.02, stride=2, per="image", rescale="authors")
    extra = regularizer(tap.features, targets, targets > 1e-3)
    assert extra.item() != 0
    torch.autograd.backward([predictions, extra], [formula(predictions.detach(), targets, loss), torch.ones(())])
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.sub_(RATE * (parameter.grad if parameter.grad is not None else 0))
    assert found.keys() == network.state_dict().keys()
    for name, value in network.state_dict().items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=lambda text: f"{name}: {text}")


def test_scores_are_of_whole_images_against_the_annotated_heads(drawn, tmp_path):
    recipe = tiny(drawn, "epochs=1")
    (outcome,) = CROWD.train([Plan("baseline", 0, recipe)], device="cpu", folder=tmp_path)
    network = csrnet.create("test_resnet", widths=(8,), batch_norm=True)
    network.load_state_dict(load_images(tmp_path / "baseline-seed0" / "last.ckpt").weights)
    errors = []
    for record in data.records(drawn)[0]:
        if record.split == "test":
            image = Image.open(record.path).resize((96, 72), Image.Resampling.BILINEAR)
            pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
            with torch.no_grad():
                cells = network.eval()(normalized(pixels, (0.5,) * 3, (0.5,) * 3))
            errors.append(abs(cells.sum().item() - len(record.points)))
    assert outcome.last == pytest.approx(sum(errors) / len(errors), rel=1e-4) and len(errors) == 6
    assert outcome.details["last"]["rmse"] == pytest.approx(np.sqrt(np.mean(np.square(errors))), rel=1e-4)


def test_images_are_reduced_and_their_points_with_them(drawn):
    found, full = crowds(tiny(drawn)), crowds(tiny(drawn, "max_side=0"))
    assert set(found.splits["test"].images.sizes) == {(72, 96)} and set(found.splits["test"].cells.sizes) == {(9, 12)}
    assert set(full.splits["test"].images.sizes) == {(192, 256)}
    for split in ("train", "val", "test"):
        own = found.splits[split]
        records = [record for record in data.records(drawn)[0] if record.split == split]
        assert own.people.tolist() == [len(record.points) for record in records]
        for row, record in enumerate(records):
            expected = density.density(record.points * 0.375, 72, 96)
            begin = int(own.cells.table[row, 0])
            np.testing.assert_allclose(own.cells.values[begin : begin + 108, 0], expected.ravel(), rtol=1e-5)
            assert expected.sum() == pytest.approx(len(record.points), abs=1e-3)


def test_the_published_maps_have_a_cell_for_whole_cells_only(drawn, tmp_path):
    recipe = changed(tiny(drawn, "max_side=100", "reduce=bicubic", "border=lost"), {"data": str(drawn)})
    found = crowds(recipe).splits["test"]
    assert set(found.images.sizes) == {(72, 96)} and set(found.cells.sizes) == {(9, 12)}  # of 75 x 100
    (outcome,) = CROWD.train([Plan("oe", 0, changed(recipe, {"epochs": 1}))], device="cpu", folder=tmp_path)
    assert math.isfinite(outcome.last)


def test_kernels_and_validation_are_keys_of_the_dataset(drawn):
    wide = crowds(tiny(drawn, "kernel=fixed", "sigma=4"))
    assert not torch.equal(wide.splits["train"].cells.values, crowds(tiny(drawn)).splits["train"].cells.values)
    sizes = {name: len(split) for name, split in crowds(tiny(drawn, "validation=0.5")).splits.items()}
    assert sizes == {"train": 6, "val": 6, "test": 6}


def test_whole_images_one_by_one_with_norms(drawn, tmp_path):
    recipe = changed(tiny(drawn, "crop=0", "batch_size=1", "epochs=1", "loss=sum-mse"), {"optimizer": "sgd"})
    (outcome,) = CROWD.train([Plan("oe", 0, changed(recipe, {"learning_rate": 1e-7}))], device="cpu", folder=tmp_path)
    assert math.isfinite(outcome.last)
    assert len(outcome.steps) == 1


def test_classification_learns_of_the_empty_cells_too(drawn, tmp_path):
    recipe = tiny(drawn, "epochs=1")
    found = crowds(recipe)
    assert bool(torch.isinf(torch.tensor(prepare(Plan("classification", 0, recipe), found, None).data.train.above)))
    assert prepare(Plan("oe", 0, recipe), found, None).data.test.above == 1e-3
    plan = Plan("classification", 1, recipe)
    (outcome,) = CROWD.train([plan], device="cpu", folder=tmp_path)
    scores = CROWD.evaluate(plan, device="cpu", folder=tmp_path)
    assert scores["test"] == pytest.approx(outcome.last) and scores["step"] == 1


def test_the_method_is_that_of_the_keys(drawn):
    recipe = tiny(drawn, "strength=2", "tightness_weight=0.1", "grouping=0.5", "stride=1", "rescale=max")
    found = prepare(Plan("oe", 0, recipe), crowds(recipe), None).method
    expected = methods.create(
        "oe", strength=2.0, tightness_weight=0.1, grouping=0.5, stride=1, per="image", rescale="max"
    )
    assert str(found) == str(expected) and found.strengths == expected.strengths
    equal = prepare(Plan("oe", 0, tiny(drawn, "grouping=0")), crowds(recipe), None).method
    assert equal.parts["oe"].regularizer.options.grouping == "unique"


def test_features_are_kept_of_cells_with_heads(drawn, tmp_path):
    from safetensors.torch import load_file

    recipe = tiny(drawn, "feature_rows=6", "max_side=0", "epochs=1")
    (outcome,) = CROWD.train([Plan("oe", 0, recipe)], device="cpu", folder=tmp_path)
    content = load_file(tmp_path / "oe-seed0" / "features" / "test-0001.safetensors")
    assert content["features"].shape[1] == 8 and 50 < len(content["features"]) <= 6 * 24
    assert bool((content["targets"] > 1e-3).all())
    assert math.isfinite(outcome.details["last"]["entropy"]) and "train_ordinality" in outcome.details["last"]


def test_bad_files_are_refused_or_left_out(drawn, tmp_path, caplog):
    root = damaged(drawn, tmp_path / "damaged")
    with pytest.raises(ValueError, match=r"without annotation.*1 problem in all"):
        crowds(tiny(root))
    found = crowds(tiny(root, "skip_bad=true"))
    assert found.left_out == 3 and "3 files" in caplog.text
    assert len(found.splits["train"]) + len(found.splits["val"]) == 9
    for name in ("truncated", "outside"):
        copy = tmp_path / name
        shutil.copytree(drawn, copy)
        path = data.records(copy)[0][3].path
        if name == "truncated":
            path.write_bytes(path.read_bytes()[:300])
        else:
            Image.new("RGB", (16, 16)).save(path)
        with pytest.raises(ValueError, match=rf"images/{path.name}: .*{name}.*1 problem in all"):
            crowds(tiny(copy))


def test_an_error_is_the_user_s_sentence(drawn, tmp_path):
    folder = damaged(drawn, tmp_path / "damaged")
    answer = call("compare", "crowd", "--seeds=2", f"--set=data={folder}", *as_settings(TINY), status=2)
    assert "Traceback" not in answer.stderr and "1 problem in all" in answer.stderr


def test_a_set_that_does_not_fit_is_refused(drawn):
    with pytest.raises(ValueError, match=r"at most memory=0.0001 gigabytes in all, got more in the first 5 of 18"):
        crowds(tiny(drawn, "memory=1e-4"))


def test_images_smaller_than_a_cell_are_refused_where_they_have_none(drawn, tmp_path):
    root = tmp_path / "thin"
    shutil.copytree(drawn, root)
    path = data.records(root)[0][-1].path
    Image.new("RGB", (300, 4)).save(path)
    (root / "test_data" / "ground-truth" / f"GT_{path.stem}.mat").write_bytes(generated._mat(np.zeros((0, 2))))
    found = crowds(tiny(root, "max_side=0")).splits["test"]
    assert found.cells.sizes[-1] == (1, 38) and found.people[-1] == 0
    with pytest.raises(ValueError, match="smaller than a cell of 8 x 8 pixels: 300 x 4"):
        crowds(tiny(root, "max_side=0", "reduce=bicubic"))


def test_a_missing_dataset_is_told_in_a_sentence(tmp_path):
    assert "data=ROOT" in call("train", "crowd", status=2).stderr
    assert "data=ROOT" in call("compare", "crowd", "--out=there", status=2).stderr
    assert list(tmp_path.iterdir()) == []
    assert "ShanghaiTechDataset" in call("train", "crowd", "--set=data=nowhere", status=2).stderr


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("crop=100", "expected crop to be 0, or a multiple of 8 and at least 8 x stride = 32, got 100"),
        ("crop=24", "got 24"),
        ("max_side=16", "expected max_side to be 0, or at least 8 x stride = 32, got 16"),
        ("validation=1", "expected validation to be between 0 and 1, got 1.0"),
        ("reach=4", "expected reach to be 0, 8, 16 or 32, got 4"),
        ("widths=64,0", "expected widths of at least 1, got 64, 0"),
        ("learning_rate=0", "expected learning_rate to be a positive number, got 0.0"),
        ("strength=-1", "expected strength to be a number from 0 on, got -1.0"),
        ("repeats=0", "expected repeats to be at least 1, got 0"),
        ("bins=1", "expected bins to be at least 2, got 1"),
        ("kernel=round", "expected the name of a value of kernel"),
        ("fronts=vgg16", "expected a key like 'front'"),
    ],
)
def test_values_that_cannot_be_are_refused(setting, sentence):
    said = call("train", "crowd", f"--set={setting}", status=2).stderr
    assert sentence in " ".join(said.split())


def test_generated_crowds_are_drawn_once(tmp_path, monkeypatch):
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(tmp_path / "cache"))
    recipe = changed(TINY, {"generated": 12})
    assert len(crowds(recipe).splits["test"]) == 4
    monkeypatch.setattr(generated, "make", None)
    assert len(crowds(recipe).splits["test"]) == 4


@pytest.mark.skipif("ORDINAL_ENTROPY_DATA" not in os.environ, reason="ORDINAL_ENTROPY_DATA names no folder of data")
def test_part_a_is_read_whole():
    root = Path(os.environ["ORDINAL_ENTROPY_DATA"]) / "ShanghaiTech" / "part_A"
    found = crowds(changed(Crowd(), {"data": str(root), "max_side": 256, "border": "kept", "reduce": "sum"}))
    assert [len(found.splits[name]) for name in ("train", "val", "test")] == [270, 30, 182] and not found.left_out
    for split in found.splits.values():
        assert split.cells.values.sum(dtype=torch.float64).item() == pytest.approx(split.people.sum().item(), rel=1e-4)


@pytest.mark.slow
def test_quick_beats_the_mean(tmp_path, monkeypatch):
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(tmp_path / "cache"))
    recipe = PRESETS["quick"]
    (outcome,) = CROWD.train([Plan("baseline", 0, recipe)], device="cpu", folder=tmp_path / "run")
    splits = crowds(recipe).splits
    mean = (splits["test"].people - splits["train"].people.mean()).abs().mean().item()
    assert outcome.best_validation < 0.7 * mean


@pytest.mark.gpu
@pytest.mark.parametrize(
    "settings", [[], ["train_rows=8", "precision=bf16", "flip=true"], ["crop=0", "batch_size=1", "loss=sum-mse"]]
)
def test_runs_on_a_gpu(drawn, tmp_path, settings):
    recipe = tiny(drawn, *settings)
    plans = [Plan(method, 3, recipe) for method in ("baseline", "oe", "classification")]
    outcomes = CROWD.train(plans, device="cuda", folder=tmp_path / "runs")
    for outcome in outcomes:
        assert len(outcome.steps) == 2 and all(math.isfinite(error) for error in outcome.test)
    scores = CROWD.evaluate(plans[0], device="cuda", folder=tmp_path / "runs")
    assert scores["test"] == pytest.approx(outcomes[0].test[-1], rel=1e-3)
