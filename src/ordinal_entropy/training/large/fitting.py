"""Training on images through Lightning: precision, devices, checkpoints and logs are its own.

What an epoch does depends on the seed of the run and the number of the epoch only: the order of the images, their
augmentation, the learning rate. So a run that was interrupted ends in the numbers that it would have had.
"""

import importlib.util
import logging
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import lightning.pytorch as lightning
import torch
from lightning.pytorch.loggers import CSVLogger, Logger, TensorBoardLogger

from ordinal_entropy.training.checkpoints import LAST
from ordinal_entropy.training.large.checkpointing import Checkpoints, WholeFiles
from ordinal_entropy.training.large.module import Training
from ordinal_entropy.training.large.optimization import PRECISIONS, least_rows, precision_on
from ordinal_entropy.training.large.predicting import Scores

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
