"""The command line: reads options, calls the library, prints.

Exit status 2: a mistake of the user's, told in one sentence; 130: stopped by the user.
"""

import hashlib
import json
import math
import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from ordinal_entropy import (
    __version__,
    comparison,
    diagnosis,
    environment,
    feature_files,
    kernels,
    methods,
    report,
    runs,
    studies,
    tasks,
)
from ordinal_entropy.environment import torchvision_problem
from ordinal_entropy.recipes import Setting, completed, described, explained, flat, full_name, leaves, read_config
from ordinal_entropy.results import tables, terminal
from ordinal_entropy.studies import examples, grid, rounds
from ordinal_entropy.training.plans import Plan

app = typer.Typer(
    name="ordinal-entropy",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode="markdown",
    help="""Regularizers for deep regression: train, compare, reproduce.

Begin with

    ordinal-entropy compare linear --methods baseline,oe --seeds 5 --preset quick

which trains ten small networks in a minute or two on a CPU and says whether ordinal entropy helped.
`ordinal-entropy reproduce --list` names the tables and figures of the paper, `ordinal-entropy doctor` says what is
installed. Interrupted commands resume when run again.""",
)

_SETTINGS_HELP = "Override a key of the recipe; may be given often. `--keys` shows all keys."
_CONFIG_HELP = "Keys of the recipe in a YAML file, or recipe.json of a run; --set overrides them."
SettingsOption = Annotated[list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=_SETTINGS_HELP)]
ConfigOption = Annotated[Path | None, typer.Option("--config", metavar="FILE", help=_CONFIG_HELP)]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Where everything is written.  [default: a folder in ./runs]"),
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="auto, cpu, cuda, cuda:1, ...; auto: a GPU if there is one.")
]
_PRESET_HELP = (
    "paper: as published. small: for small real sets, where a task has any. quick: minutes on a CPU.  "
    "[default: paper; tabular: small]"
)
PresetOption = Annotated[str, typer.Option("--preset", metavar="NAME", help=_PRESET_HELP, show_default=False)]
StudyPresetOption = Annotated[
    str,
    typer.Option(
        "--preset",
        metavar="NAME",
        help="paper: as published. small: for small real sets, of studies on images. quick: minutes on a CPU.",
    ),
]
_JOBS_HELP = (
    "Runs on images that train side by side on a device, each a process; on a CPU the numbers are those of one after "
    "the other. Operators and tables train all at once anyway."
)
JobsOption = Annotated[int, typer.Option("--jobs", metavar="N", min=1, help=_JOBS_HELP)]
KeysOption = Annotated[bool, typer.Option("--keys", help="Show the keys that --set takes, and stop.")]

_RESULT = {"last": runs.NUMBER, "best_validation": runs.NUMBER, "best_test": runs.NUMBER}
_SHOWN = 50  # problems of a dataset, unless all are asked for


_RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "JSM_NAMESPACE_RANK")


def _first(ranks: Sequence[str] = _RANKS[:3]) -> bool:
    """Whether this process speaks for all: Lightning starts the command once more for each further device."""
    return all(os.environ.get(name, "0") == "0" for name in ranks)


def _console() -> Console:
    """Prints texts as they are: a path may have brackets, which are no markup."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=False, quiet=not _first())


def _say(text: str) -> None:
    """To standard error, where progress goes; results go to standard output."""
    if _first():
        typer.echo(text, err=True)


def _complain(text: str) -> None:
    typer.echo(f"ordinal-entropy: {text}", err=True)


class _Out(ExitStack):
    """The folder that a command writes to, if any: nobody else's until the command ends."""

    folder: Path | None = None

    def take(self, folder: Path, recipe: Any = None) -> None:
        """Locks the folder, before hours of training and not after, and tidies up behind commands that were killed."""
        several = getattr(getattr(recipe, "training", None), "processes", 1) > 1
        if not several or _first(_RANKS):  # else the first of the processes has it for all
            try:
                self.enter_context(runs.lock(folder / ".lock"))
            except runs.LockedError as error:
                raise ValueError(f"{error}; wait until it has ended, or choose another --out") from None
            runs.remove_leftovers(folder)
        self.folder = folder


