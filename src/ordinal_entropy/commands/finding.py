"""``best``: the best composition for one's data."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from ordinal_entropy import studies, tasks
from ordinal_entropy.commands import errors, options, reporting, screen
from ordinal_entropy.comparison.forward import LEAST_FRESH, MOST_FRESH
from ordinal_entropy.comparison.text import duration, parsed_duration
from ordinal_entropy.results import tables
from ordinal_entropy.studies import best as search
from ordinal_entropy.studies.best import BestStudy
from ordinal_entropy.training.plans import default_folder, length

_BUDGET_HELP = "Time to spend, as in 90s, 20m or 1h30m."
_PARTS_HELP = "Parts of methods that may join the baseline.  [default: all but controls]"
_SEEDS_HELP = (
    f"Fresh seeds that winner and baseline are compared over.  [default: {LEAST_FRESH} to {MOST_FRESH}, by the budget]"
)


def best(
    task: options.Task,
    target: options.Target = None,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help=_BUDGET_HELP)] = "20m",
    parts: Annotated[str, typer.Option("--parts", metavar="A,B,...", help=_PARTS_HELP)] = "",
    seeds: Annotated[int | None, typer.Option("--seeds", metavar="N", help=_SEEDS_HELP)] = None,
    preset: options.Preset = "paper",
    settings: options.Settings = None,
    config: options.Config = None,
    out: options.Out = None,
    device: options.Device = "auto",
    keys: options.Keys = False,
    jobs: options.Jobs = 1,
) -> None:
    """What should I use on my data? The best composition of methods, found within a budget of time.

        ordinal-entropy best houses.csv --target price --budget 5m

    First the baseline is tuned: learning rate and weight decay. Then heads, losses, weights, mixing and added terms are
    tried beside it on validation data, one part at a time, and the one that gains most is kept, as long as one does.
    In the end the winner and the tuned baseline train with fresh seeds, and their test scores are compared.

    Writes summary.json, a page and the trained model to --out, and prints the command that trains it again. An
    interrupted search resumes.
    """
    with errors.one_sentence() as own_folder:
        task, preset, given, recipe = options.recipe_of(task, preset, config, settings, target)
        if keys:
            screen.show_keys(f"{task}, preset {preset}", [recipe], tasks.load(task).fixed)
            return
        names = [name.strip() for name in parts.split(",") if name.strip()]
        study = BestStudy(task, preset, given, recipe, parsed_duration(budget), seeds, names)
        where = options.device_named(device)
        place = out or default_folder(f"best-{task}", study.label())
        if not (place / "summary.json").exists():
            search.check(study)
        own_folder.take(place, recipe)
        summary = search.finished(study, place)
        read_back = summary is not None
        if summary is None:
            screen.say(
                f"{task}, preset {preset}: {len(study.chosen)} parts within {duration(study.budget)}, runs of "
                f"{length(recipe)} on {where}, in {place}"
            )
            summary = search.run(study, place, where, jobs, screen.progress_bar, screen.say)
        with studies.reading_summary(place) if read_back else nullcontext():
            screen.show_scores(summary, tables.scale_of(summary))
        screen.show_path("Read back from" if read_back else "Written to", place / "summary.json")
        reporting.draw_page(place)
        screen.show_path("The model:", Path(place / summary["best"]["model"]))
        screen.show_path("Trains it again:", summary["best"]["train"])
