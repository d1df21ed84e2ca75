"""Cells of the tables, worked out by hand."""

import ordinal_entropy as oe
from ordinal_entropy import comparison
from ordinal_entropy.comparison import text
from ordinal_entropy.results import tables, terminal
from saved_folders import summary_of


def cells(table):
    return {row.name: list(row.cells) for row in table.rows}


def test_scores_stand_beside_the_papers_and_rows_of_its_own_come_last():
    paper = {"oe": {"mean": 7.46, "std": None}, "elsewhere": {"mean": 7.0, "std": 0.25}}
    table = tables.scores(summary_of({"baseline": [1.0, 3.0], "oe": [2.0, None]}, paper=paper), 1.0, "best_test")
    assert table.headings == ["last step", "best on validation", "best on test, as the paper", "paper"]
    assert cells(table)["baseline"] == ["2.0 ± 1.4"] * 3 + ["-"]
    assert cells(table)["oe"] == ["2.00 (1 lost)"] * 3 + ["7.46"]
    assert cells(table)["elsewhere"] == ["-", "-", "-", "7.00 ± 0.25"] and table.rows[-1].paper


def test_a_table_without_the_papers_numbers_has_no_column_for_them():
    table = tables.scores(summary_of({"baseline": [1e-3, 3e-3], "oe": [2e-3, 2e-3]}), 1e-3, "last")
    assert "paper" not in " ".join(table.headings) and table.title == "Test MAE x 1e-3"
    assert cells(table)["oe"] == ["2.00 ± 0.00"] * 3


def test_references_stand_below_the_methods_without_an_interval():
    paper = {"oe": {"mean": 7.46, "std": None}, "elsewhere": {"mean": 7.0, "std": 0.25}}
    known = {"references": {"constant": 9.0, "oe": 2.0, "ridge": 4.0}, "constant": "the training median"}
    table = tables.scores(summary_of({"baseline": [1.0, 3.0], "oe": [2.0, None]}, paper=paper, **known), 1.0, None)
    assert [row.name for row in table.rows] == [
        "baseline",
        "oe",
        "constant, reference",
        "ridge, reference",
        "elsewhere",
    ]
    assert cells(table)["constant, reference"] == ["9.00"] * 3 + ["-"]
    assert table.note.endswith("The constant is the training median.")
    damaged = tables.scores(summary_of({"baseline": [1.0, 3.0]}, references=["constant"]), 1.0, None)
    assert [row.name for row in damaged.rows] == ["baseline"] and "constant" not in damaged.note


def test_differences_have_the_interval_and_both_p_values():
    # differences -1, -2, -3: mean -2, standard error 1 / sqrt 3, t(2, 0.975) = 4.3027: -2 +- 2.484
    summary = summary_of({"baseline": [4.0, 5.0, 6.0], "oe": [3.0, 3.0, 3.0], "ld": [4.0, 5.0, 6.0]})
    table = tables.differences(summary, 1.0)
    assert cells(table)["oe"][:2] == ["-2.0", "-4.5 to +0.5"]
    assert table.headings[2:4] == ["p after Holm", "raw p"]
    assert cells(table)["oe"][2:4] == ["0.15", "0.074"]  # t = -3.46 with 2 degrees of freedom; twice that by Holm
    assert cells(table)["ld"][:3] == ["0.00", "0.00 to 0.00", "1"]
    assert tables.differences(summary_of({"baseline": [1.0, 2.0]}), 1.0) is None