@contextmanager
def _one_sentence() -> Iterator[_Out]:
    """A mistake of the user's ends with a sentence and status 2; a stop says how to go on, status 130."""
    out = _Out()
    try:
        with out:
            yield out
    except KeyboardInterrupt:
        folder = out.folder
        go_on = f"to go on from what {folder} holds, give the same command again" if folder else "nothing was lost"
        _say(f"Stopped; {go_on}.")
        raise typer.Exit(130) from None
    except BrokenPipeError:  # the reader of our output left
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(0) from None
    except ModuleNotFoundError as error:
        if os.environ.get("ORDINAL_ENTROPY_TRACEBACK"):
            raise
        _complain(f"this needs {error.name}: pip install 'ordinal-entropy[train]'")
        raise typer.Exit(2) from None
    except (ValueError, OSError, ImportError, MemoryError) as error:
        if os.environ.get("ORDINAL_ENTROPY_TRACEBACK"):  # for whoever takes it for a mistake of ours
            raise
        said = " ".join(str(error).split())
        if runs.disk_full(error):
            said = _without_space(error, out.folder)
        elif isinstance(error, MemoryError):
            said = f"the memory is not enough: {said or 'nothing is left'}"
        _complain(said)
        raise typer.Exit(2) from None


def _without_space(error: Exception, folder: Path | None) -> str:
    """What to do about a full disk."""
    place = getattr(error, "filename", None)
    told = (
        str(error) if isinstance(error, runs.DiskFullError) else f"the disk is full: cannot write {place or 'a file'}"
    )
    return f"{told}; free some space and run the same command again{' to resume' if folder else ''}"


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(f"expected --device to be auto, cpu or cuda, got {name!r}") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ValueError(
            f"expected a device that is here, got {name!r}; CUDA devices found: {torch.cuda.device_count()}"
        )
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"expected --device to be auto, cpu or cuda, got {name!r}")
    return name


def _length(recipe: Any) -> str:
    """Of a run: in epochs if its recipe has them, else in steps."""
    own = recipe.training
    return f"{own.epochs:,} epochs" if hasattr(own, "epochs") else f"{own.steps:,} steps"


def _given(config: Path | None, settings: list[str] | None) -> list[str | Setting]:
    """The settings of a file, then those of the command line, which win."""
    return [*([] if config is None else read_config(config)), *(settings or [])]


def _folder(label: str, what: dict[str, Any]) -> Path:
    """The same for the same settings, so that the same command goes on."""
    digest = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:6]
    return Path("runs") / f"{label}-{digest}"


