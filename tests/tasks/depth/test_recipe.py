"""The depth task as its user meets it, on rendered rooms."""

import math
import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file

from command_line import call
from ordinal_entropy import capture, methods, runs, tasks
from ordinal_entropy.recipes import changed, full_name, leaves, override
from ordinal_entropy.tasks.depth import data, generated
from ordinal_entropy.tasks.depth.metrics import SCORES, depth_scores
from ordinal_entropy.tasks.depth.recipe import DEPTH, PRESETS, Depth, prepare, rooms, split_for
from ordinal_entropy.training.checkpoints import load_images
from ordinal_entropy.training.large.files import fixed_rows
from ordinal_entropy.training.plans import Plan, run_names
from ordinal_entropy.training.saved_features import SCORES as FEATURE_SCORES
from ordinal_entropy.vision.split import Picked

SIZE = (48, 64)
TINY = changed(
    Depth(),
    {
        "height": SIZE[0],
        "width": SIZE[1],
        "backbone": "test_resnet",
        "channels": 8,
        "start": 3.0,
        "epochs": 2,
        "learning_rate": 5e-3,
        "bins": 10,
        "feature_rows": 8,
    },
)


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rooms") / "set"
    generated.make(folder, count=60, size=SIZE)
    return folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.chdir(tmp_path)


def tiny(root, *settings) -> Depth:
    return override(TINY, [f"data={root}", *settings])


def as_settings(recipe: Depth) -> list[str]:
    names = "height", "width", "backbone", "channels", "start", "epochs", "learning_rate", "bins", "feature_rows"
    return ["--device=cpu", *(f"--set={name}={leaves(recipe)[full_name(leaves(recipe), name)]}" for name in names)]


def damaged(rendered, folder):
    """A copy of a set: one training image truncated, the depth of another missing."""
    shutil.copytree(rendered, folder)
    first, second, *_ = [record for record in data.records(folder)[0] if record.split == "train"]
    first.image.write_bytes(first.image.read_bytes()[:300])
    second.depth.unlink()
    return folder


