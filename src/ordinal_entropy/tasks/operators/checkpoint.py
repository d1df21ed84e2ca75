"""The checkpoint of a stack: written whole or not at all, and of one set of jobs, settings and rows."""

import pickle
from pathlib import Path
from typing import Any

import torch

from ordinal_entropy import runs

_NAME = "checkpoint.pt"


class CheckpointError(ValueError):
    """A checkpoint that is damaged, or of another training."""


def save(folder: Path, identity: dict[str, Any], content: dict[str, Any]) -> None:
    """Writes the checkpoint.

    Args:
        folder: made where it is missing.
        identity: what the training is of, in plain numbers, strings, lists and dictionaries.
        content: the same and tensors.
    """
    with runs.replacing(folder / _NAME) as file:
        torch.save({"identity": identity, "content": content}, file)


def load(folder: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The content of the checkpoint; None where there is none.

    A checkpoint of something else is a CheckpointError that says what differs.
    """
    path = folder / _NAME
    if not path.exists():
        return None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        other, content = found["identity"], found["content"]
    except (RuntimeError, EOFError, KeyError, TypeError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"expected a checkpoint of this training, got a damaged or foreign {path}: {error}"
        ) from error
    differs = [name for name in {**identity, **other} if identity.get(name) != other.get(name)]
    if differs:
        raise CheckpointError(
            f"expected a checkpoint of the same training in {folder}, got one with other {' and '.join(differs)}; "
            "take another folder, or remove it"
        )
    return content  # type: ignore[no-any-return]
