"""A tuned comparison on a task: trials as run folders below ``tuning``, then the chosen settings on fresh seeds."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

from ordinal_entropy import comparison, methods, runs, tasks
from ordinal_entropy.comparison import references, tuning
from ordinal_entropy.comparison.text import metric_name
from ordinal_entropy.comparison.tuning import Axis, Budget, Found, Settings, Tuned
from ordinal_entropy.methods import Range
from ordinal_entropy.recipes import Setting, changed
from ordinal_entropy.studies.grid import Variant, summary_of
from ordinal_entropy.training.plans import Outcome, Plan, Progress
from ordinal_entropy.training.side_by_side import kept_processes

AXIS = "learning_rate"
FOLDER = "tuning"
_WEIGHT_DECAY = Range(1e-5, 0.1, log=True)
_OF_THE_RECIPE = (AXIS, "weight_decay")  # settings that are keys of a recipe; the others are options of parts


class TunedStudy(NamedTuple):
    """What is tuned and then compared."""

    task: str
    recipe: Any
    given: Sequence[str | Setting]  # settings of the user's, over a preset
    methods: Sequence[str]  # the first is what the others are held to
    seeds: int  # fresh ones, of each tuning
    budget: Budget

    def ranges(self) -> dict[str, dict[str, Range]]:
        """The settings of each row that are searched; options that the user has set are left alone.

        Of a term the fraction of the task loss's gradient is, or the strength where the recipe has a fixed one, or the
        method two stages.
        """
        decay = {"weight_decay": _around(_WEIGHT_DECAY, self.recipe.training.weight_decay)}
        given = tasks.part_options(self.recipe)
        set_by_hand = {f"{part}.{option}" for part, option, _ in given}
        for part, option, value in given:
            if option in ("strength", "balance") and value is not None:
                set_by_hand |= {f"{part}.strength", f"{part}.balance"}
        strength, balance = self.recipe.method.strength, self.recipe.method.balance
        found = {}
        for row in self.methods:
            own = methods.tunable(row, fixed=strength is not None or self._staged(row))
            own = {name: each for name, each in own.items() if name not in set_by_hand}
            values = {"strength": 1.0 if strength is None else strength, "balance": balance}
            found[row] = decay | {
                name: _around(each, values.get(name.rpartition(".")[2], 0)) for name, each in own.items()
            }
        return found

    def _staged(self, row: str) -> bool:
        """Whether a row has two stages, of which the first has no task loss to balance a term against."""
        options: dict[str, dict[str, Any]] = {part: {} for part in methods.split(row)}
        for part, option, value in tasks.part_options(self.recipe):
            if part in options:
                options[part][option] = value
        return len(methods.with_default(row, options).stages) > 1

    def set_to(self, recipe: Any, settings: Settings) -> Any:
        """The recipe at the settings of a trial."""
        return changed(recipe, self._values(recipe, settings))

    def variant(self, recipe: Any, row: str, settings: Settings) -> Variant:
        """A row at chosen settings, under its own name."""
        values = self._values(recipe, settings)
        return Variant(row, tuple((key.rpartition(".")[2], value) for key, value in values.items()), title=row)

    def _values(self, recipe: Any, settings: Settings) -> dict[str, Any]:
        texts = [f"{key if key in _OF_THE_RECIPE else f'method.{key}'}={value}" for key, value in settings.items()]
        return tasks.values_of(self.task, recipe, texts)


def _around(own: Range, value: float) -> Range:
    """The range, longer where a positive value is not inside it."""
    if not value > 0:
        return own
    return own._replace(low=min(own.low, value / 10), high=max(own.high, value * 10))


class Trials:
    """Trains what one tuning asks for, as runs in folders of its own."""

    def __init__(
        self,
        study: TunedStudy,
        recipe: Any,
        seeds: Sequence[int],
        folder: Path,
        train: Callable[..., list[Outcome]],
        progress: Callable[[], AbstractContextManager[Progress]],
    ) -> None:
        self.study, self.recipe, self.seeds, self.folder = study, recipe, seeds, folder
        self.train, self.progress = train, progress

    def __call__(self, stage: str, asked: Mapping[str, Sequence[Settings]]) -> dict[str, list[Found]]:
        """What settings found, by row; runs that are finished are read."""
        about, place = tasks.load(self.study.task), self.folder / stage
        recipes = {row: [self.study.set_to(self.recipe, own) for own in every] for row, every in asked.items()}
        plans = [Plan(row, seed, own) for row, every in recipes.items() for own in every for seed in self.seeds]
        outcomes = about.gather(plans, folder=place)
        if any(outcome.failure == {} for outcome in outcomes):  # a stage that is over is never trained again
            with self.progress() as told:
                outcomes = self.train(plans, folder=place, progress=told)
        _remove_checkpoints(place)
        seconds = about.seconds(plans, folder=place)
        scores = iter(zip(outcomes, seconds, strict=True))
        found: dict[str, list[Found]] = {}
        for row, every in recipes.items():
            found[row] = []
            for _ in every:
                own = [next(scores) for _ in self.seeds]
                found[row].append(Found([each.validation_score for each, _ in own], sum(spent for _, spent in own)))
        return found


def _remove_checkpoints(folder: Path) -> None:
    """Of a stage that is over, for there are many trials: nobody goes on with them."""
    for path in folder.glob("*/*"):
        if path.is_file() and path.suffix not in (".json", ".jsonl"):
            path.unlink()


@kept_processes()
def summary_of_tuned(
    study: TunedStudy,
    *,
    out: Path,
    device: str,
    jobs: int,
    progress: Callable[[], AbstractContextManager[Progress]],
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Tunes every row, trains the chosen settings with fresh seeds and summarises these.

    Args:
        study: what is compared.
        out: ``out/tuning/<number>/<stage>`` holds the trials, the rest is as of other comparisons. Interrupted, the
            same call resumes: the search is repeated with the scores of finished trials.
        device: "cpu", "cuda", ...
        jobs: processes that train side by side what the task does not train as one stack.
        progress: of each stage.
        tell: is told what each tuning chose.

    Returns:
        As :func:`ordinal_entropy.studies.grid.summary_of`, with "tuned", what the verdict is of and what it was
        before; and "tuning", what each row spent and chose. Scores of several tunings are means over their fresh seeds.
    """
    about = tasks.load(study.task)
    each: list[dict[str, Tuned]] = []
    axes: list[Axis] = []
    parts: list[dict[str, Any]] = []
    curves: list[Any] = []

    def train(plans: Sequence[Plan], **own: Any) -> list[Outcome]:
        return about.train(plans, device=device, jobs=jobs, go_on=True, timed=True, **own)

    for number in range(study.budget.tunings):
        recipe = about.set_aside(study.recipe, number)
        tried = changed(recipe, {"training.feature_rows": 0})  # nobody looks at the features of trials
        axis = tuning.around(AXIS, recipe.training.learning_rate, tuning.on_grid(study.budget.trials))
        seeds = study.budget.tuning_seeds(number)
        trials = Trials(study, tried, seeds, out / FOLDER / str(number), train, progress)
        found = tuning.tuned(
            study.ranges(), axis, study.budget.trials, trials, seed=number, lower_is_better=about.lower_is_better
        )
        if all(own.best is None for own in found.values()):
            raise ValueError(
                f"expected a validation score of at least one trial to tune by, got none of any row; "
                f"{out / FOLDER} has the runs, and what they failed with"
            )
        tell(_chose(found))
        variants = [
            study.variant(recipe, row, {} if own.best is None else own.best.settings) for row, own in found.items()
        ]
        with progress() as told:
            parts.append(
                summary_of(
                    study.task,
                    variants,
                    {"": recipe},
                    study.budget.fresh_seeds(number, study.seeds),
                    out=out,
                    device=device,
                    progress=told,
                    jobs=jobs,
                    go_on=True,
                )
            )
        curves.append(runs.read_json(out / "curves.json"))
        each.append(found)
        axes.append(axis)
    made = parts[0] if len(parts) == 1 else _over_tunings(parts)
    if len(parts) > 1:
        whole = {"steps": curves[0]["steps"], "runs": [run for own in curves for run in own["runs"]]}
        runs.write_json(out / "curves.json", whole, indent=None)
    before = _before(made, each, axes)
    sets_aside = about.set_aside(study.recipe, 1) != study.recipe
    budget = {**study.budget._asdict(), "fresh": study.seeds, "sets_aside": sets_aside}
    return {
        **made,
        "tuned": {"axis": AXIS, **budget, "before": before},
        "tuning": tuning.described(each, axes),
    }


