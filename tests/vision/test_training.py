"""Training through Lightning against a loop written by hand, and against itself after a stop."""

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from ordinal_entropy import capture, methods
from ordinal_entropy.vision.augment import normalized, random_crops, random_flips
from ordinal_entropy.vision.backbones import Network
from ordinal_entropy.vision.sets import Images, mixed, training_steps
from ordinal_entropy.vision.training import (
    Callbacks,
    Data,
    Settings,
    Split,
    Training,
    fit,
    fixed_rows,
    read_checkpoint,
    scored,
)

from torchmetrics import Metric  # isort: skip  # after torchvision's guard

SIZE = 16
SETTINGS = Settings(epochs=3, batch_size=16, learning_rate=1e-2, milestones=(2,), padding=2, feature_rows=8)


class Errors(Metric):
    """Mean absolute error in float64."""

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.add_state("error", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("number", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        self.error = self.error + (predictions.double() - targets.double()).abs().sum()
        self.number = self.number + len(targets)

    def compute(self) -> dict[str, Tensor]:
        return {"mae": self.error / self.number}


class Steps(Training):
    """Keeps the loss of every batch, and can be told to die."""

    def training_step(self, batch, batch_idx):
        if os.environ.get("DIE_AT") == f"{self.epoch}:{batch_idx}":
            os.kill(os.getpid(), signal.SIGKILL)
        loss = super().training_step(batch, batch_idx)
        self.losses = [*getattr(self, "losses", []), loss.item()]
        return loss


def a_split(count: int, seed: int) -> Split:
    draw = torch.Generator().manual_seed(seed)
    pixels = torch.randint(0, 256, (count, SIZE, SIZE, 3), generator=draw, dtype=torch.uint8).permute(0, 3, 1, 2)
    ages = torch.randint(0, 9, (count, 1), generator=draw).float()
    paths = tuple(Path(f"{place}.jpg") for place in range(count))
    return Split(Images(paths, SIZE, pixels), ages)


def some_data() -> Data:
    return Data(a_split(60, 0), a_split(20, 1), a_split(21, 2))


def a_network(outputs: int = 1) -> Network:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        backbone = nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        return Network(backbone.append(nn.Dropout(0.1)), 8, outputs)


def l1(predictions: Tensor, targets: Tensor, weights: Tensor | None) -> Tensor:
    losses = (predictions - targets).abs()[:, 0]
    return (losses if weights is None else losses * weights).mean()


def a_module(
    method: str = "oe", settings: Settings = SETTINGS, data: Data | None = None, folder: Path | None = None, **options
) -> Steps:
    own = methods.create(method, **options)
    network = a_network(own.outputs(1))
    return Steps(network, own, l1, Errors(), data or some_data(), settings, seed=5, folder=folder)


def run(module: Training, folder: Path) -> list:
    module.folder = folder
    return fit(module, device="cpu", folder=folder, monitor="mae")


def weights_of(module: Training) -> list[Tensor]:
    return [value.clone() for value in module.network.state_dict().values()]


def same(left: Training, right: Training) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights_of(left), weights_of(right), strict=True))


