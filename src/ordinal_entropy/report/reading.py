"""What a folder holds: studies, runs, diagnoses; and what of it a page leaves out, and why."""

import base64
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ordinal_entropy import comparison, runs
from ordinal_entropy.comparison import references
from ordinal_entropy.environment import environment as present_environment
from ordinal_entropy.recipes import flat

CACHE = "report-cache"
_DEEPEST = 3  # folders below the one that is asked for
_CLOSED = {CACHE, "features", "csv", "checkpoints"}  # nothing of its own inside
_POINTS = ("last", "best_validation", "best_test")
_STARTS = {"png": b"\x89PNG\r\n\x1a\n", "jpeg": b"\xff\xd8\xff"}
T = TypeVar("T")


class LeftOut(NamedTuple):
    """A file or folder that is not, or not wholly, on the page."""

    what: str
    why: str


@dataclass(frozen=True)
class FinishedRun:
    """A finished run."""

    path: Path
    name: str  # of its folder, seen from the one that is asked for
    method: str
    seed: int
    recipe: dict[str, Any]
    environment: dict[str, Any]
    result: dict[str, Any]
    metrics: list[dict[str, float]]

    @property
    def features(self) -> Path | None:
        """The folder of saved features, if there are any; that of a run by ``train`` on images lies one deeper."""
        inside = [self.path, *(child for child in _folders(self.path) if (child / "recipe.json").is_file())]
        there = (place / "features" for place in inside)
        return next((place for place in there if place.is_dir() and not place.is_symlink()), None)


@dataclass(frozen=True)
class FinishedStudy:
    """A comparison of methods over seeds: one that a study wrote, or runs that allow for one."""

    path: Path
    name: str
    summary: dict[str, Any]
    curves: dict[str, Any] | None
    entropies: dict[str, Any] | None
    runs: list[FinishedRun]


@dataclass
class Found:
    """Everything in a folder."""

    folder: Path
    studies: list[FinishedStudy] = field(default_factory=list)
    runs: list[FinishedRun] = field(default_factory=list)
    diagnoses: dict[str, dict[str, Any]] = field(default_factory=dict)  # by the names of their folders
    left_out: list[LeftOut] = field(default_factory=list)

    def without(self, what: str | Path, why: str) -> None:
        """Notes that something is not on the page."""
        self.left_out.append(LeftOut(self.name(what) if isinstance(what, Path) else what, why))

    def name(self, path: Path) -> str:
        """Of a path inside the folder."""
        own = path.relative_to(self.folder).as_posix()
        return self.folder.resolve().name or str(self.folder) if own == "." else own

    def attempted(self, what: str | Path, make: Callable[[], T]) -> T | None:
        """What ``make`` returns; None, and a note, where a file is not of the form that it needs."""
        try:
            return make()
        except (OSError, ValueError, ImportError) as error:
            self.without(what, " ".join(str(error).split()))
        except (LookupError, TypeError, AttributeError, ArithmeticError) as error:  # content of another form
            self.without(what, f"not of the form that this version writes: {type(error).__name__}, {error}")
        except RecursionError:
            self.without(what, "not of the form that this version writes: it is nested too deeply")
        return None


def read(folder: Path) -> Found:
    """Everything that a folder holds, down to three folders below it.

    Args:
        folder: of a study, of a run, of a diagnosis, or one that has such folders inside.

    Returns:
        What there is. Left out, with a reason: runs without a result, runs of another version of this package, files
        that cannot be read.

    Raises:
        ValueError: there is no such folder.
    """
    if not folder.is_dir():
        raise ValueError(f"expected a folder, got {folder}, {'a file' if folder.exists() else 'which is not there'}")
    found = Found(folder)
    _look(folder, found, 0)
    _compare_alike(found)
    return found