@contextmanager
def _progress(unit: str = "steps", doing: str = "training") -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left on a terminal; elsewhere a line at each tenth."""
    console = Console(stderr=True)
    if not console.is_terminal:
        told = [0]

        def tell(done: int, total: int) -> None:
            tenth = 10 * done // max(total, 1)
            if tenth > told[0]:
                told[0] = tenth
                _say(f"{done:,} of {total:,} {unit}")

        yield tell
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(elapsed_when_finished=False),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("preparing data", total=None, count="")
        training = [False]

        def update(done: int, total: int) -> None:
            if not training[0]:  # the time left is that of the steps, without the data
                training[0] = True
                progress.reset(bar, total=total, completed=done, description=doing)
            progress.update(bar, completed=done, total=total, count=f"{done:,} of {total:,}")

        yield update


def _show_keys(title: str, parts: Sequence[object], hidden: Sequence[str] = ()) -> None:
    table = _table("key", "value", "what it is")
    seen: set[str] = set(hidden)
    for part in parts:
        for key, value, comment in explained(part):
            if key not in seen:
                seen.add(key)
                text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
                table.add_row(key, Text(text), Text(comment))
    _print_titled(_console(), title, table)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit()


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command()
def reproduce(
    study: Annotated[str | None, typer.Argument(metavar="STUDY", help="A name that --list prints.")] = None,
    settings: SettingsOption = None,
    config: ConfigOption = None,
    out: OutOption = None,
    device: DeviceOption = "auto",
    list_: Annotated[bool, typer.Option("--list", help="Name the studies, and stop.")] = False,
    keys: KeysOption = False,
    preset: StudyPresetOption = "paper",
    jobs: JobsOption = 1,
) -> None:
    """A table or figure of the paper, beside the paper's numbers.

    All runs of a study on operators train as one stack. As published they take a minute or two on a large GPU and hours
    on a CPU; fewer steps and seeds show the shape of the thing:

        ordinal-entropy reproduce table1-linear --set steps=3000 --set seeds=3

    Studies on images train one run after the other, or --jobs of them side by side, on a dataset that you have:

        ordinal-entropy reproduce table4-age --preset small --set data=datasets/UTKFace

    Writes summary.json (and a PNG for a figure) to --out. A finished study is read back, not run again.
    """
    if list_:
        table = _table("study", "what it is")
        for name in studies.names():
            table.add_row(name, Text(studies.describe(name)))
        terminal.show_grid(_console(), table)
        return
    with _one_sentence() as own_folder:
        if study is None:
            raise ValueError(f"expected the name of a study, got none; there are {', '.join(studies.names())}")
        given = _given(config, settings)
        own, recipe = studies.settled(study, given, preset)
        if keys:
            fixed = [full_name(leaves(recipe), key) for key in studies.get(study).fixed(own)]
            _show_keys(f"{study}, preset {preset}: its own keys, then those of its recipe", [own, recipe], fixed)
            return
        what = {**flat(described(recipe)), **described(own)}
        unchanged = (own, recipe) == studies.settled(study)
        place = out or (Path("runs") / study if unchanged else _folder(study, what))
        where = _device(device)
        done = (place / "summary.json").exists()
        if not done:
            studies.check(study, own, recipe)
        own_folder.take(place, recipe)
        measured = studies.get(study).measured is not None
        _say(f"{study}, preset {preset}: {studies.describe(study)}")
        if not done:
            count = len(studies.get(study).variants(own)) * (own.rounds if measured else own.seeds)
            _say(f"{count} {'measurements' if measured else f'runs of {_length(recipe)}'} on {where}, in {place}")
        with _progress(*(("measurements", "measuring") if measured else ())) as progress:
            summary = studies.run(study, place, given, where, progress, preset, jobs)
        with studies.reading_summary(place) if done else nullcontext():
            _print_study(study, summary, place, read_back=done)
        if preset == "quick" and not measured:
            _console().print(studies.QUICK)
        _draw_page(place)


def _print_study(name: str, summary: dict[str, Any], out: Path, *, read_back: bool) -> None:
    console, study = _console(), studies.get(name)
    if study.measured is not None:
        terminal.show(console, tables.costs(summary))
    elif study.report is not None:
        for table in study.report(summary):
            terminal.show(console, table)
    else:
        _print_scores(console, summary, study.scale)
        for sentence in comparison.verdict(summary, study.scale).sentences:
            console.print(Text(sentence))
    for note in study.notes:
        console.print(note)
    console.print(f"{'Read back from' if read_back else 'Written to'} {out / 'summary.json'}", soft_wrap=True)
    pictures = studies.pictures(name, out)
    for picture in pictures:
        if picture.exists():
            console.print(f"Drawn in {picture}", soft_wrap=True)
    if not all(picture.exists() for picture in pictures):
        console.print(
            f"Figures need {' and '.join(study.draws_with)}: pip install 'ordinal-entropy[report]', then give the same "
            "command again with the same --out; nothing is trained anew."
        )


def _print_scores(console: Console, summary: dict[str, Any], scale: float) -> None:
    task = tasks.load(summary["task"])
    found = [tables.scores(summary, scale, task.paper_at), tables.differences(summary, scale)]
    for table in [*found, *tables.details(summary, task.details)]:
        if table is not None:
            terminal.show(console, table)


def _print_titled(console: Console, title: str, table: Table) -> None:
    console.print(Text(title, style="bold"))
    terminal.show_grid(console, table)


def _table(*headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


@app.command()
def compare(
    task: Annotated[str, typer.Argument(metavar="TASK", help=f"One of {', '.join(tasks.names())}.")],
    method_names: Annotated[
        str, typer.Option("--methods", metavar="A,B,...", help=f"Among {', '.join(methods.names())}.")
    ] = "baseline,oe",
    seeds: Annotated[int, typer.Option("--seeds", help="Runs of each method: seeds 0, 1, ...")] = 10,
    strengths: Annotated[
        str, typer.Option("--strengths", metavar="X,Y,...", help="Methods that have a strength are taken with each.")
    ] = "",
    preset: PresetOption = "paper",
    settings: SettingsOption = None,
    config: ConfigOption = None,
    out: OutOption = None,
    device: DeviceOption = "auto",
    engine: Annotated[str, typer.Option("--engine", help="local: this machine.")] = "local",
    keys: KeysOption = False,
    jobs: JobsOption = 1,
    stop_early: Annotated[
        bool,
        typer.Option(
            "--stop-early", help="Train --seeds at most: judge as they come in, stop once no verdict is open."
        ),
    ] = False,
    smallest: Annotated[
        float | None,
        typer.Option(
            "--smallest", metavar="X", help="With --stop-early: differences below X do not matter, a reason to stop."
        ),
    ] = None,
) -> None:
    """Does a method help? A paired comparison over seeds, with a verdict.

    Runs of one seed have the same rows and first weights whatever the method, so they are compared pair by pair. The
    others are held to baseline, or to the first method where that is not among them:

        ordinal-entropy compare linear --methods baseline,ld,oe --seeds 5 --preset quick --set strength=0.01

    With --strengths 0.01,0.1,1 each is a row of its own; verdicts allow for how many rows there are.

    With --stop-early the seeds come in rounds, first four, and no more are trained than it takes; the intervals are
    then wider, such as hold however often one looks.

    A run that raises an error is named, and the others go on; the same command tries it again.
    Exit status 0 if any method has a verdict, 1 if too many runs failed for one, 2 if all did.

    Writes summary.json to --out.
    """
    with _one_sentence() as own_folder:
        preset = tasks.preset_of(task, preset)
        given = _given(config, settings)
        recipe = tasks.recipe(task, preset, given)
        if keys:
            _show_keys(f"{task}, preset {preset}", [recipe], tasks.load(task).fixed)
            return
        if engine != "local":
            raise ValueError(f"expected --engine local, the only one there is so far, got {engine!r}")
        names = grid.methods_known([name.strip() for name in method_names.split(",") if name.strip()])
        if len(names) < 2:
            raise ValueError(f"expected two or more --methods, got {', '.join(names)}")
        if "baseline" in names:
            names = ["baseline", *(name for name in names if name != "baseline")]
        strengths = strengths.replace(" ", "")
        tasks.require_parts(recipe, names)
        variants = _variants(names, strengths, recipe, tasks.values_of(task, recipe, given))
        rows = [variant.name for variant in variants]
        numbers = grid.seeds_from(seeds)
        if smallest is not None and not stop_early:
            raise ValueError(
                f"expected --stop-early beside --smallest, which is a reason to stop, got {smallest:g} alone"
            )
        rule = comparison.StopEarly(seeds, smallest).checked() if stop_early else None
        where = _device(device)
        short = preset == "quick" and "paper" in tasks.load(task).presets  # of something published
        what = {"study": f"compare {task}", "methods": names, "seeds": seeds, **flat(described(recipe))}
        if strengths:
            what |= {"strengths": strengths}
        if rule is not None:
            what |= {"stop_early": rule._asdict()}
        place = out or _folder(f"compare-{task}", what)
        if not (place / "summary.json").exists():
            tasks.load(task).check(recipe)
            for plan in grid.plans_of(variants, {"": recipe}, numbers[:1]):
                tasks.load(task).check_method(plan)
        own_folder.take(place, recipe)
        summary = studies.finished(place, what, flat(described(type(recipe)())))
        with studies.reading_summary(place):
            lost = len((summary or {}).get("failures") or [])
        if lost and (place / "training").exists():
            _say(f"{_runs(lost)} in {place} failed before: once more")
            summary = None
        read_back = summary is not None
        if summary is None:
            most = "at most " if rule is not None else ""
            _say(
                f"{task}, preset {preset}: {len(rows)} {'rows' if strengths else 'methods'} x {seeds} seeds = "
                f"{most}{len(rows) * seeds} runs of {_length(recipe)} on {where}, in {place}"
            )

            def trained(some: Sequence[int], new: Sequence[int] | None = None) -> dict[str, Any]:
                own: dict[str, Any] = {
                    "out": place,
                    "device": where,
                    "jobs": jobs,
                    "go_on": True,
                    "new": new,
                    "stop_early": rule,
                }
                with _progress() as progress:
                    return grid.summary_of(task, variants, recipe, some, progress=progress, **own)

            if rule is None:
                summary = trained(numbers)
            else:
                summary = rounds.settled(trained, rounds.rounds_of(numbers, jobs, len(rows)), _say)
            count = len(summary["methods"][summary["baseline"]]["values"])
            if len(summary["failures"]) == len(rows) * count:
                first = summary["failures"][0]
                raise ValueError(f"every run failed, the first with {first['type']}: {first['message']}")
            again = tasks.options_of(given)
            again += ["--stop-early"] if rule is not None else []
            again += ["--smallest", f"{smallest:g}"] if smallest is not None else []
            chosen = ["--methods", ",".join(names), "--seeds", str(seeds)]
            chosen += [*(["--strengths", strengths] if strengths else []), "--preset", preset]
            summary = studies.write_summary(
                place,
                summary,
                about=f"{tasks.load(task).about.capitalize()}: {', '.join(rows)} over {count} seeds",
                scale=_scale(summary),
                notes=[studies.QUICK] if short else [],
                command=["compare", task, *chosen, *again, "--device", where],
            )
        console = _console()
        with studies.reading_summary(place) if read_back else nullcontext():
            _print_scores(console, summary, _scale(summary))
            for sentence in comparison.verdict(summary, _scale(summary)).sentences:
                console.print(Text(sentence))
        if short:
            console.print(studies.QUICK)
        console.print(f"{'Read back from' if read_back else 'Written to'} {place / 'summary.json'}", soft_wrap=True)
        _draw_page(place)
        if summary.get("failures"):
            _say(f"{_runs(len(summary['failures']))} failed; the same command tries again, and leaves the others be.")
            if all(outcome == "unknown" for outcome in comparison.outcomes(summary).values()):
                raise typer.Exit(1)


def _variants(names: Sequence[str], strengths: str, recipe: Any, given: Collection[str]) -> list[grid.Variant]:
    """The rows of a comparison: the methods, those that have a strength with each of several where such are given."""
    if not strengths:
        return [grid.Variant(name) for name in names]
    expected = "expected --strengths to be two or more different numbers of at least 0, as in 0.1,1,10"
    try:
        numbers = [float(each) for each in strengths.split(",")]
    except ValueError as error:
        raise ValueError(f"{expected}, got {strengths!r}") from error
    if not (1 < len(numbers) == len(set(numbers)) and all(0 <= each < math.inf for each in numbers)):
        raise ValueError(f"{expected}, got {strengths!r}")
    if "method.strength" in given:
        raise ValueError("expected --strengths or --set strength=..., got both")
    own = {part: option for part, option, _ in tasks.part_options(recipe) if option in ("strength", "balance")}
    for name in names:  # a strength of the part's own would make all rows of a method the same
        fixed = [part for part in methods.split(name) if "strength" in methods.options(part)]
        if fixed and own.keys() >= set(fixed):
            raise ValueError(f"expected --strengths or --set method.{fixed[0]}.{own[fixed[0]]}=..., got both")
    found = grid.with_strengths(names, numbers)
    if len(found) == len(names):
        raise ValueError(f"expected a method with a strength beside --strengths, got {', '.join(names)}")
    return found


def _runs(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"


def _scale(summary: dict[str, Any]) -> float:
    """What scores are printed in multiples of, so that the baseline's small mean has digits before the point."""
    mean = summary["methods"][summary["baseline"]]["mean"]
    if not mean or math.isnan(mean) or abs(mean) >= 1:
        return 1.0
    return 1e-3 if abs(mean) >= 1e-4 else 1e-6