@pytest.mark.parametrize("method", ["baseline", "oe"])
def test_equals_a_loop_written_by_hand(tmp_path, method):
    data, settings = some_data(), SETTINGS
    weighted = replace(data.train, weights=torch.linspace(0.5, 1.5, 60))
    module = a_module(method, data=data._replace(train=weighted))
    history = run(module, tmp_path)

    network, regularizer = a_network(), methods.create(method)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate)
    losses, scores = [], []
    with torch.random.fork_rng():
        for epoch in range(settings.epochs):
            torch.manual_seed(mixed(5, epoch, 0))
            optimizer.param_groups[0]["lr"] = 1e-2 if epoch < 2 else 1e-3
            network.train()
            for number, (rows,) in enumerate(training_steps(60, 16, seed=5, epoch=epoch)):
                draws = torch.Generator().manual_seed(mixed(5, epoch, 0, number))
                images = random_flips(random_crops(weighted.images.pixels[rows], 2, draws), draws)
                with capture(network, "head") as tap:
                    predictions = network(normalized(images, (0.5,) * 3, (0.5,) * 3))
                targets = weighted.targets[rows]
                loss = ((predictions - targets).abs()[:, 0] * weighted.weights[rows]).mean()
                loss = loss + regularizer(tap.features, targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            network.eval()
            with torch.no_grad():
                images = normalized(data.test.images.pixels, (0.5,) * 3, (0.5,) * 3)
                scores.append((network(images) - data.test.targets).abs().mean().item())
    assert module.losses == pytest.approx(losses, rel=1e-5)
    assert [epoch["test"]["mae"] for epoch in history] == pytest.approx(scores, rel=1e-5)


def steady(**settings) -> Steps:
    """To which a step is the same in one part or in several: no BatchNorm, no dropout, no augmentation."""
    plain = replace(SETTINGS, epochs=2, batch_size=20, optimizer="sgd", learning_rate=0.01)
    module = a_module("baseline", replace(plain, **settings))
    module.network.backbone[1] = module.network.backbone[-1] = nn.Identity()
    module.augmented = lambda images, batch_index: images
    return module


def test_accumulated_gradients_equal_those_of_a_whole_step(tmp_path):
    modules = steady(), steady(accumulate=2)
    for module, name in zip(modules, "ab", strict=True):
        run(module, tmp_path / name)
    for left, right in zip(*(weights_of(module) for module in modules), strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.slow
def test_two_processes_equal_one(tmp_path):
    script = tmp_path / "two.py"  # which Lightning starts once more
    script.write_text(
        f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})\n"
        "import test_training as t\n"
        "from pathlib import Path\n"
        f"t.run(t.steady(devices=2, strategy='ddp'), Path({str(tmp_path / 'two')!r}))\n"
    )
    subprocess.run([sys.executable, str(script)], check=True, timeout=120)
    module = steady()
    history = run(module, tmp_path / "one")
    two = read_checkpoint(tmp_path / "two" / "last.ckpt")
    for name, value in module.network.state_dict().items():
        torch.testing.assert_close(two.weights[name], value)
    content = torch.load(tmp_path / "two" / "last.ckpt", weights_only=True)["history"]
    for left, right in zip(content, history, strict=True):
        assert all(left[part]["mae"] == pytest.approx(right[part]["mae"]) for part in right)


