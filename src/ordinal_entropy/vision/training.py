"""Training on images through Lightning: precision, devices, checkpoints and logs are its own.

What an epoch does depends on the seed of the run and the number of the epoch only: the order of the images, their
augmentation, the learning rate. So a run that was stopped ends in the numbers that it would have had.

A step never waits for a GPU: the rows of an epoch and its draws are copied there before it begins, scores are looked at
when it is over, and files are written while the next one runs.
"""

import copy
import functools
import importlib.util
import logging
import math
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from ordinal_entropy import methods, runs
from ordinal_entropy.capture import Tap, capture
from ordinal_entropy.methods import Batch, Composition, TaskLoss
from ordinal_entropy.methods.contract import overrides
from ordinal_entropy.vision import schedules, thumbnails
from ordinal_entropy.vision.augment import normalized
from ordinal_entropy.vision.files import Files, on_host
from ordinal_entropy.vision.graph import Made, StepGraph
from ordinal_entropy.vision.places import nearest, portrait
from ordinal_entropy.vision.sets import Batches, mixed, training_steps
from ordinal_entropy.vision.split import Device, Picked, Seen, Shown, Split
from ordinal_entropy.vision.torchvision_guard import import_torchvision

import_torchvision()  # which Lightning would import

import lightning.pytorch as lightning  # noqa: E402
from lightning.fabric.plugins import TorchCheckpointIO  # noqa: E402
from lightning.pytorch.callbacks import Checkpoint as CheckpointCallback  # noqa: E402
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger  # noqa: E402
from torchmetrics import Metric  # noqa: E402

Scores = dict[str, float]

PARTS = ("train", "validation", "test")
LAST, BEST = "last.ckpt", "best.ckpt"
REMEDY = "remove it to begin the run again"
_REMEDY_OF_TRAINED = "remove the run folder and train again"
_UNSCORED = 2**22  # predictions that are kept before they are scored, at most
_FIRST_STEPS = 3  # that are not a graph: they compile kernels and load libraries
_CAPTURED = {"head", "loss", "term", "weights", "after_step"}  # needs of parts whose steps can be a CUDA graph
_BEFORE_PARTS = "regularizer."  # state of a method in checkpoints from before methods had parts
_OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
_STATES = {  # of a parameter
    "adam": ("step", "exp_avg", "exp_avg_sq"),
    "adamw": ("step", "exp_avg", "exp_avg_sq"),
    "sgd": (),  # a momentum, or none
}
_PRECISIONS: dict[str, tuple[Literal["32-true", "bf16-mixed", "16-mixed", "64-true"], torch.dtype]] = {
    "float32": ("32-true", torch.float32),
    "bf16": ("bf16-mixed", torch.bfloat16),
    "fp16": ("16-mixed", torch.float16),
    "float64": ("64-true", torch.float64),
}
# Harmless here: each says what is chosen on purpose.
_CHATTER = (
    r"Checkpoint directory .* exists and is not empty",  # a run that goes on
    r"The '\w+_dataloader' does not have many workers",  # the recipe says how many
    r"GPU available but not used",  # --device cpu
    r"It is recommended to use `self.log\(.*, sync_dist=True\)`",  # scores are of all ranks already
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning's use of torch
    r"This process .* is multi-threaded, use of fork\(\)",  # workers read files and touch nothing else
)


@dataclass(frozen=True)
class Settings:
    """How a network is trained."""

    epochs: int
    batch_size: int  # images of a step, of all devices and accumulated parts together
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    momentum: float = 0.9  # of sgd
    schedule: Literal["milestones", "poly", "one-cycle"] = "milestones"  # of the learning rate, see `schedules.rate`
    milestones: tuple[int, ...] = ()  # epochs after which the learning rate is a tenth
    clip: float = 0.0  # the norm of the gradient, at most; 0: any
    precision: Literal["float32", "bf16", "fp16", "float64"] = "float32"  # bf16 and fp16: float32 on a CPU
    channels_last: bool = True
    compile: bool = False
    graph: bool = False  # steps as a CUDA graph, where one can be made; see `Training.graphed`
    checkpoint_seconds: float = 10.0  # between two checkpoints, at least
    accumulate: int = 1  # parts of a step, one after the other
    devices: int = 1  # of a machine
    nodes: int = 1  # machines
    strategy: str = "auto"  # Lightning's name of it
    workers: int = 4  # processes that read images which are not held in memory
    flip: bool = False  # predict maps as the mean of those of an image and of its mirror image
    feature_rows: int = 512  # of training and of test images, held in memory, whose features are kept; 0: none


class Network(Protocol):
    """What is asked of a network beside being a module."""

    feature_layer: str  # the layer whose input is the features
    mean: tuple[float, float, float]  # of each channel, to be taken from images in 0..1
    std: tuple[float, float, float]  # to divide by after that

    def __call__(self, images: Tensor) -> Tensor:
        """Outputs for normalised images."""
        ...


class Data(NamedTuple):
    """What a run sees."""

    train: Split
    validation: Split
    test: Split

    def to(self, device: Device) -> "Data":
        """The same on a device."""
        return Data(*(split.to(device) for split in self))