def _look(folder: Path, found: Found, depth: int) -> None:
    if (folder / "diagnosis.json").is_file():
        content = found.attempted(folder / "diagnosis.json", lambda: _mapping(folder / "diagnosis.json"))
        if content is not None:
            found.diagnoses[found.name(folder)] = content
    if (folder / "summary.json").is_file():
        study = found.attempted(folder / "summary.json", lambda: _study(folder, found))
        if study is not None:
            found.studies.append(study)
        return
    if (folder / "recipe.json").is_file():
        run = _run(folder, found)
        if run is not None:
            found.runs.append(run)
        return
    if (folder / "study.json").is_file():
        found.without(folder, "an unfinished study: there is no summary.json yet; the same command resumes it")
    if depth < _DEEPEST:
        for child in _folders(folder):
            _look(child, found, depth + 1)


def picture(path: Path, folder: Path, kind: str, most: int) -> str | None:
    """A picture as a page embeds it; None if it is none, is too large, or a link leads out of the folder.

    Args:
        path: of the file.
        folder: that the page is of, or a part of it.
        kind: "png" or "jpeg".
        most: bytes.
    """
    place = path.resolve()
    if not (place.is_file() and place.is_relative_to(folder.resolve()) and place.stat().st_size <= most):
        return None
    content = place.read_bytes()
    if not content.startswith(_STARTS[kind]):
        return None
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"


def _folders(folder: Path) -> Iterator[Path]:
    """Those inside, by name; no hidden ones, none that a link leads out to."""
    for child in sorted(folder.iterdir()):
        if child.is_dir() and not child.is_symlink() and child.name not in _CLOSED and not child.name.startswith("."):
            yield child


