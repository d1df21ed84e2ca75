"""Images per second of the age recipe, against the same network in the barest loop there is.

    python benchmarks/bench_age.py                     # a minute or two on an H200; writes bench_age.json
    python benchmarks/bench_age.py --tiny              # anywhere, in seconds, to see that it runs; writes nothing

``recipe``: what ``ordinal-entropy train age`` does, through ``training.large.fitting.fit``: images held on the
device as bytes, cropped, mirrored and normalised there, through Lightning, with the scores of the training images;
with and without its steps as a CUDA graph, of which the preset chooses one (``preset``).
``bare``: forward, loss, backward and optimizer on one batch of floats that is on the device already. Same network,
batch size, mixed precision, channels-last layout, loss and optimizer; nothing else.

Random weights, images and ages. Every epoch of the recipe is a round, in which the bare loop makes as many steps after
the training batches, in the same process; the first round is left out. ``share`` is recipe / bare within a round. All
are medians over the rounds, with the smallest and the largest.

``with validation`` counts the same training images over the time until validation and test images, a quarter as many,
are scored; ``whole epoch`` until the next one begins, after features and checkpoints, and with the time that the files
take longer to write than the next epoch takes to train.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text
from torch import Tensor

from ordinal_entropy import kernels
from ordinal_entropy.models import backbones
from ordinal_entropy.recipes import changed
from ordinal_entropy.tasks import method_of
from ordinal_entropy.tasks.age.losses import age_counts, task_loss
from ordinal_entropy.tasks.age.metrics import ShotErrors
from ordinal_entropy.tasks.age.recipe import METRIC, PRESETS, Age
from ordinal_entropy.training.large.fitting import fit
from ordinal_entropy.training.large.module import Callbacks, Training
from ordinal_entropy.training.large.optimization import optimizer
from ordinal_entropy.training.plans import Plan
from ordinal_entropy.vision.sets import Images
from ordinal_entropy.vision.split import Data, Labelled, normalized

import record

ASKED = 90.0  # percent of the bare loop's images per second
STEPS = {112: 100, 224: 20}  # of an epoch: about a second
RECIPES = {
    56: changed(PRESETS["quick"], {"precision": "bf16", "batch_size": 32}),
    112: PRESETS["small"],  # resnet18
    224: changed(PRESETS["paper"], {"precision": "bf16"}),  # resnet50
}


class Round(NamedTuple):
    """Seconds of one epoch."""

    bare: float
    training: float  # of the recipe's training batches
    validation: float  # of its validation and test batches
    rest: float  # of features, scores, checkpoints


class Timed(Training):
    """The training of the recipe, which times the parts of an epoch, and the bare loop after the first of them."""

    bare: Callable[[], float]
    rounds: list[Round]
    _times: dict[str, float]
    _begin: float

    def on_fit_start(self) -> None:
        """Nothing is timed yet."""
        super().on_fit_start()
        self.rounds, self._times = [], {}

    def on_train_epoch_start(self) -> None:
        """The end of the epoch before, if there was one."""
        self._end_round()
        self._begin = now(self.device)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """After the last batch the bare loop, alone: with no files being written."""
        super().on_train_batch_end(outputs, batch, batch_idx)
        if batch_idx + 1 == self.trainer.num_training_batches:
            self._end("training")
            self.files.close()
            self._end("rest")
            self._times["bare"] = self.bare()
            self._begin = now(self.device)

    def on_validation_epoch_end(self) -> None:
        """What follows is features and checkpoints."""
        self._end("validation")
        super().on_validation_epoch_end()

    def on_train_end(self) -> None:
        """The end of the last epoch."""
        self._end_round()

    def _end(self, name: str) -> None:
        moment = now(self.device)
        self._times[name] = self._times.get(name, 0.0) + moment - self._begin
        self._begin = moment

    def _end_round(self) -> None:
        if self._times:
            self._end("rest")
            self.rounds.append(Round(**self._times))
            self._times = {}


def now(device: torch.device) -> float:
    """Seconds, once the device has done all that it was told to."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def faces(count: int, size: int, padding: int, device: torch.device) -> Labelled:
    """Random pixels and ages, on the device."""
    pixels = torch.randint(0, 256, (count, size, size, 3), dtype=torch.uint8, device=device).permute(0, 3, 1, 2)
    ages = torch.randint(0, 101, (count, 1)).float()
    return Labelled(Images((Path("random.jpg"),) * count, size, pixels), ages.to(device), padding=padding)


