"""The parts of a page: one for each study, for loose runs, for a diagnosis."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ordinal_entropy import methods, tasks
from ordinal_entropy.comparison import references
from ordinal_entropy.comparison.text import NONE, count, metric_name, number
from ordinal_entropy.comparison.verdicts import Verdict, verdict
from ordinal_entropy.recipes import flat
from ordinal_entropy.report import clouds
from ordinal_entropy.report.clouds import Cloud, Progress
from ordinal_entropy.report.reading import FinishedRun, FinishedStudy, Found, curves_of, logged_metric, picture
from ordinal_entropy.results import published, summary_figures, tables, training_figures
from ordinal_entropy.results.figures import Figure
from ordinal_entropy.results.tables import Row, Table

_AGAIN = "A folder that holds a finished study is read back, not run again: give a new one by --out."
_NEW = "NEW stands for a folder that is not there yet."
_OWN_LOOP = "The scores are those of a training loop of your own, compared by oe.compare: run that again."
_MOST_RUNS = 12  # whose commands and recipes are shown
_PICTURE_BYTES = 1_200_000  # of all of a page
_UNRECORDED = "The command was not recorded; --keys lists what --set takes, the recipe below says what was set."


@dataclass
class Section:
    """What the template shows, in its order."""

    title: str
    about: str = ""
    verdict: Verdict | None = None
    alarms: list[str] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    methods: list[str] = field(default_factory=list)  # to choose among
    charts: list[Figure] = field(default_factory=list)
    cloud: Cloud | None = None
    cloud_note: str = ""  # why there is none
    pictures: dict[str, str] = field(default_factory=dict)  # by the names of their files
    meanings: dict[str, str] = field(default_factory=dict)
    commands: list[str] = field(default_factory=list)
    commands_note: str = ""
    folded: list[Table] = field(default_factory=list)  # shown where they are asked for


def of_study(study: FinishedStudy, found: Found, cache: Path, progress: Progress | None = None) -> Section:
    """The verdict first, then tables, figures, and all that is needed to run it again."""
    summary, shown = study.summary, study.summary.get("shown") or {}
    scale = tables.scale_of(summary)
    names = list(summary["methods"])
    alone = study.path == found.folder
    section = Section(
        title=str(summary.get("study") or study.name) if alone else study.name,
        about=str(shown.get("about") or _about(summary)),
        verdict=found.attempted(f"{study.name}: verdict", lambda: verdict(summary, scale)),
        notes=[str(note) for note in shown.get("notes") or []],
        methods=names,
        meanings=_meanings(summary),
    )

    def add(what: str, make: Any) -> None:
        """Tables and charts of parts that not every summary has; one that is odd does not take the others along."""
        made = found.attempted(f"{study.name}: {what}", make)
        for each in made if isinstance(made, list) else [made]:
            if each is not None:
                (section.charts if isinstance(each, Figure) else section.tables).append(each)

    if "memory_mb" in summary:
        add("costs", lambda: tables.costs(summary))
    else:
        add("scores", lambda: tables.scores(summary, scale, shown.get("paper_at")))
    add("differences", lambda: tables.differences(summary, scale))
    add("claims", lambda: tables.claims(summary))
    add("tuning", lambda: tables.tuning(summary, scale))
    add("selection", lambda: tables.selection(summary, scale))
    add("further scores", lambda: tables.details(summary, shown.get("details") or {}))
    if "memory_mb" in summary:
        add("the figure of costs", lambda: summary_figures.costs(summary))
    add("the figure of differences", lambda: summary_figures.differences(summary, scale))
    add("the figure of scores", lambda: summary_figures.scores(summary, scale))
    if "tuning" not in summary:  # where each row has settings of its own
        add("the figures against a setting", lambda: summary_figures.sweeps(summary, scale))
    curves, entropies, called = study.curves, study.entropies, {name: name for name in names}
    add("the figure of learning rates", lambda: summary_figures.learning_rates(summary, scale))
    if curves is not None:
        add("curves.json", lambda: training_figures.scores(curves, called, str(summary["metric"]), scale))
    if entropies is not None:
        add("entropies.json", lambda: training_figures.entropies(entropies, called))
    _add_cloud(section, _runs_by_variant(study), found, cache, progress)
    if alone:
        _add_pictures(section, study.path)
    section.folded += [] if _of_own_loop(summary) else published.of_task(str(summary.get("task")))
    _add_settings(section, summary)
    return section


def of_runs(runs: Sequence[FinishedRun], found: Found, cache: Path, progress: Progress | None = None) -> Section:
    """Runs of one task that do not make up a comparison: their scores, curves and features."""
    first, names = runs[0], [run.name for run in runs]
    task = str(first.recipe.get("task") or "one recipe")
    title = f"{task}: {first.method}, seed {first.seed}" if len(runs) == 1 else f"{len(runs)} runs of {task}"
    section = Section(title, methods=names, meanings=_described({run.method: run.method for run in runs}))
    section.sentences.append(
        "One run: with one more method and two seeds each there is something to compare."
        if len(runs) == 1
        else "These runs are shown side by side, not compared: that takes two methods or more of the same recipe, each "
        "over the same seeds."
    )
    for run in runs:
        section.sentences += found.attempted(f"{run.name}: references", partial(_said_by_references, run)) or []
    section.tables.append(_scores_of(runs))
    curves = found.attempted("curves of the runs", lambda: curves_of(runs, by_run=True))
    if curves is not None:
        metric = str(first.result.get("metric") or (logged_metric(first) or {"test": "score"})["test"])
        chart = training_figures.scores(curves, {name: name for name in names}, metric.removeprefix("test_"), 1.0)
        section.charts += [chart] if chart is not None else []
    _add_cloud(section, {run.name: run for run in runs}, found, cache, progress)
    for run in runs[:_MOST_RUNS]:
        chosen = ["--method", run.method, "--seed", str(run.seed)]
        command, section.commands_note = _command("train", task, chosen, run.recipe)
        section.commands.append(command)
    for run in runs[:_MOST_RUNS]:
        prefix = "" if len(runs) == 1 else f"{run.name}: "
        section.folded.append(tables.key_values(f"{prefix}recipe", flat(run.recipe)))
    section.folded.append(tables.key_values("Environment", first.environment))
    return section


def of_diagnosis(content: Mapping[str, Any]) -> Section:
    """Measures of features, of one file or of two side by side."""
    files = [str(name) for name in content["files"]]
    sides = [content] if "measures" in content else [content["before"], content["after"]]
    differences = content.get("differences") or {}
    section = Section(f"Diagnosis of {' and '.join(Path(name).name for name in files)}")
    for name, side in zip(files, sides, strict=True):
        section.alarms += [f"{name}: {alarm}" if len(files) > 1 else str(alarm) for alarm in side["alarms"]]
        said = [side.get("sampling") or "", *(side.get("notes") or [])]
        section.notes += [f"{name}: {text}" if len(files) > 1 else str(text) for text in said if text]
    if not section.alarms:
        section.sentences.append("No sign of collapse.")
    rows = [_measured([side["measures"][key] for side in sides], differences.get(key)) for key in sides[0]["measures"]]
    headings = [
        "",
        *(files if len(files) > 1 else ["value"]),
        *(["difference"] if differences else []),
        "what it means",
    ]
    note = "In brackets the 95% interval; the short line is zero." + (
        f" Upper dot: {files[0]}; lower: {files[1]}." if len(files) > 1 else ""
    )
    section.tables.append(Table("What was measured", headings, rows, note, prose=True))
    section.notes += [str(text) for text in content.get("notes") or []] if len(files) > 1 else []
    section.commands = [shlex.join(["ordinal-entropy", "diagnose", *files])]
    return section


def _measured(each: Sequence[Mapping[str, Any]], difference: Mapping[str, Any] | None) -> Row:
    """One measure: a dot and a line for each file, the numbers, and what they mean."""
    unit = str(each[0].get("unit") or "")
    known = [own for own in each if own.get("value") is not None]
    triples = [
        [own["value"] if own.get(end) is None else own[end] for end in ("low", "value", "high")] for own in known
    ]
    ends = [0.0, *(float(end) for own in triples for end in own), *([1.0] if unit == "share" else [])]
    low, span = min(ends), (max(ends) - min(ends)) or 1.0

    def at(value: float) -> float:
        return 4 + 92 * (value - low) / span  # percent, with room for the dot at both ends

    cells = ["", *(_with_interval(own, unit, bare=difference is not None) for own in each)]
    cells += [_with_interval(difference, unit, sign=True)] if difference else []
    meaning = str((difference or each[0]).get("meaning") or "")
    title = str(each[0].get("title") or each[0].get("name"))
    return Row(
        title if unit in ("", "share") else f"{title}, {unit}",
        [*cells, meaning],
        dots=[(at(own[0]), at(own[1]), at(own[2])) for own in triples],
        zero=at(0.0),
    )


def _add_cloud(
    section: Section, runs: Mapping[str, FinishedRun], found: Found, cache: Path, progress: Progress | None
) -> None:
    if not any(run.features for run in runs.values()):
        return
    section.cloud_note = clouds.missing() or ""
    if section.cloud_note:
        return
    before = len(found.left_out)
    section.cloud = found.attempted(f"{section.title}: features", lambda: clouds.cloud(runs, cache, progress))
    if section.cloud is not None and section.cloud.distances is not None:
        section.charts.append(section.cloud.distances)
    if section.cloud is None and len(found.left_out) > before:
        section.cloud_note = found.left_out[-1].why.rstrip(".")


def _add_pictures(section: Section, folder: Path) -> None:
    """The PNGs of a study, as they are drawn for print; too large ones and links to elsewhere are named only."""
    left, without = _PICTURE_BYTES, []
    for path in sorted(folder.glob("*.png")):
        found = picture(path, folder, "png", left)
        if found is not None:
            left -= path.stat().st_size
            section.pictures[path.name] = found
        else:
            without.append(path.name)
    if without:
        why = "for its size, or because they lie elsewhere or are damaged"
        section.notes.append(f"Pictures in the folder that are not on this page, {why}: {', '.join(without)}.")


def _runs_by_variant(study: FinishedStudy) -> dict[str, FinishedRun]:
    """Of the first seed that most variants have a run of."""
    summary, found = study.summary, {}
    for name, changes in (summary.get("variants") or {}).items():
        recipes = summary.get("recipes") or {}
        base = next((own for label, own in recipes.items() if label and name.endswith(f" {label}")), summary["recipe"])
        wanted = {**flat(base), **{key: value for key, value in changes.items() if key != "method"}}
        wanted.pop("task", None)
        for run in study.runs:
            recipe = {key: value for key, value in flat(run.recipe).items() if key != "task"}
            if run.method == changes.get("method") and recipe == wanted:
                found[name, run.seed] = run
    seeds = [seed for _, seed in found]
    best = min(sorted(set(seeds)), key=lambda seed: -seeds.count(seed), default=0)
    return {name: run for (name, seed), run in found.items() if seed == best}


def _add_settings(section: Section, summary: Mapping[str, Any]) -> None:
    command, study = summary.get("command"), summary.get("study")
    if command:
        section.commands, section.commands_note = [str(command)], _AGAIN
        own = summary.get("best")
        if own:
            section.notes.append(f"The model to use is the run in {own['model']}, in the folder of this page.")
            section.commands.append(str(own["train"]))
    elif study:
        section.commands, section.commands_note = [f"ordinal-entropy reproduce {study}"], _UNRECORDED
    elif summary.get("task") in tasks.names() and not _of_own_loop(summary):
        seeds = max(len(own["values"]) for own in summary["methods"].values())
        chosen = ["--methods", ",".join(summary["methods"]), "--seeds", str(seeds)]
        again, section.commands_note = _command("compare", str(summary["task"]), chosen, summary.get("recipe") or {})
        section.commands = [again]
    else:
        section.commands_note = _OWN_LOOP
    section.folded.append(tables.key_values("Recipe", flat(summary.get("recipe") or {})))
    for label, recipe in (summary.get("recipes") or {}).items():
        section.folded.append(tables.key_values(f"Recipe of {label}", flat(recipe)))
    took = (summary.get("seconds") or {}).get("data_and_training")
    ran = {"device": summary.get("device"), "seconds of data and training": took}
    known = {key: value for key, value in ran.items() if value is not None}
    section.folded.append(tables.key_values("Environment", {**(summary.get("environment") or {}), **known}))


def _command(what: str, task: str, chosen: Sequence[str], recipe: Mapping[str, Any]) -> tuple[str, str]:
    """The command that does it again, by its recipe, and what there is to say of it."""
    content = {key: value for key, value in recipe.items() if key != "task"}
    options = None
    with suppress(ImportError):  # a page can be drawn where the task cannot be trained
        options = tasks.arguments(task, content)
    command = shlex.join(["ordinal-entropy", what, task, *chosen, *(options or []), "--out", "NEW"])
    return command, _UNRECORDED if options is None else _NEW


def _said_by_references(run: FinishedRun) -> list[str]:
    there = references.beside(references.of_run(run.method, run.result))
    return references.sentences(references.of_run(run.method, run.result)) if there else []


def _scores_of(runs: Sequence[FinishedRun]) -> Table:
    rows = []
    for run in runs:
        metric = logged_metric(run)
        last = run.metrics[-1].get(metric["test"]) if metric and run.metrics else None
        result = run.result
        cells = [str(result.get("metric") or (metric["test"].removeprefix("test_") if metric else NONE))]
        cells += [
            number(result.get("last", last)),
            number(result.get("best_validation")),
            number(result.get("best_test")),
        ]
        rows.append(Row(run.name, [run.method, str(run.seed), *cells]))
        for name, score in references.beside(references.of_run(run.method, result)).items() if len(runs) == 1 else []:
            rows.append(
                Row(references.called(name), ["", "", cells[0], *[number(score)] * len(tables.POINTS)], paper=True)
            )
    return Table("Test scores", ["method", "seed", "metric", *tables.POINTS.values()], rows)


def _about(summary: Mapping[str, Any]) -> str:
    seeds = max(len(own["values"]) for own in summary["methods"].values())
    task = summary.get("task")
    study = f"Study {summary['study']}: " if summary.get("study") else ""
    return f"{study}{count(len(summary['methods']), 'method')} over {count(seeds, 'seed')}" + (
        f", task {task}." if task else "."
    )


def _of_own_loop(summary: Mapping[str, Any]) -> bool:
    """Whether oe.compare made it: names of task and methods are then the user's, and mean what they mean to them."""
    return not any(key in summary for key in ("command", "study", "variants"))


