"""Training through Lightning against a loop written by hand, and against itself after a stop."""

import copy
import importlib.util
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from ordinal_entropy import capture, methods
from ordinal_entropy.recipes.groups import LargeTraining
from ordinal_entropy.training.checkpoints import load_images
from ordinal_entropy.training.large import module as large
from ordinal_entropy.training.large.batches import scored
from ordinal_entropy.training.large.files import fixed_rows
from ordinal_entropy.training.large.fitting import fit
from ordinal_entropy.training.large.module import Callbacks, Training
from ordinal_entropy.training.large.optimization import rate
from ordinal_entropy.vision.sets import Images, mixed, training_steps
from ordinal_entropy.vision.split import Data, moved, normalized, random_moves
from processes import SERVER
from tiny_images import SETTINGS, SIZE, Errors, a_network, l1, logged, some_data


class Steps(Training):
    """Keeps the loss of every batch, and can be told to die."""

    def training_step(self, batch, batch_idx):
        if os.environ.get("DIE_AT") == f"{self.epoch}:{batch_idx}":
            self.files.close()  # the checkpoints of the epoch before
            os.kill(os.getpid(), signal.SIGKILL)
        loss = super().training_step(batch, batch_idx)
        self.losses = [*getattr(self, "losses", []), loss.item()]
        return loss


KINDS = {  # of terms
    "oe of strength 1": {"strength": 1.0},
    "oe annealed": {"strength": 1.0, "anneal": 1.0},
    "oe balanced and annealed": {"anneal": 0.5},
}


def made(method, **options):
    return methods.create(method.partition(" ")[0], **KINDS.get(method, {}), **options)


def a_module(
    method: str = "oe",
    settings: LargeTraining = SETTINGS,
    data: Data | None = None,
    folder: Path | None = None,
    **options,
) -> Steps:
    own = methods.create(method, options) if "+" in method else made(method, **options)
    own.prepare((data or some_data()).train.target_rows(), None, 8)
    network = a_network(own.outputs(1))
    return Steps(network, own, l1, Errors(), data or some_data(), settings, seed=5, folder=folder)


def run(module: Training, folder: Path) -> list:
    module.folder = folder
    return fit(module, device="cpu", folder=folder, monitor="mae")


def weights_of(module: Training) -> list[Tensor]:
    return [value.clone() for value in module.network.state_dict().values()]


def same(left: Training, right: Training) -> bool:
    return all(torch.equal(a, b) for a, b in zip(weights_of(left), weights_of(right), strict=True))


@pytest.mark.parametrize(("precision", "rel"), [("float32", 1e-5), ("float64", 1e-13)])
@pytest.mark.parametrize("method", ["baseline", "oe", *KINDS, "ema"])
def test_equals_a_loop_written_by_hand(tmp_path, method, precision, rel):
    data, settings, dtype = some_data(), replace(SETTINGS, precision=precision), getattr(torch, precision)
    weighted = replace(data.train, weights=torch.linspace(0.5, 1.5, 60))
    module = a_module(method, settings, data=data._replace(train=weighted))
    history = run(module, tmp_path)

    network, regularizer = a_network().to(dtype), made(method).to(dtype)
    average = copy.deepcopy(network)
    optimizer = torch.optim.Adam(network.parameters(), lr=settings.learning_rate, fused=True)
    losses, scores, strengths = [], [], []
    with torch.random.fork_rng():
        for epoch in range(settings.epochs):
            torch.manual_seed(mixed(5, epoch, 0))
            optimizer.param_groups[0]["lr"] = 1e-2 if epoch < 2 else 1e-3
            network.train()
            moves = random_moves(60, 2, torch.Generator().manual_seed(mixed(5, epoch, 0, 1)))
            for (rows,) in training_steps(60, 16, seed=5, epoch=epoch):
                images = moved(weighted.images.pixels[rows], moves[rows], 2)
                with capture(network, "head") as tap:
                    predictions = network(normalized(images, (0.5,) * 3, (0.5,) * 3, dtype=dtype))
                targets = weighted.targets[rows].to(dtype)
                loss = ((predictions - targets).abs()[:, 0] * weighted.weights[rows]).mean()
                regularizer.at(len(losses), 4 * settings.epochs)
                loss = loss + regularizer(tap.features, targets, task_loss=loss)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                kept = min(0.999, (1 + len(losses)) / (10 + len(losses))) if method == "ema" else 0.0
                for own, now in zip(average.state_dict().values(), network.state_dict().values(), strict=True):
                    own.copy_(kept * own + (1 - kept) * now)
            average.eval()
            with torch.no_grad():
                images = normalized(data.test.images.pixels, (0.5,) * 3, (0.5,) * 3, dtype=dtype)
                scores.append((average(images) - data.test.targets).abs().mean().item())
            if regularizer.balances:
                strengths.append([value.item() for value in regularizer.scalars().values()])
    assert module.losses == pytest.approx(losses, rel=rel)
    assert [epoch["test"]["mae"] for epoch in history] == pytest.approx(scores, rel=rel)
    table = logged(tmp_path)
    names = [name for name in table[0] if name.startswith("method/")]
    assert names == ["method/diversity_strength", "method/tightness_strength"] * bool(regularizer.balances)
    for line, expected in zip(table if names else [], strengths, strict=True):
        assert [float(line[name]) for name in names] == pytest.approx(expected, rel=1e-4)
        assert min(expected) > 0 or method == "oe balanced and annealed"


