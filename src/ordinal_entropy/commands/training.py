"""``train`` and ``evaluate``: one run."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from ordinal_entropy import methods, runs, tasks
from ordinal_entropy.commands import errors, options, screen
from ordinal_entropy.comparison import references
from ordinal_entropy.recipes import completed, described
from ordinal_entropy.results import tables, terminal
from ordinal_entropy.studies import examples, grid
from ordinal_entropy.training.plans import Plan, default_folder, length

_RESULT = {"last": runs.NUMBER, "best_validation": runs.NUMBER, "best_test": runs.NUMBER}


def train(
    task: options.Task,
    target: options.Target = None,
    method: Annotated[str, typer.Option("--method", help=f"One of {', '.join(methods.names())}.")] = "oe",
    seed: Annotated[int, typer.Option("--seed", help="Of first weights and draws; chooses the training rows too.")] = 0,
    preset: options.Preset = "paper",
    settings: options.Settings = None,
    config: options.Config = None,
    out: options.Out = None,
    device: options.Device = "auto",
    keys: options.Keys = False,
) -> None:
    """One run of a recipe, resumable.

        ordinal-entropy train linear --method ld --seed 3 --preset quick --out runs/mine

    Writes a run folder: recipe.json, metrics.jsonl as it goes, checkpoints, and result.json at the end.
    """
    with errors.one_sentence() as own_folder:
        task, preset, _, recipe = options.recipe_of(task, preset, config, settings, target)
        if keys:
            screen.show_keys(f"{task}, preset {preset}", [recipe], tasks.load(task).fixed)
            return
        grid.methods_known([method], task=task)
        tasks.require_parts(recipe, [method])
        if seed < 0:
            raise ValueError(f"expected --seed to be at least 0, got {seed}")
        where = options.device_named(device)
        what = {"task": task, **described(recipe)}
        place = out or default_folder(f"{task}-{method}-seed{seed}", what)
        if not (place / "result.json").exists():
            tasks.load(task).check(recipe)
            tasks.load(task).check_method(Plan(method, seed, recipe))
        own_folder.take(place, recipe)
        run = runs.create(place, what, method, seed, read=partial(completed, recipe))
        result = run.result(_RESULT)
        if result is None:
            screen.say(f"{task}, preset {preset}: {method}, seed {seed}, {length(recipe)} on {where}, in {place}")
            result = _trained(task, recipe, run, where)
        else:
            screen.say(f"{place} holds this run already, finished")
        _print_result(f"{task}, {method}, seed {seed}", method, tasks.load(task), result)
        screen.show_path("The run is in", place)


def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder that train wrote.")],
    settings: options.Settings = None,
    config: options.Config = None,
    device: options.Device = "auto",
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE.png", help="Draw test images of depth or crowds.")
    ] = None,
) -> None:
    """Scores of a run, computed anew from its last checkpoint; with --set data=OTHER on another dataset.

    ordinal-entropy evaluate runs/mine
    """
    with errors.one_sentence():
        given = options.given_settings(config, settings)
        name, plan = tasks.planned(run, given)
        task = tasks.load(name)
        if picture is not None:
            examples.draw_predictions(run, picture, settings=given, device=options.device_named(device))
        scores = task.evaluate(plan, device=options.device_named(device), folder=run)
        total, unit = length(plan.recipe).split()
        done = f"{unit.removesuffix('s')} {scores.pop('step'):,.0f} of {total}"
        title = f"{name}, {plan.method}, seed {plan.seed}, {done}; {task.metric.upper()} where no other score is named"
        rows = [(part, f"{score:.4g}") for part, score in scores.items()]
        terminal.show_titled(screen.output(), title, terminal.grid(["rows", "score"], rows))
        if picture is not None:
            screen.show_path("Drawn in", picture)


def _trained(task: str, recipe: Any, run: runs.Run, device: str) -> dict[str, Any]:
    """Trains into a run folder; a step that the folder has logged before a stop is not logged again."""
    logged = {line["step"] for line in run.metrics()}

    def log(step: int, scores: Sequence[Any]) -> None:  # of all runs of the stack, which is one
        if step not in logged:
            run.log(step=step, **scores[0]._asdict())

    about, plan = tasks.load(task), Plan(run.method, run.seed, recipe)
    with screen.progress_bar() as progress:
        (scores,) = about.train([plan], device=device, folder=run.path, progress=progress, on_metrics=log)
    numbers = {
        "metric": about.metric,
        "lower_is_better": about.lower_is_better,
        **{at: getattr(scores, at) for at in tables.POINTS},
        "steps": scores.steps[-1],
        **references.described(about.references(recipe, [run.seed], [run.method]), about.constant),
    }
    run.finish(numbers)
    return run.result(_RESULT) or numbers


def _print_result(run: str, method: str, task: tasks.Task, result: dict[str, Any]) -> None:
    shown = ["no number" if result[at] is None else f"{result[at]:.4g}" for at in tables.POINTS]
    whole = references.of_run(method, {**result, "metric": task.metric, "lower_is_better": task.lower_is_better})
    rows = [[method, *shown]]
    for name, score in references.beside(whole).items():
        rows.append([references.called(name), *[f"{score:.4g}"] * len(shown)])
    console = screen.output()
    terminal.show_titled(
        console, f"{run}: test {task.metric.upper()}", terminal.grid(["", *tables.POINTS.values()], rows)
    )
    for sentence in references.sentences(whole):
        console.print(Text(sentence))