class _Calibration:
    """Hook before the feature layer: keeps what would go in, and in training lets the method change it."""

    def __init__(self, method: Composition) -> None:
        self.method = method
        self.batch: Batch | None = None  # that is trained on
        self.features = torch.zeros(0)  # before they are calibrated

    def __call__(self, layer: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...] | None:
        """What goes in instead; None: what came."""
        if self.batch is None:
            return None
        (self.features,) = inputs
        with torch.autocast(self.features.device.type, enabled=False):
            return (self.method.calibrate(self.features, self.batch),)

    def called(self, run: Callable[[Tensor], tuple[Tensor, Tensor]], batch: Batch) -> tuple[Tensor, Tensor]:
        """Outputs and the features before they are calibrated, of a network that runs with this hook."""
        self.batch = batch
        try:
            outputs, _ = run(batch.inputs)
            return outputs, self.features
        finally:
            self.batch, self.features = None, torch.zeros(0)


class Callbacks(NamedTuple):
    """Whom a run tells of itself."""

    on_epoch: Callable[[int, Mapping[str, Scores]], None] | None = None  # epochs done, scores by part
    progress: Callable[[int, int], None] | None = None  # batches done, batches in all


class Training(lightning.LightningModule):
    """A network, a method and a task loss, as Lightning wants them.

    Args:
        network: a module, with the name of its feature layer.
        method: how it is trained beyond that; prepared, and its head, if it brings one, is that of the network.
        loss: the task loss.
        metric: of decoded predictions and targets; a dictionary of scores.
        train_metric: of the batches trained on, where that should be another.
        data: on the device already, if it is held in memory.
        settings: how to train.
        seed: of the order of images and of their augmentation.
        folder: where features are written; None: nowhere.
        facts: kept in every checkpoint beside the weights.
        callbacks: whom to tell.
    """

    def __init__(
        self,
        network: Network,
        method: Composition,
        loss: TaskLoss,
        metric: Metric,
        data: Data,
        settings: Settings,
        *,
        seed: int,
        train_metric: Metric | None = None,
        folder: Path | None = None,
        facts: Mapping[str, Any] | None = None,
        callbacks: Callbacks = Callbacks(),  # noqa: B008  a tuple
    ) -> None:
        super().__init__()
        assert isinstance(network, nn.Module)
        require_trainable(method, data.train, settings)
        self.network: Any = network
        lay_out(network, settings)
        self.method = method
        # what each rank counts for itself, as FDS in an epoch; DDP would put the first rank's there in every step
        self._ddp_params_and_buffers_to_ignore = [f"method.{name}" for name, _ in method.named_buffers()]
        self.task_loss = loss
        self.metrics = nn.ModuleList([(train_metric or metric).clone(), metric.clone(), metric.clone()])  # as in PARTS
        self.data = data
        self.settings = settings
        self.seed = seed
        self.folder = folder
        self.facts = dict(facts or {})
        self.callbacks = callbacks
        self.history: list[dict[str, Scores]] = []  # of each epoch, by part
        self._called: list[Callable[[Tensor], Tensor]] = []  # the network or the compiled one; no child of its own
        self._tap: Tap | None = None
        self._calibration: _Calibration | None = None  # where the method calibrates features
        self._handle: Any = None  # of its hook
        self._draws: list[Tensor] = []  # (n, ...) of this epoch, by row, for each view
        self._stage = methods.stage_of(method, 0, settings.epochs)  # of this epoch
        self._drawing: torch.Generator | None = None  # of the method, where it may draw
        self._unscored: list[list[tuple[Tensor, Tensor]]] = [[] for _ in PARTS]  # predictions and targets
        self._fixed: dict[str, Split] = {}  # whose features are kept
        self._steps = 0  # made by this process
        self._graph: StepGraph | None = None
        self._replayed: StepGraph | None = None  # what the last step was made by, if by a graph
        self._image = (0, 0)  # the test image that is kept on a grid: its place among the fixed ones, and among all
        self.files = Files()

    @property
    def epoch(self) -> int:
        """Epochs done. Lightning's own number is one behind while a run that goes on makes its first batches."""
        return len(self.history)

    def setup(self, stage: str) -> None:
        """Taps the feature layer, before anything is compiled."""
        called: Any = torch.compile(self.network) if self.settings.compile else self.network
        self._called = [called]
        self._tap = capture(called, self.network.feature_layer)
        if self.method.smooths:
            self._calibration = _Calibration(self.method)
            hook: Any = self._calibration.__call__
            if self.settings.compile:
                hook = torch.compiler.disable(hook)
            layer = self.network.get_submodule(self.network.feature_layer)
            self._handle = layer.register_forward_pre_hook(hook)

    def on_fit_start(self) -> None:
        """Every rank has the data on its own device."""
        self.data = self.data.to(self.device)
        if self.method.requirements().keys() & {"mixing", "weights"}:
            self._drawing = torch.Generator(self.device)
        if self.folder is not None and self.settings.feature_rows and self.global_rank == 0:
            for part, split in (("train", self.data.train), ("test", self.data.test)):
                rows = fixed_rows(len(split), self.settings.feature_rows)
                self._fixed[part] = split.take(rows).to(self.device)
            one = int(fixed_rows(len(split), 1))
            self._image = (rows.tolist().index(one), one)

    def on_fit_end(self) -> None:
        """Every rank finds all files written."""
        self.files.close()
        self.trainer.strategy.barrier()

    def teardown(self, stage: str) -> None:
        """Leaves the network as it came."""
        if self._tap is not None:
            self._tap.close()
        if self._handle is not None:
            self._handle.remove()
        if len(self.method.stages) > 1:
            self.network.requires_grad_(True)
        self._called, self._tap, self._graph, self._replayed = [], None, None, None
        self._calibration = self._handle = None

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and features, ``(n, d)`` or maps, for images ``(n, 3, h, w)`` from 0 to 255."""
        assert self._tap is not None
        outputs = self._called[0](_shown(images, self.network, self.settings))
        features = self._tap.features
        self._tap.clear()
        return outputs, features

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        if batch_idx == 0:
            self._begin_epoch()
        self._set_rate(batch_idx)
        picked = _picked(batch)
        draws = [view[picked.rows] for view in self._draws]
        self._replayed = self._graph_of(picked.rows, draws[0])
        if self._replayed is not None:
            made = self._replayed(picked.rows, draws[0])
        else:
            if self._drawing is not None:
                self._drawing.manual_seed(mixed(self.seed, self.epoch, batch_idx, self.global_rank, 2))
            made = self._step(picked, draws, self._drawing)
        self._score(0, made.predictions, made.truth)
        return made.loss

    @property
    def graphed(self) -> bool:
        """Whether steps can be a CUDA graph: one process on a GPU, images held there, one part of a step, no scale.

        Of the method, all that a step does must be tensors on the device: no draws, nothing that it observes.
        """
        own, alone = self.settings, self.trainer.world_size == 1 and self.settings.accumulate == 1
        plain = own.precision != "fp16" and not own.compile and self.data.train.held and self.data.train.uniform
        return own.graph and alone and plain and self.device.type == "cuda" and self._capturable

    @functools.cached_property
    def _capturable(self) -> bool:
        parts = [part for part in self.method.parts.values() if isinstance(part, methods.Method)]
        watched = any(overrides(part, "observe") for part in parts)
        return self.method.requirements().keys() <= _CAPTURED and not watched

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """The gradients, which a graph has computed already."""
        if self._replayed is not None:
            self._replayed.lend()
        else:
            super().backward(loss, *args, **kwargs)

    def _graph_of(self, rows: Tensor, draws: Tensor) -> StepGraph | None:
        """What makes the step of a batch in one piece; None for the first batches, and for those of another size."""
        self._steps += 1
        if not self.graphed or self._steps <= _FIRST_STEPS or len(rows) != self.settings.batch_size:
            return None
        if self._graph is None:
            parameters = [each for each in self.network.parameters() if each.requires_grad]
            try:
                self._graph = StepGraph(lambda rows, draws: self._step(Picked(rows), [draws]), parameters, rows, draws)
            except RuntimeError as error:
                why = "expected a network and a method whose step can be a CUDA graph; graph=false does without"
                raise RuntimeError(f"{why}: {error}") from error
        return self._graph

    def _step(self, picked: Picked, draws: Sequence[Tensor], generator: torch.Generator | None = None) -> Made:
        """The loss of a batch, and what is scored of it. Waits for no GPU.

        It is that of ``methods.training_loss``, of a network that is called as a whole: its encoder is what comes
        before the feature layer, its head that layer and what follows.
        """
        split, method = self.data.train, self.method
        views = [split.seen(picked, own) for own in draws]
        batch = method.change(_batch(views, self.settings, floats=method.mixes), generator)
        if self._calibration is None or self._stage == "encoder":
            outputs, features = self(batch.inputs)
        else:
            outputs, features = self._calibration.called(self, batch)
        with torch.autocast(outputs.device.type, enabled=False):
            outputs = _at_least_single(outputs)
            method.observe(features.detach(), batch.targets)
            shown = None if self._stage == "encoder" else outputs
            loss = method.loss(methods.Step(batch, features, shown, self.task_loss), self._stage)
            predictions = method.decode(outputs.detach()[: len(picked.rows)])  # of the first view
        rows = slice(len(picked.rows))
        seen = views[0]._replace(targets=batch.targets[rows])
        if method.mixes:
            seen = seen._replace(mask=None if batch.mask is None else batch.mask[rows], truth=None)
        return Made(loss, *split.scored(predictions, seen))

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Adds a batch of validation (0) or test images (1) to the scores."""
        split = self.data[1 + dataloader_idx]
        seen = split.seen(_picked(batch), None)
        predictions = _predicted(lambda images: self(images)[0], self.method, seen.images, self.settings)
        self._score(1 + dataloader_idx, *split.scored(predictions, seen))

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Tells how far it is."""
        if self.callbacks.progress is not None and self.global_rank == 0:
            batches = int(self.trainer.num_training_batches)
            self.callbacks.progress(self.epoch * batches + batch_idx + 1, self.settings.epochs * batches)

    def on_validation_epoch_end(self) -> None:
        """Keeps the features of the fixed images."""
        if self.folder is None:
            return
        for part, split in self._fixed.items():
            for name, content in self._features(split, part).items():
                self._write_beside(
                    f"{name}-{self.epoch + 1:04d}.safetensors", partial(_write_features, on_host(content))
                )

    def on_train_epoch_end(self) -> None:
        """The scores of the epoch; checkpoints are written after this."""
        self.method.end_epoch()
        scores = {}
        for number, (part, metric) in enumerate(zip(PARTS, self._each_metric(), strict=True)):
            self._update(number)
            scores[part] = _numbers(metric.compute())
            metric.reset()
        self.history.append(scores)
        named = {f"{part}/{name}": value for part, own in scores.items() for name, value in own.items()}
        named |= {f"method/{name}": float(value.detach()) for name, value in self.method.scalars().items()}
        for logger in self.trainer.loggers:  # Lightning's own way to them takes a millisecond for each number
            logger.log_metrics({"epoch": self.epoch, **named}, self.trainer.global_step)
            logger.save()
        if self.callbacks.on_epoch is not None and self.global_rank == 0:
            self.callbacks.on_epoch(self.epoch, scores)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer; its learning rate is set at the beginning of every epoch."""
        return optimizer(self.trained, self.settings)

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that are optimised: those of the network and those of the method."""
        return list(dict.fromkeys([*self.network.parameters(), *self.method.parameters()]))

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """The method is told of every one."""
        super().optimizer_step(*args, **kwargs)
        self.method.after_step(self.network)

    def configure_gradient_clipping(
        self, optimizer: Any, gradient_clip_val: float | None = None, gradient_clip_algorithm: str | None = None
    ) -> None:
        """Lightning refuses to clip for a fused optimizer in any half precision; bfloat16 has no scale to be undone."""
        if gradient_clip_val and self.settings.precision != "fp16":
            nn.utils.clip_grad_norm_(self.trained, gradient_clip_val)
        else:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    def train_dataloader(self) -> Any:
        """Batches in an order that depends on seed and epoch."""
        settings, count, least = self.settings, len(self.data.train), _least_rows(self.network)
        world, rank = self.trainer.world_size, self.trainer.global_rank
        parts = world * settings.accumulate

        def own_batches() -> list[Tensor]:
            steps = training_steps(
                count, settings.batch_size, parts=parts, seed=self.seed, epoch=self.epoch, least=least
            )
            return [part for step in steps for part in step[rank::world]]

        return self._loader(self.data.train, own_batches)

    def val_dataloader(self) -> list[Any]:
        """All validation images, and all test images."""
        world, rank = self.trainer.world_size, self.trainer.global_rank
        size = max(self.settings.batch_size // (world * self.settings.accumulate), 1)
        loaders = []
        for split in self.data[1:]:
            batches = [rows[rank::world] for rows in split.batches(size * world)]
            loaders.append(self._loader(split, partial(list, [rows for rows in batches if len(rows)])))
        return loaders

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The scores so far go with the weights."""
        checkpoint["history"] = self.history
        checkpoint["facts"] = self.facts

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The scores up to there."""
        self.history = list(checkpoint["history"])

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Of the last checkpoint; one of another network is told."""
        with runs.reading((self.folder or Path()) / LAST, REMEDY):
            return super().load_state_dict(state_dict, strict=strict, assign=assign)

    def _begin_epoch(self) -> None:
        """All that a stop must not change. Not Lightning's hook, which is left out after some stops."""
        epoch = self.epoch
        torch.manual_seed(mixed(self.seed, epoch, self.global_rank))  # dropout
        self._draws = []
        for view in range(self.method.views):
            draws = self.data.train.draws(torch.Generator().manual_seed(mixed(self.seed, epoch, view, 1)))
            self._draws.append(draws.to(self.device, _dtype(self.settings) if draws.is_floating_point() else None))
        self._stage = methods.stage_of(self.method, epoch, self.settings.epochs)
        if len(self.method.stages) > 1:
            joint = self._stage != "head"
            self.network.train(joint).requires_grad_(joint)
            self.network.get_submodule(self.network.feature_layer).train().requires_grad_(True)
        for metric, unscored in zip(self._each_metric(), self._unscored, strict=True):
            metric.reset()
            unscored.clear()

    def _set_rate(self, batch_idx: int) -> None:
        """Of the step, as the schedule has it; in each of two stages anew, its milestones brought to their length."""
        settings, first = self.settings, methods.first_epochs(self.method, self.settings.epochs)
        of_epoch = math.ceil(int(self.trainer.num_training_batches) / settings.accumulate)
        begun, ended = (first, settings.epochs) if self.epoch >= first else (0, first)
        epochs = ended - begun
        rate = schedules.rate(
            settings.schedule,
            (self.epoch - begun) * of_epoch + batch_idx // settings.accumulate,
            epochs * of_epoch,
            epochs=epochs,
            milestones=[milestone * epochs / settings.epochs for milestone in settings.milestones],
        )
        for own in self.trainer.optimizers:
            for group in own.param_groups:
                group["lr"] = settings.learning_rate * rate.factor
                if rate.momentum is not None and "betas" in group:
                    group["betas"] = (rate.momentum, group["betas"][1])
                elif rate.momentum is not None:
                    group["momentum"] = rate.momentum

    def _each_metric(self) -> list[Metric]:
        return [metric for metric in self.metrics if isinstance(metric, Metric)]

    def _score(self, number: int, predictions: Tensor, targets: Tensor) -> None:
        """Adds to the scores of a part; not at once, for an update of a metric takes as long as many layers."""
        unscored = self._unscored[number]
        unscored.append((predictions, targets))
        if len(unscored) * targets.numel() > _UNSCORED:
            self._update(number)

    def _update(self, number: int) -> None:
        unscored = self._unscored[number]
        if unscored:
            predictions, targets = (torch.cat(each) for each in zip(*unscored, strict=True))
            self._each_metric()[number].update(predictions, targets)
            unscored.clear()

    def _loader(self, split: Split, make: Callable[[], list[Tensor]]) -> Any:
        """Batches of row numbers, on the device, where the split is held; else of what is read, with row numbers."""
        length = len(make())
        if split.held:
            return Batches(lambda: _copied(make(), self.device), length)
        workers = self.settings.workers
        return DataLoader(
            _Reads(split),
            batch_sampler=Batches(lambda: [batch.tolist() for batch in make()], length),
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=self.device.type == "cuda",
        )

    @torch.no_grad()
    def _features(self, split: Split, part: str) -> dict[str, dict[str, Tensor]]:
        """``(n, d)`` of a split that is held, with targets and predictions; of maps also "image", one test image."""
        found, images, shown = [], {}, []
        pictured = part == "test" and self.epoch == 0  # once is enough
        size = max(self.settings.batch_size // self.settings.accumulate, 1)
        for picked in _copied(list(split.batches(size)), self.device):
            seen = split.seen(picked, None)
            with self.trainer.precision_plugin.forward_context():
                outputs, features = self(seen.images)
            predictions = self.method.decode(_at_least_single(outputs))
            if features.dim() == 4:
                place, row = self._image
                if part == "test" and place in picked.numbers:
                    images["image"] = portrait(features, predictions, seen, picked.numbers.index(place))
                    images["image"]["row"] = torch.tensor([row])
                    if pictured:
                        picture = on_host(seen.images[picked.numbers.index(place)])
                        self._write_beside("image.png", partial(thumbnails.write_picture, picture))
                height, width = features.shape[2:]
                predictions = nearest(predictions, (height, width))
            elif pictured:
                shown.append(on_host(thumbnails.squares(seen.images)))
            rows, targets = split.feature_rows(features, seen)
            own = split.feature_rows(predictions, seen)[0]
            found.append({"features": rows, "targets": targets, "predictions": own})
        if shown:
            self._write_beside("test.jpg", partial(thumbnails.write_sheet, torch.cat(shown)))
        return {part: {name: torch.cat([each[name] for each in found]) for name in found[0]}, **images}

    def _write_beside(self, name: str, write: Callable[[BinaryIO], None]) -> None:
        """Has a file written beside the features."""
        assert self.folder is not None
        self.files.write(self.folder / "features" / name, write)


class _Reads(Dataset[tuple[Tensor | int, ...]]):
    """What a DataLoader asks for of a split that is not held."""

    def __init__(self, split: Split) -> None:
        self.split = split

    def __len__(self) -> int:
        return len(self.split)

    def __getitem__(self, index: int) -> tuple[Tensor | int, ...]:
        return *self.split.read(index), index


def optimizer(parameters: Sequence[nn.Parameter], settings: Settings) -> torch.optim.Optimizer:
    """The optimizer of some parameters, which are stepped at once, not one by one."""
    options: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    if settings.optimizer == "sgd":
        options["momentum"] = settings.momentum
    scaled = settings.clip > 0 and settings.precision == "fp16"  # a fused one would clip gradients before their scale
    if all(parameter.device.type in ("cpu", "cuda") for parameter in parameters) and not scaled:
        options["fused"] = True
    made: torch.optim.Optimizer = _OPTIMIZERS[settings.optimizer](parameters, **options)
    return made


def fixed_rows(count: int, most: int) -> Tensor:
    """The rows whose features are kept: the same in every epoch and run; in ascending order.

    Example:
        >>> fixed_rows(3, most=512)
        tensor([0, 1, 2])
    """
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:most].sort().values


