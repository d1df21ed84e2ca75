"""The checkpoint of a stack: written whole or not at all, and of one set of jobs, settings and rows."""

import os
import pickle
import tempfile
from pathlib import Path
from typing import Any

import torch

_NAME = "checkpoint.pt"


def save(folder: Path, identity: dict[str, Any], content: dict[str, Any]) -> None:
    """Writes the checkpoint.

    Args:
        folder: made where it is missing.
        identity: what the training is of, in plain numbers, strings, lists and dictionaries.
        content: the same and tensors.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=folder, prefix=f".{_NAME}.", delete=False) as unfinished:
        try:
            torch.save({"identity": identity, "content": content}, unfinished)
            unfinished.flush()
            os.fsync(unfinished.fileno())
        except BaseException:
            os.unlink(unfinished.name)
            raise
    os.replace(unfinished.name, folder / _NAME)


def load(folder: Path, identity: dict[str, Any]) -> dict[str, Any] | None:
    """The content of the checkpoint; None where there is none.

    A checkpoint of something else is a ValueError that says what differs.
    """
    path = folder / _NAME
    if not path.exists():
        return None
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
        other, content = found["identity"], found["content"]
    except (RuntimeError, EOFError, KeyError, TypeError, pickle.UnpicklingError) as error:
        raise ValueError(f"expected a checkpoint of this training, got a damaged or foreign {path}: {error}") from error
    differs = [name for name in {**identity, **other} if identity.get(name) != other.get(name)]
    if differs:
        raise ValueError(
            f"expected a checkpoint of the same training in {folder}, got one with other {' and '.join(differs)}; "
            "take another folder, or remove it"
        )
    return content  # type: ignore[no-any-return]