def hand_trained(settings: LargeTraining, rates: list, clip: float | None = None) -> list[float]:
    """Losses of steps written by hand on a network without BatchNorm and dropout."""
    split, network = some_data().train, steady().network
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0, momentum=settings.momentum)
    losses = []
    for epoch in range(settings.epochs):
        moves = random_moves(60, 2, torch.Generator().manual_seed(mixed(5, epoch, 0, 1)))
        for (rows,) in training_steps(60, settings.batch_size, seed=5, epoch=epoch, least=1):
            images = normalized(moved(split.images.pixels[rows], moves[rows], 2), (0.5,) * 3, (0.5,) * 3)
            loss = (network(images) - split.targets[rows]).abs().mean()
            optimizer.zero_grad()
            loss.backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(network.parameters(), clip)
            optimizer.param_groups[0]["lr"] = settings.learning_rate * rates[len(losses)].factor
            if rates[len(losses)].momentum is not None:
                optimizer.param_groups[0]["momentum"] = rates[len(losses)].momentum
            optimizer.step()
            losses.append(loss.item())
    return losses


@pytest.mark.parametrize("schedule", ["poly", "one-cycle"])
def test_the_rate_of_every_step_is_that_of_the_schedule(tmp_path, schedule):
    module = steady(schedule=schedule)
    run(module, tmp_path)
    rates = [rate(schedule, step, 6, epochs=2) for step in range(6)]
    assert module.losses == pytest.approx(hand_trained(module.settings, rates), rel=1e-5)


def test_a_schedule_goes_on_where_it_was_stopped(tmp_path):
    whole, first = steady(schedule="one-cycle", epochs=3), steady(schedule="one-cycle", epochs=3)
    run(whole, tmp_path / "whole")

    def stop(epoch, scores):
        if epoch == 2:
            raise KeyboardInterrupt

    first.callbacks = Callbacks(on_epoch=stop)
    with pytest.raises(KeyboardInterrupt):
        run(first, tmp_path / "stopped")
    second = steady(schedule="one-cycle", epochs=3)
    run(second, tmp_path / "stopped")
    assert [*first.losses[:3], *second.losses] == whole.losses


def test_gradients_are_clipped(tmp_path):
    module = steady(clip=0.5)
    run(module, tmp_path)
    rates = [rate("milestones", step, 6, epochs=2) for step in range(6)]
    assert module.losses == pytest.approx(hand_trained(module.settings, rates, clip=0.5), rel=1e-5)
    assert module.losses != pytest.approx(hand_trained(module.settings, rates), rel=1e-5)


def test_without_batch_norm_a_batch_may_be_one_image(tmp_path):
    module = steady(batch_size=1, epochs=1, learning_rate=1e-3)
    run(module, tmp_path)
    rates = [rate("milestones", 0, 1, epochs=1)] * 60
    assert module.losses == pytest.approx(hand_trained(module.settings, rates), rel=1e-4)


class Largest(Errors):
    """Tells another number under the same name."""

    def compute(self) -> dict[str, Tensor]:
        return {"mae": torch.tensor(1000.0)}


def test_the_batches_trained_on_may_have_a_metric_of_their_own(tmp_path):
    module = Steps(a_network(), methods.create("baseline"), l1, Errors(), some_data(), SETTINGS, seed=5,
                   train_metric=Largest())  # fmt: skip
    history = run(module, tmp_path)
    assert {epoch["train"]["mae"] for epoch in history} == {1000.0}
    assert all(epoch[part]["mae"] < 10 for epoch in history for part in ("validation", "test"))


