"""Figures of summaries: their numbers, words and digits; for odd summaries too."""

import pytest

from ordinal_entropy.comparison.verdicts import verdict
from ordinal_entropy.results import summary_figures as figures
from ordinal_entropy.results import tables
from saved_folders import summary_of

pytest.importorskip("scipy", reason="the intervals are SciPy's")

SUMMARY = summary_of(
    {"baseline": [4.0, 5.0, 6.0], "oe": [3.0, 3.0, 3.0], "ld": [5.0, None, 7.0]}, paper={"oe": {"mean": 2.5}}
)
SETTINGS = {
    "baseline": {"method": "baseline"},
    **{f"{m} strength={s:g}": {"method": m, "strength": s} for m in ("ld", "oe") for s in (1.0, 10.0, 100.0)},
}


def swept(means, **further):
    """Of the baseline at 3, and ``ld`` at each M."""
    variants = {f"ld samples={m}": {"method": "ld", "samples": m, "rescale": "authors"} for m in means}
    methods = {
        name: {"mean": mean, "std": 0.1, "n": 2, "values": []}
        for name, mean in zip(variants, means.values(), strict=True)
    }
    return {
        "metric": "mse",
        "baseline": "baseline",
        "methods": {"baseline": {"mean": 3.0, "std": 0.1, "n": 2, "values": [2.9, 3.1]}, **methods},
        "variants": {"baseline": {"method": "baseline"}, **variants},
        "paper": {"baseline": {"mean": 3.0, "std": 0.9}, "ld samples=10": {"mean": 1.6, "std": None}},
        **further,
    }


def test_differences_are_those_of_the_seeds():
    found = figures.differences(SUMMARY, 1.0)
    (panel,) = found.panels
    seeds, means = panel.series
    assert list(zip(seeds.methods, seeds.x, strict=True)) == [("oe", -1), ("oe", -2), ("oe", -3), ("ld", 1), ("ld", 1)]
    assert (means.methods, means.x[0]) == (["oe", "ld"], -2.0)
    assert (means.low[0], means.high[0]) == pytest.approx((-4.484, 0.484), abs=1e-3)
    assert panel.rows == ["oe", "ld"] and [level.value for level in panel.levels] == [0.0]
    assert found.caption == "Left of the line is better. Over 3 seeds, best on validation."
    assert panel.x.title == "Test MAE minus that of baseline"
    assert figures.differences(summary_of({"baseline": [1.0], "oe": [2.0]}), 1.0) is None


def test_the_interval_is_said_with_the_digits_of_the_table_and_of_the_verdict():
    summary = summary_of({"baseline": [4.0, 5.0, 6.5], "oe": [3.0, 3.2, 3.1], "ld": [4.0, 4.4, 7.0]})
    for scale in (1.0, 1e-3):
        found = figures.differences(summary, scale)
        for row, text in zip(found.table.rows, found.panels[0].series[1].texts, strict=True):
            difference, covered = row.cells
            printed = next(each for each in tables.differences(summary, scale).rows if each.name == row.name)
            assert list(printed.cells[:2]) == [difference, covered]
            assert text == f"mean {difference}, 95% CI {covered}, p after Holm's correction {printed.cells[2]}"
            sentence = next(each for each in verdict(summary, scale).findings if each.method == row.name).sentence
            assert f"difference {difference} " in sentence and f"95% CI {covered};" in sentence


def test_scores_have_a_ring_a_run_their_mean_and_the_papers():
    (panel,) = figures.scores(SUMMARY, 0.5).panels
    by_label = {own.label: own for own in panel.series}
    assert by_label["one run"].x == [8.0, 10.0, 12.0, 6.0, 6.0, 6.0, 10.0, 14.0]
    assert by_label["mean"].x == [10.0, 6.0, 12.0]
    assert (by_label["the paper"].methods, by_label["the paper"].x) == (["oe"], [5.0])
    told = SUMMARY | {"shown": {"paper_at": "best_test"}}
    assert figures.scores(told, 1.0).panels[0].series[2].label == "the paper, best on test"


def test_a_sweep_has_a_line_for_each_series_and_every_point_its_variant():
    values = {name: [own.get("strength", 2.0), own.get("strength", 2.0) + 2] for name, own in SETTINGS.items()}
    summary = summary_of(values, paper={"oe strength=1": {"mean": 1.5, "std": 0.5}}) | {"variants": SETTINGS}
    (found,) = figures.sweeps(summary, 1.0)
    (panel,) = found.panels
    ld, oe, paper = panel.series
    assert (ld.label, oe.label, paper.label) == ("ld", "oe", "the paper")
    assert oe.x == [1.0, 10.0, 100.0] and oe.y == [2.0, 11.0, 101.0]
    assert oe.methods == ["oe strength=1", "oe strength=10", "oe strength=100"]
    assert (paper.x, paper.y, paper.low, paper.high) == ([1.0], [1.5], [1.0], [2.0])
    assert panel.x.log and panel.x.ticks == [1.0, 10.0, 100.0] and panel.y.log
    (level,) = panel.levels
    assert (level.value, level.label) == (3.0, "baseline") and level.low < 3 < level.high
    assert found.caption == "Mean and standard deviation. Over 2 runs, best on validation."
    assert figures.sweeps(SUMMARY, 1.0) == []


