"""The best composition for one's data: selected on validation data, then held to the tuned baseline on fresh seeds."""

import math
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ordinal_entropy import comparison, methods, runs, studies, tasks
from ordinal_entropy.comparison import forward, tuning
from ordinal_entropy.comparison.forward import Composed, Selected, Space
from ordinal_entropy.comparison.text import duration, parsed_duration
from ordinal_entropy.comparison.tuning import Budget, Found, Settings
from ordinal_entropy.recipes import Setting, changed, described, flat
from ordinal_entropy.results.tables import scale_of
from ordinal_entropy.studies.grid import Variant, plans_of, seeds_from, summary_of
from ordinal_entropy.studies.tuned import AXIS, FOLDER, Trials, TunedStudy
from ordinal_entropy.training.plans import Outcome, Plan, Progress, default_folder, run_names
from ordinal_entropy.training.side_by_side import kept_processes

BASE = "baseline"
PARTS = (  # in the order in which a short budget has them tried: what others' reruns gained by comes first
    *("lds", "c-mixup", "ema", "hl-gauss", "dldl-v2", "oe", "ld", "huber", "gar", "coral", "l1", "l2", "or-cnn"),
    *("mixup", "ada", "mean-variance", "ce", "swa", "balanced-mse", "focal-r", "quantile", "dist-loss", "srl", "conr"),
    *("ranksim", "rnc", "fds", "sord", "dldl", "corn", "balanced-mse-gai", "ph-reg", "rot-reg"),
)
NOT_TRIED = {  # unless asked for: ablations of oe, and controls, which ignore the targets
    *("ld-unweighted", "ld-cosine", "ld-no-norm", "ld-squared", "ld-sqrt", "lt", "classification"),
    *("vicreg", "koleo", "uniformity"),
}
_SECONDS = "seconds.json"  # what each stage took: with the scores, all that the selection follows from
_PROBES = (1, 1, 3, 3)  # epochs, or hundredths of the steps; of two of one length the faster counts


@dataclass
class BestStudy:
    """What is searched, and how; what cannot be searched is a ValueError."""

    task: str
    preset: str
    settings: Sequence[str | Setting]  # over the preset
    recipe: Any  # that these make
    budget: float  # seconds
    seeds: int | None = None  # that winner and baseline are compared over; as many as the budget allows, 3 to 10
    parts: Sequence[str] = ()  # that may join the baseline; none: all that the task can train, controls left out
    chosen: list[str] = field(init=False)  # the parts, in the order in which they are tried

    def __post_init__(self) -> None:
        if not self.budget > 0:
            raise ValueError(f"expected a budget above 0 seconds, got {self.budget:g}")
        if self.seeds is not None:
            seeds_from(self.seeds)
            Budget().checked(self.seeds)
        known = [name for name in (*PARTS, *methods.names()) if name not in NOT_TRIED and name != BASE]
        self.chosen = list(dict.fromkeys(self.parts or known))
        for part in self.chosen:
            if part == BASE or len(methods.split(part)) != 1:
                raise ValueError(f"expected single parts of methods to choose from, got {part!r}")
        self.parts = list(self.parts)
        tasks.require_parts(self.recipe, [BASE, *self.chosen])

    def label(self) -> dict[str, Any]:
        """What the folder of the study is for."""
        label: dict[str, Any] = {"study": f"best {self.task}", "budget": self.budget, "parts": self.chosen}
        label |= {"seeds": self.seeds} if self.seeds is not None else {}
        return label | flat(described(self.recipe))

    def command(self, device: str) -> list[str]:
        """The arguments that do it again."""
        chosen = ["--budget", f"{self.budget:g}s", "--preset", self.preset, *tasks.options_of(self.settings)]
        chosen += ["--seeds", str(self.seeds)] if self.seeds is not None else []
        chosen += ["--parts", ",".join(self.parts)] if self.parts else []
        return ["best", self.task, *chosen, "--device", device]

    def joined(self, row: str, part: str) -> str | None:
        """A row with one more part; None where they do not join, or the task cannot train them."""
        found = part if row == BASE else f"{row}+{part}"
        with suppress(ValueError):
            methods.create(found)
            tasks.load(self.task).check_method(Plan(found, 0, self.recipe))
            return found
        return None


