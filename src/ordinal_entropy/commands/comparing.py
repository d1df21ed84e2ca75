"""``compare``: methods on a task."""

from contextlib import nullcontext
from typing import Annotated

import typer

from ordinal_entropy import comparison, methods, studies, tasks
from ordinal_entropy.commands import errors, options, reporting, screen
from ordinal_entropy.comparison.tuning import SEEDS, TRIALS, Budget
from ordinal_entropy.results import tables
from ordinal_entropy.studies import custom
from ordinal_entropy.studies.custom import CustomStudy
from ordinal_entropy.training.plans import default_folder, length

_STOP_EARLY_HELP = "Train --seeds at most: judge as they come in, stop once no verdict is open."
_SMALLEST_HELP = "With --stop-early: differences below X do not matter, a reason to stop."
_TUNE_HELP = "Tune every method on validation data first, each with the same number of trials. Needs the extra tune."
_TRIALS_HELP = f"With --tune: settings that are tried of each method.  [default: {TRIALS}]"
_TUNING_SEEDS_HELP = f"With --tune: seeds of each trial, none of which is among --seeds.  [default: {SEEDS}]"
_TUNINGS_HELP = "With --tune: independent tunings; from 3 on the interval is over these.  [default: 1]"


def compare(
    task: options.Task,
    target: options.Target = None,
    method_names: Annotated[
        str, typer.Option("--methods", metavar="A,B,...", help=f"Among {', '.join(methods.names())}.")
    ] = "baseline,oe",
    seeds: Annotated[int, typer.Option("--seeds", help="Runs of each method: seeds 0, 1, ...")] = 10,
    strengths: Annotated[
        str, typer.Option("--strengths", metavar="X,Y,...", help="Methods that have a strength are taken with each.")
    ] = "",
    preset: options.Preset = "paper",
    settings: options.Settings = None,
    config: options.Config = None,
    out: options.Out = None,
    device: options.Device = "auto",
    engine: Annotated[str, typer.Option("--engine", help="local: this machine.")] = "local",
    keys: options.Keys = False,
    jobs: options.Jobs = 1,
    stop_early: Annotated[bool, typer.Option("--stop-early", help=_STOP_EARLY_HELP)] = False,
    smallest: Annotated[float | None, typer.Option("--smallest", metavar="X", help=_SMALLEST_HELP)] = None,
    tune: Annotated[bool, typer.Option("--tune", help=_TUNE_HELP)] = False,
    trials: Annotated[int | None, typer.Option("--trials", metavar="N", help=_TRIALS_HELP)] = None,
    tuning_seeds: Annotated[int | None, typer.Option("--tuning-seeds", metavar="N", help=_TUNING_SEEDS_HELP)] = None,
    tunings: Annotated[int | None, typer.Option("--tunings", metavar="N", help=_TUNINGS_HELP)] = None,
) -> None:
    """Does a method help? A paired comparison over seeds, with a verdict.

    Runs of one seed have the same rows and first weights whatever the method, so they are compared pair by pair. The
    others are held to baseline, or to the first method where that is not among them:

        ordinal-entropy compare linear --methods baseline,ld,oe --seeds 5 --preset quick --set strength=0.01

    A table of your own stands in the place of the task:

        ordinal-entropy compare houses.csv --target price

    With --strengths 0.01,0.1,1 each is a row of its own; verdicts allow for how many rows there are.

    With --stop-early the seeds come in rounds, first four, and no more are trained than it takes; the intervals are
    then wider, such as hold however often one looks.

    With --tune each method first has --trials settings tried, on validation data and seeds of their own: half of them
    learning rates, the same for all methods, the others a search of its options, learning rate and weight decay. The
    best ones are then trained with --seeds and compared.

    A run that raises an error is named, and the others go on; the same command tries it again.
    Exit status 0 if any method has a verdict, 1 if too many runs failed for one, 2 if all did.

    Writes summary.json to --out.
    """
    with errors.one_sentence() as own_folder:
        task, preset, given, recipe = options.recipe_of(task, preset, config, settings, target)
        if keys:
            screen.show_keys(f"{task}, preset {preset}", [recipe], tasks.load(task).fixed)
            return
        if engine != "local":
            raise ValueError(f"expected --engine local, the only one there is so far, got {engine!r}")
        names = [name.strip() for name in method_names.split(",") if name.strip()]
        budget = _budget(tune, trials, tuning_seeds, tunings)
        study = CustomStudy(task, preset, given, recipe, names, seeds, strengths, stop_early, smallest, budget)
        where = options.device_named(device)
        place = out or default_folder(f"compare-{task}", study.label())
        if not (place / "summary.json").exists():
            custom.check(study)
        own_folder.take(place, recipe)
        summary, failed = custom.finished(study, place)
        if failed:
            screen.say(f"{_runs(failed)} in {place} failed before: once more")
        read_back = summary is not None
        if summary is None:
            rows = len(study.variants)
            counted = f"{rows} {'rows' if study.strengths else 'methods'} x {seeds} seeds"
            most = "at most " if stop_early else ""
            if budget is not None:
                counted = _tuning(rows, seeds, budget)
                most = f"{rows * budget.tunings * budget.trials * budget.seeds:,} + "
                seeds *= budget.tunings
            screen.say(
                f"{task}, preset {preset}: {counted} = {most}{rows * seeds} runs of {length(recipe)} on {where}, "
                f"in {place}"
            )
            summary = custom.run(study, place, where, jobs, screen.progress_bar, screen.say)
        with studies.reading_summary(place) if read_back else nullcontext():
            screen.show_scores(summary, tables.scale_of(summary))
        if study.shortened:
            screen.output().print(studies.QUICK)
        screen.show_path("Read back from" if read_back else "Written to", place / "summary.json")
        reporting.draw_page(place)
        if summary.get("failures"):
            failed = len(summary["failures"])
            screen.say(f"{_runs(failed)} failed; the same command tries again, and leaves the others be.")
            if all(decision == "unknown" for decision in comparison.decisions(summary).values()):
                raise typer.Exit(1)


def _budget(tune: bool, trials: int | None, seeds: int | None, tunings: int | None) -> Budget | None:
    given = {"trials": trials, "seeds": seeds, "tunings": tunings}
    own = {key: value for key, value in given.items() if value is not None}
    if own and not tune:
        names = {"trials": "--trials", "seeds": "--tuning-seeds", "tunings": "--tunings"}
        raise ValueError(f"expected --tune beside {names[next(iter(own))]}, got none")
    return Budget(**own) if tune else None


def _tuning(rows: int, seeds: int, budget: Budget) -> str:
    """What is tuned and then trained."""
    times = f"{budget.tunings} tunings: " if budget.tunings > 1 else ""
    return f"{times}{rows} methods x ({budget.trials} trials x {budget.seeds} tuning seeds + {seeds} fresh seeds)"


def _runs(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"
