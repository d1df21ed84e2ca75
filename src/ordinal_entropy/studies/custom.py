"""A custom study: any methods on any task over the same seeds, as ``ordinal-entropy compare`` carries it out."""

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordinal_entropy import comparison, methods, studies, tasks
from ordinal_entropy.comparison.tuning import Budget, require_optuna
from ordinal_entropy.recipes import Setting, described, flat
from ordinal_entropy.results.tables import scale_of
from ordinal_entropy.studies import rounds, tuned
from ordinal_entropy.studies.grid import Variant, methods_known, plans_of, seeds_from, summary_of, with_strengths
from ordinal_entropy.training.plans import Progress


@dataclass
class CustomStudy:
    """What is compared, and how; what cannot be compared is a ValueError."""

    task: str
    preset: str
    settings: Sequence[str | Setting]  # over the preset
    recipe: Any  # that these make
    methods: list[str]  # two or more; the baseline, if it is among them, will be the first
    seeds: int  # how many, or how many at most
    strengths: str = ""  # as in "0.1,1", of the methods that have one; "" for that of the recipe
    stop_early: bool = False  # seeds come in rounds, until no verdict is open
    smallest: float | None = None  # differences below it do not matter, a reason to stop
    tune: Budget | None = None  # every row is tuned with it first, on validation data

    def __post_init__(self) -> None:
        names = methods_known(self.methods, task=self.task)
        if len(names) < 2:
            raise ValueError(f"expected two or more --methods, got {', '.join(names)}")
        if "baseline" in names:
            names = ["baseline", *(name for name in names if name != "baseline")]
        self.methods, self.strengths = names, self.strengths.replace(" ", "")
        tasks.require_parts(self.recipe, names)
        given = tasks.values_of(self.task, self.recipe, self.settings)
        self.variants = _variants(names, self.strengths, self.recipe, "method.strength" in given)
        self.recipes = {"": self.recipe}
        self.seed_numbers = seeds_from(self.seeds)
        if self.smallest is not None and not self.stop_early:
            alone = f"{self.smallest:g} alone"
            raise ValueError(f"expected --stop-early beside --smallest, which is a reason to stop, got {alone}")
        if self.tune is not None:
            self.tune.checked(self.seeds)
            if self.strengths or self.stop_early:
                other = "--strengths" if self.strengths else "--stop-early"
                raise ValueError(f"expected --tune or {other}, got both")
        self.rule = comparison.StopEarly(self.seeds, self.smallest).checked() if self.stop_early else None

    @property
    def shortened(self) -> bool:
        """Whether runs are those of something published, but for fewer steps."""
        return self.preset == "quick" and "paper" in tasks.load(self.task).presets

    def label(self) -> dict[str, Any]:
        """What the folder of the study is for."""
        label = {"study": f"compare {self.task}", "methods": self.methods, "seeds": self.seeds}
        label |= flat(described(self.recipe))
        label |= {"strengths": self.strengths} if self.strengths else {}
        label |= {"tune": self.tune._asdict()} if self.tune is not None else {}
        return label | ({"stop_early": self.rule._asdict()} if self.rule is not None else {})

    def command(self, device: str) -> list[str]:
        """The arguments that do it again."""
        chosen = ["--methods", ",".join(self.methods), "--seeds", str(self.seeds)]
        chosen += [*(["--strengths", self.strengths] if self.strengths else []), "--preset", self.preset]
        chosen += tasks.options_of(self.settings)
        chosen += ["--stop-early"] if self.stop_early else []
        chosen += ["--smallest", f"{self.smallest:g}"] if self.smallest is not None else []
        if self.tune is not None:
            names = {"trials": "--trials", "seeds": "--tuning-seeds", "tunings": "--tunings"}
            chosen.append("--tune")
            chosen += [text for key, own in self.tune._asdict().items() for text in (names[key], str(own))]
        return ["compare", self.task, *chosen, "--device", device]


