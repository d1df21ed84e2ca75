"""The run folder: one recipe, method and seed, carried out; written so that a stop at any moment leaves it whole.

A run folder holds ``recipe.json`` (recipe, method, seed, environment), ``metrics.jsonl`` (a line for each evaluation,
appended as it goes), the checkpoint of the training and, once the run is over, ``result.json``; ``failure.json`` where
it raised an exception and others went on.

What is read back is distrusted: a file may be cut off, changed by hand or of something else altogether. Every reader
here checks the form of what it finds, and raises a :class:`FolderError` that names the file and says what to do.
"""

import errno
import glob
import io
import json
import math
import os
import pickle
import re
import socket
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from ordinal_entropy import files
from ordinal_entropy.environment import environment

if sys.platform != "win32":  # where nothing is locked
    import fcntl

NUMBER = (int, float, type(None))  # as JSON has them: null in place of NaN and infinities
RESULT_REMEDY = "remove it, and the same command resumes the run from its checkpoint"
_LARGEST_JSON = 2**28  # bytes
_RECIPE = {"recipe": dict, "method": str, "seed": int}
_LONGEST_NUMBER = 300  # digits; beyond, no float holds it
_LEFTOVER = re.compile(r"\..+\.[0-9a-f]{8}\.tmp")
_unfinished: set[str] = set()  # files that this process is writing

Form = Any  # a type or a tuple of types; [form]: a list of such; {"key": form, ...}: at least these; {str: form}: any
# keys; a tensor: one of its shape and type


class FolderError(ValueError):
    """A file of a run folder that is damaged, or of something else."""


class WriteError(OSError):
    """A file could not be written."""


class DiskFullError(WriteError):
    """A file could not be written because the disk, or the part of it that one may use, is full."""


class LockedError(OSError):
    """Another process is at work in a folder."""


def disk_full(error: BaseException) -> bool:
    """Whether an exception says that there is no space left.

    Example:
        >>> disk_full(OSError(errno.ENOSPC, "No space left on device")), disk_full(OSError(errno.EACCES, "no"))
        (True, False)
    """
    return isinstance(error, DiskFullError) or getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)


def concerns_all(error: BaseException) -> bool:
    """Whether it is no failure of one run: a package is missing, a folder is damaged, or the disk is full."""
    return isinstance(error, (ImportError, FolderError)) or disk_full(error)


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


def read_json(path: str | os.PathLike[str], form: Form = object, *, remedy: str = "") -> Any:
    """The content of a JSON file, None in place of NaN and infinities, as :func:`write_json` has them.

    Args:
        path: the file, a regular one of at most 256 MiB.
        form: what it must be, see :func:`require_form`.
        remedy: what to do where it is not, for the message.

    Raises:
        FolderError: the file holds something else; the message names it.
        OSError: it cannot be read.
    """
    place = Path(path)
    with reading(place, remedy):
        _require_regular(place)
        if place.stat().st_size > _LARGEST_JSON:
            raise ValueError(f"expected JSON of at most {_LARGEST_JSON:,} bytes, got {place.stat().st_size:,}")
        content = _parsed(place.read_bytes())
        require_form(content, form)
        return content


def _parsed(text: bytes) -> Any:
    try:
        return json.loads(
            text.decode(),
            parse_constant=lambda name: None,
            parse_float=lambda digits: float(digits) if math.isfinite(float(digits)) else None,
            parse_int=lambda digits: int(digits) if len(digits) < _LONGEST_NUMBER else None,
        )
    except RecursionError:
        raise ValueError("expected JSON, got something that is nested too deeply") from None
    except ValueError as error:
        raise ValueError(f"expected JSON, got something else: {error}") from error


