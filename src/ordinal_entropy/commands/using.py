"""``predict`` and ``export``: a trained run in use."""

import csv
import io
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ordinal_entropy import exporting, runs, trained
from ordinal_entropy.commands import errors, options, screen

_RUN = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder of train, or one in a comparison's training.")]
_AT_HELP = "best_validation or last: which parameters of the run.  [default: best_validation; operators: last]"
_AT = Annotated[str | None, typer.Option("--at", metavar="POINT", help=_AT_HELP, show_default=False)]
_FILES_HELP = "A table; images, a folder of images, or a .csv with a column path; an .npz of functions and places."
_OUT_HELP = "The table of predictions. Maps go into a folder of the same name beside it, as .npy and .png."
_LEVEL_HELP = "Add the columns low and high, between which this share of new targets lies, as 0.9."
_CALIBRATE_HELP = "Rows with targets, or a dataset, that the run has not seen.  [default: the test rows of the run]"


def predict(
    run: _RUN,
    files: Annotated[list[Path], typer.Argument(metavar="FILES", help=_FILES_HELP)],
    out: Annotated[Path, typer.Option("--out", metavar="FILE.csv", help=_OUT_HELP)] = Path("predictions.csv"),
    id_column: Annotated[str, typer.Option("--id", metavar="COLUMN", help="A column that names rows of a table.")] = "",
    intervals: Annotated[float | None, typer.Option("--intervals", metavar="SHARE", help=_LEVEL_HELP)] = None,
    calibrate: Annotated[Path | None, typer.Option("--calibrate", metavar="DATA", help=_CALIBRATE_HELP)] = None,
    at: _AT = None,
    device: options.Device = "cpu",
) -> None:
    """Predictions of a trained run for new rows or images, without targets.

        ordinal-entropy predict runs/mine new.csv --out predictions.csv --intervals 0.9

    Intervals are split conformal: they hold on average over calibration rows that are drawn as the new ones are.
    """
    with errors.one_sentence():
        if calibrate is not None and intervals is None:
            raise ValueError("expected --intervals SHARE beside --calibrate, got none")
        own = trained.load(run, at=at, device=options.device_named(device))
        half, rows = (0.0, "") if intervals is None else own.halfwidth(intervals, calibrate)
        inputs = own.read(files, id_column)
        heading = [inputs.heading, *([id_column] if inputs.ids is not None else []), own.number]
        heading += ["low", "high"] if intervals is not None else []
        heading += ["map"] if own.maps else []
        lines: list[list[str]] = []
        used: set[str] = set()
        with screen.progress_bar("rows" if inputs.heading == "row" else "images", "predicting") as progress:
            for some in own.each(inputs, progress=progress):
                for place, number in enumerate(some.numbers.tolist()):
                    row = len(lines)
                    line = [inputs.names[row], *([inputs.ids[row]] if inputs.ids is not None else [])]
                    line += [f"{value:.9g}" for value in ([number, number - half, number + half] if rows else [number])]
                    if own.maps:
                        line.append(_write_map(out.with_suffix(""), inputs.names[row], some, place, used))
                    lines.append(line)
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(heading)
        writer.writerows(lines)
        with runs.replacing(out) as file:
            file.write(text.getvalue().encode())
        unit = "epoch" if hasattr(own.recipe.training, "epochs") else "step"
        which = "best on validation" if own.at == "best_validation" else "last"
        console = screen.output()
        console.print(f"{own.task}, {own.method}, seed {own.seed}, {which}: {unit} {own.epoch:,}")
        if rows:
            seen = "" if calibrate else ", which training and the choice of its epoch have not seen"
            console.print(f"Intervals of {intervals:g}: plus and minus {half:.4g}, calibrated on {rows}{seen}")
        screen.show_path(f"{len(lines):,} predictions are in", out)


def _write_map(folder: Path, name: str, some: Any, place: int, used: set[str]) -> str:
    """Writes a map as numbers, and as a picture beside its image; the name of the file of numbers."""
    from ordinal_entropy.vision.portraits import beside

    stem = own = Path(name).stem
    number = 1
    while own in used:  # images of the same name in several folders
        number += 1
        own = f"{stem}-{number}"
    used.add(own)
    with runs.replacing(folder / f"{own}.npy") as file:
        np.save(file, some.maps[place].astype(np.float32))
    with runs.replacing(folder / f"{own}.png") as file:
        beside(some.images[place], some.maps[place], file)
    return f"{folder.name}/{own}.npy"


def export(
    run: _RUN,
    to: Annotated[str, typer.Option("--to", metavar="FORMAT", help=f"One of {', '.join(exporting.FORMATS)}.")] = "onnx",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where.  [default: RUN/export-FORMAT]")
    ] = None,
    at: _AT = None,
) -> None:
    """The network of a trained run for serving, with its preprocessing written beside it.

        ordinal-entropy export runs/mine --to torch-export --out served

    Predictions are in the unit of the targets, for any number of rows. preprocessing.json says how inputs are made:
    columns, medians, scales and categories of a table, size, mean and deviation of images.
    """
    with errors.one_sentence():
        if to not in exporting.FORMATS:
            raise ValueError(f"expected --to to be one of {', '.join(exporting.FORMATS)}, got {to!r}")
        own = trained.load(run, at=at)
        for path in exporting.export(own, to, out or run / f"export-{to}"):
            screen.show_path("Written:", path)