def steady(method: str = "baseline", gather: bool = False, **settings) -> Steps:
    """To which a step is the same in one part or in several: no BatchNorm, no dropout."""
    plain = replace(SETTINGS, epochs=2, batch_size=20, optimizer="sgd", learning_rate=0.01)
    own = {"gather": gather}
    options = {"oe": own, "fds+oe": {"oe": own}}.get(method, {})
    module = a_module(method, replace(plain, **settings), **options)
    module.network.backbone[1] = module.network.backbone[-1] = nn.Identity()
    return module


def test_accumulated_gradients_equal_those_of_a_whole_step(tmp_path):
    modules = steady(), steady(accumulate=2)
    for module, name in zip(modules, "ab", strict=True):
        run(module, tmp_path / name)
    for left, right in zip(*(weights_of(module) for module in modules), strict=True):
        torch.testing.assert_close(left, right)


def test_the_layout_in_memory_changes_no_number(tmp_path):
    first, second = (steady("oe", channels_last=layout) for layout in (True, False))
    weight = first.network.backbone[0].weight
    assert weight.is_contiguous(memory_format=torch.channels_last) and not weight.is_contiguous()
    assert second.network.backbone[0].weight.is_contiguous()
    left, right = run(first, tmp_path / "last"), run(second, tmp_path / "first")
    assert first.losses == pytest.approx(second.losses, rel=1e-5)
    assert [epoch["test"]["mae"] for epoch in left] == pytest.approx([epoch["test"]["mae"] for epoch in right])
    for one, other in zip(weights_of(first), weights_of(second), strict=True):
        torch.testing.assert_close(one, other)


def say(text: str) -> None:
    """A line that nothing of another process can come between."""
    os.write(1, f"{text}\n".encode())


def two_processes(method: str, folder: Path) -> None:
    """What each of them runs: tells what it writes, and the epochs."""
    module = steady(method, gather=True, devices=2, strategy="ddp")
    module.callbacks = Callbacks(on_epoch=lambda epoch, scores: say(f"epoch {epoch}"))
    write = module.files.write

    def told(path, content):
        say(f"wrote {path.name}")
        write(path, content)

    module.files.write = told
    run(module, folder)
    say(f"found {len(list((folder / 'features').iterdir()))}")
    module.trainer.strategy.barrier()  # the first process takes the others with it when it ends


@pytest.mark.slow
@pytest.mark.parametrize("method", ["baseline", "oe", "fds+oe"])
def test_two_processes_equal_one(tmp_path, method):
    script = tmp_path / "two.py"  # which Lightning starts once more
    script.write_text(
        f"import sys; sys.path[:0] = {[str(each) for each in Path(__file__).parents[:3:2]]!r}\n"
        "from pathlib import Path\n"
        "from test_module import two_processes\n"
        f"two_processes({method!r}, Path({str(tmp_path / 'two')!r}))\n"
    )
    said = subprocess.run([sys.executable, str(script)], check=True, timeout=600, capture_output=True, text=True)
    module = steady(method)
    history = run(module, tmp_path / "one")
    two = load_images(tmp_path / "two" / "last.ckpt")
    for name, value in module.network.state_dict().items():
        torch.testing.assert_close(two.weights[name], value)
    for name, value in module.method.state_dict().items():
        torch.testing.assert_close(two.method[name], value, rtol=1e-5, atol=1e-6)
    content = torch.load(tmp_path / "two" / "last.ckpt", weights_only=True)["history"]
    for left, right in zip(content, history, strict=True):
        assert all(left[part]["mae"] == pytest.approx(right[part]["mae"]) for part in right)

    lines = said.stdout.splitlines()
    assert [line for line in lines if line.startswith("epoch")] == ["epoch 1", "epoch 2"]
    assert [line for line in lines if line.startswith("found")] == ["found 5"] * 2  # all files, on both
    written = sorted(line.removeprefix("wrote ") for line in lines if line.startswith("wrote"))
    features = [f"{part}-000{epoch}.safetensors" for part in ("test", "train") for epoch in (1, 2)] + ["test.jpg"]
    improved = history[1]["validation"]["mae"] < history[0]["validation"]["mae"]
    assert written == ["best.ckpt"] * (1 + improved) + ["last.ckpt"] * 2 + sorted(features)
    assert sorted(path.name for path in (tmp_path / "two" / "csv").iterdir()) == ["version_0"]
    assert not said.stderr, said.stderr