def test_page_terminal_sentences_and_summary_have_the_same_numbers():
    baseline = [4.0, 5.0, 6.0, 4.5, 5.5, 4.2]
    ld, far = [3.0, 4.6, 5.1, 4.2, 4.4, 4.0], [9.0, 9.5, 11.0, 9.4, 10.6, 9.3]
    summary = summary_of({"baseline": baseline, "ld": ld, "oe": baseline, "far": far})
    table = tables.differences(summary, 1.0)
    assert table.headings[2:4] == ["p after Holm", "raw p"]
    grid = terminal.drawn(table)
    printed = list(zip(*([str(cell) for cell in column.cells] for column in grid.columns), strict=True))
    first = str(oe.comparison.Comparison(summary)).splitlines()[: 1 + len(summary["methods"])]
    own = {line.split()[0]: line for line in first}
    sentences = {each.method: each.sentence for each in comparison.verdict(summary).findings}
    adjusted = comparison.adjusted(summary)
    for (name, *row), (_, cells_of_page) in zip(printed, cells(table).items(), strict=True):
        pair = summary["paired"][name]
        assert row == cells_of_page
        difference, interval, p, raw = row[:4]
        assert (p, raw) == (text.probability(adjusted[name]), text.probability(pair["p_value"]))
        assert all(cell in own[name] for cell in (difference, interval, p, raw))
        assert f"difference {difference} (" in sentences[name] and f"95% CI {interval};" in sentences[name]
        assert text.p_equals(adjusted[name]) in sentences[name]
    assert summary["paired"]["ld"]["holm_p_value"] == adjusted["ld"] != summary["paired"]["ld"]["p_value"]


def test_one_score_a_run_is_not_called_the_best_of_several():
    found = oe.compare(lambda method, seed: seed + (method == "oe") * (1 + seed % 2), seeds=4, metric="R2").summary
    found |= {"baseline": "baseline"}
    table = tables.scores(found, 1.0, None)
    assert table.headings == ["mean"] and table.title == "R2"
    assert "validation" not in tables.differences(found, 1.0).note
    assert "best on validation" in tables.differences(summary_of({"a": [1.0, 2.0], "b": [2.0, 1.0]}), 1.0).note


def test_details_have_the_papers_in_rows_below_and_only_tables_with_numbers():
    details = {name: {"best_validation": {"gm": [1.0, 3.0]}} for name in ("baseline", "oe")}
    summary = {"details": details, "paper_details": {"oe": {"gm": 4.72}, "theirs": {"gm": 4.0}}}
    (table,) = tables.details(summary, {"GM": {"all": "gm", "few": "gm_few"}, "MAE": {"all": "mae"}})
    assert table.headings == ["all"]
    assert [(row.name, list(row.cells), row.paper) for row in table.rows] == [
        ("baseline", ["2.0 ± 1.4"], False),
        ("oe", ["2.0 ± 1.4"], False),
        ("paper", ["4.72"], True),
        ("theirs, paper", ["4.00"], True),
    ]
    assert [table.headings for table in tables.details(summary, {})] == [["gm"]]
    assert tables.details({}, {}) == []


def test_claims_are_held_or_not():
    claims = [
        {"part": "test", "claim": "falls", "estimator": "E1", "held": True, "since": 13, "seeds": 2, "of": 3},
        {"part": "test", "claim": "falls", "estimator": "E2", "held": None, "since": None, "seeds": 0, "of": 3},
        {"part": "train", "claim": "falls", "estimator": "E1", "held": False, "since": None, "seeds": 0, "of": 1},
    ]
    table = tables.claims({"claims": claims})
    assert cells(table) == {
        "falls (test)": ["held from epoch 13 (2 of 3)", "no number"],
        "falls (training)": ["not held", "-"],
    }


def test_costs_stand_beside_the_papers():
    summary = {
        "metric": "seconds for 10 steps",
        "baseline": "a",
        "methods": {"a": {"values": [2.0, 2.0], "mean": 2.0}, "b": {"values": [3.0, 3.0], "mean": 3.0}},
        "memory_mb": {"a": 100.0, "b": None},
        "paper": {"a": {"seconds": 100, "megabytes": 5}, "b": {"seconds": 150, "megabytes": 6}},
    }
    assert cells(tables.costs(summary))["b"] == ["3.00 ± 0.00", "1.50", "-", "150.0", "1.50", "6.00"]


def test_values_of_a_recipe_are_words():
    found = cells(tables.key_values("Recipe", {"a": True, "b": None, "c": [1, 2.5], "d": 1e-3, "e": "", "f": []}))
    assert [each[0] for each in found.values()] == ["yes", "none", "1, 2.5", "0.001", "none", "none"]
