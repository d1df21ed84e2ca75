"""One step of `train age`, from files to weights, against a step worked by hand: each loss and each weighting."""

import csv
import math
from collections import Counter

import pytest
import torch
from PIL import Image

from ordinal_entropy.models import backbones
from ordinal_entropy.recipes import changed
from ordinal_entropy.tasks.age.recipe import AGE, Age, faces, split_for
from ordinal_entropy.training.checkpoints import load_images
from ordinal_entropy.training.plans import Plan
from ordinal_entropy.vision.sets import mixed, training_steps
from ordinal_entropy.vision.split import moved, normalized, random_moves

SIZE, PADDING, RATE, SEED = 32, 2, 0.1, 3
AGES = [0] * 12 + [1] * 8 + [2] * 6 + [30] * 3  # errors below and above 1; more and less than 5 of an age


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Noise in the layout of AgeDB-DIR."""
    folder = tmp_path_factory.mktemp("noise")
    draw = torch.Generator().manual_seed(0)
    rows = [("age", "path", "split")]
    for split, ages in (("train", AGES), ("val", [0, 1]), ("test", [1, 2])):
        for place, age in enumerate(ages):
            rows.append((age, f"{split}-{place}.png", split))
            pixels = torch.randint(0, 256, (SIZE, SIZE, 3), generator=draw, dtype=torch.uint8)
            Image.fromarray(pixels.numpy()).save(folder / rows[-1][1])
    with (folder / "agedb.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder


def recipe_of(root, **settings) -> Age:
    return changed(
        Age(),
        {
            "data": str(root),
            "backbone": "test_resnet",
            "image_size": SIZE,
            "padding": PADDING,
            "epochs": 1,
            "batch_size": 32,
            "optimizer": "sgd",
            "learning_rate": RATE,
            "feature_rows": 0,
            **settings,
        },
    )


def weights_after(root, tmp_path, **settings) -> dict:
    plan = Plan("baseline", SEED, recipe_of(root, **settings))
    AGE.train([plan], device="cpu", folder=tmp_path)
    return load_images(tmp_path / f"baseline-seed{SEED}" / "last.ckpt").weights


def slope(error: float, loss: str) -> float:
    """Of the loss of one row, at prediction minus age."""
    if loss == "mse":
        return 2 * error
    if loss == "huber" and abs(error) < 1:
        return error
    return math.copysign(1, error)


def row_weights(ages: list[int], reweight: str) -> list[float]:
    count = Counter(ages)
    raw = {
        "none": lambda n: 1.0,
        "inverse": lambda n: 1 / min(max(n, 5), 1000),
        "sqrt-inverse": lambda n: 1 / math.sqrt(n),
    }[reweight]
    values = [raw(count[age]) for age in ages]
    return [value * len(values) / sum(values) for value in values]


def by_hand(root, loss: str, reweight: str) -> dict:
    """The weights less the rate times the gradient, which goes into the network row by row at its output."""
    plan = Plan("baseline", SEED, recipe_of(root))
    split = split_for(plan, faces(plan.recipe)).train
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        network = backbones.create("test_resnet", 1, image_size=SIZE, zero_last_norm=False)
    ((rows,),) = training_steps(len(AGES), 32, seed=SEED)
    moves = random_moves(len(AGES), PADDING, torch.Generator().manual_seed(mixed(SEED, 0, 0, 1)))
    images = normalized(moved(split.images.pixels[rows], moves[rows], PADDING), (0.5,) * 3, (0.5,) * 3)
    predictions = network.train()(images)
    weights = row_weights([int(age) for age in split.targets], reweight)
    slopes = torch.zeros_like(predictions)
    for place, row in enumerate(rows.tolist()):
        error = predictions[place].item() - split.targets[row].item()
        slopes[place] = weights[row] * slope(error, loss) / len(rows)
    predictions.backward(slopes)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.sub_(RATE * parameter.grad)
    return network.state_dict()


@pytest.mark.parametrize(
    ("loss", "reweight"),
    [
        ("l1", "none"),
        ("huber", "none"),
        ("mse", "none"),
        ("l1", "inverse"),
        ("l1", "sqrt-inverse"),
        ("huber", "inverse"),
    ],
)
def test_a_step_is_that_of_the_formula(root, tmp_path, loss, reweight):
    found, expected = weights_after(root, tmp_path, loss=loss, reweight=reweight), by_hand(root, loss, reweight)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, rtol=1e-4, atol=1e-6, msg=lambda text: f"{name}: {text}")


def test_every_loss_and_weighting_makes_another_step(root):
    steps = [
        torch.cat([value.flatten() for value in by_hand(root, loss, reweight).values() if value.is_floating_point()])
        for loss, reweight in [
            ("l1", "none"),
            ("huber", "none"),
            ("mse", "none"),
            ("l1", "inverse"),
            ("l1", "sqrt-inverse"),
        ]
    ]
    for place, one in enumerate(steps):
        assert all((one - other).abs().max() > 1e-3 for other in steps[:place])