def check(study: BestStudy) -> None:
    """Refuses what the task cannot train; nothing is read."""
    tuning.require_optuna()
    task = tasks.load(study.task)
    task.check(study.recipe)
    task.check_method(Plan(BASE, 0, study.recipe))
    if not any(study.joined(BASE, part) for part in study.chosen):
        raise ValueError(f"expected a part that {study.task} can train, got {', '.join(study.chosen)}")


class _Stages:
    """Trains the stages of the selection in folders of their own, and keeps what each of them took."""

    def __init__(
        self,
        study: BestStudy,
        recipe: Any,
        out: Path,
        train: Callable[..., list[Outcome]],
        progress: Callable[[], AbstractContextManager[Progress]],
    ) -> None:
        self.study, self.folder, self.train, self.progress = study, out / FOLDER, train, progress
        self.recipe = changed(recipe, {"training.feature_rows": 0})  # nobody looks at the features of trials
        self.path = out / _SECONDS
        self.seconds: dict[str, float] = runs.read_json(self.path, {str: runs.NUMBER}) if self.path.exists() else {}

    def __call__(
        self, stage: str, asked: Mapping[str, Sequence[Settings]], seeds: Sequence[int]
    ) -> tuple[Mapping[str, Sequence[Found]], float]:
        trials = Trials(self.of_rows(list(asked)), self.recipe, seeds, self.folder, self.train, self.progress)
        start = time.perf_counter()
        found = trials(stage, asked)
        self.keep(stage, time.perf_counter() - start)
        return found, self.seconds[stage]

    def ranges(self, row: str) -> Mapping[str, methods.Range]:
        """What is searched of a row."""
        return self.of_rows([row]).ranges()[row]

    def run_seconds(self, jobs: int) -> float:
        """About what a run of the baseline takes, by short ones, as many side by side as there will be."""
        beside = 1 if tasks.load(self.study.task).training.group_key is not None else jobs
        took: dict[int, float] = {}
        for place, length in enumerate(_PROBES):
            stage, short = f"probe-{place}", _shortened(self.recipe, length)
            if stage not in self.seconds:
                start = time.perf_counter()
                self.train([Plan(BASE, seed, short) for seed in range(beside)], folder=self.folder / stage)
                self.keep(stage, time.perf_counter() - start)
            took[length] = min(self.seconds[stage], took.get(length, math.inf))
        least, most = sorted(took)
        each = max(took[most] - took[least], 0.0) / (most - least)
        own = self.recipe.training
        count = own.epochs if hasattr(own, "epochs") else 100
        return (count * each + max(took[least] - least * each, 0.0)) / beside

    def keep(self, stage: str, seconds: float) -> None:
        """What a stage took; of one that is over already, nothing changes."""
        if stage not in self.seconds:
            self.seconds[stage] = round(seconds, 3)
            runs.write_json(self.path, self.seconds)

    def of_rows(self, rows: Sequence[str]) -> TunedStudy:
        """What is searched of rows, and how their settings reach a recipe."""
        return TunedStudy(self.study.task, self.recipe, self.study.settings, rows, 0, Budget())