@app.command()
def train(
    task: Annotated[str, typer.Argument(metavar="TASK", help=f"One of {', '.join(tasks.names())}.")],
    method: Annotated[str, typer.Option("--method", help=f"One of {', '.join(methods.names())}.")] = "oe",
    seed: Annotated[int, typer.Option("--seed", help="Of first weights and draws; chooses the training rows too.")] = 0,
    preset: PresetOption = "paper",
    settings: SettingsOption = None,
    config: ConfigOption = None,
    out: OutOption = None,
    device: DeviceOption = "auto",
    keys: KeysOption = False,
) -> None:
    """One run of a recipe, resumable.

        ordinal-entropy train linear --method ld --seed 3 --preset quick --out runs/mine

    Writes a run folder: recipe.json, metrics.jsonl as it goes, checkpoints, and result.json at the end.
    """
    with _one_sentence() as own_folder:
        preset = tasks.preset_of(task, preset)
        given = _given(config, settings)
        recipe = tasks.recipe(task, preset, given)
        if keys:
            _show_keys(f"{task}, preset {preset}", [recipe], tasks.load(task).fixed)
            return
        grid.methods_known([method])
        tasks.require_parts(recipe, [method])
        if seed < 0:
            raise ValueError(f"expected --seed to be at least 0, got {seed}")
        where = _device(device)
        what = {"task": task, **described(recipe)}
        place = out or _folder(f"{task}-{method}-seed{seed}", what)
        if not (place / "result.json").exists():
            tasks.load(task).check(recipe)
            tasks.load(task).check_method(Plan(method, seed, recipe))
        own_folder.take(place, recipe)
        run = runs.create(place, what, method, seed, read=partial(completed, recipe))
        result = run.result(_RESULT)
        if result is None:
            _say(f"{task}, preset {preset}: {method}, seed {seed}, {_length(recipe)} on {where}, in {place}")
            result = _trained(task, recipe, run, where)
        else:
            _say(f"{place} holds this run already, finished")
        _print_result(f"{task}, {method}, seed {seed}", tasks.load(task), result)
        _console().print(f"The run is in {place}", soft_wrap=True)