def _meanings(summary: Mapping[str, Any]) -> dict[str, str]:
    if _of_own_loop(summary):
        return {}
    changes = summary.get("variants") or {}
    return _described({name: str(changes.get(name, {}).get("method", name)) for name in summary["methods"]})


def _described(names: Mapping[str, str]) -> dict[str, str]:
    """What the methods among them are, each once."""
    known = methods.names()
    ours = [method for method in dict.fromkeys(names.values()) if set(method.split("+")) <= set(known)]
    return {method: methods.describe(method) for method in ours}


def _with_interval(own: Mapping[str, Any], unit: str, *, sign: bool = False, bare: bool = False) -> str:
    scale, behind = (0.01, "%") if unit == "share" else (1.0, "")
    if own.get("value") is None:
        return number(None)
    value = number(own["value"], scale, sign=sign) + behind
    if bare or own.get("low") is None or own.get("high") is None:
        return value
    return f"{value} ({number(own['low'], scale, sign=sign)} to {number(own['high'], scale, sign=sign)})"


def group_by_task(runs: Sequence[FinishedRun]) -> list[list[FinishedRun]]:
    """Runs of one task and score together."""
    found: dict[tuple[str, str], list[FinishedRun]] = {}
    for run in runs:
        key = str(run.recipe.get("task")), metric_name(str(run.result.get("metric")))
        found.setdefault(key, []).append(run)
    return list(found.values())