def _mapping(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = runs.read_json(path, dict)
    return content


def _study(folder: Path, found: Found) -> FinishedStudy:
    summary = _mapping(folder / "summary.json")
    _check(summary)
    summary.setdefault("baseline", next(name for name in summary["methods"] if name not in summary["paired"]))
    theirs, ours = _version(summary.get("environment")), _version(present_environment())
    if theirs != ours:
        found.without(
            folder / "summary.json", f"on the page, but written by version {theirs or 'unknown'}; this is {ours}"
        )
    inside = list(_folders(folder / "training")) if (folder / "training").is_dir() else []
    rounds = [place / "training" for place in inside if (place / "training").is_dir()]
    inside += [place for each in rounds for place in _folders(each)]
    kept = [_run(place, found) for place in inside if (place / "recipe.json").is_file()]
    return FinishedStudy(
        folder,
        found.name(folder),
        summary,
        _beside(folder / "curves.json", found),
        _beside(folder / "entropies.json", found),
        [run for run in kept if run is not None],
    )


def _check(summary: Mapping[str, Any]) -> None:
    """A ValueError that says what a summary lacks."""
    missing = [key for key in ("metric", "lower_is_better", "methods", "paired") if key not in summary]
    if missing:
        raise ValueError(f"expected a summary of a comparison, got one without {', '.join(missing)}")
    if not isinstance(summary["methods"], dict) or not summary["methods"]:
        raise ValueError("expected a summary with methods, got none")
    lengths = {len(own["values"]) for own in summary["methods"].values()}
    if len(lengths) > 1:
        raise ValueError(f"expected as many scores of every method, got {', '.join(map(str, sorted(lengths)))}")
    if all(name in summary["paired"] for name in summary["methods"]):
        raise ValueError("expected one method that the others are held to, got none")


def _beside(path: Path, found: Found) -> dict[str, Any] | None:
    return found.attempted(path, lambda: _mapping(path)) if path.is_file() else None


def _run(folder: Path, found: Found) -> FinishedRun | None:
    """A finished run of this version; else None, and a note."""

    def whole() -> FinishedRun:
        run = runs.open(folder)
        if not (folder / "result.json").is_file():
            failure = run.failure()
            if failure is not None:
                raise ValueError(f"the run failed: {failure['type']}: {failure['message'] or 'no message'}")
            raise ValueError("half-written: there is a recipe.json but no result.json, so the run is not finished")
        theirs, ours = _version(run.environment), _version(present_environment())
        if theirs != ours:
            raise ValueError(f"a run of version {theirs or 'unknown'}; this is {ours}")
        inside = [folder, *(child for child in _folders(folder) if (child / "metrics.jsonl").is_file())]
        metrics = next((lines for lines in (runs.Run(p, {}, "", 0).metrics() for p in inside) if lines), [])
        return FinishedRun(
            folder,
            found.name(folder),
            run.method,
            run.seed,
            run.recipe,
            run.environment,
            _mapping(folder / "result.json"),
            metrics,
        )

    return found.attempted(folder, whole)


def _version(environment: Any) -> str | None:
    return environment.get("ordinal_entropy") if isinstance(environment, Mapping) else None


def _compare_alike(found: Found) -> None:
    """Makes a study of runs of one recipe by several methods over the same seeds; the others stay runs."""
    alike: dict[str, list[FinishedRun]] = {}
    for run in found.runs:
        alike.setdefault(json.dumps([flat(run.recipe), run.result.get("metric")], sort_keys=True), []).append(run)
    for group in alike.values():
        study = _study_of(group, found)
        if study is not None:
            found.studies.append(study)
            found.runs = [run for run in found.runs if run not in group]


def _study_of(group: Sequence[FinishedRun], found: Found) -> FinishedStudy | None:
    by_method: dict[str, dict[int, FinishedRun]] = {}
    for run in group:
        by_method.setdefault(run.method, {})[run.seed] = run
    seeds = sorted({run.seed for run in group})
    first = group[0]
    same = all(sorted(own) == seeds for own in by_method.values())
    once = len(group) == len(by_method) * len(seeds)
    scored = all({"metric", "lower_is_better", *_POINTS} <= run.result.keys() for run in group)
    if len(by_method) < 2 or not (same and once and scored):
        return None
    names = sorted(by_method, key=lambda name: name != "baseline")  # that one first
    scores = {
        name: {at: [_number(by_method[name][seed].result[at]) for seed in seeds] for at in _POINTS} for name in names
    }
    made = comparison.summary(
        task=str(first.recipe.get("task", "")),
        metric=first.result["metric"],
        lower_is_better=first.result["lower_is_better"],
        scores=scores,
        recipe=first.recipe,
        environment=first.environment,
        baseline=names[0],
    )
    made |= {"baseline": names[0], "variants": {name: {"method": name} for name in names}}
    known = [references.beside(references.of_run("", by_method[names[0]][seed].result)) for seed in seeds]
    everywhere = {name: [own[name] for own in known] for name in known[0] if all(name in own for own in known)}
    made |= references.described(everywhere, str(first.result.get("constant") or ""))
    title = f"{len(group)} runs of {first.recipe.get('task', 'one recipe')}"
    return FinishedStudy(found.folder, title, as_read(made), curves_of(group), None, list(group))


def curves_of(group: Sequence[FinishedRun], *, by_run: bool = False) -> dict[str, Any] | None:
    """Scores during training as in a study's curves.json, from what the runs logged; None where they differ in steps.

    Args:
        group: the runs.
        by_run: each is a variant of its own, by its name; else its method is.
    """
    steps: list[int] | None = None
    lines = []
    for run in group:
        metric = logged_metric(run)
        own = {int(line["step"]): line for line in run.metrics}  # the later one of a step that was logged twice
        if metric is None or steps not in (None, sorted(own)):
            return None
        steps = sorted(own)
        numbers = {part: [_none(own[step].get(name)) for step in steps] for part, name in metric.items()}
        lines.append({"variant": run.name if by_run else run.method, "seed": run.seed, **numbers})
    return {"steps": steps, "runs": lines}


def logged_metric(run: FinishedRun) -> dict[str, str] | None:
    """For training, validation and test rows the key of the score in ``metrics.jsonl``: the one that all three have."""
    keys = run.metrics[0].keys() if run.metrics else []
    parts = ("train", "validation", "test")
    if all(part in keys for part in parts):
        return {part: part for part in parts}
    for key in keys:
        name = key.removeprefix("train_")
        if name != key and all(f"{part}_{name}" in keys for part in parts):
            return {part: f"{part}_{name}" for part in parts}
    return None


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def as_read(content: Any) -> Any:
    """As it would come back from a JSON file: None in place of NaN."""
    if isinstance(content, Mapping):
        return {key: as_read(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return [as_read(value) for value in content]
    return _none(content) if isinstance(content, float) else content


def _none(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else value
