"""``data check`` and ``data make``: folders of datasets."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from ordinal_entropy import tasks
from ordinal_entropy.commands import errors, screen
from ordinal_entropy.results import terminal

app = typer.Typer(no_args_is_help=True, help="Dataset folders: check one, make a small generated one.")
DataTask = Annotated[str, typer.Argument(metavar="TASK", help=f"One of {', '.join(tasks.data_names())}.")]
_ALL_HELP = f"Name every problem, not the first {screen.MOST_SHOWN} only."


@app.command()
def check(
    task: DataTask,
    root: Annotated[
        Path, typer.Argument(metavar="ROOT", help="The folder of the dataset, as its page in docs/ shows it.")
    ],
    all_: Annotated[bool, typer.Option("--all", help=_ALL_HELP)] = False,
) -> None:
    """Reads every file of a dataset and names what is missing or damaged, and why.

        ordinal-entropy data check age datasets/AgeDB-DIR

    Exit status 0 if all is well, 1 if anything is wrong with the dataset, 2 if there is none.
    """
    read = [0]
    with errors.one_sentence():
        with screen.progress_bar("files", "reading") as progress:

            def count(done: int, total: int) -> None:
                read[0] = total
                progress(done, total)

            problems = tasks.load_data(task).check(root, progress=count)
        if problems:
            show_problems(root, problems, problems if all_ else problems[: screen.MOST_SHOWN], read[0])
            raise typer.Exit(1)
        what = f"{root} was" if read[0] == 1 else f"{read[0]:,} files of {root} were"
        screen.output().print(f"All is well: {what} read.", soft_wrap=True)


def show_problems(root: Path, problems: Sequence[Any], shown: Sequence[Any], read: int) -> None:
    """Prints some of the problems of a dataset, and how many there are in all."""
    console, rest = screen.output(), len(problems) - len(shown)
    console.print(terminal.grid(["file", "what is wrong"], shown))
    more = f", {rest:,} of them not shown (--all names every one)" if rest else ""
    total = f"{len(problems):,} problem{'s' if len(problems) > 1 else ''}"
    console.print(f"{total} in {root}{more}; {read:,} files read.", soft_wrap=True)


@app.command()
def make(
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
    with errors.one_sentence(), screen.progress_bar("images", "drawing") as progress:
        size = {} if count is None else {"count": count}
        tasks.load_data(task).make(folder, seed, progress=progress, **size)
    screen.show_path("Written to", folder)