def run_to_its_death(folder):
    os.environ["DIE_AT"] = "2:1"
    run(a_module(), folder)


def test_goes_on_after_a_kill_as_if_nothing_had_been(tmp_path):
    whole = a_module()
    history = run(whole, tmp_path / "whole")
    process = SERVER.Process(target=run_to_its_death, args=(tmp_path / "killed",))
    process.start()
    process.join(600)
    assert process.exitcode == -signal.SIGKILL
    assert load_images(tmp_path / "killed" / "last.ckpt").epoch == 2
    resumed = a_module()
    assert run(resumed, tmp_path / "killed") == history
    assert same(whole, resumed)
    assert resumed.losses == whole.losses[-4:]  # of the last epoch only: 60 rows, 16 a step
    for name in ("last.ckpt", "best.ckpt"):
        left, right = (load_images(tmp_path / folder / name) for folder in ("whole", "killed"))
        assert left.epoch == right.epoch
        assert all(torch.equal(left.weights[key], right.weights[key]) for key in left.weights)


@pytest.mark.parametrize("method", ["oe", "ema"])
def test_goes_on_from_every_epoch(tmp_path, method):
    whole = a_module(method)
    history = run(whole, tmp_path / "whole")
    for stop in (1, 2):
        folder = tmp_path / str(stop)
        run(a_module(method, settings=replace(SETTINGS, epochs=stop)), folder)
        resumed = a_module(method)
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


def streamed(data: Data, folder: Path) -> Data:
    """The same images in files, which are read when they are asked for."""
    from PIL import Image

    splits = []
    for name, split in zip(("train", "validation", "test"), data, strict=True):
        (folder / name).mkdir(parents=True)
        paths = tuple(folder / name / f"{place}.png" for place in range(len(split.images)))
        for place, path in enumerate(paths):
            Image.fromarray(split.images.pixels[place].permute(1, 2, 0).numpy()).save(path)
        splits.append(replace(split, images=Images(paths, SIZE)))
    return Data(*splits)


@pytest.mark.parametrize("workers", [0, 2])
def test_streamed_images_train_alike(tmp_path, workers):
    settings = replace(SETTINGS, workers=workers, epochs=2)
    held = a_module(settings=settings)
    history = run(held, tmp_path / "held")
    module = a_module(settings=settings, data=streamed(some_data(), tmp_path / "files"))
    assert run(module, tmp_path / "streamed") == history
    assert same(held, module) and module.losses == held.losses
    for name in ("train-0002", "test-0002"):
        left, right = (load_file(tmp_path / way / "features" / f"{name}.safetensors") for way in ("held", "streamed"))
        assert all(torch.equal(left[key], right[key]) for key in ("features", "targets"))
    assert not multiprocessing.active_children()