def test_goes_on_after_a_kill_as_if_nothing_had_been(tmp_path):
    whole = a_module()
    history = run(whole, tmp_path / "whole")
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import test_training as t; "
    code += f"from pathlib import Path; t.run(t.a_module(), Path({str(tmp_path / 'killed')!r}))"
    killed = subprocess.run([sys.executable, "-c", code], env={**os.environ, "DIE_AT": "2:1"}, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert read_checkpoint(tmp_path / "killed" / "last.ckpt").epoch == 2
    resumed = a_module()
    assert run(resumed, tmp_path / "killed") == history
    assert same(whole, resumed)
    assert resumed.losses == whole.losses[-4:]  # of the last epoch only: 60 rows, 16 a step
    for name in ("last.ckpt", "best.ckpt"):
        left, right = (read_checkpoint(tmp_path / folder / name) for folder in ("whole", "killed"))
        assert left.epoch == right.epoch
        assert all(torch.equal(left.weights[key], right.weights[key]) for key in left.weights)


def test_goes_on_from_every_epoch(tmp_path):
    whole = a_module()
    history = run(whole, tmp_path / "whole")
    for stop in (1, 2):
        folder = tmp_path / str(stop)
        run(a_module(settings=replace(SETTINGS, epochs=stop)), folder)
        resumed = a_module()
        assert run(resumed, folder) == history
        assert resumed.losses == whole.losses[4 * stop :]
        assert same(whole, resumed)


def test_ctrl_c_is_told_and_can_be_gone_on_from(tmp_path):
    def stop(done, total):
        if done == 6:
            raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    module = a_module()
    module.callbacks = Callbacks(progress=stop)
    with pytest.raises(KeyboardInterrupt):
        run(module, tmp_path)
    assert signal.getsignal(signal.SIGINT) is before
    resumed, whole = a_module(), a_module()
    assert run(resumed, tmp_path) == run(whole, tmp_path / "whole")
    assert resumed.losses == whole.losses[4:]


def test_streamed_images_train_alike(tmp_path):
    from PIL import Image

    data, streamed = some_data(), []
    for name, split in zip(("train", "validation", "test"), data, strict=True):
        (tmp_path / name).mkdir()
        paths = tuple(tmp_path / name / f"{place}.png" for place in range(len(split.images)))
        for place, path in enumerate(paths):
            Image.fromarray(split.images.pixels[place].permute(1, 2, 0).numpy()).save(path)
        streamed.append(replace(split, images=Images(paths, SIZE)))
    settings = replace(SETTINGS, workers=0, epochs=2)
    held = run(a_module(settings=settings, data=data), tmp_path / "held")
    assert run(a_module(settings=settings, data=Data(*streamed)), tmp_path / "streamed") == held


def test_the_order_of_an_epoch_has_every_row_once():
    steps = training_steps(61, 16, parts=2, seed=1, epoch=4)
    rows = torch.cat([part for step in steps for part in step])
    assert sorted(rows.tolist()) == list(range(61))
    again = torch.cat([part for step in training_steps(61, 16, parts=2, seed=1, epoch=4) for part in step])
    other = torch.cat([part for step in training_steps(61, 16, parts=2, seed=1, epoch=5) for part in step])
    assert torch.equal(rows, again) and not torch.equal(rows, other)
    assert [len(step) for step in training_steps(33, 16)] == [1, 1]  # one row is left, which BatchNorm cannot take


def test_the_gradient_of_the_method_reaches_the_backbone(tmp_path):
    settings = replace(SETTINGS, epochs=1)
    alone, with_method = a_module("baseline", settings), a_module("oe", settings, strength=10.0)
    run(alone, tmp_path / "alone")
    run(with_method, tmp_path / "with")
    first = "backbone.0.weight"
    moved = with_method.network.state_dict()[first] - alone.network.state_dict()[first]
    assert moved.abs().max() > 1e-4


def test_classification_learns_and_decodes(tmp_path):
    module = a_module("classification", bins=4, low=0.0, high=8.0)
    history = run(module, tmp_path)
    network = a_network(4)
    network.load_state_dict(read_checkpoint(tmp_path / "last.ckpt").weights)
    images = normalized(some_data().test.images.pixels, (0.5,) * 3, (0.5,) * 3)
    decoded = 1.0 + 2.0 * network.eval()(images).argmax(1, keepdim=True)
    expected = F.l1_loss(decoded, some_data().test.targets).item()
    assert history[-1]["test"]["mae"] == pytest.approx(expected)
    again = scored(network, module.method, Errors(), some_data().test, SETTINGS, device="cpu")
    assert again["mae"] == pytest.approx(expected)


def test_what_a_run_leaves_behind(tmp_path):
    module = a_module()
    history = run(module, tmp_path)
    assert len(history) == 3
    for part, split in (("train", some_data().train), ("test", some_data().test)):
        files = sorted((tmp_path / "features").glob(f"{part}-*"))
        assert [file.name for file in files] == [f"{part}-000{epoch}.safetensors" for epoch in (1, 2, 3)]
        content = load_file(files[-1])
        rows = fixed_rows(len(split.images), 8)
        assert content["features"].dtype == torch.float16 and torch.equal(content["targets"], split.targets[rows])
        with torch.no_grad():
            images = normalized(split.images.pixels[rows], (0.5,) * 3, (0.5,) * 3)
            expected = module.network.eval().backbone(images)
        torch.testing.assert_close(content["features"].float(), expected, rtol=2e-3, atol=1e-4)
    table = (tmp_path / "csv" / "version_0" / "metrics.csv").read_text().splitlines()
    assert len(table) == 4 and "validation/mae" in table[0]
    best = min(range(3), key=lambda epoch: history[epoch]["validation"]["mae"])
    assert read_checkpoint(tmp_path / "best.ckpt").epoch == best + 1
    json.dumps(history)


def test_the_network_is_left_without_hooks(tmp_path):
    module = a_module(settings=replace(SETTINGS, epochs=1))
    run(module, tmp_path)
    assert not module.network._forward_pre_hooks and not module.network.head._forward_hooks


@pytest.mark.parametrize("settings", [{"batch_size": 15, "accumulate": 2}, {"batch_size": 1}])
def test_batches_that_cannot_be_are_refused(tmp_path, settings):
    with pytest.raises(ValueError, match="expected batch_size to be a multiple"):
        run(a_module(settings=replace(SETTINGS, **settings)), tmp_path)


@pytest.mark.slow
def test_compiled_training_equals_plain(tmp_path):
    settings = replace(SETTINGS, epochs=1, optimizer="sgd")  # Adam makes rounding errors of zero gradients large
    plain, compiled = a_module(settings=settings), a_module(settings=replace(settings, compile=True))
    plain.network.backbone[-1].p = compiled.network.backbone[-1].p = 0.0
    left, right = run(plain, tmp_path / "plain"), run(compiled, tmp_path / "compiled")
    assert compiled.losses == pytest.approx(plain.losses, rel=1e-5)
    assert right[0]["test"]["mae"] == pytest.approx(left[0]["test"]["mae"], rel=1e-5)
