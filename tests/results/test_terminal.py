"""Tables in a terminal."""

import io

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

from rich.console import Console

from ordinal_entropy.results import tables, terminal
from paired_scores import summed


def test_tables_are_not_cut_in_a_narrow_window_or_a_file():
    summary = summed({"baseline": [3.0, 3.2, 2.9], **{f"method-{k} a=1 b=2": [2000.0, 1.3, 2.0 + k] for k in range(3)}})
    console = Console(file=io.StringIO(), width=40)
    table = tables.differences(summary, 1.0)
    terminal.show(console, table)
    printed = console.file.getvalue().split()
    cells = [cell for row in table.rows for cell in (row.name, *row.cells)]
    assert all(word in printed for cell in cells for word in cell.split())
    assert console.width == 40