def test_streaming_is_gone_on_with_and_leaves_no_process_after_a_stop(tmp_path):
    def stop(done, total):
        if done == 6:
            assert len(multiprocessing.active_children()) >= 2
            raise KeyboardInterrupt

    data, settings = streamed(some_data(), tmp_path / "files"), replace(SETTINGS, workers=2)
    module = a_module(settings=settings, data=data)
    module.callbacks = Callbacks(progress=stop)
    with pytest.raises(KeyboardInterrupt):
        run(module, tmp_path / "run")
    assert not multiprocessing.active_children()
    resumed, whole = a_module(settings=settings, data=data), a_module()
    assert run(resumed, tmp_path / "run") == run(whole, tmp_path / "whole")
    assert same(resumed, whole)
    assert not multiprocessing.active_children()


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
    network.load_state_dict(load_images(tmp_path / "last.ckpt").weights)
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
            predicted = module.network(images)
        torch.testing.assert_close(content["features"].float(), expected, rtol=2e-3, atol=1e-4)
        torch.testing.assert_close(content["predictions"], predicted)
    assert not list((tmp_path / "features").glob("image*"))  # which maps have
    with Image.open(tmp_path / "features" / "test.jpg") as sheet:
        assert sheet.size == (32 * 48, 48)  # of eight images
    table = logged(tmp_path)
    assert [int(line["epoch"]) for line in table] == [1, 2, 3] and [int(line["step"]) for line in table] == [4, 8, 12]
    for part in ("train", "validation", "test"):
        assert [float(line[f"{part}/mae"]) for line in table] == [epoch[part]["mae"] for epoch in history]
    best = min(range(3), key=lambda epoch: history[epoch]["validation"]["mae"])
    assert load_images(tmp_path / "best.ckpt").epoch == best + 1
    json.dumps(history)


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of what tensorboard imports
def test_tensorboard_has_the_scores_of_every_epoch(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    history = run(a_module(), tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard" / "version_0")).Reload()
    for part in ("train", "validation", "test"):
        scalars = events.Scalars(f"{part}/mae")
        assert [event.step for event in scalars] == [4, 8, 12]
        assert [event.value for event in scalars] == pytest.approx([epoch[part]["mae"] for epoch in history])


def test_the_best_epoch_is_the_first_of_equals_and_never_one_without_a_number(tmp_path, monkeypatch):
    for folder, lower, scores, best in [
        ("a", True, [2.0, 1.0, 1.0], 2),
        ("b", False, [1.0, 3.0, 2.0], 2),
        ("c", True, [math.nan, math.nan, 5.0], 3),
        ("d", False, [1.0, math.nan, math.nan], 1),
    ]:
        left = iter([score for score in scores for _ in range(3)])  # of three parts
        monkeypatch.setattr(Errors, "compute", lambda self: {"mae": torch.tensor(next(left))})
        fit(a_module(), device="cpu", folder=tmp_path / folder, monitor="mae", lower_is_better=lower)
        assert load_images(tmp_path / folder / "best.ckpt").epoch == best
        assert load_images(tmp_path / folder / "last.ckpt").epoch == 3


class Unwaiting(Steps):
    """Lets no batch but the first of an epoch wait for the GPU."""

    def on_train_batch_start(self, batch, batch_idx):
        if batch_idx:
            torch.cuda.set_sync_debug_mode("error")

    def training_step(self, batch, batch_idx):
        return Training.training_step(self, batch, batch_idx)

    def on_train_batch_end(self, outputs, batch, batch_idx):
        super().on_train_batch_end(outputs, batch, batch_idx)
        torch.cuda.set_sync_debug_mode("default")


def test_checkpoints_are_not_written_more_often_than_asked(tmp_path, monkeypatch):
    """The best epoch is the same file in the end, also where it was none that wrote one."""
    written = []
    real = large.Files.write
    monkeypatch.setattr(large.Files, "write", lambda *inputs: (written.append(inputs[1].name), real(*inputs))[1])
    content = {}
    for seconds, count in ((0, 3), (1000, 1)):
        written.clear()
        settings = replace(SETTINGS, checkpoint_seconds=seconds, learning_rate=0.1)
        module, folder = a_module(settings=settings), tmp_path / str(seconds)
        history = run(module, folder)
        assert written.count("last.ckpt") == count and written.count("best.ckpt") <= count
        content[seconds] = load_images(folder / "best.ckpt"), history
    (often, scores), (seldom, same) = content[0], content[1000]
    best = min(range(3), key=lambda epoch: scores[epoch]["validation"]["mae"])
    assert scores == same and often.epoch == seldom.epoch == best + 1
    assert all(torch.equal(often.weights[name], seldom.weights[name]) for name in often.weights)


@pytest.mark.gpu
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("method", ["baseline", "oe"])
@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_no_step_waits_for_the_gpu(tmp_path, method, precision, graph):
    data = some_data()
    data = data._replace(train=replace(data.train, weights=torch.ones(60)))
    settings = replace(SETTINGS, batch_size=15, precision=precision, graph=graph)
    if graph:  # which begins with a wait, once
        settings = replace(settings, epochs=2, batch_size=10)
    module = Unwaiting(a_network(), methods.create(method), l1, Errors(), data, settings, seed=5)
    module.callbacks = Callbacks(progress=lambda done, total: None)
    try:
        history = fit(module, device="cuda", folder=tmp_path, monitor="mae")
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert len(history) == settings.epochs and all(math.isfinite(epoch["test"]["mae"]) for epoch in history)


@pytest.mark.gpu
@pytest.mark.parametrize("method", ["baseline", "oe", *KINDS, "classification"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_steps_of_a_graph_are_those_without(tmp_path, method, precision):
    """The last batch of an epoch is smaller; dropout draws the same numbers."""
    made = {}
    for graph in (False, True):
        settings = replace(SETTINGS, optimizer="sgd", batch_size=8, precision=precision, graph=graph, clip=1.0)
        options = {"bins": 10, "low": 0.0, "high": 10.0} if method == "classification" else {}
        own = made(method, **options)
        module = Steps(a_network(own.outputs(1)), own, l1, Errors(), some_data(), settings, seed=5)
        history = fit(module, device="cuda", folder=tmp_path / str(graph), monitor="mae")
        assert (module._steps > 3) and module._graph is None  # which is given back in the end
        made[graph] = module, history
    rel = 1e-4 if precision == "float32" else 2e-2
    assert made[True][0].losses == pytest.approx(made[False][0].losses, rel=rel)
    for one, other in zip(made[True][1], made[False][1], strict=True):
        for part in one:
            assert one[part] == pytest.approx(other[part], rel=rel)


@pytest.mark.gpu
def test_a_graph_is_made_only_where_it_can_be(tmp_path, monkeypatch):
    made = []
    real = large.StepGraph

    def counted(*inputs):
        made.append(1)
        return real(*inputs)

    monkeypatch.setattr(large, "StepGraph", counted)
    for changes, count in [
        ({}, 1),
        ({"graph": False}, 0),
        ({"precision": "fp16"}, 0),
        ({"accumulate": 2}, 0),
        ({"batch_size": 60}, 0),  # three epochs of one step
    ]:
        made.clear()
        settings = replace(SETTINGS, batch_size=10, graph=True)
        fit(
            a_module(settings=replace(settings, **changes)),
            device="cuda",
            folder=tmp_path / str(changes),
            monitor="mae",
        )
        assert len(made) == count, changes


def test_without_a_gpu_there_is_no_graph(tmp_path):
    plain, asked = a_module(), a_module(settings=replace(SETTINGS, graph=True))
    assert run(asked, tmp_path / "asked") == run(plain, tmp_path / "plain")
    assert asked.losses == plain.losses


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bf16", "fp16"])
def test_gradients_are_clipped_on_a_gpu(tmp_path, precision):
    before = weights_of(steady())
    settings = {"precision": precision, "clip": 1e-3, "momentum": 0.0, "epochs": 1, "batch_size": 60}
    module = steady(**settings, learning_rate=1.0)
    fit(module, device="cuda", folder=tmp_path, monitor="mae")
    moved_by = torch.cat([(a - b.cpu()).flatten() for a, b in zip(before, weights_of(module), strict=True)]).norm()
    assert moved_by.item() == pytest.approx(1e-3, rel=1e-2)  # one step along a gradient of that norm


def test_the_network_is_left_without_hooks(tmp_path):
    module = a_module(settings=replace(SETTINGS, epochs=1))
    run(module, tmp_path)
    assert not module.network._forward_pre_hooks and not module.network.head._forward_hooks


@pytest.mark.parametrize("settings", [{"batch_size": 15, "accumulate": 2}, {"batch_size": 1}])
def test_batches_that_cannot_be_are_refused(tmp_path, settings):
    with pytest.raises(ValueError, match="expected batch_size to be a multiple"):
        run(a_module(settings=replace(SETTINGS, **settings)), tmp_path)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of its compiler
@pytest.mark.parametrize(
    ("method", "backend"),
    [
        ("oe", "aot_eager"),
        pytest.param("oe", "inductor", marks=pytest.mark.slow),
        pytest.param("oe of strength 1", "inductor", marks=pytest.mark.slow),
    ],
)
def test_compiled_training_equals_plain(tmp_path, monkeypatch, method, backend):
    torch._dynamo.reset()
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))
    settings = replace(SETTINGS, epochs=1, optimizer="sgd")  # Adam makes rounding errors of zero gradients large
    plain, compiled = a_module(method, settings), a_module(method, replace(settings, compile=True))
    plain.network.backbone[-1].p = compiled.network.backbone[-1].p = 0.0
    left, right = run(plain, tmp_path / "plain"), run(compiled, tmp_path / "compiled")
    assert compiled.losses == pytest.approx(plain.losses, rel=1e-5)
    assert right[0]["test"]["mae"] == pytest.approx(left[0]["test"]["mae"], rel=1e-5)
    torch.testing.assert_close(compiled.method.state_dict(), plain.method.state_dict(), rtol=1e-4, atol=0)
    torch._dynamo.reset()
