"""Training on images through Lightning: precision, devices, checkpoints and logs are its own.

What an epoch does depends on the seed of the run and the number of the epoch only: the order of the images, their
augmentation, the learning rate. So a run that was stopped ends in the numbers that it would have had.
"""

import importlib.util
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from ordinal_entropy import runs
from ordinal_entropy.capture import Tap, capture
from ordinal_entropy.methods import Method
from ordinal_entropy.vision.augment import normalized, random_crops, random_flips
from ordinal_entropy.vision.backbones import Network
from ordinal_entropy.vision.sets import Batches, Images, mixed, training_steps
from ordinal_entropy.vision.torchvision_guard import import_torchvision

import_torchvision()  # which Lightning would import

import lightning.pytorch as lightning  # noqa: E402
from lightning.fabric.plugins import TorchCheckpointIO  # noqa: E402
from lightning.pytorch.callbacks import ModelCheckpoint  # noqa: E402
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger  # noqa: E402
from torchmetrics import Metric  # noqa: E402

Loss = Callable[[Tensor, Tensor, Tensor | None], Tensor]  # of predictions, targets and weights
Scores = dict[str, float]

PARTS = ("train", "validation", "test")
LAST, BEST = "last.ckpt", "best.ckpt"
_OPTIMIZERS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
_PRECISIONS: dict[str, tuple[Literal["32-true", "bf16-mixed", "16-mixed"], torch.dtype]] = {
    "float32": ("32-true", torch.float32),
    "bf16": ("bf16-mixed", torch.bfloat16),
    "fp16": ("16-mixed", torch.float16),
}
# Harmless here: each says what is chosen on purpose.
_CHATTER = (
    r"Checkpoint directory .* exists and is not empty",  # a run that goes on
    r"The '\w+_dataloader' does not have many workers",  # the recipe says how many
    r"GPU available but not used",  # --device cpu
    r"It is recommended to use `self.log\(.*, sync_dist=True\)`",  # scores are of all ranks already
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning's use of torch
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
    milestones: tuple[int, ...] = ()  # epochs after which the learning rate is a tenth
    padding: int = 0  # pixels that a random crop moves an image by, at most
    precision: Literal["float32", "bf16", "fp16"] = "float32"  # of a GPU; a CPU has float32
    channels_last: bool = True
    compile: bool = False
    accumulate: int = 1  # parts of a step, one after the other
    devices: int = 1  # of a machine
    nodes: int = 1  # machines
    strategy: str = "auto"  # Lightning's name of it
    workers: int = 4  # processes that read images which are not held in memory
    feature_rows: int = 512  # of training and of test images, whose features are kept; 0: none


@dataclass(frozen=True, eq=False)
class Split:
    """Images with their targets ``(n, 1)`` and, of those to train on, weights ``(n,)``."""

    images: Images
    targets: Tensor
    weights: Tensor | None = None

    def to(self, device: str | torch.device) -> "Split":
        """The same on a device."""
        weights = None if self.weights is None else self.weights.to(device)
        return replace(self, images=self.images.to(device), targets=self.targets.to(device), weights=weights)


class Data(NamedTuple):
    """What a run sees."""

    train: Split
    validation: Split
    test: Split

    def to(self, device: str | torch.device) -> "Data":
        """The same on a device."""
        return Data(*(split.to(device) for split in self))


class Callbacks(NamedTuple):
    """Whom a run tells of itself."""

    on_epoch: Callable[[int, Mapping[str, Scores]], None] | None = None  # epochs done, scores by part
    progress: Callable[[int, int], None] | None = None  # batches done, batches in all


class Training(lightning.LightningModule):
    """A network, a method and a task loss, as Lightning wants them.

    Args:
        network: with the name of its feature layer.
        method: what is added to the task loss, or stands in for it.
        loss: the task loss.
        metric: of decoded predictions and targets; a dictionary of scores.
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
        method: Method,
        loss: Loss,
        metric: Metric,
        data: Data,
        settings: Settings,
        *,
        seed: int,
        folder: Path | None = None,
        facts: Mapping[str, Any] | None = None,
        callbacks: Callbacks = Callbacks(),  # noqa: B008  a tuple
    ) -> None:
        super().__init__()
        self.network = network
        _lay_out(network, settings)
        self.method = method
        self.task_loss = loss
        self.metrics = nn.ModuleList(metric.clone() for _ in PARTS)  # in their order
        self.data = data
        self.settings = settings
        self.seed = seed
        self.folder = folder
        self.facts = dict(facts or {})
        self.callbacks = callbacks
        self.history: list[dict[str, Scores]] = []  # of each epoch, by part
        self._called: list[Callable[[Tensor], Tensor]] = []  # the network or the compiled one; no child of its own
        self._tap: Tap | None = None

    @property
    def epoch(self) -> int:
        """Epochs done. Lightning's own number is one behind while a run that goes on makes its first batches."""
        return len(self.history)

    def setup(self, stage: str) -> None:
        """Taps the feature layer, before anything is compiled."""
        called: Any = torch.compile(self.network) if self.settings.compile else self.network
        self._called = [called]
        self._tap = capture(called, self.network.feature_layer)

    def on_fit_start(self) -> None:
        """Every rank has the data on its own device."""
        self.data = self.data.to(self.device)

    def teardown(self, stage: str) -> None:
        """Leaves the network as it came."""
        if self._tap is not None:
            self._tap.close()
        self._called, self._tap = [], None

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs and features ``(n, d)`` for bytes ``(n, 3, h, w)``."""
        assert self._tap is not None
        layout = torch.channels_last if self.settings.channels_last else torch.contiguous_format
        images = images.contiguous(memory_format=layout)
        outputs = self._called[0](normalized(images, self.network.mean, self.network.std))
        features = self._tap.features
        self._tap.clear()
        return outputs, features

    def augmented(self, images: Tensor, batch_index: int) -> Tensor:
        """Bytes moved and mirrored at random; the draws depend on seed, epoch, rank and batch only."""
        generator = torch.Generator(images.device)
        generator.manual_seed(mixed(self.seed, self.epoch, self.global_rank, batch_index))
        return random_flips(random_crops(images, self.settings.padding, generator), generator)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        if batch_idx == 0:
            self._begin_epoch()
        images, targets, weights = self._rows(batch, self.data.train)
        outputs, features = self(self.augmented(images, batch_idx))
        with torch.autocast(outputs.device.type, enabled=False):
            outputs, features = outputs.float(), features.float()
            loss: Tensor = self.method(features, targets, predictions=outputs)
            if not self.method.replaces_task_loss:
                loss = self.task_loss(outputs, targets, weights) + loss
        self._each_metric()[0].update(self.method.decode(outputs.detach()), targets)
        return loss

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        """Adds a batch of validation (0) or test images (1) to the scores."""
        images, targets, _ = self._rows(batch, self.data[1 + dataloader_idx])
        outputs, _ = self(images)
        self._each_metric()[1 + dataloader_idx].update(self.method.decode(outputs.float()), targets)

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Tells how far it is."""
        if self.callbacks.progress is not None and self.global_rank == 0:
            batches = int(self.trainer.num_training_batches)
            self.callbacks.progress(self.epoch * batches + batch_idx + 1, self.settings.epochs * batches)

    def on_validation_epoch_end(self) -> None:
        """Keeps the features of the fixed images."""
        if self.folder is None or not self.settings.feature_rows or self.global_rank:
            return
        for part, split in (("train", self.data.train), ("test", self.data.test)):
            features, targets = self._fixed_features(split)
            path = self.folder / "features" / f"{part}-{self.epoch + 1:04d}.safetensors"
            _write_features(path, features, targets)

    def on_train_epoch_end(self) -> None:
        """The scores of the epoch; checkpoints are written after this."""
        scores = {}
        for part, metric in zip(PARTS, self._each_metric(), strict=True):
            scores[part] = {name: float(value) for name, value in metric.compute().items()}
            metric.reset()
        self.history.append(scores)
        self.log_dict({f"{part}/{name}": value for part, own in scores.items() for name, value in own.items()})
        if self.callbacks.on_epoch is not None and self.global_rank == 0:
            self.callbacks.on_epoch(self.epoch, scores)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The optimizer; its learning rate is set at the beginning of every epoch."""
        settings = self.settings
        options: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
        if settings.optimizer == "sgd":
            options["momentum"] = settings.momentum
        optimizer: torch.optim.Optimizer = _OPTIMIZERS[settings.optimizer](self.network.parameters(), **options)
        return optimizer

    def train_dataloader(self) -> Any:
        """Batches in an order that depends on seed and epoch."""
        settings, count = self.settings, len(self.data.train.images)
        world, rank = self.trainer.world_size, self.trainer.global_rank
        parts = world * settings.accumulate

        def own_batches() -> list[Tensor]:
            steps = training_steps(count, settings.batch_size, parts=parts, seed=self.seed, epoch=self.epoch)
            return [part for step in steps for part in step[rank::world]]

        return self._loader(self.data.train.images, Batches(own_batches, len(own_batches())))

    def val_dataloader(self) -> list[Any]:
        """All validation images, and all test images."""
        world, rank = self.trainer.world_size, self.trainer.global_rank
        size = max(self.settings.batch_size // (world * self.settings.accumulate), 1)
        loaders = []
        for split in self.data[1:]:
            batches = torch.arange(len(split.images))[rank::world].split(size)
            loaders.append(self._loader(split.images, Batches(partial(list, batches), len(batches))))
        return loaders

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The scores so far go with the weights."""
        checkpoint["history"] = self.history
        checkpoint["facts"] = self.facts

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """The scores up to there."""
        self.history = list(checkpoint["history"])

    def _begin_epoch(self) -> None:
        """All that a stop must not change. Not Lightning's hook, which is left out after some stops."""
        epoch = self.epoch
        torch.manual_seed(mixed(self.seed, epoch, self.global_rank))  # dropout
        passed = sum(epoch >= milestone for milestone in self.settings.milestones)
        for optimizer in self.trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.settings.learning_rate * 0.1**passed
        for metric in self._each_metric():
            metric.reset()

    def _each_metric(self) -> list[Metric]:
        return [metric for metric in self.metrics if isinstance(metric, Metric)]

    def _loader(self, images: Images, batches: Batches) -> Any:
        if images.pixels is not None:
            return batches
        workers = self.settings.workers
        return DataLoader(
            images,  # type: ignore[arg-type]  # all that it asks for is there
            batch_sampler=batches,  # type: ignore[arg-type]
            num_workers=workers,
            persistent_workers=workers > 0,
            pin_memory=self.device.type == "cuda",
        )

    def _rows(self, batch: Any, split: Split) -> tuple[Tensor, Tensor, Tensor | None]:
        """Images, targets and weights of a batch: of its row numbers, or of its images with their row numbers."""
        images, rows = (split.images.batch(batch), batch) if isinstance(batch, Tensor) else batch
        weights = None if split.weights is None else split.weights[rows]
        return images, split.targets[rows], weights

    @torch.no_grad()
    def _fixed_features(self, split: Split) -> tuple[Tensor, Tensor]:
        rows = fixed_rows(len(split.images), self.settings.feature_rows)
        size = max(self.settings.batch_size // self.settings.accumulate, 1)
        found = []
        for part in rows.split(size):
            images = split.images.batch(part).to(self.device)
            with self.trainer.precision_plugin.forward_context():
                found.append(self(images)[1])
        return torch.cat(found), split.targets[rows.to(split.targets.device)]


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

    Writes ``last.ckpt`` after every epoch, ``best.ckpt`` after the best one on validation, ``csv/`` and, where it is
    installed, ``tensorboard/``.

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
    whole = settings.devices * settings.nodes * settings.accumulate
    if settings.batch_size % whole or settings.batch_size < 2 * whole:
        raise ValueError(
            f"expected batch_size to be a multiple of devices x nodes x accumulate = {whole} with two images for each "
            f"at least, got {settings.batch_size}"
        )
    if len(module.data.train.images) < 2 * whole:
        raise ValueError(f"expected at least {2 * whole} images to train on, got {len(module.data.train.images)}")
    mode = "min" if lower_is_better else "max"
    always = ModelCheckpoint(  # without a monitor the newest is kept
        folder, filename=Path(LAST).stem, save_on_train_epoch_end=True, enable_version_counter=False
    )
    best = ModelCheckpoint(
        folder,
        filename=Path(BEST).stem,
        monitor=f"validation/{monitor}",
        mode=mode,
        save_weights_only=True,
        save_on_train_epoch_end=True,
        enable_version_counter=False,
    )
    last = folder / LAST
    with _quiet(), torch.random.fork_rng(_all_devices(where)):
        trainer = lightning.Trainer(
            max_epochs=settings.epochs,
            accelerator=where.type,
            devices=settings.devices if where.index is None else [where.index],
            num_nodes=settings.nodes,
            strategy=settings.strategy,
            precision=_PRECISIONS[settings.precision if where.type == "cuda" else "float32"][0],
            accumulate_grad_batches=settings.accumulate,
            callbacks=[best, always],  # the last one knows of the best
            plugins=[_WholeFiles()],
            logger=_loggers(folder),
            log_every_n_steps=1,  # nothing is logged in a step
            num_sanity_val_steps=0,
            use_distributed_sampler=False,
            enable_model_summary=False,
            enable_progress_bar=module.callbacks.progress is None and sys.stderr.isatty(),
            default_root_dir=folder,
        )
        with _interruptible(trainer):
            trainer.fit(module, ckpt_path=last if last.exists() else None)
    return module.history


@torch.no_grad()
def scored(
    network: Network, method: Method, metric: Metric, split: Split, settings: Settings, *, device: str
) -> Scores:
    """Scores of a network on a split, on one device."""
    where = torch.device(device)
    metric = metric.clone().to(where)
    layout = torch.channels_last if settings.channels_last else torch.contiguous_format
    dtype = _PRECISIONS[settings.precision][1]
    mixed_precision = where.type == "cuda" and dtype != torch.float32
    _lay_out(network.to(where).eval(), settings)
    for rows in torch.arange(len(split.images)).split(max(settings.batch_size // settings.accumulate, 1)):
        images = split.images.batch(rows).to(where).contiguous(memory_format=layout)
        with torch.autocast(where.type, dtype=dtype if mixed_precision else None, enabled=mixed_precision):
            outputs = network(normalized(images, network.mean, network.std))
        targets = split.targets[rows.to(split.targets.device)].to(where)
        metric.update(method.decode(outputs.float()), targets)
    return {name: float(value) for name, value in metric.compute().items()}


class Checkpoint(NamedTuple):
    """What a file of a run holds of it."""

    epoch: int  # epochs done
    weights: dict[str, Tensor]  # of the network
    facts: dict[str, Any]


def read_checkpoint(path: Path) -> Checkpoint:
    """Weights of the network and facts of the run; a ValueError where there are none."""
    if not path.is_file():
        raise ValueError(f"expected a trained run with {path.name} in {path.parent}, got none")
    content = torch.load(path, map_location="cpu", weights_only=True)
    start = "network."
    weights = {key[len(start) :]: value for key, value in content["state_dict"].items() if key.startswith(start)}
    return Checkpoint(len(content["history"]), weights, content["facts"])


class _WholeFiles(TorchCheckpointIO):
    """Checkpoints that a stop at any moment leaves whole, the old one or the new."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Writes beside the path, then takes its place."""
        with runs.replacing(Path(path)) as file:
            torch.save(checkpoint, file)


def _write_features(path: Path, features: Tensor, targets: Tensor) -> None:
    from safetensors.torch import save

    most = torch.finfo(torch.float16).max
    content = {
        "features": features.float().clamp(-most, most).half().cpu().contiguous(),
        "targets": targets.float().cpu().contiguous(),
    }
    with runs.replacing(path) as file:
        file.write(save(content))


def _lay_out(network: Network, settings: Settings) -> None:
    """Weights as the images are in memory."""
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
