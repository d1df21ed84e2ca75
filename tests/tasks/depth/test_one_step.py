"""One step of `train depth`, from files to weights, against a step worked by hand."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

from ordinal_entropy import capture
from ordinal_entropy.models import decoder, newcrfs
from ordinal_entropy.recipes import changed
from ordinal_entropy.tasks.depth import data
from ordinal_entropy.tasks.depth.augment import augmented, random_draws
from ordinal_entropy.tasks.depth.recipe import DEPTH, Depth
from ordinal_entropy.training.checkpoints import load_images
from ordinal_entropy.training.plans import Plan
from ordinal_entropy.vision.sets import mixed, training_steps
from ordinal_entropy.vision.split import normalized

SIZE, RATE, SEED, COUNT = (48, 64), 0.02, 3, 9
ENCODERS = {"decoder": ("test_resnet", 8), "newcrfs": ("test_convnext", 32)}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Noise in the layout of NYU-Depth-v2; a fifth of the depths is missing, a few lie beyond 10 m or below 0.1 m."""
    folder = tmp_path_factory.mktemp("noise")
    draw = np.random.default_rng(0)
    for split, count, name in (("train", COUNT, data.TRAIN_LISTS[0]), ("test", 2, data.TEST_LISTS[0])):
        lines = []
        for place in range(count):
            image, depth = f"{split}-{place}.png", f"{split}-{place}-depth.png"
            Image.fromarray(draw.integers(0, 256, (*SIZE, 3), dtype=np.uint8)).save(folder / image)
            millimetres = draw.choice([0, 50, 900, 1500, 1501, 4000, 12000], size=SIZE).astype(np.uint16)
            Image.fromarray(millimetres).save(folder / depth)
            lines.append(f"{image} {depth} 518.8579\n")
        (folder / name).write_text("".join(lines))
    return folder


def recipe_of(root, model, **settings) -> Depth:
    backbone, channels = ENCODERS[model]
    return changed(
        Depth(),
        {
            "data": str(root),
            "height": SIZE[0],
            "width": SIZE[1],
            "model": model,
            "backbone": backbone,
            "channels": channels,
            "drop_path": 0.0 if model == "newcrfs" else None,
            "epochs": 1,
            "batch_size": COUNT,
            "optimizer": "sgd",
            "learning_rate": RATE,
            "weight_decay": 0.0,
            "schedule": "milestones",
            "clip": 0.0,
            "feature_rows": 0,
            **settings,
        },
    )


def slopes_of(predictions, depths, loss, form="newcrfs"):
    """Derivatives of the loss by each prediction, pixel by pixel; what lies at 10 m or beyond does not count."""
    least = {"mse": 0.001, "adabins": 0.001, "newcrfs": 0.1}["mse" if loss == "mse" else form]
    places = [tuple(place) for place in ((depths > least) & (depths < 10)).nonzero().tolist()]
    slopes = torch.zeros_like(predictions)
    if loss == "mse":
        for place in places:
            slopes[place] = 2 * (predictions[place] - depths[place]) / len(places)
        return slopes
    logs = [math.log(max(predictions[place].item(), 1e-6) / depths[place].item()) for place in places]
    n, mean = len(logs), sum(logs) / len(logs)
    below = n - 1 if form == "adabins" else n
    variance = sum((log - mean) ** 2 for log in logs) / below
    root = math.sqrt(variance + 0.15 * mean**2)
    for place, log in zip(places, logs, strict=True):
        if predictions[place] > 1e-6:
            slopes[place] = 10 / (2 * root) * (2 * (log - mean) / below + 0.3 * mean / n) / predictions[place]
    return slopes


