"""Figures of training: over which runs they are, and in which words."""

import pytest

from ordinal_entropy.results import training_figures as figures

CURVES = {
    "steps": [0, 10],
    "runs": [
        {"variant": "ld", "seed": 0, "test": [3.0, 1.0]},
        {"variant": "ld", "seed": 1, "test": [5.0, 0.5]},
        {"variant": "ld", "seed": 2, "test": [4.0, None]},  # diverged
        {"variant": "lost", "seed": 0, "test": [4.0, None]},
    ],
}


def test_scores_are_the_median_and_range_of_the_runs_that_have_numbers():
    found = figures.scores(CURVES, {"baseline": "plain", "ld": "L_d", "lost": "lost"}, "mse", 0.5)
    (panel,) = found.panels  # no other part is there
    (line,) = panel.series
    assert (line.label, line.methods, line.x) == ("L_d", ["ld", "ld"], [0, 10])
    assert (line.low, line.y, line.high) == ([6.0, 1.0], [8.0, 1.5], [10.0, 2.0])
    assert line.style == figures.style(1)  # of its place among the names
    assert panel.y.title == "Test MSE x 1e0" and panel.x.title == "step" and panel.y.log
    assert found.caption == "Median and range of 3 runs."
    assert found.table.headings == ["step 0", "step 10"] and found.table.rows[0].cells == ["8.00", "1.50"]
    assert figures.scores(CURVES, {"lost": "lost"}, "mse", 1.0) is None


def test_scores_have_a_panel_for_each_part():
    steps = list(range(0, 5000, 10))
    levels = {"train": 0.0, "validation": 3.0, "test": 1.0}
    runs = [
        {"variant": "oe", "seed": k, **{part: [k + level] * 500 for part, level in levels.items()}} for k in range(3)
    ]
    found = figures.scores({"steps": steps, "runs": runs}, {"baseline": "baseline", "oe": "oe"}, "mae", 1.0)
    assert [panel.title for panel in found.panels] == ["test rows", "validation rows", "training rows"]
    assert [panel.series[0].y[0] for panel in found.panels] == [2.0, 4.0, 1.0]
    assert found.table.headings[-1] == "step 4,990" and len(found.table.headings) == 6
    assert figures.scores({"steps": steps, "runs": []}, {"oe": "oe"}, "mae", 1.0) is None


def run(variant, seed, *values):
    entropies = {name: list(values) for name in ("E1", "E2", "E3")}
    return {"variant": variant, "seed": seed, "train": entropies, "test": entropies}


CONTENT = {
    "epochs": [1, 2],
    "runs": [run("ld", 0, 3.0, 1.0), run("ld", 1, 6.0, 0.5), run("ld", 2, 4.0, None), run("lost", 0, None, None)],
}


def test_entropies_are_the_mean_and_range_of_the_runs_that_have_numbers():
    found = figures.entropies(CONTENT, {"ld": "$L_d$", "lost": "lost"}, unit="m")
    assert [panel.title for panel in found.panels][:2] == ["E1, test rows", "E1, training rows"]
    assert len(found.panels) == 6
    (line,) = found.panels[0].series
    assert (line.low, line.y, line.high) == ([3.0, 0.5], [4.5, 0.75], [6.0, 1.0])
    assert found.panels[0].x.title == "epoch" and found.panels[5].y.title == "E3: diversity (m)"
    assert found.table.rows[0].name == "ld" and found.table.rows[0].cells[0] == "4.50 → 0.75"
    assert figures.entropies({"epochs": [1], "runs": []}, {"oe": "oe"}) is None


@pytest.mark.parametrize("names", [["lost"], ["ld", "lost"]])
def test_panels_that_were_asked_for_are_there_even_when_empty(names):
    panels = [figures.Curves("test", "E1", names, "one"), figures.Curves("train", "E2", ["ld"], "two")]
    found = figures.entropies(CONTENT, {"lost": "lost", "ld": "$L_d$"}, panels, columns=2)
    assert [panel.title for panel in found.panels] == ["one", "two"] and found.columns == 2
    assert [own.label for own in found.panels[0].series] == ["$L_d$"] * (len(names) - 1)
    assert found.panels[1].series[0].style == figures.style(1)  # a variant looks the same everywhere
