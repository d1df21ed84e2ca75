"""Checkpoints of a training on images: written whole, beside the training, and resumed from with distrust."""

import copy
import math
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import torch
from lightning.fabric.plugins import TorchCheckpointIO
from lightning.pytorch.callbacks import Checkpoint as CheckpointCallback
from torch import Tensor

from ordinal_entropy import methods, runs
from ordinal_entropy.training.checkpoints import BEST, LAST, load_resumed
from ordinal_entropy.training.large.files import on_host
from ordinal_entropy.training.large.module import Training
from ordinal_entropy.training.large.optimization import optimizer

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
