"""The checkpoint of a stack: written whole or not at all, and of one set of jobs, settings and rows."""

from pathlib import Path
from typing import Any

from torch import Tensor

from ordinal_entropy import runs

FILE = "checkpoint.pt"
REMEDY = "remove it to begin again"
OPTIONAL = {"squares", "balanced_steps"}  # of the state: only where strengths set themselves, before they were in all
_FORM = {
    "identity": {str: object},
    "content": {"step": int, "histories": [[list]], "state": {str: Tensor}},
}


def save(folder: Path, identity: dict[str, Any], content: dict[str, Any]) -> None:
    """Writes the checkpoint.

    Args:
        folder: made where it is missing.
        identity: what the training is of, in plain numbers, strings, lists and dictionaries.
        content: "step", "histories" of all jobs and the "state" of the stack.
    """
    runs.save_tensors(folder / FILE, {"identity": identity, "content": content})


def load(folder: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The content of the checkpoint; None where there is none.

    One that is damaged or of something else is a FolderError that says what is wrong or what differs.
    """
    path = folder / FILE
    if not path.exists():
        return None
    found = runs.load_tensors(path, _FORM, remedy=REMEDY)
    other, content = found["identity"], found["content"]
    with runs.reading(path, REMEDY):
        differs = [name for name in {**identity, **other} if identity.get(name) != other.get(name)]
    if differs:
        raise runs.FolderError(
            f"expected a checkpoint of the same training in {folder}, got one with other {' and '.join(differs)}; "
            "take another folder, or remove it"
        )
    return content  # type: ignore[no-any-return]