def test_the_method_sees_3536_rows_of_a_crop_of_416_by_544(rendered):
    made = prepare(Plan("oe", 0, PRESETS["paper"]), rooms(tiny(rendered)), None)
    reg = made.method.parts["oe"].regularizer.options
    assert (reg.stride, reg.per, reg.grouping, reg.rescale, reg.gather) == (4, "image", "unique", "authors", False)
    assert (208 // reg.stride) * (272 // reg.stride) == 3536  # of the map at stride 2
    features, depths = torch.randn(2, 3, 26, 34), torch.randint(1, 9, (2, 1, 52, 68)).float()
    mask = depths > 2
    alone = [
        methods.create("oe", strength=1, rescale="authors")(
            features[k, :, ::4, ::4][:, :6, :8].flatten(1).T,
            depths[k, 0, ::8, ::8][:6, :8].flatten(),
            mask[k, 0, ::8, ::8][:6, :8].flatten(),
        )
        for k in range(2)
    ]
    some = torch.zeros(2, 3, 24, 32), torch.zeros(2, 1, 48, 64), torch.zeros(2, 1, 48, 64, dtype=torch.bool)
    for whole, part in zip(some, (features, depths, mask), strict=True):
        whole[:] = part[..., : whole.shape[2], : whole.shape[3]]
    torch.testing.assert_close(made.method(*some), torch.stack(alone).mean())


def test_train_evaluate_and_go_on(rendered, tmp_path):
    said = call("train", "depth", "--method=oe", f"--set=data={rendered}", *as_settings(TINY), "--out=mine")
    assert "2 epochs on cpu" in said.stderr and "test RMS" in said.stdout
    result = runs.read_json("mine/result.json")
    assert [line["step"] for line in runs.open("mine").metrics()] == [1, 2]
    own = tmp_path / "mine" / "oe-seed0"
    assert {file.name for file in own.iterdir()} >= {"last.ckpt", "best.ckpt", "csv", "features", "metrics.jsonl"}
    kept = [f"{part}-000{epoch}.safetensors" for part in ("image", "test", "train") for epoch in (1, 2)]
    assert sorted(file.name for file in (own / "features").iterdir()) == sorted([*kept, "image.png"])
    evaluated = call("evaluate", "mine", "--device=cpu").stdout
    assert "epoch 2 of 2" in evaluated and f"{result['last']:.4g}" in evaluated
    assert f"{result['best_validation']:.4g}" in evaluated.split("best on validation")[1]
    for score in ("delta1", "REL", "log10", "SILog"):
        assert f"test, {score}" in evaluated
    plain = call("evaluate", "mine", "--device=cpu", "--set=flip=false").stdout
    assert "epoch 2 of 2" in plain and plain != evaluated

    generated.make(tmp_path / "other", seed=1, count=40, size=(60, 80))
    other = call("evaluate", "mine", "--device=cpu", f"--set=data={tmp_path / 'other'}", "--picture=seen.png").stdout
    assert "Drawn in seen.png" in other and all((tmp_path / f"seen.{kind}").exists() for kind in ("png", "svg"))
    assert "epoch 2 of 2" in other and other != evaluated


@pytest.mark.slow
def test_double_precision_from_the_first_step_to_the_checkpoint(rendered, tmp_path):
    """The scores of training are those of the weights that were written, to the last digits of float64."""
    recipe = tiny(rendered, "precision=float64")
    plan = Plan("oe", 0, recipe)
    (outcome,) = DEPTH.train([plan], device="cpu", folder=tmp_path / "runs")
    (single,) = DEPTH.train([plan._replace(recipe=tiny(rendered))], device="cpu", folder=tmp_path / "single")
    folder = tmp_path / "runs" / run_names([plan])[0]
    weights = load_images(folder / "last.ckpt").weights
    assert {value.dtype for value in weights.values()} == {torch.float64, torch.int64}  # BatchNorm counts
    assert any(not torch.equal(value, value.float().double()) for value in weights.values())
    assert outcome.test == pytest.approx(single.test, rel=1e-2) and outcome.test != single.test
    found = DEPTH.evaluate(plan, device="cpu", folder=folder)
    assert [found["test"], found["validation"]] == pytest.approx([outcome.last, outcome.validation[-1]], rel=1e-13)


@pytest.mark.usefixtures("without_page")
def test_compare_two_methods_and_skip_what_is_finished(rendered, tmp_path):
    arguments = ["compare", "depth", "--methods=baseline,classification", "--seeds=2", f"--set=data={rendered}"]
    arguments += [*as_settings(TINY), "--set=epochs=1", "--out=both"]
    said = call(*arguments).stdout
    assert "Test scores" in said and "delta1" in said
    summary = runs.read_json("both/summary.json")
    assert summary["metric"] == "rms" and set(summary["methods"]) == {"baseline", "classification"}
    assert set(SCORES) <= set(summary["details"]["classification"]["last"])
    names = {"baseline-seed0", "baseline-seed1", "classification-seed0", "classification-seed1"}
    assert {folder.name for folder in (tmp_path / "both" / "training").iterdir()} == names
    (tmp_path / "both" / "summary.json").unlink()
    before = {name: os.stat(tmp_path / "both" / "training" / name / "last.ckpt").st_mtime_ns for name in names}
    call(*arguments)
    assert runs.read_json("both/summary.json")["methods"] == summary["methods"]
    after = {name: os.stat(tmp_path / "both" / "training" / name / "last.ckpt").st_mtime_ns for name in names}
    assert before == after


def test_runs_of_one_seed_share_first_weights_and_rows(rendered, tmp_path):
    recipe = tiny(rendered, "epochs=1", "train_rows=24", "strength=0")
    plans = [Plan(method, seed, recipe) for method in ("baseline", "oe") for seed in (0, 1)]
    first, second, same, _ = DEPTH.train(plans, device="cpu", folder=tmp_path)
    assert first.test == pytest.approx(same.test) and first.test != second.test
    found = rooms(recipe)
    rows = [split_for(plan, found).train.records for plan in plans]
    assert len(rows[0]) == 24 and rows[0] == rows[2] and rows[0] != rows[1]
    with pytest.raises(ValueError, match="train_rows of at most 40, got 41"):
        split_for(Plan("oe", 0, tiny(rendered, "train_rows=41")), found)


def test_sets_that_do_not_fit_are_streamed(rendered, tmp_path):
    held, streamed = tiny(rendered), tiny(rendered, "memory=0", "workers=0")
    assert rooms(held).views["train"].held and not rooms(streamed).views["train"].held
    outcomes = DEPTH.train([Plan("oe", 0, held), Plan("oe", 0, streamed)], device="cpu", folder=tmp_path)
    assert outcomes[0] == outcomes[1]


@pytest.mark.slow
def test_settings_matter(rendered, tmp_path):
    every = [
        [],
        ["loss=silog"],
        ["frame=mask", "crop=false"],
        ["grouping=0.5"],
        ["flip=true"],
        ["model=newcrfs", "backbone=test_convnext", "channels=32", "loss=silog"],
    ]
    plans = [Plan("oe", 0, tiny(rendered, "epochs=1", "feature_rows=0", *settings)) for settings in every]
    scores = [outcome.last for outcome in DEPTH.train(plans, device="cpu", folder=tmp_path)]
    assert len(set(scores)) == len(every) and all(map(math.isfinite, scores))


@pytest.mark.parametrize(
    ("model", "backbone", "channels"), [("decoder", "test_resnet", 8), ("newcrfs", "test_convnext", 32)]
)
def test_predictions_begin_at_the_start(rendered, model, backbone, channels):
    recipe = tiny(rendered, f"model={model}", f"backbone={backbone}", f"channels={channels}", "start=3")
    network = prepare(Plan("baseline", 0, recipe), rooms(recipe), None).make_network()
    torch.nn.init.zeros_(network.head.weight)
    with torch.no_grad():
        torch.testing.assert_close(network.eval()(torch.randn(1, 3, 32, 40)), torch.full((1, 1, 32, 40), 3.0))


@pytest.mark.parametrize("model", ["decoder", "newcrfs"])
def test_residual_blocks_begin_as_the_identity_or_not(rendered, model):
    begun = []
    for zero in ("true", "false"):
        recipe = tiny(rendered, f"model={model}", "backbone=resnet18", "channels=32", f"zero_last_norm={zero}")
        weights = prepare(Plan("baseline", 0, recipe), rooms(recipe), None).make_network().state_dict()
        begun.append({float(weights[name].sum()) for name in weights if "layer2.1.bn2.weight" in name})
    assert begun == [{0.0}, {128.0}]


def test_bins_stay_at_the_resolution_of_the_features(rendered):
    recipe = tiny(rendered)
    made = prepare(Plan("classification", 0, recipe), rooms(recipe), None)
    images = torch.randn(2, 3, *SIZE)
    logits = made.make_network()(images)
    assert logits.shape == (2, 10, 24, 32)
    depths = made.method.decode(logits)
    assert depths.shape == (2, 1, 24, 32) and set(depths.unique().tolist()) <= {k + 0.5 for k in range(10)}
    made.metric.update(depths, torch.full((2, 1, *SIZE), 3.5))
    assert math.isfinite(made.metric.compute()["rms"])


def test_scores_are_those_of_all_test_images(rendered, tmp_path):
    plan = Plan("baseline", 0, tiny(rendered, "batch_size=5", "feature_rows=12"))
    (outcome,) = DEPTH.train([plan], device="cpu", folder=tmp_path)
    made = prepare(plan, rooms(plan.recipe), {})
    network = made.make_network().eval()
    network.load_state_dict(load_images(tmp_path / "baseline-seed0" / "last.ckpt").weights)
    rows = torch.arange(len(made.data.test))
    seen = made.data.test.seen(Picked(rows, rows.tolist()), None)
    with torch.no_grad():
        expected = depth_scores(network((seen.images.float() / 255 - 0.5) / 0.5), seen.targets)
    found = outcome.details["last"]
    assert found["rms"] == outcome.last
    for name, score in expected.items():
        assert found[name] == pytest.approx(score.item(), rel=1e-4), name
    assert {*FEATURE_SCORES, *(f"train_{name}" for name in FEATURE_SCORES)} <= set(found)  # of 12 x 24 places


@pytest.mark.parametrize("memory", ["memory=8", "memory=0"])
def test_one_test_image_is_kept_on_a_grid(rendered, tmp_path, memory):
    """Stride 2 of 80 x 96 has 40 x 48 places: 30 x 40 of them, with what the network says there."""
    size = ["height=80", "width=96", "batch_size=5", "flip=true"]
    plan = Plan("baseline", 0, tiny(rendered, *size, memory, "workers=0"))
    DEPTH.train([plan], device="cpu", folder=tmp_path)
    content = load_file(tmp_path / "baseline-seed0" / "features" / "image-0002.safetensors")
    made = prepare(plan, rooms(changed(plan.recipe, {"memory": 8})), {})
    network = made.make_network().eval()
    network.load_state_dict(load_images(tmp_path / "baseline-seed0" / "last.ckpt").weights)
    row = fixed_rows(len(made.data.test), 1)
    assert content["row"].tolist() == row.tolist() and content["row"] in fixed_rows(len(made.data.test), 8)
    seen = made.data.test.seen(Picked(row, row.tolist()), None)
    with torch.no_grad(), capture(network, network.feature_layer) as tap:
        predictions = network((seen.images.float() / 255 - 0.5) / 0.5)
    assert len(content["places"]) == 30 * 40  # there is a depth everywhere
    for place, features, target, prediction in zip(*(content[name] for name in CONTENT), strict=True):
        y, x = place.tolist()
        assert target == seen.targets[0, :, y, x]
        torch.testing.assert_close(prediction, predictions[0, :, y, x], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(features.float(), tap.features[0, :, y // 2, x // 2], rtol=2e-3, atol=1e-3)


CONTENT = ("places", "features", "targets", "predictions")


@pytest.mark.parametrize("memory", ["memory=8", "memory=0"])
def test_bad_files_are_refused_or_left_out(rendered, tmp_path, caplog, memory):
    root = damaged(rendered, tmp_path / "damaged")
    with pytest.raises(ValueError, match=r"missing .*1 problem in all"):
        rooms(tiny(root, memory))
    found = rooms(tiny(root, memory, "skip_bad=true"))
    assert found.left_out == 2 and "2 files" in caplog.text
    assert len(found.views["train"]) == len(rooms(tiny(rendered)).views["train"]) - 2
    other = tmp_path / "other"
    shutil.copytree(rendered, other)
    path = data.records(other)[0][3].depth
    Image.fromarray(np.full(SIZE, 7, np.uint8)).save(path)
    with pytest.raises(ValueError, match=f"{path.name}: 8 bits, expected 16 .*1 problem in all"):
        rooms(tiny(other, memory))


def test_mistakes_are_told_in_a_sentence(rendered, tmp_path):
    assert "data=ROOT" in call("train", "depth", status=2).stderr
    assert "data=ROOT" in call("compare", "depth", "--out=there", status=2).stderr
    assert "github.com/cleinc/bts" in call("train", "depth", "--set=data=nowhere", status=2).stderr
    for setting, sentence in (
        ("height=8", "expected height to be at least 32, got 8"),
        ("stride=0", "expected stride to be at least 1, got 0"),
        ("grouping=some", "expected grouping to be unique, none or a bin width in metres, got 'some'"),
        ("grouping=-1", "a bin width in metres, got '-1'"),
        ("model=unet", "expected the name of a value of model, got 'unet'; there are decoder, newcrfs"),
        ("start=10", "expected start to be a depth from 0 to 10 metres, got 10.0"),
        ("drop_path=1", "expected drop_path from 0 to 1, got 1.0"),
        ("learning_rate=0", "expected learning_rate to be a positive number, got 0.0"),
        ("balance=0", "expected balance to be a positive number, got 0.0"),
    ):
        assert sentence in call("train", "depth", "--preset=quick", f"--set={setting}", status=2).stderr, setting
    assert list(tmp_path.iterdir()) == []
    for setting, sentence in (
        ("backbone=resnet81", "expected a timm backbone like"),
        ("pretrained=nowhere.pth", "expected 'lite0' or a file of weights, got no file 'nowhere.pth'"),
        ("stride=99", "expected a stride of at most"),
    ):
        options = f"--set=data={rendered}", *as_settings(TINY), f"--set={setting}", f"--out={setting}"
        said = call("train", "depth", *options, status=2).stderr
        assert sentence in said and "Traceback" not in said, said


def test_the_task_is_among_the_others():
    assert "depth" in tasks.names() and tasks.load("depth").metric == "rms"
    assert tasks.recipe("depth", "small", ["train-rows=200"]).data.train_rows == 200
    said = call("train", "depth", "--keys", "--preset=small").stdout
    assert "tf_efficientnet_lite0" in said and "gigabytes of images" in said


@pytest.mark.slow
def test_quick_beats_the_mean(tmp_path, monkeypatch):
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(tmp_path / "cache"))
    recipe = PRESETS["quick"]
    (outcome,) = DEPTH.train([Plan("baseline", 0, recipe)], device="cpu", folder=tmp_path / "run")
    views = rooms(recipe).views
    train, test = (views[split].millimetres.float() / 1000 for split in ("train", "test"))
    for mean in (train.mean(), train.mean(0)):  # of all pixels, and of each
        # three seeds come to 0.70 to 0.74 of it
        assert outcome.best_validation < 0.75 * depth_scores(mean.expand_as(test), test)["rms"]


@pytest.mark.slow
def test_the_small_preset_learns_from_real_images(tmp_path):
    place = os.environ.get("ORDINAL_ENTROPY_DATA")
    if not place:
        pytest.skip("ORDINAL_ENTROPY_DATA does not say where the real images are")
    recipe = override(PRESETS["small"], [f"data={place}/nyu", "height=96", "width=128", "channels=16", "epochs=3"])
    (outcome,) = DEPTH.train([Plan("baseline", 0, recipe)], device="cpu", folder=tmp_path / "run")
    views = rooms(recipe).views
    train, test = (views[split].millimetres.float() / 1000 for split in ("train", "test"))
    assert (len(train), len(views["val"]), len(test)) == (715, 80, 327)
    assert outcome.test[-1] < 0.9 * depth_scores(train.mean(0).expand_as(test), test)["rms"]


@pytest.mark.gpu
@pytest.mark.parametrize(
    "settings",
    [
        [],
        ["train_rows=30", "precision=bf16"],
        ["memory=0"],
        ["model=newcrfs", "backbone=test_convnext", "channels=32", "loss=silog", "precision=bf16", "flip=true"],
    ],
)
def test_runs_on_a_gpu(rendered, tmp_path, settings):
    recipe = tiny(rendered, *settings)
    plans = [Plan(method, 3, recipe) for method in ("baseline", "oe", "classification")]
    outcomes = DEPTH.train(plans, device="cuda", folder=tmp_path / "runs")
    for outcome in outcomes:
        assert len(outcome.steps) == 2 and all(math.isfinite(error) for error in outcome.test)
    scores = DEPTH.evaluate(plans[0], device="cuda", folder=tmp_path / "runs")
    assert scores["test"] == pytest.approx(outcomes[0].test[-1], rel=1e-3)
