"""The tables and the chart of a tuned comparison, from its summary."""

import json

import pytest

pytest.importorskip("scipy", reason="the distributions are SciPy's")

from ordinal_entropy.report.reading import as_read
from ordinal_entropy.results import summary_figures, tables
from paired_scores import summed

ROW = {
    "trials": 8,
    "failed": 1,
    "chosen": {"learning_rate": 0.0123456, "oe.bins": 50},
    "validation": 2.0,
    "untuned": 3.0,
    "seconds": 12.3,
    "curve": [[0.001, 3.0], [0.01, 2.5], [0.1, float("nan")]],
    "at_edge": ["oe.bins"],
}
WIDER = {**ROW, "failed": 0, "at_edge": [], "curve": [[0.0001, 4.0], *ROW["curve"][:2]]}


def a_summary(**tuned):
    columns = {"baseline": [3.0, 3.2, 2.9], "oe": [2.0, 2.3, 2.0]}
    own = {"axis": "learning_rate", "trials": 8, "seeds": 3, "tunings": 1, "fresh": 3, **tuned}
    return {**summed(columns), "baseline": "baseline", "tuned": own, "tuning": {"baseline": WIDER, "oe": ROW}}


def test_the_table_says_what_was_chosen_what_it_gave_and_what_it_cost():
    chosen, curve = tables.tuning(a_summary(), 1.0)
    assert chosen.headings == ["trials", "seconds", "before", "after", "chosen"]
    said = "learning_rate 0.0123; oe.bins 50 (at the edge: oe.bins)"
    assert {row.name: list(row.cells) for row in chosen.rows}["oe"] == [
        "8 (1 failed)",
        "12.30",
        "3.00",
        "2.00",
        said,
    ]
    assert "3 tuning seeds" in chosen.note
    assert curve.headings == ["baseline", "oe"]
    assert [(row.name, list(row.cells)) for row in curve.rows] == [
        ("0.0001", ["4.00", "-"]),
        ("0.001", ["3.00", "3.00"]),
        ("0.01", ["2.50", "2.50"]),
        ("0.1", ["-", "-"]),
    ]
    assert tables.tuning(summed({"baseline": [1.0, 2.0], "oe": [1.0, 2.0]}), 1.0) == []


def test_each_of_several_tunings_has_a_row():
    summary = a_summary(tunings=2)
    summary["tuning"]["oe"] = {**ROW, "tunings": [ROW, {**ROW, "untuned": None, "chosen": {}}]}
    chosen, _ = tables.tuning(summary, 1.0)
    assert [row.name for row in chosen.rows] == ["baseline", "oe, tuning 1", "oe, tuning 2"]
    assert chosen.rows[2].cells[2:] == ["-", "2.00", "- (at the edge: oe.bins)"]


def test_the_chart_has_a_line_for_each_row_and_leaves_out_what_failed():
    read = json.loads(json.dumps(as_read(a_summary())))  # as from a file: NaN is null
    (panel,) = summary_figures.learning_rates(read, 0.5).panels
    assert [line.label for line in panel.series] == ["baseline", "oe"] and all(line.line for line in panel.series)
    assert panel.series[1].x == [0.001, 0.01] and panel.series[1].y == [6.0, 5.0]
    assert panel.x.log and panel.x.title == "learning rate"
    assert summary_figures.learning_rates(summed({"baseline": [1.0, 2.0], "oe": [1.0, 2.0]}), 1.0) is None
