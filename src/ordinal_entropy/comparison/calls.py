"""Calls of a training loop of one's own: with what, and the folder that keeps what they returned."""

import copy
import hashlib
import json
import math
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from torch import nn

from ordinal_entropy import runs
from ordinal_entropy.comparison.summaries import Failure
from ordinal_entropy.methods import Method, compose

_LABEL_REMEDY = "remove the folder, or choose another out"
_RUN_REMEDY = "remove it, and the same call trains this run again"
_RUN = {"method": str, "seed": int, "settings": (dict, type(None)), "scores": {str: runs.NUMBER}}
_METHODS = "expected methods as names, as objects like those of oe.methods.create, or as a mapping {label: anything}"
_LONGEST = 80  # letters of a label in the name of a file


class Returned(NamedTuple):
    """What a call found."""

    scores: dict[str, float]
    seconds: float
    kept: bool = False  # read back from the folder: it was not made anew
    error: Exception | None = None  # that ``train`` raised; the scores are NaN then

    def failure(self, label: str, seed: int) -> Failure | None:
        """As a summary has it."""
        if self.error is None:
            return None
        return Failure(label, seed, type(self.error).__name__, " ".join(str(self.error).split()))


def labelled(methods: Any) -> dict[str, Any]:
    """What ``train`` is called with for each method, by the labels of the comparison.

    Example:
        >>> from ordinal_entropy.methods import create
        >>> labelled("oe"), labelled({"weak": 0.1, "strong": 10.0})
        ({'oe': 'oe'}, {'weak': 0.1, 'strong': 10.0})
        >>> list(labelled(["baseline", create("hl-gauss+oe")]))
        ['baseline', 'hl-gauss+oe']
    """
    if isinstance(methods, Mapping):
        strange = [label for label in methods if not isinstance(label, str)]
        if strange:
            raise TypeError(f"expected methods by labels that are text, got {strange[0]!r}")
        return dict(methods)
    if not isinstance(methods, str | nn.Module | Iterable):
        raise TypeError(f"{_METHODS}, got {type(methods).__name__}")
    given = [methods] if isinstance(methods, str | nn.Module) else list(methods)
    labels = [_label(each) for each in given]
    if len(set(labels)) < len(labels):
        hint = "" if all(isinstance(each, str) for each in given) else "; a mapping {label: method} names them"
        raise ValueError(f"expected methods that are all different, got {labels}{hint}")
    return dict(zip(labels, given, strict=True))


def _label(given: Any) -> str:
    if isinstance(given, str):
        return given
    if not isinstance(given, nn.Module):
        raise TypeError(f"{_METHODS}, got {type(given).__name__}")
    name = getattr(given, "name", None)
    return name if isinstance(name, str) else compose(given).name  # type: ignore[arg-type]  # it says what it takes


class Calls:
    """Calls ``train``, unless a folder has what the same call returned earlier.

    Args:
        train: of a method, a seed and, where it is tuned, settings.
        methods: what ``train`` gets, by labels.
        folder: where results are kept; None for nowhere.
    """

    def __init__(self, train: Callable[..., Any], methods: Mapping[str, Any], folder: Path | None) -> None:
        self.train, self.methods, self.folder = train, methods, folder
        self._described = {label: _description(method) for label, method in methods.items()}

    def __call__(
        self,
        label: str,
        seed: int,
        scored: Callable[[Any], dict[str, float]],
        *,
        points: Sequence[str],
        settings: Mapping[str, Any] | None = None,
    ) -> Returned:
        """The scores of a run.

        Args:
            label: of the method.
            seed: of the run.
            scored: makes scores of what ``train`` returned.
            points: scores that are needed; a result without them is made anew.
            settings: of a tuned comparison.
        """
        path = None if self.folder is None else self.folder / "runs" / _file_name(label, seed, settings)
        found = None if path is None else self._kept(path, label, seed, settings)
        if found is not None and set(points) <= found.scores.keys():
            return found
        start = time.perf_counter()
        method = self.methods[label]
        if isinstance(method, nn.Module):  # which runs change: each begins with it as it was given
            method = copy.deepcopy(method)
        try:
            returned = self.train(method, seed, *([] if settings is None else [dict(settings)]))
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # what it held, on a GPU say, is free for the next run
            return Returned(dict.fromkeys(points, math.nan), time.perf_counter() - start, error=error)
        found = Returned(scored(returned), time.perf_counter() - start)
        if path is not None:
            content = {"method": label, "seed": seed, "settings": _plain(settings), "given": self._described[label]}
            runs.write_json(path, {**content, "scores": found.scores, "seconds": found.seconds})
        return found

    def _kept(self, path: Path, label: str, seed: int, settings: Mapping[str, Any] | None) -> Returned | None:
        if not path.exists():
            return None
        content = runs.read_json(path, {**_RUN, "seconds": runs.NUMBER}, remedy=_RUN_REMEDY)
        with runs.reading(path, _RUN_REMEDY):
            for key, own in (("method", label), ("seed", seed), ("settings", _plain(settings))):
                if content[key] != own:
                    raise ValueError(f"expected {key} to be {own!r}, got {content[key]!r}")
        if content.get("given") != self._described[label]:
            raise ValueError(
                f"{path} is a run of another method with the label {label!r}; choose another label or another out, or "
                "remove the file"
            )
        scores = {point: math.nan if score is None else float(score) for point, score in content["scores"].items()}
        return Returned(scores, float(content["seconds"] or 0.0), kept=True)