def oe_by_hand(features, depths):
    """Tightness minus diversity of each image at every fourth place of its features, weights as the authors'; mean."""
    b, _, h, w = features.shape
    values = []
    for k in range(b):
        groups: dict[float, list] = {}
        for i in range(h // 4):
            for j in range(w // 4):
                row, column = i * h // (h // 4), j * w // (w // 4)
                down, across = i * depths.shape[2] // (h // 4), j * depths.shape[3] // (w // 4)
                depth = depths[k, 0, down, across].item()
                if 0.001 < depth < 10:
                    unit = features[k, :, row, column] / features[k, :, row, column].norm()
                    groups.setdefault(depth, []).append(unit)
        centers = {depth: torch.stack(own).mean(0) for depth, own in groups.items()}
        distances = [(unit - centers[depth]).norm() for depth, own in groups.items() for unit in own]
        pairs = [(a, b) for a in centers for b in centers if a < b]
        weights = [b - a for a, b in pairs]
        terms = [
            (weight - min(weights)) / max(weights) * (centers[a] - centers[b]).norm()
            for weight, (a, b) in zip(weights, pairs, strict=True)
        ]
        values.append(torch.stack(distances).mean() - torch.stack(terms).mean())
    return torch.stack(values).mean()


def by_hand(root, model, method, loss="mse", form="newcrfs", strength=1.0, bins=8):
    """The weights less the rate times the gradient."""
    records = [record for record in data.records(root)[0] if record.split == "train"]
    pairs = [data.read(record) for record in records]
    images = torch.stack([torch.from_numpy(image).permute(2, 0, 1) for image, _ in pairs])
    depths = torch.stack([torch.from_numpy(depth)[None] for _, depth in pairs])
    backbone, channels = ENCODERS[model]
    outputs = bins if method == "classification" else 1
    options = {"width": channels, "upsample": outputs == 1}
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        create = decoder.create if model == "decoder" else newcrfs.create
        network = create(backbone, outputs, **options, **({"drop_path": 0.0} if model == "newcrfs" else {}))
    ((rows,),) = training_steps(len(records), COUNT, seed=SEED)
    draws = random_draws(len(records), torch.Generator().manual_seed(mixed(SEED, 0, 0, 1)))
    images, depths = augmented(images[rows], depths[rows], draws[rows])
    network.train().to(memory_format=torch.channels_last)  # of two orders of the same sums, the same one
    images = normalized(images.contiguous(memory_format=torch.channels_last), (0.5,) * 3, (0.5,) * 3)
    with capture(network, "head") as tap:
        predictions = network(images)
    if method == "classification":
        logs, count = predictions.log_softmax(1), 0
        total = torch.zeros(())
        for k, _, i, j in logs[:, :1].nonzero().tolist():
            down, across = i * depths.shape[2] // logs.shape[2], j * depths.shape[3] // logs.shape[3]
            depth = depths[k, 0, down, across].item()
            if 0.001 < depth < 10:
                total, count = total - logs[k, int(depth / 10 * bins), i, j], count + 1
        (total / count).backward()
    else:
        if method == "oe":
            (strength * oe_by_hand(tap.features, depths)).backward(retain_graph=True)
        predictions.backward(slopes_of(predictions.detach(), depths, loss, form))
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.grad is not None:
                parameter.sub_(RATE * parameter.grad)
    return network.state_dict()


@pytest.mark.parametrize(
    ("model", "method", "settings"),
    [
        ("decoder", "baseline", {}),
        ("decoder", "baseline", {"loss": "silog", "silog_form": "adabins"}),
        ("decoder", "oe", {}),
        ("decoder", "classification", {"bins": 8}),
        ("newcrfs", "oe", {"loss": "silog", "strength": 3.0}),
    ],
)
def test_a_step_is_that_of_the_formula(root, tmp_path, model, method, settings):
    plan = Plan(method, SEED, recipe_of(root, model, **settings))
    DEPTH.train([plan], device="cpu", folder=tmp_path)
    found = load_images(tmp_path / f"{method}-seed{SEED}" / "last.ckpt").weights
    form = settings.get("silog_form", "newcrfs")
    others = {key: value for key, value in settings.items() if key != "silog_form"}
    expected = by_hand(root, model, method, form=form, **others)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=lambda text: f"{name}: {text}")


def test_every_loss_and_method_makes_another_step(root):
    steps = [
        torch.cat([value.flatten() for value in own.values() if value.is_floating_point()])
        for own in (
            by_hand(root, "decoder", "baseline"),
            by_hand(root, "decoder", "baseline", "silog"),
            by_hand(root, "decoder", "baseline", "silog", "adabins"),
            by_hand(root, "decoder", "oe"),
            by_hand(root, "decoder", "oe", strength=2.0),
        )
    ]
    for place, one in enumerate(steps):
        assert all((one - other).abs().max() > 1e-4 for other in steps[:place])