def _variants(names: Sequence[str], strengths: str, recipe: Any, given: bool) -> list[Variant]:
    """The methods, those that have a strength with each of several where such are given beside no other."""
    if not strengths:
        return [Variant(name) for name in names]
    expected = "expected --strengths to be two or more different numbers of at least 0, as in 0.1,1,10"
    try:
        numbers = [float(each) for each in strengths.split(",")]
    except ValueError as error:
        raise ValueError(f"{expected}, got {strengths!r}") from error
    if not (1 < len(numbers) == len(set(numbers)) and all(0 <= each < math.inf for each in numbers)):
        raise ValueError(f"{expected}, got {strengths!r}")
    if given:
        raise ValueError("expected --strengths or --set strength=..., got both")
    own = {part: option for part, option, _ in tasks.part_options(recipe) if option in ("strength", "balance")}
    for name in names:  # a strength of the part's own would make all rows of a method the same
        fixed = [part for part in tasks.parts_of(name) if "strength" in methods.options(part)]
        if fixed and own.keys() >= set(fixed):
            raise ValueError(f"expected --strengths or --set method.{fixed[0]}.{own[fixed[0]]}=..., got both")
    found = with_strengths(names, numbers)
    if len(found) == len(names):
        raise ValueError(f"expected a method with a strength beside --strengths, got {', '.join(names)}")
    return found


def check(study: CustomStudy) -> None:
    """Refuses what the task cannot train; nothing is read."""
    task = tasks.load(study.task)
    if study.tune is not None:
        require_optuna()
    task.check(study.recipe)
    for plan in plans_of(study.variants, study.recipes, study.seed_numbers[:1]):
        task.check_method(plan)


def finished(study: CustomStudy, out: Path) -> tuple[dict[str, Any] | None, int]:
    """The summary in a folder, if nothing is left to be done; and how many runs failed and are to be tried again."""
    summary = studies.finished(out, study.label(), flat(described(type(study.recipe)())))
    with studies.reading_summary(out):
        failed = len((summary or {}).get("failures") or [])
    return (None, failed) if failed and (out / "training").exists() else (summary, 0)


def run(
    study: CustomStudy,
    out: Path,
    device: str,
    jobs: int,
    progress: Callable[[], AbstractContextManager[Progress]],
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Trains and writes ``out/summary.json``; an unfinished study resumes.

    Args:
        study: what is compared.
        out: its folder.
        device: "cpu", "cuda", ...
        jobs: processes that train side by side what the task does not train as one stack.
        progress: of each round.
        tell: is told the verdicts after each round.

    Returns:
        The content of summary.json. That every run failed is a ValueError.
    """
    own: dict[str, Any] = {"out": out, "device": device, "jobs": jobs, "go_on": True, "stop_early": study.rule}

    def trained(some: Sequence[int], new: Sequence[int] | None = None) -> dict[str, Any]:
        with progress() as told:
            return summary_of(study.task, study.variants, study.recipes, some, progress=told, new=new, **own)

    rows = [variant.name for variant in study.variants]
    count = study.seeds
    if study.tune is not None:
        asked = tuned.TunedStudy(study.task, study.recipe, study.settings, study.methods, study.seeds, study.tune)
        summary = tuned.summary_of_tuned(asked, out=out, device=device, jobs=jobs, progress=progress, tell=tell)
        count *= study.tune.tunings
    elif study.rule is None:
        summary = trained(study.seed_numbers)
    else:
        summary = rounds.train_in_rounds(trained, rounds.rounds_of(study.seed_numbers, jobs, len(rows)), tell)
        count = len(summary["methods"][summary["baseline"]]["values"])
    if len(summary["failures"]) == len(rows) * count:
        first = summary["failures"][0]
        raise ValueError(f"every run failed, the first with {first['type']}: {first['message']}")
    how = ", tuned" if study.tune is not None else ""
    return studies.write_summary(
        out,
        summary,
        about=f"{tasks.load(study.task).about.capitalize()}: {', '.join(rows)} over {count} seeds{how}",
        scale=scale_of(summary),
        notes=[studies.QUICK] if study.shortened else [],
        command=study.command(device),
    )
