"""``reproduce``: the tables and figures of the paper."""

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from ordinal_entropy import studies
from ordinal_entropy.commands import errors, options, reporting, screen
from ordinal_entropy.recipes import full_name, leaves
from ordinal_entropy.results import tables, terminal
from ordinal_entropy.training.plans import default_folder, length


def reproduce(
    study: Annotated[str | None, typer.Argument(metavar="STUDY", help="A name that --list prints.")] = None,
    settings: options.Settings = None,
    config: options.Config = None,
    out: options.Out = None,
    device: options.Device = "auto",
    list_: Annotated[bool, typer.Option("--list", help="Name the studies, and stop.")] = False,
    keys: options.Keys = False,
    preset: options.StudyPreset = "paper",
    jobs: options.Jobs = 1,
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
        rows = [(name, studies.describe(name)) for name in studies.names()]
        terminal.show_grid(screen.output(), terminal.grid(["study", "what it is"], rows))
        return
    with errors.one_sentence() as own_folder:
        if study is None:
            raise ValueError(f"expected the name of a study, got none; there are {', '.join(studies.names())}")
        given = options.given_settings(config, settings)
        resolved = studies.resolve(study, given, preset)
        own, recipe = resolved.keys, resolved.recipe
        if keys:
            fixed = [full_name(leaves(recipe), key) for key in resolved.study.fixed(own)]
            screen.show_keys(f"{study}, preset {preset}: its own keys, then those of its recipe", [own, recipe], fixed)
            return
        what = {key: value for key, value in resolved.purpose.items() if key != "study"}
        as_published = (not given and preset == "paper") or resolved.purpose == studies.resolve(study).purpose
        place = out or (Path("runs") / study if as_published else default_folder(study, what))
        where = options.device_named(device)
        done = (place / "summary.json").exists()
        if not done:
            studies.check(resolved)
        own_folder.take(place, recipe)
        measured = resolved.study.measured is not None
        screen.say(f"{study}, preset {preset}: {studies.describe(study)}")
        if not done:
            count = len(resolved.variants) * (own.rounds if measured else own.seeds)
            screen.say(f"{count} {'measurements' if measured else f'runs of {length(recipe)}'} on {where}, in {place}")
        with screen.progress_bar(*(("measurements", "measuring") if measured else ())) as progress:
            summary = studies.carry_out(resolved, place, where, progress, jobs)
        with studies.reading_summary(place) if done else nullcontext():
            show_study(study, summary, place, read_back=done)
        if preset == "quick" and not measured:
            screen.output().print(studies.QUICK)
        reporting.draw_page(place)


def show_study(name: str, summary: dict[str, Any], out: Path, *, read_back: bool) -> None:
    """Prints the tables, sentences and notes of a study, and where its files are."""
    console, study = screen.output(), studies.get(name)
    if study.measured is not None:
        terminal.show(console, tables.costs(summary))
    elif study.report is not None:
        for table in study.report(summary):
            terminal.show(console, table)
    else:
        screen.show_scores(summary, study.scale)
    for note in study.notes:
        console.print(note)
    screen.show_path("Read back from" if read_back else "Written to", out / "summary.json")
    pictures = studies.pictures(name, out)
    for picture in pictures:
        if picture.exists():
            screen.show_path("Drawn in", picture)
    if not all(picture.exists() for picture in pictures):
        console.print(
            f"Figures need {' and '.join(study.draws_with)}: pip install 'ordinal-entropy[report]', then give the same "
            "command again with the same --out; nothing is trained anew."
        )