def fit(
    module: Training,
    *,
    device: str,
    folder: Path,
    monitor: str,
    lower_is_better: bool = True,
) -> list[dict[str, Scores]]:
    """Trains, from the last checkpoint in the folder if there is one.

    Writes ``last.ckpt`` after an epoch, if the one before is older than some seconds, and after the last one;
    ``best.ckpt`` of the best one on validation so far with it; ``csv/`` and, where it is installed, ``tensorboard/``.

    Args:
        module: a new one.
        device: "cpu", "cuda" or "cuda:1".
        folder: of this run alone.
        monitor: the score that decides which epoch is best.
        lower_is_better: of that score.

    Returns:
        The scores of every epoch, by part.
    """
    settings, where = module.settings, torch.device(device)
    whole, least = settings.devices * settings.nodes * settings.accumulate, _least_rows(module.network)
    if settings.batch_size % whole or settings.batch_size < least * whole:
        at_least = "two images" if least == 2 else "one image"
        raise ValueError(
            f"expected batch_size to be a multiple of devices x nodes x accumulate = {whole} with {at_least} for each "
            f"at least, got {settings.batch_size}"
        )
    if len(module.data.train) < least * whole:
        raise ValueError(f"expected at least {least * whole} images to train on, got {len(module.data.train)}")
    last = folder / LAST
    with _quiet(), torch.random.fork_rng(_all_devices(where)):
        trainer = lightning.Trainer(
            max_epochs=settings.epochs,
            accelerator=where.type,
            devices=settings.devices if where.index is None else [where.index],
            num_nodes=settings.nodes,
            strategy=settings.strategy,
            precision=_PRECISIONS[_precision_on(where, settings)][0],
            accumulate_grad_batches=settings.accumulate,
            gradient_clip_val=settings.clip or None,
            callbacks=[_Checkpoints(folder, monitor, lower_is_better, settings.checkpoint_seconds)],
            plugins=[_WholeFiles(module)],
            logger=_loggers(folder),
            log_every_n_steps=0,  # nothing is logged in a step
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            enable_model_summary=False,
            enable_progress_bar=module.callbacks.progress is None and sys.stderr.isatty(),
            default_root_dir=folder,
        )
        try:
            with _interruptible(trainer):
                trainer.fit(module, ckpt_path=last if last.exists() else None)
        finally:
            module.files.close()
    return module.history


