"""Tables in a terminal; needs rich, which the [train] extra brings."""

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from ordinal_entropy.results.tables import Table

_NAME = len("classification")  # a name that is not folded
_WIDEST = 10_000


def show(console: Console, table: Table) -> None:
    """Prints the title, the table and its note."""
    console.print(Text(table.title, style="bold"))
    show_grid(console, drawn(table))
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


def show_grid(console: Console, grid: Grid) -> None:
    """As wide as the terminal, in a file 80 columns, cells wrapped between words; wider where they would be cut."""
    before = console.width
    console.width = max(before, Measurement.get(console, console.options.update_width(_WIDEST), grid).minimum)
    while any(Segment.get_line_length(line) > console.width for line in Segment.split_lines(console.render(grid))):
        console.width += 1  # rich gives a column its least width back after it has shared out the room
    console.print(grid)
    console.width = before