def _trained(task: str, recipe: Any, run: runs.Run, device: str) -> dict[str, Any]:
    """Trains into a run folder; a step that the folder has logged before a stop is not logged again."""
    logged = {line["step"] for line in run.metrics()}

    def log(step: int, scores: Sequence[Any]) -> None:  # of all runs of the stack, which is one
        if step not in logged:
            run.log(step=step, **scores[0]._asdict())

    plan = Plan(run.method, run.seed, recipe)
    with _progress() as progress:
        (scores,) = tasks.load(task).train([plan], device=device, folder=run.path, progress=progress, on_metrics=log)
    numbers = {
        "metric": tasks.load(task).metric,
        "lower_is_better": tasks.load(task).lower_is_better,
        "last": scores.last,
        "best_validation": scores.best_validation,
        "best_test": scores.best_test,
        "steps": scores.steps[-1],
    }
    run.finish(numbers)
    return run.result(_RESULT) or numbers


def _print_result(run: str, task: tasks.Task, result: dict[str, Any]) -> None:
    table = _table(*tables.POINTS.values())
    shown = [result[at] for at in tables.POINTS]
    table.add_row(*("no number" if value is None else f"{value:.4g}" for value in shown))
    _print_titled(_console(), f"{run}: test {task.metric.upper()}", table)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that train wrote.")],
    settings: SettingsOption = None,
    config: ConfigOption = None,
    device: DeviceOption = "auto",
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE.png", help="Draw test images of depth or crowds.")
    ] = None,
) -> None:
    """Scores of a run, computed anew from its last checkpoint; with --set data=OTHER on another dataset.

    ordinal-entropy evaluate runs/mine
    """
    with _one_sentence():
        given = _given(config, settings)
        name, plan = tasks.planned(run, given)
        task = tasks.load(name)
        if picture is not None:
            examples.draw_predictions(run, picture, settings=given, device=_device(device))
        scores = task.evaluate(plan, device=_device(device), folder=run)
        total, unit = _length(plan.recipe).split()
        done = f"{unit.removesuffix('s')} {scores.pop('step'):,.0f} of {total}"
        title = f"{name}, {plan.method}, seed {plan.seed}, {done}; {task.metric.upper()} where no other score is named"
        table = _table("rows", "score")
        for part, score in scores.items():
            table.add_row(part, f"{score:.4g}")
        _print_titled(_console(), title, table)
        if picture is not None:
            _console().print(f"Drawn in {picture}", soft_wrap=True)