def require_form(content: Any, form: Form, name: str = "") -> None:
    """A ValueError that names the first entry which is not of a form.

    Args:
        content: as read from a file.
        form: a type, or a tuple of types; ``[form]`` for a list of entries of that form; ``{"key": form}`` for a
            dictionary that has these keys, and perhaps others; ``{str: form}`` for one of any keys of that type. A
            tensor stands for one of its shape and type.
        name: of the content, for the message.

    Example:
        >>> require_form({"steps": [1, 2], "more": ""}, {"steps": [int]})
        >>> require_form({"steps": [1, "2"]}, {"steps": [int]})
        Traceback (most recent call last):
            ...
        ValueError: expected steps[1] to be a number, got '2'
    """
    if isinstance(form, dict):
        _require_type(content, (dict,), name)
        for key, own in form.items():
            if isinstance(key, type):
                for each, value in content.items():
                    _require_type(each, (key,), f"each key of {name or 'it'}")
                    require_form(value, own, f"{name}.{each}" if name else str(each))
            elif key not in content:
                raise ValueError(f"expected {f'{name}.{key}' if name else key}, got none")
            else:
                require_form(content[key], own, f"{name}.{key}" if name else key)
    elif isinstance(form, Tensor):
        _require_type(content, (Tensor,), name)
        if (content.shape, content.dtype, content.layout) != (form.shape, form.dtype, form.layout):
            wanted, got = (f"{tuple(each.shape)} in {each.dtype}" for each in (form, content))
            raise ValueError(f"expected {name} of shape {wanted}, got {got}")
    elif isinstance(form, list):
        _require_type(content, (list, tuple), name)
        for place, value in enumerate(content):
            require_form(value, form[0], f"{name}[{place}]")
    else:
        _require_type(content, form if isinstance(form, tuple) else (form,), name)


_TYPES = {dict: "an object", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}


def _require_type(content: Any, types: tuple[type, ...], name: str) -> None:
    if not isinstance(content, types) or (isinstance(content, bool) and not {bool, object} & set(types)):
        named = [_TYPES.get(each, each.__name__) for each in types if each not in (tuple, type(None))]
        got = repr(content)
        got = got if len(got) <= 40 else f"{got[:40]}..."
        raise ValueError(f"expected {f'{name} to be ' if name else ''}{' or '.join(dict.fromkeys(named))}, got {got}")


def save_tensors(path: Path, content: Any) -> None:
    """Writes tensors, numbers, strings, lists and dictionaries of them: all of it, or nothing."""
    with replacing(path) as file:
        torch.save(content, file)


def load_tensors(path: Path, form: Form, *, remedy: str) -> Any:
    """What :func:`save_tensors` wrote, on the CPU; nothing else is ever unpickled, on no version of torch.

    Args:
        path: the file.
        form: what it must be, see :func:`require_form`.
        remedy: what to do where it is not, for the message.

    Raises:
        FolderError: the file is damaged, or of something else.
    """
    with reading(path, remedy):
        _require_regular(path)
        files.check_archive(path)
        try:
            content = torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # whose message recommends to trust the file
            raise ValueError("it is no file of tensors and plain values") from None
        except OSError as error:
            if error.errno != errno.EINVAL:  # which is a place before the beginning of a short file
                raise
            raise ValueError("it is cut off") from error
        require_form(content, form)
        return content


