"""``report`` and ``summarize``: of folders that other commands wrote."""

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from ordinal_entropy import comparison, report, runs
from ordinal_entropy.commands import errors, screen


def write_report(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Of a study, a run, a diagnosis, or of several.")],
) -> None:
    """One HTML page of any folder of runs: the verdict, tables, figures to explore; opens from disk.

        ordinal-entropy report runs/table1-linear

    Writes report.html into the folder. What is half-written, unreadable or of another version is left out and named.
    """
    with errors.one_sentence():
        with screen.progress_bar("layouts", "drawing") as progress:
            left_out = report.write(folder, progress)
        console = screen.output()
        for what, why in left_out[: screen.MOST_SHOWN]:
            console.print(Text(f"{what}: {why}"))
        if len(left_out) > screen.MOST_SHOWN:
            console.print(f"{len(left_out) - screen.MOST_SHOWN} more are named on the page.")
        screen.show_path("Drawn in", folder / report.FILE)


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
    with errors.one_sentence():
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
            screen.output().print(f"{file}: {'up to date' if same else 'rewritten'}", soft_wrap=True)


def draw_page(folder: Path) -> None:
    """The page of what was just printed; where that fails, a sentence: the result is there all the same."""
    if not screen.first_process():
        return
    if report.missing() is not None:
        screen.show_path(f"The page needs {report.missing()}, then ordinal-entropy report", folder)
        return
    try:
        with screen.progress_bar("layouts", "drawing") as progress:
            report.write(folder, progress)
    except Exception as error:
        screen.say(f"The page could not be drawn: {error}. ordinal-entropy report {folder} tries again.")
    else:
        screen.show_path("Drawn in", folder / report.FILE)
