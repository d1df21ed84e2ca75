"""Checkpoints of runs: written whole or not at all, read back with distrust.

There are three: of a stack, whose runs go on together; of one run of a stack, which goes on beside any others; and of a
run on images, which Lightning writes and resumes from.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from ordinal_entropy import runs
from ordinal_entropy.methods import Composition
from ordinal_entropy.training.plans import PARTS

FILE = "checkpoint.pt"  # of a stack, or of a run of one
LAST, BEST = "last.ckpt", "best.ckpt"  # of a run on images
REMEDY = "remove it to begin again"
_REMEDY_OF_TRAINED = "remove the run folder and train again"
_SCORES = {part: {str: float} for part in PARTS}


def _read(path: Path, form: Mapping[str, Any]) -> dict[str, Any] | None:
    """The content of a checkpoint; None where there is none, a FolderError where it is damaged."""
    return runs.load_tensors(path, form, remedy=REMEDY) if path.exists() else None


# Of a stack

_OF_STACK = {
    "identity": {str: object},
    "content": {"step": int, "histories": [[list]], "state": {str: Tensor}},
}
_LATER = ("squares", "balanced_steps")  # of the state: once only where strengths were gradient-balanced


class OfStack(NamedTuple):
    """A stack after a step."""

    step: int
    histories: list[list[Any]]  # of each run: steps, then scores at these
    state: dict[str, Tensor]


def save_stack(folder: Path, identity: Mapping[str, Any], checkpoint: OfStack) -> None:
    """Writes the checkpoint of a stack.

    Args:
        folder: made where it is missing.
        identity: what the training is of, in plain numbers, strings, lists and dictionaries.
        checkpoint: of the stack.
    """
    runs.save_tensors(folder / FILE, {"identity": identity, "content": checkpoint._asdict()})


def load_stack(
    folder: Path, identity: Mapping[str, Any], state: Mapping[str, Tensor], *, count: int, steps: int
) -> OfStack | None:
    """The checkpoint of a stack; None where there is none.

    One that is damaged or of something else is a FolderError that says what is wrong or what differs.

    Args:
        folder: where it lies.
        identity: what the training is of.
        state: of the stack, for names and shapes.
        count: runs of the stack.
        steps: that the training has, at most.
    """
    path = folder / FILE
    found = _read(path, _OF_STACK)
    if found is None:
        return None
    with runs.reading(path, REMEDY):
        other = found["identity"]
        differs = [name for name in {**identity, **other} if identity.get(name) != other.get(name)]
    if differs:
        raise runs.FolderError(
            f"expected a checkpoint of the same training in {folder}, got one with other {' and '.join(differs)}; "
            "take another folder, or remove it"
        )
    there = OfStack(*(found["content"][name] for name in OfStack._fields))
    with runs.reading(path, REMEDY):
        needed = {name: tensor for name, tensor in state.items() if name in there.state or name not in _LATER}
        runs.require_form(there.state, needed, "state")
        runs.require_form(there.histories, [[[(int, float)]]], "histories")
        lengths = {len(series) for history in there.histories for series in history}
        series = {len(history) for history in there.histories}
        if (
            len(there.histories) != count
            or series != {1 + len(PARTS)}
            or len(lengths) != 1
            or not 0 <= there.step <= steps
        ):
            raise ValueError(f"expected scores of {count} runs up to step {steps}")
    return there


# Of a run of a stack

_OF_PARAMETERS = ("parameters", "mean", "square", "best")
_OF_OWN = ("own", "own_best", "own_mean", "own_square", "own_steps")
_OF_RUN: dict[str, Any] = {
    "table": str,
    "state": {
        "epoch": int,
        **{name: {str: Tensor} for name in _OF_PARAMETERS},
        "best_score": float,
        "balance": Tensor,
    },
    "history": [_SCORES],
}


class OfRun(NamedTuple):
    """A run of a stack after an epoch."""

    table: str  # digest of the one it is trained on
    state: dict[str, Any]  # "epoch", and what `Stack.run_state` gives
    history: list[dict[str, dict[str, float]]]  # of all epochs so far, by part, then by metric


def save_run(folder: Path, checkpoint: OfRun) -> None:
    """Writes the checkpoint of a run folder."""
    runs.save_tensors(folder / FILE, checkpoint._asdict())


def load_run(folder: Path, *, metric: str, epochs: int | None = None) -> OfRun | None:
    """The checkpoint of a run folder; None where there is none, a FolderError where it is damaged.

    Args:
        folder: of the run.
        metric: that every epoch has a score of.
        epochs: of the run, at most; None: not known yet.
    """
    path = folder / FILE
    content = _read(path, {**_OF_RUN, "history": [{part: {metric: float} for part in PARTS}]})
    if content is None:
        return None
    own = {key: content["state"].get(key, {}) for key in _OF_OWN}  # written before these existed: none
    done, scored = content["state"]["epoch"], len(content["history"])
    with runs.reading(path, REMEDY):
        for key, value in own.items():
            runs.require_form(value, {str: Tensor}, key)
        if not 0 < scored == done <= (done if epochs is None else epochs):
            raise ValueError(f"expected scores of {done} of {epochs or done} epochs, got {scored}")
    return OfRun(content["table"], {**content["state"], **own}, content["history"])


# Of a run on images

_OF_IMAGES = {"state_dict": dict, "history": [_SCORES], "facts": dict}
_RESUMED = {  # what Lightning adds
    **_OF_IMAGES,
    "pytorch-lightning_version": str,
    "loops": {"fit_loop": {"epoch_progress": {"current": {"processed": int}}}},
    "callbacks": dict,
    "optimizer_states": [{"state": {int: dict}, "param_groups": [dict]}],
    "lr_schedulers": list,
}
_BEFORE_PARTS = "regularizer."  # state of a method in checkpoints from before methods had parts


class OfImages(NamedTuple):
    """What a file of a run on images holds of it."""

    epoch: int  # epochs done
    weights: dict[str, Tensor]  # of the network that predicts: an average, where there is one
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


def load_images(path: Path) -> OfImages:
    """Weights of the network, state of the method and facts of the run; a ValueError where there are none."""
    if not path.exists():
        raise ValueError(f"expected a trained run with {path.name} in {path.parent}, got none")
    content = runs.load_tensors(path, _OF_IMAGES, remedy=_REMEDY_OF_TRAINED)
    weights, method, average = (
        {key[len(start) :]: value for key, value in content["state_dict"].items() if str(key).startswith(start)}
        for start in ("network.", "method.", "average.model.")
    )
    weights = average or weights
    method = {key: value for key, value in method.items() if not key.startswith(_BEFORE_PARTS)}
    found = OfImages(len(content["history"]), weights, method, content["facts"], path)
    with found.reading():
        runs.require_form(weights, {str: Tensor}, "weights")
        runs.require_form(method, {str: Tensor}, "state of the method")
    return found


def load_resumed(path: Path, check: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """All that Lightning resumes a run on images from.

    Args:
        path: of the file.
        check: raises an error for content that the run cannot go on from.
    """
    content: dict[str, Any] = runs.load_tensors(path, _RESUMED, remedy=REMEDY)
    with runs.reading(path, REMEDY):
        check(content)
    return content