@contextmanager
def reading(path: Path, remedy: str) -> Iterator[None]:
    """Whatever is raised in the ``with`` says that a file is damaged or foreign; what the system raises stays as it is.

    Args:
        path: whose content is looked at, nothing else.
        remedy: what to do, for the message.
    """
    try:
        yield
    except (OSError, FolderError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        known = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        short = " ".join(known.split())[:160].rstrip(".,;: ")
        then = f"; {remedy}" if remedy else ""
        raise FolderError(f"{path} is damaged or foreign: {short}{then}") from error


def _require_regular(path: Path) -> None:
    """A pipe has no end, and a device may have none."""
    path.stat()  # one that is missing is an OSError
    wrong = files.fault(path)
    if wrong is not None:
        raise ValueError(f"expected a regular file, got {wrong}")


@dataclass(frozen=True)
class Run:
    """A run folder and what determines the run. Made by :func:`create`, found again by :func:`open`."""

    path: Path
    recipe: dict[str, Any]
    method: str
    seed: int
    environment: dict[str, Any] = field(default_factory=dict, compare=False)  # that it began in; of a folder only

    def log(self, **numbers: float) -> None:
        """Appends one line to ``metrics.jsonl``; after a stop in the midst of a line, in place of that."""
        rest = (json.dumps(_plain(numbers), allow_nan=False) + "\n").encode()
        path = self.path / "metrics.jsonl"
        with _explained(path), path.open("a+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            if size and file.read(1) != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)
            while rest:  # a disk that becomes full takes a part first
                rest = rest[file.write(rest) :]

    def metrics(self) -> list[dict[str, float]]:
        """The lines logged so far, a torn last one left out. A run that went on from a checkpoint may log a step twice.

        Returns:
            One dictionary a line; NaN where null was written.
        """
        path = self.path / "metrics.jsonl"
        if not path.exists():
            return []
        found = []
        with reading(path, "remove it: the run goes on without the scores that it has logged there"):
            _require_regular(path)
            for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], start=1):  # what follows is torn
                try:
                    entries = _parsed(line)
                    require_form(entries, {"step": (int, float), str: NUMBER})
                except ValueError as error:
                    raise ValueError(f"line {number}: {error}") from error
                found.append({name: math.nan if value is None else value for name, value in entries.items()})
        return found

    def finish(self, result: Mapping[str, Any]) -> None:
        """Writes ``result.json``: the run is over, and how it failed before is of no interest."""
        write_json(self.path / "result.json", result)
        (self.path / "failure.json").unlink(missing_ok=True)

    def result(self, form: Form = dict) -> dict[str, Any] | None:
        """What :meth:`finish` wrote, if it is of a form (see :func:`require_form`); None while the run is not over."""
        path = self.path / "result.json"
        if not path.exists():
            return None
        found: dict[str, Any] = read_json(path, form, remedy=RESULT_REMEDY)
        return found

    def fail(self, error: Exception) -> None:
        """Writes ``failure.json``: what was raised, and where. What the run held in memory is free then."""
        where = "".join(traceback.format_exception(error))
        message = " ".join(str(error).split())
        write_json(self.path / "failure.json", {"type": type(error).__name__, "message": message, "traceback": where})
        traceback.clear_frames(error.__traceback__)

    def spend(self, seconds: float) -> None:
        """Adds to ``seconds.json`` what training took, of those that are measured."""
        write_json(self.path / "seconds.json", {"seconds": self.seconds() + seconds})

    def seconds(self) -> float:
        """What training took so far; 0 where it was not measured."""
        path = self.path / "seconds.json"
        if not path.exists():
            return 0.0
        found: dict[str, float] = read_json(path, {"seconds": float}, remedy="remove it: no score depends on it")
        return found["seconds"]

    def failure(self) -> dict[str, str] | None:
        """What :meth:`fail` wrote: "type", "message" and "traceback"; None where the run did not fail."""
        path = self.path / "failure.json"
        if not path.exists():
            return None
        form = dict.fromkeys(("type", "message", "traceback"), str)
        found: dict[str, str] = read_json(path, form, remedy="remove it, and the same command tries the run again")
        return found


def create(
    path: str | os.PathLike[str],
    recipe: Mapping[str, Any],
    method: str,
    seed: int,
    *,
    read: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
) -> Run:
    """A new run folder, or the one that is there, to go on with, if it is of the same recipe, method and seed.

    Args:
        path: the folder; made where it is missing.
        recipe: all that determines a run but method and seed.
        method: a name.
        seed: of the run.
        read: a recipe in a form in which those of earlier versions can be compared.

    Raises:
        ValueError: the folder holds another run; the message says which key differs.
        OSError: the folder cannot be written to.
    """
    folder = Path(path)
    run = Run(folder, _plain(recipe), method, int(seed))
    if (folder / "recipe.json").exists():
        there = open(folder)
        found, wanted = (
            {"recipe": _plain(read(each.recipe)), "method": each.method, "seed": each.seed} for each in (there, run)
        )
        difference = _first_difference(found, wanted)
        if difference is not None:
            key, old, new = difference
            raise ValueError(
                f"expected {key} to be {old!r} as in the run that {folder} holds, got {new!r}; choose another folder"
            )
        return there
    content = {"recipe": run.recipe, "method": run.method, "seed": run.seed, "environment": environment()}
    write_json(folder / "recipe.json", content)
    return open(folder)