def network_of(recipe: Age) -> backbones.Network:
    own = recipe.model
    return backbones.create(own.backbone, 1, image_size=recipe.data.image_size, zero_last_norm=own.zero_last_norm)


def bare_loop(recipe: Age, batch: Tensor, ages: Tensor, steps: int) -> Callable[[], float]:
    """Seconds that the bare loop takes for so many steps, whenever it is called."""
    device, own = batch.device, recipe.training
    layout = torch.channels_last if recipe.training.channels_last else torch.contiguous_format
    network = network_of(recipe).to(device, memory_format=layout)
    adam = optimizer(list(network.parameters()), own)
    images = normalized(batch, network.mean, network.std).contiguous(memory_format=layout)
    mixed = device.type == "cuda" and recipe.training.precision == "bf16"  # as the recipe has it

    def loop() -> float:
        network.train()
        begin = now(device)
        for _ in range(steps):
            with torch.autocast(device.type, dtype=torch.bfloat16, enabled=mixed):
                predictions = network(images)
            loss = task_loss(predictions.float(), ages, loss=recipe.training.loss)
            loss.backward()
            adam.step()
            adam.zero_grad(set_to_none=True)
        return now(device) - begin

    return loop


def rounds_of(recipe: Age, method: str, data: Data, device: str, folder: Path) -> list[Round]:
    """Trains as the recipe does; the first round, which finds nothing warm, is left out."""
    torch.manual_seed(0)
    ages = data.train.targets.cpu()
    module = Timed(
        network_of(recipe),
        method_of(Plan(method, 0, recipe), low=float(ages.min()), high=float(ages.max())),
        partial(task_loss, loss=recipe.training.loss),
        ShotErrors(age_counts(ages)),
        data,
        recipe.training,
        seed=0,
        folder=folder,
        callbacks=Callbacks(progress=lambda done, total: None),
    )
    steps = len(ages) // recipe.training.batch_size
    rows = torch.arange(recipe.training.batch_size, device=data.train.targets.device)
    module.bare = bare_loop(recipe, data.train.images.batch(rows), data.train.targets[rows], steps)
    fit(module, device=device, folder=folder, monitor=METRIC)
    return module.rounds[1:]


def spread(values: Sequence[float], digits: int = 0) -> dict[str, float]:
    """Median, smallest and largest."""
    return {
        name: round(of(values), digits) for name, of in (("median", statistics.median), ("low", min), ("high", max))
    }


def row_of(recipe: Age, method: str, rounds: Sequence[Round], images: int) -> dict[str, Any]:
    return {
        "image_size": recipe.data.image_size,
        "backbone": recipe.model.backbone,
        "precision": recipe.training.precision,
        "batch_size": recipe.training.batch_size,
        "method": method,
        "graph": recipe.training.graph,
        "images_of_an_epoch": images,
        "rounds": len(rounds),
        "bare_images_per_s": spread([images / own.bare for own in rounds]),
        "recipe_images_per_s": spread([images / own.training for own in rounds]),
        "share_percent": spread([100 * own.bare / own.training for own in rounds], 1),
        "with_validation_images_per_s": spread([images / (own.training + own.validation) for own in rounds]),
        "whole_epoch_images_per_s": spread([images / sum(own[1:]) for own in rounds]),
        "validation_s": spread([own.validation for own in rounds], 3),
        "features_and_checkpoints_s": spread([own.rest for own in rounds], 3),
    }


