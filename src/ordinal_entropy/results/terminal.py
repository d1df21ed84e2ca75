"""Tables in a terminal; needs rich, which the [train] extra brings."""

from collections.abc import Iterable, Mapping, Sequence

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from ordinal_entropy.results.tables import Table

_NAME = len("classification")  # a name that is not folded
_WIDEST = 10_000


def show(console: Console, table: Table) -> None:
    """Prints the title, the table and its note."""
    show_titled(console, table.title, drawn(table))
    if table.note:
        console.print(Text(table.note, style="dim"))


def drawn(table: Table) -> Grid:
    """The table as rich has it; rows that are the paper's alone are dim.

    Example:
        >>> from ordinal_entropy.results.tables import Row
        >>> drawn(Table("Test MAE", ["mean"], [Row("oe", ["9.27"])])).row_count
        1
    """
    found = Grid(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    found.add_column("", justify="left", overflow="fold", min_width=_NAME)
    for heading in table.headings:
        found.add_column(heading, justify="left" if table.prose else "right", overflow="fold")
    for row in table.rows:
        found.add_row(Text(row.name), *map(Text, row.cells), style="dim" if row.paper else None)
    return found


def grid(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Grid:
    """Texts in columns, folded where the terminal is narrow."""
    found = Grid(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        found.add_column(heading, overflow="fold")
    for row in rows:
        found.add_row(*map(Text, row))
    return found


def show_titled(console: Console, title: str, grid: Grid) -> None:
    """Prints the title and, below it, the grid."""
    console.print(Text(title, style="bold"))
    show_grid(console, grid)


def show_key_values(console: Console, content: Mapping[str, object]) -> None:
    """Prints names with their values, indented, then an empty line."""
    found = Grid.grid(padding=(0, 2))
    found.add_column(no_wrap=True)
    found.add_column(overflow="fold")
    for name, value in content.items():
        found.add_row(name, Text(str(value)))
    console.print(Padding(found, (0, 0, 1, 2)))


def show_grid(console: Console, grid: Grid) -> None:
    """As wide as the terminal, in a file 80 columns, cells wrapped between words; wider where they would be cut."""
    before = console.width
    console.width = max(before, Measurement.get(console, console.options.update_width(_WIDEST), grid).minimum)
    while any(Segment.get_line_length(line) > console.width for line in Segment.split_lines(console.render(grid))):
        console.width += 1  # rich gives a column its least width back after it has shared out the room
    console.print(grid)
    console.width = before
