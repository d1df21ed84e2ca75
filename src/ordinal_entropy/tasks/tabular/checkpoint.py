"""The checkpoint of one run: written whole or not at all, and of one table."""

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ordinal_entropy import runs
from ordinal_entropy.tasks.tabular.jobs import Job
from ordinal_entropy.tasks.tabular.scored import PARTS, Scores
from ordinal_entropy.training.stacked import network
from ordinal_entropy.training.stacked.strengths import TERMS

FILE = "checkpoint.pt"
REMEDY = "remove it to begin the run again"
_OF_PARAMETERS = ("parameters", "mean", "square", "best")
_OF_OWN = ("own", "own_best", "own_mean", "own_square", "own_steps")
_FORM: dict[str, Any] = {
    "table": str,
    "state": {
        "epoch": int,
        **{name: {str: Tensor} for name in _OF_PARAMETERS},
        "best_score": float,
        "balance": Tensor,
    },
    "history": [{part: {"rmse": float} for part in PARTS}],
}


class Checkpoint(NamedTuple):
    """A run after an epoch."""

    table: str  # digest of the one it is trained on
    state: dict[str, Any]  # "epoch", and what `Stack.run_state` gives
    history: list[Scores]  # of all epochs so far


def save(folder: Path, checkpoint: Checkpoint) -> None:
    """Writes the checkpoint of a run folder."""
    runs.save_tensors(folder / FILE, checkpoint._asdict())


def load(folder: Path) -> Checkpoint | None:
    """The checkpoint of a run folder; None where there is none, a FolderError where it is damaged."""
    path = folder / FILE
    if not path.exists():
        return None
    content = runs.load_tensors(path, _FORM, remedy=REMEDY)
    own = {key: content["state"].get(key, {}) for key in _OF_OWN}  # written before these existed: none
    with runs.reading(path, REMEDY):
        for key, value in own.items():
            runs.require_form(value, {str: Tensor}, key)
    return Checkpoint(content["table"], {**content["state"], **own}, content["history"])


def check(folder: Path, checkpoint: Checkpoint, job: Job, epochs: int) -> None:
    """A FolderError where the checkpoint of a folder is not one of a run of so many epochs."""
    state, example = checkpoint.state, network.initial(job.shape, job.seed)
    with runs.reading(folder / FILE, REMEDY):
        if not 0 < len(checkpoint.history) == state["epoch"] <= epochs:
            raise ValueError(f"expected scores of {state['epoch']} of {epochs} epochs, got {len(checkpoint.history)}")
        for name in _OF_PARAMETERS:
            if state[name].keys() != example.keys():
                raise ValueError(f"expected {name} of {', '.join(example)}, got {', '.join(state[name])}")
            runs.require_form(state[name], example, name)
        runs.require_form(state["balance"], torch.zeros(1 + TERMS + 1, dtype=job.shape.dtype), "balance")
        own = job.prepared()
        values, optimised = own.state_dict(), dict(own.named_parameters())
        for name in _OF_OWN if state["own"] else ():
            of_all = name in ("own", "own_best")
            expected = values if of_all else {key: optimised[key] for key in state[name] if key in optimised}
            if state[name].keys() != expected.keys():
                raise ValueError(f"expected {name} of {', '.join(expected) or 'nothing'}, got {', '.join(state[name])}")
            if name != "own_steps":
                runs.require_form(state[name], {key: value.detach() for key, value in expected.items()}, name)
        if not state["own_mean"].keys() == state["own_square"].keys() == state["own_steps"].keys():
            raise ValueError("expected own_mean, own_square and own_steps of the same parameters")
