"""``diagnose``: features in files."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from ordinal_entropy import diagnosis, environment, feature_files, runs
from ordinal_entropy.commands import errors, options, reporting, screen
from ordinal_entropy.results import terminal
from ordinal_entropy.training.plans import default_folder

_TARGETS_HELP = "The .npy file of an .npy file's targets; once for both, or once for each."
_ROWS_HELP = "Rows that are drawn and measured.  [default: at most 4096]"


def diagnose(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="An .npz, .safetensors or .npy file.")],
    other: Annotated[Path | None, typer.Argument(metavar="OTHER", help="Another, held against the first.")] = None,
    targets: Annotated[list[Path] | None, typer.Option("--targets", metavar="FILE", help=_TARGETS_HELP)] = None,
    rows: Annotated[int | None, typer.Option("--rows", metavar="N", min=8, help=_ROWS_HELP)] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the rows drawn.")] = 0,
    out: options.Out = None,
) -> None:
    """Are my features collapsed? Entropies, ordinality, rank and more, with intervals and what they mean.

        ordinal-entropy diagnose features.npz

    or, before and after a change,

        ordinal-entropy diagnose before.npz after.npz

    A file holds `features` (n, d), from any model, and `targets` (n,) or (n, t). It is read a part at a time and never
    unpickled; rows with NaN are left out and counted. Writes diagnosis.json to --out.
    """
    with errors.one_sentence() as own_folder:
        if seed < 0:
            raise ValueError(f"expected --seed to be at least 0, got {seed}")
        files = [file] if other is None else [file, other]
        given: list[Path | None] = [*targets] if targets else [None]
        if len(given) not in (1, len(files)):
            raise ValueError(f"expected --targets once, or once for each of {len(files)} files, got {len(given)}")
        found_in = zip(files, given * len(files), strict=False)
        arrays = [diagnosis.checked(*feature_files.read(*both)) for both in found_in]
        what = {"files": [os.path.abspath(path) for path in files], "targets": given, "rows": rows, "seed": seed}
        place = out or default_folder("-".join(["diagnose", *(path.stem for path in files)]), what)
        own_folder.take(place)
        with screen.progress_bar("steps", "measuring") as progress:
            found: diagnosis.Diagnosis | diagnosis.Change
            if other is None:
                found = diagnosis.diagnose(*arrays[0], rows=rows, seed=seed, progress=progress)
            else:
                found = diagnosis.diagnose_change(*arrays, rows=rows, seed=seed, progress=progress)
        names = [str(path) for path in files]
        content = {"files": names, "targets": given, **found.to_dict(), "environment": environment.environment()}
        runs.write_json(place / "diagnosis.json", content)
        console = screen.output()
        if isinstance(found, diagnosis.Diagnosis):
            _print_diagnosis(console, names[0], found)
        else:
            _print_change(console, names, found)
        screen.show_path("Written to", place / "diagnosis.json")
        reporting.draw_page(place)


def _print_alarms(console: Console, name: str, found: diagnosis.Diagnosis) -> None:
    for alarm in found.alarms:
        console.print(Text.assemble((f"Alarm, {name}: ", "bold red"), alarm))
    if not found.alarms:
        console.print(Text(f"{name}: no sign of collapse."))


def _print_diagnosis(console: Console, name: str, found: diagnosis.Diagnosis) -> None:
    _print_alarms(console, name, found)
    rows = [(measure.title, measure.shown, measure.interval, measure.meaning) for measure in found.measures]
    terminal.show_grid(console, terminal.grid(["", "value", "95% interval", "what it means"], rows))
    for text in (str(found.counts), *found.notes):
        console.print(Text(text))


def _print_change(console: Console, names: Sequence[str], found: diagnosis.Change) -> None:
    sides = list(zip(names, (found.before, found.after), strict=True))
    for name, side in sides:
        _print_alarms(console, name, side)
    every = zip(found.differences, found.before.measures, found.after.measures, strict=True)
    rows = [(diff.title, old.shown, new.shown, diff.shown, diff.interval, diff.meaning) for diff, old, new in every]
    headings = ["", "before", "after", "difference", "95% interval", "what it means"]
    terminal.show_grid(console, terminal.grid(headings, rows))
    for name, side in sides:
        for text in (str(side.counts), *side.notes):
            console.print(Text(f"{name}: {text}"))
    for text in found.notes:
        console.print(Text(text))