def open(path: str | os.PathLike[str]) -> Run:
    """The run folder at this path; a ValueError where there is none."""
    folder = Path(path)
    if not (folder / "recipe.json").is_file():
        raise ValueError(f"expected a run folder with recipe.json, got {folder}")
    path, remedy = folder / "recipe.json", "choose another folder, or remove this one"
    content = read_json(path, _RECIPE, remedy=remedy)
    with reading(path, remedy):
        if not 0 <= content["seed"] < 2**63:
            raise ValueError(f"expected a seed of at least 0, got {content['seed']}")
    known = content.get("environment")
    return Run(folder, content["recipe"], content["method"], content["seed"], known if isinstance(known, dict) else {})


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
    except (WriteError, LockedError):
        raise
    except OSError as error:
        if disk_full(error):
            what = "the disk is full" if error.errno == errno.ENOSPC else "the disk quota is used up"
            raise DiskFullError(f"{what}: cannot write {path}") from error
        blocked = isinstance(error, (FileExistsError, NotADirectoryError))
        reason = "a file where a folder should be" if blocked else error.strerror or str(error)
        raise WriteError(f"expected to be able to write {path}, got: {reason}") from error


class _File(io.FileIO):
    """Remembers why it could not be written, of which some writers, like torch.save, say nothing."""

    error: OSError | None = None

    def write(self, content: Any, /) -> int:
        """Writes."""
        try:
            return super().write(content)
        except OSError as error:
            self.error = error
            raise


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write to beside the path, which takes its place once it is whole and on the disk.

    Where that fails, the old file stays as it is, and nothing is left beside it. A process that is killed leaves the
    unfinished file behind, which goes when the same file is written again; :func:`remove_leftovers` finds all of them.
    """
    with _explained(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        for left in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
            _remove_leftover(left)
        beside = path.with_name(f".{path.name}.{os.urandom(4).hex()}.tmp")
        _unfinished.add(os.path.abspath(beside))
        try:
            raw = _claimed(beside)
            try:
                with io.BufferedWriter(raw) as file:
                    yield file
                    file.flush()
                    os.fsync(file.fileno())
            except Exception as error:
                if raw.error is not None and raw.error is not error:
                    raise raw.error from error
                raise
            os.replace(beside, path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        finally:
            _unfinished.discard(os.path.abspath(beside))


def remove_leftovers(folder: Path) -> None:
    """Removes files, in a folder and all below it, that :func:`replacing` was writing in processes that were killed."""
    if not folder.is_dir():
        return
    for path in folder.rglob(".*.tmp"):
        _remove_leftover(path)


def _remove_leftover(path: Path) -> None:
    """Removes a file that no living process is writing, if its name is one that :func:`replacing` gives."""
    ours = _LEFTOVER.fullmatch(path.name) and path.is_file() and not path.is_symlink()
    if ours and os.path.abspath(path) not in _unfinished:
        with suppress(OSError), path.open("r+b") as file:
            if _claim(file, wait=False):
                path.unlink()


def _claimed(path: Path) -> _File:
    """A new file that no other process takes for a leftover: one that did so before it was claimed is outwaited."""
    while True:
        file = _File(path, "x")
        if _claim(file, wait=True) is None or path.exists():
            return file
        file.close()


@contextmanager
def lock(path: Path, *, wait: bool = False) -> Iterator[None]:
    """Keeps other processes out until the end of the ``with``, or of this process, however it ends.

    The lock is one of the system on a file (POSIX ``lockf``), which holds the number of this process and is removed at
    the end. On a network file system it holds between machines if that has such locks. Where there are none, as on
    Windows, nobody is kept out.

    Args:
        path: of the file; its folder is made where it is missing.
        wait: until the other is done, instead of an error.

    Raises:
        LockedError: another process has it; the message says which.
    """
    with _explained(path.parent):
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            file = path.open("a+b", buffering=0)
            if _claim(file, wait=wait) is False:
                with file:
                    file.seek(0)
                    number, _, host = file.read(200).decode(errors="replace").strip().partition(" ")
                where = f" on {host}" if host not in ("", socket.gethostname()) else ""
                raise LockedError(f"process {number or 'unknown'}{where} is at work in {path.parent}")
            with suppress(FileNotFoundError):  # else it was removed by the one who had it, while we waited
                if os.path.samestat(path.stat(), os.fstat(file.fileno())):
                    break
            file.close()
        with suppress(OSError):  # a full disk keeps nobody from reading what is there
            file.truncate(0)
            file.write(f"{os.getpid()} {socket.gethostname()}\n".encode())
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        file.close()


def _claim(file: Any, *, wait: bool) -> bool | None:
    """Locks a file for this process; False where another has it, None where the system has no locks."""
    if sys.platform == "win32":
        return None
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        return False if error.errno in (errno.EACCES, errno.EAGAIN) else None
    return True
