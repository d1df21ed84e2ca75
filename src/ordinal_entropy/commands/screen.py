"""What a command shows: results on standard output, progress and notes on standard error."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from ordinal_entropy import comparison, tasks
from ordinal_entropy.recipes import explained
from ordinal_entropy.results import tables, terminal

MOST_SHOWN = 50  # problems, unless all are asked for
RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "JSM_NAMESPACE_RANK")


def first_process(ranks: Sequence[str] = RANKS[:3]) -> bool:
    """Whether this process speaks for all: Lightning starts the command once more for each further device."""
    return all(os.environ.get(name, "0") == "0" for name in ranks)


def output() -> Console:
    """Prints texts as they are: a path may have brackets, which are no markup."""
    return Console(highlight=False, markup=False, emoji=False, soft_wrap=False, quiet=not first_process())


def say(text: str) -> None:
    """To standard error, where progress goes; results go to standard output."""
    if first_process():
        typer.echo(text, err=True)


def complain(text: str) -> None:
    """The same of what is wrong, by any process."""
    typer.echo(f"ordinal-entropy: {text}", err=True)


@contextmanager
def progress_bar(unit: str = "steps", doing: str = "training") -> Iterator[Callable[[int, int], None]]:
    """A bar with the time left on a terminal; elsewhere a line at each tenth."""
    console = Console(stderr=True)
    if not console.is_terminal:
        told = [0]

        def tell(done: int, total: int) -> None:
            tenth = 10 * done // max(total, 1)
            if tenth > told[0]:
                told[0] = tenth
                say(f"{done:,} of {total:,} {unit}")

        yield tell
        return
    left = ("left", TimeRemainingColumn(elapsed_when_finished=False))
    columns = ("{task.description}", BarColumn(), "{task.fields[count]}", TimeElapsedColumn(), *left)
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("preparing data", total=None, count="")
        training = [False]

        def update(done: int, total: int) -> None:
            if not training[0]:  # the time left is that of the steps, without the data
                training[0] = True
                progress.reset(bar, total=total, completed=done, description=doing)
            progress.update(bar, completed=done, total=total, count=f"{done:,} of {total:,}")

        yield update


def show_keys(title: str, parts: Sequence[object], hidden: Sequence[str] = ()) -> None:
    """Prints the keys of recipes with their values and comments, but for hidden ones."""
    rows: dict[str, tuple[str, str, str]] = {}
    for key, value, comment in chain.from_iterable(map(explained, parts)):
        text = ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        rows.setdefault(key, (key, text, comment))
    shown = [row for key, row in rows.items() if key not in hidden]
    terminal.show_titled(output(), title, terminal.grid(["key", "value", "what it is"], shown))


def show_scores(summary: dict[str, Any], scale: float) -> None:
    """Prints the tables of a comparison, and what they say in sentences."""
    console = output()
    task = tasks.load(summary["task"])
    found = [tables.scores(summary, scale, task.paper_at), tables.differences(summary, scale)]
    for table in [
        *found,
        *tables.details(summary, task.details),
        *tables.tuning(summary, scale),
        *tables.selection(summary, scale),
    ]:
        if table is not None:
            terminal.show(console, table)
    for sentence in comparison.verdict(summary, scale).sentences:
        console.print(Text(sentence))


def show_path(what: str, path: Path | str) -> None:
    """Prints where something is, or a command, in one line."""
    output().print(f"{what} {path}", soft_wrap=True)