def test_lines_rise_along_the_axis_and_leave_out_what_has_no_number():
    (line,) = figures.lines(swept({100: 2.0, 10: 1.0, 1000: None}), "samples", "rescale").values()
    assert (line.places, line.means, line.stds) == ([10.0, 100.0], [1.0, 2.0], [0.1, 0.1])
    assert figures.lines(swept({10: 1.0}), "strength") == {}


def test_a_sweep_is_in_the_unit_of_the_scale_and_in_words_of_its_own():
    summary = swept({10: 1.0, 100: 2.0})
    found = figures.sweep(summary, 0.5, "samples", series="rescale", label="M", names={"authors": "as the authors"})
    (panel,) = found.panels
    line, paper = panel.series
    assert line.label == "as the authors" and line.y == pytest.approx([2.0, 4.0])
    assert (line.low[0], line.high[0]) == pytest.approx((1.8, 2.2))
    assert paper.y == pytest.approx([3.2]) and paper.low == [None]
    assert [(level.value, level.label) for level in panel.levels] == [(6.0, "baseline"), (6.0, "the paper: baseline")]
    assert (panel.x.title, panel.y.title) == ("M", "Test MSE x 1e0") and panel.y.from_zero
    plain = figures.sweep(summary, 0.5, "samples", series="rescale").panels[0]
    assert (plain.x.title, plain.series[0].label) == ("samples", "rescale=authors")
    assert figures.sweep(swept({10: 0.2, 100: 20.0}), 1.0, "samples").panels[0].y.log


@pytest.mark.parametrize("means", [{10: None}, {}])
def test_a_sweep_without_a_number_has_no_line(means):
    (panel,) = figures.sweep(swept(means, paper={}), 1.0, "samples").panels
    assert panel.series == [] and len(panel.levels) == 1


def test_a_band_below_zero_ends_at_the_smallest_score():
    summary = swept({10: 1.0, 100: 2.0})
    summary["methods"]["ld samples=10"]["std"] = 5.0
    (panel,) = figures.sweep(summary, 1.0, "samples").panels
    assert panel.series[0].low[0] == 1.0 and panel.series[0].high[0] == 6.0


COSTS = {
    "baseline": "baseline",
    "device": "cpu",
    "metric": "seconds",
    "methods": {"baseline": {"mean": 10.0}, "ld samples=5": {"mean": 10.5}, "oe samples=5": {"mean": 9.0}},
    "paired": {
        "ld samples=5": {"difference": 0.5, "ci_low": 0.1, "ci_high": 0.9},
        "oe samples=5": {"difference": -1.0, "ci_low": None, "ci_high": None},
    },
    "memory_mb": {"baseline": 200.0, "ld samples=5": 210.0, "oe samples=5": None},
    "paper": {
        "baseline": {"seconds": 100, "megabytes": 50},
        "ld samples=5": {"seconds": 127, "megabytes": 51},
    },
    "variants": {},
}


def test_increases_are_percents_of_the_baseline():
    found = figures.increases(COSTS)
    assert found["time"]["ld samples=5"] == pytest.approx((5.0, 27.0))
    assert found["time"]["oe samples=5"] == (pytest.approx(-10.0), None)
    assert found["memory"]["ld samples=5"] == pytest.approx((5.0, 2.0))
    assert found["memory"]["oe samples=5"] == (None, None)
    assert figures.increases({**COSTS, "paper": {}})["time"]["ld samples=5"][1] is None


def test_costs_have_the_interval_of_the_time_and_leave_gaps():
    time, memory = figures.costs(COSTS).panels
    measured, paper = time.series
    assert measured.label == "measured on cpu" and measured.x == pytest.approx([5.0, -10.0])
    assert (measured.low, measured.high) == ([pytest.approx(1.0), None], [pytest.approx(9.0), None])
    assert paper.x == pytest.approx([27.0]) and paper.methods == ["ld samples=5"]
    assert memory.series[0].x == pytest.approx([5.0]) and memory.series[0].low == [None]
    assert time.x.title == "time, % over the baseline's" and (time.title, memory.title) == ("time", "memory")
    assert [len(panel.series) for panel in figures.costs({**COSTS, "paper": {}}).panels] == [1, 1]
