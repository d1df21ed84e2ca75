"""The checkpoint of one run: written whole or not at all, and of one table."""

import pickle
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import torch

from ordinal_entropy import runs
from ordinal_entropy.tasks.tabular.stack import Scores, State

FILE = "checkpoint.pt"


class Checkpoint(NamedTuple):
    """A run after an epoch."""

    table: str  # digest of the one it is trained on
    state: State
    history: list[Scores]  # of all epochs so far


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Writes the checkpoint of a run folder."""
    content = {"table": checkpoint.table, "state": asdict(checkpoint.state), "history": checkpoint.history}
    with runs.replacing(folder / FILE) as file:
        torch.save(content, file)


def load(folder: Path) -> Checkpoint | None:
    """The checkpoint of a run folder; None where there is none, a ValueError where it is damaged."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        return Checkpoint(content["table"], State(**content["state"]), content["history"])
    except (RuntimeError, EOFError, KeyError, TypeError, pickle.UnpicklingError) as error:
        raise ValueError(f"expected a checkpoint of this run, got a damaged or foreign {path}: {error}") from error