def _chose(found: Mapping[str, Tuned]) -> str:
    said = []
    for row, own in found.items():
        chosen = "nothing: every trial failed" if own.best is None else shown(own.best.settings)
        said.append(f"{row}: {chosen}")
    return f"chosen on validation data: {'; '.join(said)}"


def shown(settings: Mapping[str, Any]) -> str:
    """Settings in a line.

    Example:
        >>> shown({"learning_rate": 0.00193, "oe.strength": 2.5})
        'learning_rate=0.00193 oe.strength=2.5'
    """
    return " ".join(f"{key}={f'{own:.3g}' if isinstance(own, float) else own}" for key, own in settings.items())


def _over_tunings(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """One summary of several, whose scores are means over the seeds of a tuning."""
    first = parts[0]
    at = [{row: own["at"] for row, own in part["methods"].items()} for part in parts]
    made = comparison.summary(
        task=first["task"],
        metric=first["metric"],
        lower_is_better=first["lower_is_better"],
        scores=tuning.over_tunings(at, comparison.POINTS),
        recipe=first["recipe"],
        environment=first["environment"],
        baseline=first["baseline"],
        failures=[comparison.Failure(**failure) for part in parts for failure in part["failures"]],
    )
    found = {**first, **made}
    if "details" in first:
        found["details"] = {
            row: {
                point: {name: [_mean(part["details"][row][point].get(name, [])) for part in parts] for name in names}
                for point, names in points.items()
            }
            for row, points in first["details"].items()
        }
    spent = sum(part["seconds"]["data_and_training"] for part in parts)
    resumed = any(part["seconds"]["resumed"] for part in parts)
    found |= references.joined(parts, means=True)
    return {**found, "seconds": {"data_and_training": round(spent, 1), "resumed": resumed}}


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else math.nan


def _before(
    summary: Mapping[str, Any], each: Sequence[Mapping[str, Tuned]], axes: Sequence[Axis]
) -> dict[str, Any] | None:
    """The comparison of the trials at the recipe's own settings; None where a row has none of them."""
    scores: dict[str, dict[str, list[float]]] = {}
    for row in summary["methods"]:
        own = [found[row].untuned(axis) for found, axis in zip(each, axes, strict=True)]
        if any(trial is None for trial in own):
            return None
        untuned = [score for trial in own if trial for score in trial.scores]
        scores[row] = dict.fromkeys(comparison.POINTS, untuned)
    made = comparison.summary(
        task=summary["task"],
        metric=f"validation {metric_name(summary['metric'])}",
        lower_is_better=summary["lower_is_better"],
        scores=scores,
        recipe={},
        environment={},
        baseline=summary["baseline"],
    )
    return {key: made[key] for key in ("task", "metric", "lower_is_better", "methods", "paired", "spread", "failures")}