def shown(values: dict[str, float], unit: str = "") -> str:
    median, low, high = (f"{values[name]:,.{1 if unit else 0}f}" for name in ("median", "low", "high"))
    return f"{median}{unit} [{low}, {high}]"


def table_of(rows: Sequence[dict[str, Any]]) -> Table:
    table = Table(
        "images", "method", "graph", title=Text("images per second: median [smallest, largest] of the rounds")
    )
    for name in ("bare", "recipe", "share", "with validation", "whole epoch"):
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(
            f"{row['image_size']} px, {row['backbone']}",
            row["method"],
            "yes" if row["graph"] else "no",
            shown(row["bare_images_per_s"]),
            shown(row["recipe_images_per_s"]),
            shown(row["share_percent"], "%"),
            shown(row["with_validation_images_per_s"]),
            shown(row["whole_epoch_images_per_s"]),
        )
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="bench_age.json beside this file; nothing with --tiny")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="of an epoch; about a second's without")
    parser.add_argument("--sizes", help="112,224 without", type=lambda text: [int(size) for size in text.split(",")])
    parser.add_argument("--methods", default="baseline,oe")
    parser.add_argument("--batch-size", type=int)
    parser.add_argument("--precision", choices=["float32", "bf16"], default="bf16")
    parser.add_argument("--cudnn-benchmark", action="store_true", help="both loops with cuDNN's own search")
    parser.add_argument("--tiny", action="store_true", help="56 pixels, few steps, to see that it runs")
    arguments = parser.parse_args()
    sizes = arguments.sizes or ([56] if arguments.tiny else [112, 224])
    if unknown := [size for size in sizes if size not in RECIPES]:
        parser.error(f"expected sizes out of {', '.join(map(str, RECIPES))}, got {', '.join(map(str, unknown))}")
    if not (torch.cuda.is_available() or arguments.tiny):
        print("bench_age.py: skipped, it needs a CUDA device; --tiny runs without one")
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.backends.cudnn.benchmark = arguments.cudnn_benchmark

    rows = []
    for size in sizes:
        steps = arguments.steps or STEPS.get(size, 4)
        recipe = changed(RECIPES[size], {"epochs": arguments.rounds + 1, "precision": arguments.precision})
        recipe = changed(recipe, {"batch_size": arguments.batch_size or recipe.training.batch_size})
        torch.manual_seed(0)
        counts = (steps, max(steps // 8, 1), max(steps // 8, 1))
        batch, padding = recipe.training.batch_size, recipe.data.padding
        data = Data(*(faces(count * batch, size, padding, torch.device(device)) for count in counts))
        ways = itertools.product(arguments.methods.split(","), (False, True) if device == "cuda" else (False,))
        for method, graph in ways:
            own = changed(recipe, {"graph": graph})
            with tempfile.TemporaryDirectory() as folder:
                rounds = rounds_of(own, method, data, device, Path(folder))
            row = row_of(own, method, rounds, steps * batch)
            training = recipe.training
            ours = {"channels_last": training.channels_last, "preset": graph == training.graph}
            rows.append({"device": device, **ours, **row})
            share = shown(row["share_percent"], "%")
            print(f"{size} px, {method}{', as a graph' if graph else ''}: {share} of the bare loop", flush=True)
    Console(width=150).print(table_of(rows))
    shares = [row["share_percent"]["median"] for row in rows if row["preset"]]
    print(f"at least {min(shares):.1f}% of the bare loop's images per second; asked for: {ASKED:.0f}%")
    out = arguments.out or (None if arguments.tiny else Path(__file__).with_suffix(".json"))
    if out is not None:
        versions = {name: metadata.version(name) for name in ("timm", "lightning", "torchmetrics")}
        cudnn = {"cudnn_benchmark": torch.backends.cudnn.benchmark}
        asked = {"asked_percent": ASKED, "least_percent": min(shares)}
        record.write(out, {**versions, **cudnn, "kernels": kernels.describe(), **asked, "results": rows})


if __name__ == "__main__":
    main()
