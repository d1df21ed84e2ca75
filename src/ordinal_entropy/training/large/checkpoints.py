"""Checkpoints of runs on images, read with distrust."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ordinal_entropy import runs
from ordinal_entropy.methods import Composition

PARTS = ("train", "validation", "test")
LAST, BEST = "last.ckpt", "best.ckpt"
FORM = {"state_dict": dict, "history": [{part: {str: float} for part in PARTS}], "facts": dict}
_BEFORE_PARTS = "regularizer."  # state of a method in checkpoints from before methods had parts
_REMEDY_OF_TRAINED = "remove the run folder and train again"


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


def read_checkpoint(path: Path) -> Checkpoint:
    """Weights of the network, state of the method and facts of the run; a ValueError where there are none."""
    if not path.exists():
        raise ValueError(f"expected a trained run with {path.name} in {path.parent}, got none")
    content = runs.load_tensors(path, FORM, remedy=_REMEDY_OF_TRAINED)
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