@app.command()
def diagnose(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An .npz, .safetensors or .npy file.")],
    other: Annotated[Path | None, typer.Argument(metavar="OTHER", help="Another, held against the first.")] = None,
    targets: Annotated[
        list[Path] | None,
        typer.Option(
            "--targets",
            metavar="FILE",
            help="The .npy file of an .npy file's targets; once for both, or once for each.",
        ),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option("--rows", metavar="N", min=8, help="Rows that are drawn and measured.  [default: at most 4096]"),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the rows drawn.")] = 0,
    out: OutOption = None,
) -> None:
    """Are my features collapsed? Entropies, ordinality, rank and more, with intervals and what they mean.

        ordinal-entropy diagnose features.npz

    or, before and after a change,

        ordinal-entropy diagnose before.npz after.npz

    A file holds `features` (n, d), from any model, and `targets` (n,) or (n, t). It is read a part at a time and never
    unpickled; rows with NaN are left out and counted. Writes diagnosis.json to --out.
    """
    with _one_sentence() as own_folder:
        if seed < 0:
            raise ValueError(f"expected --seed to be at least 0, got {seed}")
        files = [file] if other is None else [file, other]
        given: list[Path | None] = [*targets] if targets else [None]
        if len(given) not in (1, len(files)):
            raise ValueError(f"expected --targets once, or once for each of {len(files)} files, got {len(given)}")
        found_in = zip(files, given * len(files), strict=False)
        arrays = [diagnosis.checked(*feature_files.read(*both)) for both in found_in]
        what = {"files": [os.path.abspath(path) for path in files], "targets": given, "rows": rows, "seed": seed}
        place = out or _folder("-".join(["diagnose", *(path.stem for path in files)]), what)
        own_folder.take(place)
        with _progress("steps", "measuring") as progress:
            found: diagnosis.Diagnosis | diagnosis.Change
            if other is None:
                found = diagnosis.diagnose(*arrays[0], rows=rows, seed=seed, progress=progress)
            else:
                found = diagnosis.diagnose_change(*arrays, rows=rows, seed=seed, progress=progress)
        names = [str(path) for path in files]
        content = {"files": names, "targets": given, **found.to_dict(), "environment": environment.environment()}
        runs.write_json(place / "diagnosis.json", content)
        console = _console()
        if isinstance(found, diagnosis.Diagnosis):
            _print_diagnosis(console, names[0], found)
        else:
            _print_change(console, names, found)
        console.print(f"Written to {place / 'diagnosis.json'}", soft_wrap=True)
        _draw_page(place)


def _print_alarms(console: Console, name: str, found: diagnosis.Diagnosis) -> None:
    for alarm in found.alarms:
        console.print(Text.assemble((f"Alarm, {name}: ", "bold red"), alarm))
    if not found.alarms:
        console.print(Text(f"{name}: no sign of collapse."))


def _print_diagnosis(console: Console, name: str, found: diagnosis.Diagnosis) -> None:
    _print_alarms(console, name, found)
    table = _table("", "value", "95% interval", "what it means")
    for measure in found.measures:
        table.add_row(*map(Text, (measure.title, measure.shown, measure.interval, measure.meaning)))
    terminal.show_grid(console, table)
    for text in (str(found.counts), *found.notes):
        console.print(Text(text))


def _print_change(console: Console, names: Sequence[str], found: diagnosis.Change) -> None:
    sides = list(zip(names, (found.before, found.after), strict=True))
    for name, side in sides:
        _print_alarms(console, name, side)
    table = _table("", "before", "after", "difference", "95% interval", "what it means")
    for change, old, new in zip(found.differences, found.before.measures, found.after.measures, strict=True):
        table.add_row(*map(Text, (change.title, old.shown, new.shown, change.shown, change.interval, change.meaning)))
    terminal.show_grid(console, table)
    for name, side in sides:
        for text in (str(side.counts), *side.notes):
            console.print(Text(f"{name}: {text}"))
    for text in found.notes:
        console.print(Text(text))


@app.command("report")
def report_(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Of a study, a run, a diagnosis, or of several.")],
) -> None:
    """One HTML page of any folder of runs: the verdict, tables, figures to explore; opens from disk.

        ordinal-entropy report runs/table1-linear

    Writes report.html into the folder. What is half-written, unreadable or of another version is left out and named.
    """
    with _one_sentence():
        with _progress("layouts", "drawing") as progress:
            left_out = report.write(folder, progress)
        console = _console()
        for what, why in left_out[:_SHOWN]:
            console.print(Text(f"{what}: {why}"))
        if len(left_out) > _SHOWN:
            console.print(f"{len(left_out) - _SHOWN} more are named on the page.")
        console.print(f"Drawn in {folder / report.FILE}", soft_wrap=True)


@app.command()
def summarize(
    paths: Annotated[
        list[Path], typer.Argument(metavar="PATH...", help="Summaries, or folders with a summary.json at any depth.")
    ],
) -> None:
    """Recomputes the statistics of summaries from the scores they hold, in the form of this version.

        ordinal-entropy summarize runs/table1-linear

    For summaries of older versions, which lack some fields. Scores and everything else that was measured or recorded
    stay as they are; nothing is trained.
    """
    with _one_sentence():
        files: list[Path] = []
        for path in paths:
            found = sorted(path.rglob("summary.json")) if path.is_dir() else [path]
            if not found:
                raise ValueError(f"expected a folder with a summary.json, got {path}")
            files += found
        for file in files:
            content = runs.read_json(file)
            try:
                renewed = comparison.renewed(content)
            except ValueError as error:
                raise ValueError(f"{file}: {error}") from None
            runs.write_json(file, renewed)
            same = runs.read_json(file) == content
            _console().print(f"{file}: {'up to date' if same else 'rewritten'}", soft_wrap=True)


def _draw_page(folder: Path) -> None:
    """The page of what was just printed; where that fails, a sentence: the result is there all the same."""
    if not _first():
        return
    console = _console()
    if report.missing() is not None:
        again = f"The page needs {report.missing()}, then ordinal-entropy report {folder}"
        console.print(again, soft_wrap=True)
        return
    try:
        with _progress("layouts", "drawing") as progress:
            report.write(folder, progress)
    except Exception as error:
        _say(f"The page could not be drawn: {error}. ordinal-entropy report {folder} tries again.")
    else:
        console.print(f"Drawn in {folder / report.FILE}", soft_wrap=True)


@app.command("methods")
def show_methods(
    name: Annotated[str, typer.Argument(metavar="[NAME]", help="One of them, or several joined by +.")] = "",
) -> None:
    """The methods there are; of one, what it does, what a loop must let it do, and its options.

        ordinal-entropy methods hl-gauss+lds+oe

    Methods are joined by +: one head or prediction loss, one weighting, one mixing, one smoothing, any number of terms.
    Options of one part are set by --set method.PART.OPTION=VALUE.
    """
    with _one_sentence():
        console = _console()
        if not name:
            table = _table("method", "kind", "what it does")
            for each in methods.names():
                table.add_row(each, _kind(each), Text(methods.describe(each)))
            console.print(table)
            return
        methods.create(name)
        for part in methods.split(name):
            console.print(Text(f"{part}: {methods.describe(part)}", style="bold"), soft_wrap=True)
            for need in methods.create(part).requirements():
                console.print(f"  {methods.what_is_needed(need)}", soft_wrap=True)
            table = Table.grid(padding=(0, 2))
            for option, value in methods.option_defaults(part).items():
                table.add_row(f"method.{part}.{option}", Text("none" if value is None else str(value)))
            console.print(Padding(table, (0, 0, 1, 2)))


def _kind(method: str) -> str:
    return next(iter(methods.create(method).requirements()), "baseline")


@app.command()
def doctor() -> None:
    """What is installed, what it runs on, and which kernels are in use."""
    console = _console()
    parts = {name: version or "not installed" for name, version in environment.optional_parts().items()}
    problem = torchvision_problem()
    if problem is not None:
        parts["torchvision"] += f" installed, cannot be imported: {problem}"
    for title, content in (
        ("Here", environment.environment()),
        ("Kernels for pairs", kernels.describe()),
        ("Optional parts", parts),
    ):
        console.print(Text(title, style="bold"))
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for key, value in content.items():
            table.add_row(key, Text(str(value or "none")))
        console.print(Padding(table, (0, 0, 1, 2)))
    extras = environment.missing_extras()
    if extras:
        command = f"pip install 'ordinal-entropy[{','.join(extras)}]'"
        console.print(f"Parts that are not installed come with: {command}", soft_wrap=True)


data_app = typer.Typer(no_args_is_help=True, help="Dataset folders: check one, make a small generated one.")
app.add_typer(data_app, name="data")
DataTask = Annotated[str, typer.Argument(metavar="TASK", help=f"One of {', '.join(tasks.data_names())}.")]


@data_app.command("check")
def data_check(
    task: DataTask,
    root: Annotated[
        Path, typer.Argument(metavar="ROOT", help="The folder of the dataset, as its page in docs/ shows it.")
    ],
    all_: Annotated[bool, typer.Option("--all", help=f"Name every problem, not the first {_SHOWN} only.")] = False,
) -> None:
    """Reads every file of a dataset and names what is missing or damaged, and why.

        ordinal-entropy data check age datasets/AgeDB-DIR

    Exit status 0 if all is well, 1 if anything is wrong with the dataset, 2 if there is none.
    """
    read = [0]
    with _one_sentence():
        with _progress("files", "reading") as progress:

            def count(done: int, total: int) -> None:
                read[0] = total
                progress(done, total)

            problems = tasks.load_data(task).check(root, progress=count)
        if problems:
            _print_problems(root, problems, problems if all_ else problems[:_SHOWN], read[0])
            raise typer.Exit(1)
        what = f"{root} was" if read[0] == 1 else f"{read[0]:,} files of {root} were"
        _console().print(f"All is well: {what} read.", soft_wrap=True)


def _print_problems(root: Path, problems: Sequence[Any], shown: Sequence[Any], read: int) -> None:
    table = _table("file", "what is wrong")
    for file, reason in shown:
        table.add_row(Text(file), Text(reason))
    console, rest = _console(), len(problems) - len(shown)
    console.print(table)
    more = f", {rest:,} of them not shown (--all names every one)" if rest else ""
    total = f"{len(problems):,} problem{'s' if len(problems) > 1 else ''}"
    console.print(f"{total} in {root}{more}; {read:,} files read.", soft_wrap=True)


@data_app.command("make")
def data_make(
    task: DataTask,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Where; it must be empty, or not there yet.")],
    seed: Annotated[int, typer.Option("--seed", help="The same seed, the same set.")] = 0,
    count: Annotated[
        int | None, typer.Option("--count", help="How many images.  [default: some that are quick]", show_default=False)
    ] = None,
) -> None:
    """Writes a small generated set in the layout of the real one, good enough to learn from.

    ordinal-entropy data make age datasets/generated-faces
    """
    with _one_sentence(), _progress("images", "drawing") as progress:
        size = {} if count is None else {"count": count}
        tasks.load_data(task).make(folder, seed, progress=progress, **size)
    _console().print(f"Written to {folder}", soft_wrap=True)
