"""``compare``: methods on a task."""

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from ordinal_entropy import comparison, methods, studies, tasks
from ordinal_entropy.commands.errors import one_sentence
from ordinal_entropy.commands.options import (
    ConfigOption,
    DeviceOption,
    JobsOption,
    KeysOption,
    OutOption,
    PresetOption,
    SettingsOption,
    device_named,
    given_settings,
)
from ordinal_entropy.commands.reporting import draw_page
from ordinal_entropy.commands.screen import output, progress_bar, say, show_keys, show_path, show_scores
from ordinal_entropy.recipes import described, flat
from ordinal_entropy.results import tables
from ordinal_entropy.studies import grid, rounds
from ordinal_entropy.training.plans import default_folder, length


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
    with one_sentence() as own_folder:
        preset = tasks.preset_of(task, preset)
        given = given_settings(config, settings)
        recipe = tasks.recipe(task, preset, given)
        if keys:
            show_keys(f"{task}, preset {preset}", [recipe], tasks.load(task).fixed)
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
        variants = grid.rows_of(names, strengths, recipe, tasks.values_of(task, recipe, given))
        rows = [variant.name for variant in variants]
        numbers = grid.seeds_from(seeds)
        if smallest is not None and not stop_early:
            raise ValueError(
                f"expected --stop-early beside --smallest, which is a reason to stop, got {smallest:g} alone"
            )
        rule = comparison.StopEarly(seeds, smallest).checked() if stop_early else None
        where = device_named(device)
        short = preset == "quick" and "paper" in tasks.load(task).presets  # of something published
        what = {"study": f"compare {task}", "methods": names, "seeds": seeds, **flat(described(recipe))}
        if strengths:
            what |= {"strengths": strengths}
        if rule is not None:
            what |= {"stop_early": rule._asdict()}
        place = out or default_folder(f"compare-{task}", what)
        if not (place / "summary.json").exists():
            tasks.load(task).check(recipe)
            for plan in grid.plans_of(variants, {"": recipe}, numbers[:1]):
                tasks.load(task).check_method(plan)
        own_folder.take(place, recipe)
        summary = studies.finished(place, what, flat(described(type(recipe)())))
        with studies.reading_summary(place):
            lost = len((summary or {}).get("failures") or [])
        if lost and (place / "training").exists():
            say(f"{_runs(lost)} in {place} failed before: once more")
            summary = None
        read_back = summary is not None
        if summary is None:
            most = "at most " if rule is not None else ""
            say(
                f"{task}, preset {preset}: {len(rows)} {'rows' if strengths else 'methods'} x {seeds} seeds = "
                f"{most}{len(rows) * seeds} runs of {length(recipe)} on {where}, in {place}"
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
                with progress_bar() as progress:
                    return grid.summary_of(task, variants, recipe, some, progress=progress, **own)

            if rule is None:
                summary = trained(numbers)
            else:
                summary = rounds.settled(trained, rounds.rounds_of(numbers, jobs, len(rows)), say)
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
                scale=tables.scale_of(summary),
                notes=[studies.QUICK] if short else [],
                command=["compare", task, *chosen, *again, "--device", where],
            )
        with studies.reading_summary(place) if read_back else nullcontext():
            show_scores(summary, tables.scale_of(summary))
        if short:
            output().print(studies.QUICK)
        show_path("Read back from" if read_back else "Written to", place / "summary.json")
        draw_page(place)
        if summary.get("failures"):
            say(f"{_runs(len(summary['failures']))} failed; the same command tries again, and leaves the others be.")
            if all(outcome == "unknown" for outcome in comparison.outcomes(summary).values()):
                raise typer.Exit(1)


def _runs(count: int) -> str:
    return f"{count:,} run{'' if count == 1 else 's'}"
