"""Training on images through Lightning: precision, devices, checkpoints and logs are its own.

What an epoch does depends on the seed of the run and the number of the epoch only: the order of the images, their
augmentation, the learning rate. So a run that was interrupted ends in the numbers that it would have had.
"""

import copy
import importlib.util
import logging
import math
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint as CheckpointCallback
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger
from torch import Tensor

from ordinal_entropy import methods, runs
from ordinal_entropy.training.checkpoints import BEST, LAST, load_resumed
from ordinal_entropy.training.large.batches import Scores
from ordinal_entropy.training.large.files import on_host
from ordinal_entropy.training.large.module import Training
from ordinal_entropy.training.large.optimization import PRECISIONS, least_rows, optimizer, precision_on

# Harmless here: each says what is chosen on purpose.
_CHATTER = (
    r"Checkpoint directory .* exists and is not empty",  # a run that goes on
    r"The '\w+_dataloader' does not have many workers",  # the recipe says how many
    r"GPU available but not used",  # --device cpu
    r"It is recommended to use `self.log\(.*, sync_dist=True\)`",  # scores are of all ranks already
    r"`isinstance\(treespec, LeafSpec\)` is deprecated",  # Lightning's use of torch
    r"This process .* is multi-threaded, use of fork\(\)",  # workers read files and touch nothing else
)


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
    whole, least = settings.devices * settings.nodes * settings.accumulate, least_rows(module.network)
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
            precision=PRECISIONS[precision_on(where, settings)][0],
            accumulate_grad_batches=settings.accumulate,
            gradient_clip_val=settings.clip or None,
            callbacks=[Checkpoints(folder, monitor, lower_is_better, settings.checkpoint_seconds)],
            plugins=[WholeFiles(module)],
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


_STATES = {  # of a parameter
    "adam": ("step", "exp_avg", "exp_avg_sq"),
    "adamw": ("step", "exp_avg", "exp_avg_sq"),
    "sgd": (),  # a momentum, or none
}


class Checkpoints(CheckpointCallback):
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


class WholeFiles(TorchCheckpointIO):
    """Checkpoints as they are at this moment, written a little later; never more read of one than plain values."""

    def __init__(self, module: Training) -> None:
        super().__init__()
        self.module = module

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Has it written."""
        self.module.files.write(Path(path), partial(torch.save, on_host(checkpoint)))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Its content, checked: Lightning reads what it needs of it here and there, and trusts it."""
        return load_resumed(Path(path), self._check)

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
