"""Published scores: their file is whole, and what is shown says where they come from."""

import copy

import pytest

from ordinal_entropy import methods, tasks
from ordinal_entropy.results import published

OTHERS = {"VIR", "Group-DIR"}  # methods that are not here


def test_rows_are_methods_by_their_names_and_tasks_exist():
    for table in published.tables():
        assert table["task"] in tasks.names()
        if table["data"] != "California housing":  # networks, not methods
            for name in table["scores"]:
                for part in [] if name in OTHERS else name.split("+"):
                    assert part in methods.names(), (table["data"], part)


def test_a_table_says_split_recipe_source_and_how_sure():
    for table in published.tables():
        (shown,) = [each for each in published.of_task(table["task"]) if table["source"] in each.note
                    and table["data"] in each.title and table["recipe"] in each.note]  # fmt: skip
        assert table["split"] in shown.note and "only where data, split and recipe are the same" in shown.note
        assert [row.name for row in shown.rows] == list(table["scores"])
    aged = published.of_task("age")[0]
    assert list(aged.headings) == ["MAE", "MAE, many", "MAE, median", "MAE, few"]
    assert list(aged.rows[0].cells) == ["7.67", "6.66", "9.30", "12.61"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.pop("source"), "got no source"),
        (lambda table: table.update(evidence="memory"), "got 'memory'"),
        (lambda table: table["scores"].update(oe=[1.0, 2.0, 3.0, 4.0, 5.0]), "scores of oe"),
    ],
)
def test_mistakes_in_the_file(monkeypatch, change, message):
    wrong = copy.deepcopy(published.tables()[0])
    change(wrong)
    published.tables.cache_clear()
    monkeypatch.setattr("tomllib.loads", lambda text: {"table": [wrong]})
    try:
        with pytest.raises(ValueError, match=message):
            published.tables()
    finally:
        published.tables.cache_clear()
