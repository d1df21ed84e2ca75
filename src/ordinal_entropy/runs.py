"""The run folder: one recipe, method and seed, carried out; written so that a stop at any moment leaves it whole.

A run folder holds ``recipe.json`` (recipe, method, seed, environment), ``metrics.jsonl`` (a line for each evaluation,
appended as it goes), the checkpoint of the training and, once the run is over, ``result.json``; ``failure.json`` where
it raised an exception and others went on.
"""

import json
import math
import os
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ordinal_entropy.environment import environment


def write_json(path: str | os.PathLike[str], content: Any, *, indent: int | None = 2) -> None:
    """Writes JSON atomically: a reader finds the old content or the new, never a part.

    Args:
        path: the file; its folder is made where it is missing.
        content: dictionaries, lists, tuples, strings, numbers (of torch and NumPy too), paths. NaN and infinities
            become null, which JSON has in their place.
        indent: spaces of a level; None for one line.
    """
    text = json.dumps(_plain(content), indent=indent, allow_nan=False) + "\n"
    with replacing(Path(path)) as file:
        file.write(text.encode())


def read_json(path: str | os.PathLike[str]) -> Any:
    """The content of a JSON file; a ValueError names a file that is not JSON."""
    try:
        return json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"expected JSON in {path}, got something else: {error}") from error


@dataclass(frozen=True)
class Run:
    """A run folder and what determines the run. Made by :func:`create`, found again by :func:`open`."""

    path: Path
    recipe: dict[str, Any]
    method: str
    seed: int

    def log(self, **numbers: float) -> None:
        """Appends one line to ``metrics.jsonl``; after a stop in the midst of a line, in place of that."""
        line = json.dumps(_plain(numbers), allow_nan=False) + "\n"
        with _explained(self.path), (self.path / "metrics.jsonl").open("a+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            if size and file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            file.write(line.encode())

    def metrics(self) -> list[dict[str, float]]:
        """The lines logged so far, a torn last one left out. A run that went on from a checkpoint may log a step twice.

        Returns:
            One dictionary a line; NaN where null was written.
        """
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        found = []
        for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):  # what follows the last is torn
            try:
                entries = json.loads(line).items()
            except (ValueError, AttributeError) as error:
                raise ValueError(f"expected a JSON object in line {number} of {path}, got {line[:80]!r}") from error
            found.append({name: math.nan if value is None else value for name, value in entries})
        return found

    def finish(self, result: Mapping[str, Any]) -> None:
        """Writes ``result.json``: the run is over, and how it failed before is of no interest."""
        write_json(self.path / "result.json", result)
        (self.path / "failure.json").unlink(missing_ok=True)

    def result(self) -> dict[str, Any] | None:
        """What :meth:`finish` wrote; None while the run is not over."""
        path = self.path / "result.json"
        return read_json(path) if path.exists() else None

    def fail(self, error: Exception) -> None:
        """Writes ``failure.json``: what was raised, and where. What the run held in memory is free then."""
        where = "".join(traceback.format_exception(error))
        message = " ".join(str(error).split())
        write_json(self.path / "failure.json", {"type": type(error).__name__, "message": message, "traceback": where})
        traceback.clear_frames(error.__traceback__)

    def failure(self) -> dict[str, str] | None:
        """What :meth:`fail` wrote: "type", "message" and "traceback"; None where the run did not fail."""
        path = self.path / "failure.json"
        return read_json(path) if path.exists() else None


def create(path: str | os.PathLike[str], recipe: Mapping[str, Any], method: str, seed: int) -> Run:
    """A new run folder, or the one that is there, to go on with, if it is of the same recipe, method and seed.

    Args:
        path: the folder; made where it is missing.
        recipe: all that determines a run but method and seed.
        method: a name.
        seed: of the run.

    Raises:
        ValueError: the folder holds another run; the message says which key differs.
        OSError: the folder cannot be written to.
    """
    folder = Path(path)
    run = Run(folder, _plain(recipe), method, int(seed))
    if (folder / "recipe.json").exists():
        there = open(folder)
        wanted = {"recipe": run.recipe, "method": run.method, "seed": run.seed}
        found = {"recipe": there.recipe, "method": there.method, "seed": there.seed}
        difference = _first_difference(found, wanted)
        if difference is not None:
            key, old, new = difference
            raise ValueError(
                f"expected {key} to be {old!r} as in the run that {folder} holds, got {new!r}; choose another folder"
            )
        return there
    content = {"recipe": run.recipe, "method": run.method, "seed": run.seed, "environment": environment()}
    write_json(folder / "recipe.json", content)
    return run


def open(path: str | os.PathLike[str]) -> Run:
    """The run folder at this path; a ValueError where there is none."""
    folder = Path(path)
    if not (folder / "recipe.json").is_file():
        raise ValueError(f"expected a run folder with recipe.json, got {folder}")
    content = read_json(folder / "recipe.json")
    missing = [key for key in ("recipe", "method", "seed") if not isinstance(content, dict) or key not in content]
    if missing:
        raise ValueError(
            f"expected recipe, method and seed in {folder / 'recipe.json'}, got no {', no '.join(missing)}"
        )
    return Run(folder, content["recipe"], content["method"], content["seed"])


def _plain(content: Any) -> Any:
    """The same in types that JSON knows."""
    if isinstance(content, Mapping):
        return {str(key): _plain(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [_plain(value) for value in content]
    if isinstance(content, os.PathLike):
        return os.fspath(content)
    if hasattr(content, "tolist"):  # arrays, tensors and their scalars
        return _plain(content.tolist())
    if isinstance(content, float) and not math.isfinite(content):
        return None
    return content


def _first_difference(found: Any, wanted: Any, key: str = "") -> tuple[str, Any, Any] | None:
    """The dotted name of the first entry that differs, with both values; None where all are equal."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        for name in dict.fromkeys([*wanted, *found]):
            difference = _first_difference(found.get(name), wanted.get(name), f"{key}.{name}" if key else name)
            if difference is not None:
                return difference
        return None
    return None if found == wanted else (key, found, wanted)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Errors of the file system as a sentence."""
    try:
        yield
    except OSError as error:
        blocked = isinstance(error, (FileExistsError, NotADirectoryError))
        reason = "a file where a folder should be" if blocked else error.strerror or str(error)
        raise OSError(f"expected to be able to write {path}, got: {reason}") from error


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to beside the path, which takes its place once it is whole and on the disk."""
    beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with beside.open("xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