def scored(
    network: Network, method: Composition, metric: Metric, split: Split, settings: Settings, *, device: str
) -> Scores:
    """Scores of a network on a split, on one device."""
    metric = metric.clone().to(torch.device(device))
    for predictions, seen in predicted(network, method, split, settings, device=device):
        metric.update(*split.scored(predictions, seen))
    return _numbers(metric.compute())


@torch.no_grad()
def predicted(
    network: Network, method: Composition, split: Split, settings: Settings, *, device: str
) -> Iterator[tuple[Tensor, Seen]]:
    """Predictions of a network for the images of a split, batch by batch, on one device."""
    assert isinstance(network, nn.Module)
    where = torch.device(device)
    dtype = _PRECISIONS[_precision_on(where, settings)][1]
    mixed_precision = dtype in (torch.bfloat16, torch.float16)
    lay_out(network.to(where).eval(), settings)
    method.to(where).eval()

    def outputs(images: Tensor) -> Tensor:
        with torch.autocast(where.type, dtype=dtype if mixed_precision else None, enabled=mixed_precision):
            found: Tensor = network(_shown(images, network, settings))
        return found

    split = split.to(where)
    for rows in split.batches(max(settings.batch_size // settings.accumulate, 1)):
        numbers = rows.tolist()
        raw = (
            [] if split.held else [torch.stack(each).to(where) for each in zip(*map(split.read, numbers), strict=True)]
        )
        seen = split.seen(Picked(rows.to(where), numbers, raw), None)
        yield _predicted(outputs, method, seen.images, settings), seen


class Checkpoint(NamedTuple):
    """What a file of a run holds of it."""

    epoch: int  # epochs done
    weights: dict[str, Tensor]  # of the network
    method: dict[str, Tensor]  # its state; none in files from before methods had parts
    facts: dict[str, Any]
    path: Path

    def reading(self) -> AbstractContextManager[None]:
        """What is raised in the ``with`` says that this file is damaged or foreign."""
        return runs.reading(self.path, _REMEDY_OF_TRAINED)

    def restore_method(self, method: Composition) -> None:
        """Gives a method its state, where the file has one."""
        if self.method:
            with self.reading():
                method.load_state_dict(self.method)


_FORM = {"state_dict": dict, "history": [{part: {str: float} for part in PARTS}], "facts": dict}
_RESUMED = {  # what Lightning adds
    **_FORM,
    "pytorch-lightning_version": str,
    "loops": {"fit_loop": {"epoch_progress": {"current": {"processed": int}}}},
    "callbacks": dict,
    "optimizer_states": [{"state": {int: dict}, "param_groups": [dict]}],
    "lr_schedulers": list,
}


def read_checkpoint(path: Path) -> Checkpoint:
    """Weights of the network, state of the method and facts of the run; a ValueError where there are none."""
    if not path.exists():
        raise ValueError(f"expected a trained run with {path.name} in {path.parent}, got none")
    content = runs.load_tensors(path, _FORM, remedy=_REMEDY_OF_TRAINED)
    weights, method = (
        {key[len(start) :]: value for key, value in content["state_dict"].items() if str(key).startswith(start)}
        for start in ("network.", "method.")
    )
    method = {key: value for key, value in method.items() if not key.startswith(_BEFORE_PARTS)}
    found = Checkpoint(len(content["history"]), weights, method, content["facts"], path)
    with found.reading():
        runs.require_form(weights, {str: Tensor}, "weights")
        runs.require_form(method, {str: Tensor}, "state of the method")
    return found


class _Checkpoints(CheckpointCallback):
    """Keeps the last epoch, and the best one on validation: Lightning's own does more in every step.

    They are written together, and not more often than every so many seconds: of a small network an epoch may take less
    time than its file.
    """

    def __init__(self, folder: Path, monitor: str, lower_is_better: bool, seconds: float) -> None:
        self.folder = folder
        self.monitor = monitor
        self.sign = 1 if lower_is_better else -1
        self.seconds = seconds
        self.written = time.monotonic()
        self.best: dict[str, Any] | None = None  # what is to be written

    def on_train_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Has them written, after the scores of the epoch are known."""
        assert isinstance(pl_module, Training)
        first = methods.first_epochs(pl_module.method, pl_module.settings.epochs)  # whose head is not trained
        scores = [self.sign * epoch["validation"][self.monitor] for epoch in pl_module.history[first:]]
        scores = [math.inf if math.isnan(score) else score for score in scores]
        if scores and scores.index(min(scores)) == len(scores) - 1:
            state = {name: value.clone() for name, value in trainer.strategy.lightning_module_state_dict().items()}
            self.best = {"state_dict": state, "history": list(pl_module.history), "facts": pl_module.facts}
        due = pl_module.epoch == pl_module.settings.epochs or time.monotonic() - self.written >= self.seconds
        if not trainer.strategy.broadcast(due):
            return
        if self.best is not None and trainer.is_global_zero:
            pl_module.files.write(self.folder / BEST, partial(torch.save, on_host(self.best)))
        self.best = None
        trainer.save_checkpoint(self.folder / LAST)
        self.written = time.monotonic()


class _WholeFiles(TorchCheckpointIO):
    """Checkpoints as they are at this moment, written a little later; never more read of one than plain values."""

    def __init__(self, module: Training) -> None:
        super().__init__()
        self.module = module

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Has it written."""
        self.module.files.write(Path(path), partial(torch.save, on_host(checkpoint)))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Its content, checked: Lightning reads what it needs of it here and there, and trusts it."""
        content: dict[str, Any] = runs.load_tensors(Path(path), _RESUMED, remedy=REMEDY)
        with runs.reading(Path(path), REMEDY):
            self._check(content)
        return content

    def _check(self, content: Mapping[str, Any]) -> None:
        module, epochs = self.module, len(content["history"])
        counted = content["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
        if not epochs == counted <= module.settings.epochs:
            raise ValueError(f"expected scores of {counted} of {module.settings.epochs} epochs, got {epochs}")
        if int(content["pytorch-lightning_version"].partition(".")[0]) < 2:
            raise ValueError(f"expected one by Lightning 2, got {content['pytorch-lightning_version']}")
        loop = module.trainer.fit_loop
        _require_alike(content["loops"]["fit_loop"], loop.state_dict(), "loops")
        loop.load_state_dict(copy.deepcopy(content["loops"]["fit_loop"]))  # as Lightning will
        (found,) = content["optimizer_states"]
        parameters = module.trained
        _require_alike(found["param_groups"], optimizer(parameters, module.settings).state_dict()["param_groups"])
        needed = _STATES[module.settings.optimizer]
        for number, state in found["state"].items():
            runs.require_form(state, dict.fromkeys(needed, Tensor), f"state {number}")
            for name, value in state.items():
                if name != "step" and isinstance(value, Tensor) and value.shape != parameters[number].shape:
                    raise ValueError(f"expected {name} of the shape of parameter {number}, got {tuple(value.shape)}")


def _require_alike(found: Any, example: Any, name: str = "param_groups") -> None:
    """A ValueError where an entry is of another type; one of them may have entries that the other lacks."""
    if isinstance(example, dict):
        runs.require_form(found, dict, name)
        for key in example.keys() & found.keys():
            _require_alike(found[key], example[key], f"{name}.{key}")
    elif isinstance(example, (list, tuple)):
        runs.require_form(found, [object], name)
        if len(found) != len(example):
            raise ValueError(f"expected {len(example)} entries of {name}, got {len(found)}")
        for one, other in zip(found, example, strict=True):
            _require_alike(one, other, name)
    elif example is not None:
        numbers = isinstance(example, (int, float)) and not isinstance(example, bool)
        runs.require_form(found, (int, float) if numbers else type(example), name)


def _write_features(content: Mapping[str, Tensor], file: BinaryIO) -> None:
    """Features in half precision, all other numbers with a fraction in single."""
    from safetensors.torch import save

    most = torch.finfo(torch.float16).max
    found = {name: value.float() if value.is_floating_point() else value for name, value in content.items()}
    found["features"] = found["features"].clamp(-most, most).half()
    file.write(save({name: value.contiguous() for name, value in found.items()}))


def _copied(batches: Sequence[Tensor], device: torch.device) -> list[Picked]:
    """The same on a device, in one copy: each one waits for what the device has to do."""
    parts = torch.cat(list(batches)).to(device).split([len(batch) for batch in batches])
    return [Picked(part, batch.tolist()) for part, batch in zip(parts, batches, strict=True)]


def _read(split: Split, rows: Tensor) -> list[Tensor]:
    """A batch of a split that is not held, read by threads: Pillow decodes outside the interpreter's lock."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return [torch.stack(each) for each in zip(*pool.map(split.read, rows.tolist()), strict=True)]


def _picked(batch: Any) -> Picked:
    """Of what a loader gives."""
    if isinstance(batch, Picked):
        return batch
    *raw, rows = batch
    return Picked(rows, raw=raw)


def _batch(views: Sequence[Seen], settings: Settings, *, floats: bool) -> Batch:
    """What a method sees of a batch: all views of its rows, one after the other."""

    def joined(parts: Sequence[Tensor | None]) -> Tensor | None:
        there = [part for part in parts if part is not None]
        return there[0] if len(there) == 1 else torch.cat(there) if there else None

    seen = Seen(*(joined(parts) for parts in zip(*views, strict=True)))  # type: ignore[arg-type]
    images, targets, weight = seen.images, seen.targets, seen.weights
    if floats:  # bytes cannot be mixed
        images = images.to(_dtype(settings))
    if settings.precision == "float64":  # so that nothing of the method is computed in less
        targets = targets.double()
    if weight is not None:
        weight = weight.view(-1, *[1] * (targets.dim() - 1)).expand_as(targets)
    return Batch(images, targets, seen.mask, weight)


def require_trainable(method: Composition, split: Shown, settings: Settings) -> None:
    """A ValueError where a method needs what this training cannot do."""
    can = {*methods.KINDS, "views", "stages", "parameters", "after_step"}
    if not split.augmented:
        because = "without augmentation all views of an image are the same"
        methods.require(method, can - {"views"}, "training on images that are not augmented", because)
    if not split.uniform:
        methods.require(method, can - {"mixing"}, "training on whole images", "they differ in size")
    if settings.devices * settings.nodes > 1:
        because = "the processes wait in every step for the gradients of all weights"
        methods.require(method, can - {"stages"}, "training on several devices", because)
    methods.require(method, can, "training on images", "none of its steps does that", maps=split.maps)
    methods.first_epochs(method, settings.epochs)  # too few for two stages are an error


def _shown(images: Tensor, network: Network, settings: Settings) -> Tensor:
    """Images from 0 to 255 as a network wants them."""
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    return normalized(images.contiguous(memory_format=layout), network.mean, network.std, dtype=_dtype(settings))


def _predicted(outputs: Callable[[Tensor], Tensor], method: Composition, images: Tensor, settings: Settings) -> Tensor:
    """Predictions for images; those of the mirror images too, if so set."""
    found = method.decode(_at_least_single(outputs(images)))
    if settings.flip and found.dim() == 4:
        found = (found + method.decode(_at_least_single(outputs(images.flip(-1)))).flip(-1)) / 2
    return found


def _at_least_single(outputs: Tensor) -> Tensor:
    """The same in float32 where they are in half precision."""
    return outputs.to(torch.promote_types(outputs.dtype, torch.float32))


def _least_rows(network: nn.Module) -> int:
    """Images that a batch to train on must have: a BatchNorm cannot be trained on one number a channel."""
    normed = any(isinstance(each, nn.modules.batchnorm._BatchNorm) for each in network.modules())
    return int(getattr(network, "least_images", 2 if normed else 1))


def _numbers(scores: Mapping[str, Tensor]) -> Scores:
    return dict(zip(scores, torch.stack([value.double() for value in scores.values()]).tolist(), strict=True))


def _dtype(settings: Settings) -> torch.dtype:
    """Of weights and images: half precisions are mixed."""
    return torch.float64 if settings.precision == "float64" else torch.float32


def _precision_on(device: torch.device, settings: Settings) -> str:
    """A CPU has no mixed precision here."""
    return settings.precision if device.type == "cuda" or settings.precision == "float64" else "float32"


def in_precision(module: nn.Module, settings: Settings) -> None:
    """Brings weights into double precision where the images are."""
    if settings.precision == "float64":
        module.double()


def lay_out(network: nn.Module, settings: Settings) -> None:
    """Brings the weights into the precision and the memory layout of the images."""
    in_precision(network, settings)
    if settings.channels_last:
        network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]


def _loggers(folder: Path) -> Sequence[Logger]:
    loggers: list[Logger] = [CSVLogger(folder, name="csv")]
    if any(importlib.util.find_spec(name) is not None for name in ("tensorboard", "tensorboardX")):
        loggers.append(TensorBoardLogger(folder, name="tensorboard"))
    return loggers


def _all_devices(device: torch.device) -> list[int]:
    return list(range(torch.cuda.device_count())) if device.type == "cuda" else []


@contextmanager
def _interruptible(trainer: lightning.Trainer) -> Iterator[None]:
    """Ctrl-C stays Ctrl-C: Lightning would turn it into an exit and shut its ears to the next."""
    main = threading.current_thread() is threading.main_thread()  # only it may set how signals are taken
    before = signal.getsignal(signal.SIGINT) if main else None
    try:
        yield
    except SystemExit:
        if trainer.interrupted:
            raise KeyboardInterrupt from None
        raise
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what Lightning says of itself, and without warnings of what is on purpose."""
    speakers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric")]
    levels = [speaker.level for speaker in speakers]
    for speaker in speakers:
        speaker.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for message in _CHATTER:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        for speaker, level in zip(speakers, levels, strict=True):
            speaker.setLevel(level)
