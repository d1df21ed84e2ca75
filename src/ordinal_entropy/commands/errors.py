"""How a command ends: with one sentence where something is wrong, and with its folder released."""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import typer

from ordinal_entropy import runs
from ordinal_entropy.commands.screen import RANKS, complain, first_process, say


class OwnFolder(ExitStack):
    """The folder that a command writes to, if any: nobody else's until the command ends."""

    folder: Path | None = None

    def take(self, folder: Path, recipe: Any = None) -> None:
        """Locks the folder, before hours of training and not after, and tidies up behind commands that were killed."""
        several = getattr(getattr(recipe, "training", None), "processes", 1) > 1
        if not several or first_process(RANKS):  # else the first of the processes has it for all
            try:
                self.enter_context(runs.lock(folder / ".lock"))
            except runs.LockedError as error:
                raise ValueError(f"{error}; wait until it has ended, or choose another --out") from None
            runs.remove_leftovers(folder)
        self.folder = folder


@contextmanager
def one_sentence() -> Iterator[OwnFolder]:
    """A mistake of the user's ends with a sentence and status 2; a stop says how to go on, status 130."""
    out = OwnFolder()
    try:
        with out:
            yield out
    except KeyboardInterrupt:
        folder = out.folder
        go_on = f"to go on from what {folder} holds, give the same command again" if folder else "nothing was lost"
        say(f"Stopped; {go_on}.")
        raise typer.Exit(130) from None
    except BrokenPipeError:  # the reader of our output left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if os.environ.get("ORDINAL_ENTROPY_TRACEBACK"):  # for whoever takes it for a mistake of ours
            raise
        complain(_sentence(error, out.folder))
        raise typer.Exit(2) from None


def _sentence(error: Exception, folder: Path | None) -> str:
    """What is wrong, and what to do about a missing package or a full disk."""
    if isinstance(error, ModuleNotFoundError):
        return f"this needs {error.name}: pip install 'ordinal-entropy[train]'"
    if runs.disk_full(error):
        full = f"the disk is full: cannot write {getattr(error, 'filename', None) or 'a file'}"
        told = str(error) if isinstance(error, runs.DiskFullError) else full
        return f"{told}; free some space and run the same command again{' to resume' if folder else ''}"
    said = " ".join(str(error).split())
    return f"the memory is not enough: {said or 'nothing is left'}" if isinstance(error, MemoryError) else said
