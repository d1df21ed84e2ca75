"""A network, a method and a task loss as one Lightning module.

A step never waits for a GPU: the rows of an epoch and its draws are copied there before it begins, scores are looked at
when it is over, and files are written while the next one runs.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import lightning.pytorch as lightning
import torch
from torch import Tensor, nn
from torchmetrics import Metric

from ordinal_entropy import methods, runs
from ordinal_entropy.capture import Tap, capture
from ordinal_entropy.methods import Batch, Composition, TaskLoss
from ordinal_entropy.methods.averaging import Average
from ordinal_entropy.methods.contract import overrides
from ordinal_entropy.recipes.groups import LargeTraining
from ordinal_entropy.training.checkpoints import LAST, REMEDY
from ordinal_entropy.training.graphs import Made, StepGraph
from ordinal_entropy.training.large import optimization
from ordinal_entropy.training.large.batches import (
    Network,
    Scores,
    at_least_single,
    batch_of,
    decoded,
    loader,
    numbers_of,
    picked_of,
    shown_to,
)
from ordinal_entropy.training.large.files import Files, SavedFeatures
from ordinal_entropy.training.large.optimization import dtype_of, lay_out
from ordinal_entropy.training.plans import PARTS
from ordinal_entropy.vision.sets import mixed, training_steps
from ordinal_entropy.vision.split import Data, Picked, Shown, Split

_UNSCORED = 2**22  # predictions that are kept before they are scored, at most
_FIRST_STEPS = 3  # that are not a graph: they compile kernels and load libraries
# Needs of parts whose steps can be a CUDA graph.
_CAPTURED = {"head", "loss", "term", "weights", "averaging", "after_step", "predictions", "progress"}


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
        settings: LargeTraining,
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
        self.average = Average(network) if method.averages else None
        # what each rank counts for itself; DDP would put the first rank's there in every step
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
        self._saved: SavedFeatures | None = None  # by the first rank
        self._steps = 0  # made by this process
        self._graph: StepGraph | None = None
        self._replayed: StepGraph | None = None  # what the last step was made by, if by a graph
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
            self._saved = SavedFeatures(
                self.folder / "features",
                self.files,
                train=self.data.train,
                test=self.data.test,
                most=self.settings.feature_rows,
                size=self._batch_rows(),
                device=self.device,
            )

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
        outputs = self._called[0](shown_to(images, self.network, self.settings))
        features = self._tap.features
        self._tap.clear()
        return outputs, features

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """The loss of a batch."""
        if batch_idx == 0:
            self._begin_epoch()
        self._set_rate(batch_idx)
        accumulate, of_epoch = self.settings.accumulate, self._steps_of_epoch()
        self.method.at(self.epoch * of_epoch + batch_idx // accumulate, self.settings.epochs * of_epoch)
        picked = picked_of(batch)
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
        batch = method.change(batch_of(views, self.settings, floats=method.mixes), generator)
        if self._calibration is None or self._stage == "encoder":
            outputs, features = self(batch.inputs)
        else:
            outputs, features = self._calibration.called(self, batch)
        with torch.autocast(outputs.device.type, enabled=False):
            outputs = at_least_single(outputs)
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
        seen = split.seen(picked_of(batch), None)
        predictions = decoded(lambda images: self(images)[0], self.method, seen.images, self.settings)
        self._score(1 + dataloader_idx, *split.scored(predictions, seen))

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Tells how far it is."""
        if self.callbacks.progress is not None and self.global_rank == 0:
            batches = int(self.trainer.num_training_batches)
            self.callbacks.progress(self.epoch * batches + batch_idx + 1, self.settings.epochs * batches)

    def on_validation_epoch_start(self) -> None:
        """What is validated is the average of the weights, where there is one."""
        if self.average is not None:
            self.average.exchange(self.network)

    def on_validation_epoch_end(self) -> None:
        """Saves the features of the fixed images."""
        if self._saved is not None:
            self._saved.save(self.epoch + 1, self._predicted)
        if self.average is not None:
            self.average.exchange(self.network)

    def on_train_epoch_end(self) -> None:
        """The scores of the epoch; checkpoints are written after this."""
        self.method.end_epoch()
        scores = {}
        for number, (part, metric) in enumerate(zip(PARTS, self._each_metric(), strict=True)):
            self._update(number)
            scores[part] = numbers_of(metric.compute())
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
        return optimization.optimizer(self.trained, self.settings)

    @property
    def trained(self) -> list[nn.Parameter]:
        """The parameters that are optimised: those of the network and those of the method."""
        return list(dict.fromkeys([*self.network.parameters(), *self.method.parameters()]))

    def optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        """The method is told of every one."""
        super().optimizer_step(*args, **kwargs)
        self.method.after_step(self.network)
        if self.average is not None:
            steps = self.settings.epochs * self._steps_of_epoch()
            self.average.update(self.network, self.method.share(torch.tensor(self.trainer.global_step + 1), steps))

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
        settings, count, least = self.settings, len(self.data.train), optimization.least_rows(self.network)
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
        size = self._batch_rows(world)
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
            self._draws.append(draws.to(self.device, dtype_of(self.settings) if draws.is_floating_point() else None))
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
        of_epoch = self._steps_of_epoch()
        begun, ended = (first, settings.epochs) if self.epoch >= first else (0, first)
        epochs = ended - begun
        rate = optimization.rate(
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

    def _steps_of_epoch(self) -> int:
        """Of the optimizer."""
        return math.ceil(int(self.trainer.num_training_batches) / self.settings.accumulate)

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

    def _batch_rows(self, ranks: int = 1) -> int:
        """Images of a batch that nothing is trained on."""
        return max(self.settings.batch_size // (ranks * self.settings.accumulate), 1)

    def _predicted(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Predictions and features."""
        with self.trainer.precision_plugin.forward_context():
            outputs, features = self(images)
        return self.method.decode(at_least_single(outputs)), features

    def _loader(self, split: Split, make: Callable[[], list[Tensor]]) -> Any:
        return loader(split, make, self.device, self.settings.workers)


def require_trainable(method: Composition, split: Shown, settings: LargeTraining) -> None:
    """A ValueError where a method needs what this training cannot do."""
    can = {*methods.KINDS, "views", "stages", "parameters", "after_step", "predictions", "progress"}
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