def _shortened(recipe: Any, length: int) -> Any:
    """A run of so many epochs, or hundredths of the steps."""
    own = recipe.training
    if hasattr(own, "epochs"):
        return changed(recipe, {"training.epochs": length})
    return changed(recipe, {"training.steps": max(own.steps * length // 100, length)})


@kept_processes()
def run(
    study: BestStudy,
    out: Path,
    device: str,
    jobs: int,
    progress: Callable[[], AbstractContextManager[Progress]],
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Selects, trains winner and baseline with fresh seeds, and writes ``out/summary.json``; a stopped study resumes.

    Args:
        study: what is searched.
        out: its folder.
        device: "cpu", "cuda", ...
        jobs: processes that train side by side what the task does not train as one stack.
        progress: of each stage.
        tell: is told what each stage found.

    Returns:
        The content of summary.json: that of a comparison, "tuned" and "tuning" as of a tuned one, and "best".
    """
    about = tasks.load(study.task)
    recipe = about.set_aside(study.recipe, 0)
    train = partial(about.train, device=device, jobs=jobs, go_on=True, timed=True)
    stages = _Stages(study, recipe, out, train, progress)
    run_seconds = stages.run_seconds(jobs)
    tell(f"a run of the baseline takes about {duration(run_seconds)}")
    space = Space(study.chosen, recipe.training.learning_rate, stages.ranges, study.joined, BASE, AXIS)
    found = forward.forward(
        space,
        stages,
        study.budget,
        run_seconds=run_seconds,
        fresh=study.seeds,
        lower_is_better=about.lower_is_better,
        tell=tell,
    )
    rows = _rows(found)
    asked = stages.of_rows([each.row for each in rows])
    variants = [asked.variant(recipe, each.row, each.settings) for each in rows]
    if len(rows) == 1 and asked.set_to(recipe, found.baseline.settings) != recipe:
        variants.append(Variant(BASE, title=f"{BASE}, untuned"))
    seeds = list(range(found.fresh))
    tell(f"training {' and '.join(each.name for each in variants)} with {found.fresh} fresh seeds")
    start = time.perf_counter()
    with progress() as told:
        summary = summary_of(
            study.task, variants, {"": recipe}, seeds, out=out, device=device, progress=told, jobs=jobs, go_on=True
        )
    stages.keep("fresh", time.perf_counter() - start)
    first = summary["failures"][0] if len(summary["failures"]) == len(variants) * len(seeds) else None
    if first is not None:
        raise ValueError(f"every run failed, the first with {first['type']}: {first['message']}")
    summary |= _described(study, found, rows, sum(stages.seconds.values()))
    summary["tuned"]["sets_aside"] = about.set_aside(study.recipe, 1) != study.recipe
    summary["best"] |= _model(study, summary, variants, recipe, seeds, out)
    return studies.write_summary(
        out,
        summary,
        about=f"{about.about.capitalize()}: the best composition found within {duration(study.budget)}",
        scale=scale_of(summary),
        command=study.command(device),
    )


def _rows(found: Selected) -> list[Composed]:
    """The baseline, and beside it the winner; where no part gains, the one that came nearest."""
    if found.winner.row != BASE:
        return [found.baseline, found.winner]
    nearest = [
        Composed(row, own["chosen"], Found([own["validation"]]), own["trials"])
        for each in found.rounds
        for row, own in each.tuned.items()
        if row != each.best and own["chosen"]
    ]
    if not nearest:
        return [found.baseline]
    sign = 1 if found.tuned.lower_is_better else -1
    return [found.baseline, min(nearest, key=lambda own: sign * own.found.mean)]


def _described(study: BestStudy, found: Selected, rows: Sequence[Composed], spent: float) -> dict[str, Any]:
    """What tuning and selection found, as in ``summary.json``."""
    blank: dict[str, Any] = {"failed": 0, "untuned": None, "seconds": math.nan, "curve": [], "at_edge": []}
    other = {
        each.row: {**blank, "trials": each.trials, "chosen": each.settings, "validation": each.found.mean}
        for each in rows[1:]
    }
    budget = {"trials": found.baseline.trials, "seeds": len(found.baseline.found.scores), "tunings": 1}
    return {
        "tuned": {"axis": found.axis.name, **budget, "fresh": found.fresh, "before": None},
        "tuning": {BASE: found.tuned.described(found.axis), **other},
        "best": {
            "winner": found.winner.row,
            "trials": found.winner.trials,
            "parts": study.chosen,
            "rounds": [asdict(each) for each in found.rounds],
            "ended": found.ended,
            "budget": study.budget,
            "spent": round(spent, 1),
        },
    }


def _model(
    study: BestStudy,
    summary: Mapping[str, Any],
    variants: Sequence[Variant],
    recipe: Any,
    seeds: Sequence[int],
    out: Path,
) -> dict[str, Any]:
    """The run to be used, and the command that trains it again: of the winner, that of the best validation score.

    Of the baseline where the fresh runs say that the winner is worse.
    """
    winner = next(place for place, each in enumerate(variants) if each.name == summary["best"]["winner"])
    if comparison.decisions(summary).get(variants[winner].name) == "hurts":
        winner = 0
    plans = plans_of(variants, {"": recipe}, seeds)
    about = tasks.load(study.task)
    outcomes = about.gather(plans, folder=out / "training")
    sign = 1 if about.lower_is_better else -1
    own = range(winner * len(seeds), (winner + 1) * len(seeds))
    ended = [place for place in own if math.isfinite(outcomes[place].validation_score)]
    place = min(ended or own, key=lambda place: sign * outcomes[place].validation_score)
    plan, folder = plans[place], out / "training" / run_names(plans)[place]
    given = tasks.arguments(study.task, described(plan.recipe)) or []
    again = ["ordinal-entropy", "train", study.task, "--method", plan.method, "--seed", str(plan.seed), *given]
    return {"model": str(folder.relative_to(out)), "train": shlex.join(again)}


@dataclass(frozen=True)
class Best:
    """What :func:`best` found; prints as the verdict."""

    summary: dict[str, Any]
    folder: Path

    @property
    def winner(self) -> str:
        """The composition, as :func:`ordinal_entropy.methods.create` takes it; "baseline" where nothing gained."""
        return str(self.summary["best"]["winner"])

    @property
    def settings(self) -> dict[str, Any]:
        """What was chosen for the winner on validation data: keys of the recipe, and PART.OPTION."""
        return dict(self.summary["tuning"][self.winner]["chosen"])

    @property
    def model(self) -> Path:
        """The run to be used."""
        return self.folder / str(self.summary["best"]["model"])

    @property
    def verdict(self) -> list[str]:
        """The winner against the tuned baseline on fresh seeds, and what was tried."""
        return comparison.verdict(self.summary, scale_of(self.summary)).sentences

    def __str__(self) -> str:
        return "\n".join(self.verdict)


def best(
    task: str,
    settings: Sequence[str | Setting] = (),
    *,
    budget: float | str = "20m",
    preset: str = "paper",
    parts: Sequence[str] = (),
    seeds: int | None = None,
    out: str | Path | None = None,
    device: str = "cpu",
    jobs: int = 1,
) -> Best:
    """The best composition of methods for one's data, as the command ``best`` finds it.

    Args:
        task: "tabular", "age", ...
        settings: ``key=value`` over the preset, such as ``["data=houses.csv", "target=price"]``.
        budget: seconds, or text such as "20m".
        preset: of the task.
        parts: that may join the baseline; all but controls where none are given.
        seeds: that winner and baseline are compared over; 3 to 10, by the budget, where not given.
        out: the folder; one in ``runs`` where not given. The same call resumes, or reads back what is finished.
        device: "cpu", "cuda", ...
        jobs: processes that train side by side what the task does not train as one stack.

    Example:
        >>> found = best("tabular", ["data=houses.csv", "target=price"], budget="5m")  # doctest: +SKIP
        >>> found.winner, found.model  # doctest: +SKIP
        ('lds+oe', PosixPath('runs/best-tabular-1f0c22/training/lds+oe-seed3'))
    """
    own, seconds = tasks.preset_of(task, preset), parsed_duration(budget) if isinstance(budget, str) else budget
    study = BestStudy(task, own, settings, tasks.recipe(task, own, settings), float(seconds), seeds, parts)
    place = Path(out) if out is not None else default_folder(f"best-{task}", study.label())
    if not (place / "summary.json").exists():
        check(study)
    with runs.lock(place / ".lock"):
        found = finished(study, place)
        if found is None:
            found = run(study, place, device, jobs, lambda: nullcontext(lambda done, total: None), lambda text: None)
    return Best(found, place)


def finished(study: BestStudy, out: Path) -> dict[str, Any] | None:
    """The summary in a folder, if nothing is left to be done."""
    return studies.finished(out, study.label(), flat(described(type(study.recipe)())))