@contextmanager
def kept_in(out: Any, label: Mapping[str, Any]) -> Iterator[Path | None]:
    """The folder of a comparison, which is locked until the end of the ``with``; None where none is asked for.

    ``study.json`` says what a folder is for: a comparison of the same task, score and ranges, of any methods and seeds.
    Anything else is a ValueError, unless nothing has been trained for it.

    Args:
        out: the folder.
        label: what it is to be for; "ranges" are those of each method.
    """
    if out is None:
        yield None
        return
    folder = Path(out)
    with runs.lock(folder / ".lock"):
        runs.remove_leftovers(folder)
        _require_same(folder, _plain(label))
        yield folder


def _require_same(folder: Path, wanted: dict[str, Any]) -> None:
    path = folder / "study.json"
    begun = any((folder / name).exists() for name in ("runs", "training", "summary.json"))
    if begun and not path.exists():
        raise ValueError(f"expected a new or unfinished folder, got {folder} with results of something else")
    if begun:
        found = runs.read_json(path, dict, remedy=_LABEL_REMEDY)
        ranges = found.pop("ranges", {}) if isinstance(found.get("ranges", {}), dict) else {}
        both = {name: own for name, own in ranges.items() if name in wanted["ranges"]}
        before = {**found, **{f"ranges of {name}": own for name, own in both.items()}}
        now = {key: own for key, own in wanted.items() if key != "ranges"}
        now |= {f"ranges of {name}": wanted["ranges"][name] for name in both}
        different = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        if different:
            key = different[0]
            raise ValueError(
                f"{folder} holds another comparison: {key} is {before.get(key)!r} there and {now.get(key)!r} here; "
                "choose another out, or remove the folder"
            )
        wanted = {**wanted, "ranges": {**ranges, **wanted["ranges"]}}
    runs.write_json(path, wanted)


def _file_name(label: str, seed: int, settings: Mapping[str, Any] | None) -> str:
    """Of the result of a call; a label that is no name of a file is changed, and has a hash to tell it from others.

    Example:
        >>> _file_name("hl-gauss+oe", 3, None)
        'hl-gauss+oe-seed3.json'
        >>> _file_name("oe, strength 1/2", 3, {"lr": 0.1})
        'oe__strength_1_2-a9eadbc9-seed3-c924a5f4.json'
    """
    plain = re.sub(r"[^A-Za-z0-9_.+-]|^\.", "_", label)[:_LONGEST]
    name = plain if plain == label else f"{plain}-{_hash(label)}"
    return f"{name}-seed{seed}{'' if settings is None else '-' + _hash(_plain(settings))}.json"


def _hash(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:8]


def _plain(content: Any) -> Any:
    """As it comes back from a JSON file; of what JSON does not know, its text."""
    return json.loads(json.dumps(content, default=repr), parse_constant=lambda name: None)


def _description(method: Any) -> Any:
    """By which a method is told from another of the same label; None where that is not known."""
    if isinstance(method, Method):
        own = {name: getattr(method, name) for name in ("strengths", "anneals") if hasattr(method, name)}
        return _plain({"parts": _text(method), **own})
    if isinstance(method, nn.Module):
        return _text(method)
    try:
        return json.loads(json.dumps(method), parse_constant=lambda name: None)
    except (TypeError, ValueError):
        return None


def _text(method: nn.Module) -> str:
    """Its parts and options, without places in memory."""
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(method))
