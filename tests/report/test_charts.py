"""Charts hold the numbers they say, and plotly takes them."""

import json

import pytest

from ordinal_entropy.figures import entropy
from ordinal_entropy.report import charts
from saved_folders import summary_of

objects = pytest.importorskip("plotly.graph_objects", reason="what it takes is plotly's to say")


def taken(chart):
    """The chart, if plotly takes all its views and each has a table with rows."""
    assert chart.table.rows and all(len(row.cells) == len(chart.table.headings) for row in chart.table.rows)
    for view in chart.views:
        layout = {key: value for key, value in view.layout.items() if key != "meta"}
        objects.Figure({"data": view.traces, "layout": layout})
        json.dumps(view, allow_nan=False)
    return chart


def by_name(view, name):
    return [trace for trace in view.traces if trace.get("name") == name]


SUMMARY = summary_of(
    {"baseline": [4.0, 5.0, 6.0], "oe": [3.0, 3.0, 3.0], "<b>x</b>": [5.0, None, 7.0]}, paper={"oe": {"mean": 2.5}}
)


def test_differences_are_those_of_the_seeds():
    (view,) = taken(charts.paired_differences(SUMMARY, 1.0)).views
    assert [trace["x"] for trace in by_name(view, "one seed")] == [[-1.0, -2.0, -3.0], [1.0, 1.0]]
    mean = by_name(view, "mean and 95% CI")[0]
    assert "mean -2.0, 95% CI -4.5 to +0.5, p after Holm's correction" in mean["hovertext"][0]
    assert mean["x"] == [-2.0] and mean["error_x"]["array"][0] == pytest.approx(2.484, abs=1e-3)
    assert view.layout["meta"]["rows"] == ["oe", "<b>x</b>"]
    assert charts.paired_differences(summary_of({"baseline": [1.0], "oe": [2.0]}), 1.0) is None


def test_scores_have_a_dot_a_run_their_mean_and_the_papers():
    (view,) = taken(charts.scores(SUMMARY, 0.5)).views
    assert [trace["x"] for trace in by_name(view, "one run")] == [[8.0, 10.0, 12.0], [6.0, 6.0, 6.0], [10.0, 14.0]]
    assert [trace["x"] for trace in by_name(view, "mean")] == [[10.0], [6.0], [12.0]]
    (star,) = by_name(view, "the paper")
    assert star["x"] == [5.0] and star["meta"]["method"] == "oe"


def test_names_cannot_be_read_as_tags():
    for chart in (charts.paired_differences(SUMMARY, 1.0), charts.scores(SUMMARY, 1.0)):
        for view in chart.views:
            for trace in view.traces:
                assert "<b>" not in "".join(trace["hovertext"]) + trace["name"]


def test_a_sweep_has_a_line_for_each_series_and_every_point_its_variant():
    values = {"baseline": [2.0, 4.0]}
    variants = {"baseline": {"method": "baseline"}}
    for method in ("ld", "oe"):
        for place in (1.0, 10.0, 100.0):
            name = f"{method} strength={place:g}"
            values[name] = [place, place + 2]
            variants[name] = {"method": method, "strength": place}
    summary = summary_of(values, paper={"oe strength=1": {"mean": 1.5, "std": None}}) | {"variants": variants}
    (chart,) = charts.sweeps(summary, 1.0)
    (view,) = taken(chart).views
    (line,) = by_name(view, "oe")
    assert line["x"] == [1.0, 10.0, 100.0] and line["y"] == [2.0, 11.0, 101.0]
    assert line["meta"]["methods"] == ["oe strength=1", "oe strength=10", "oe strength=100"]
    band = next(trace for trace in view.traces if trace["meta"].get("band"))
    assert len(band["x"]) == len(band["y"]) == len(band["meta"]["methods"]) == 6
    (star,) = by_name(view, "the paper")
    assert (star["x"], star["y"]) == ([1.0], [1.5])
    assert view.layout["xaxis"]["type"] == "log" and view.layout["shapes"][0]["y0"] == 3.0
    assert charts.sweeps(SUMMARY, 1.0) == []


def test_curves_are_medians_with_their_range_and_long_ones_are_thinned():
    steps = list(range(0, 5000, 10))
    levels = {"train": 0.0, "validation": 3.0, "test": 1.0}
    runs = [
        {"variant": "oe", "seed": k, **{part: [k + level] * 500 for part, level in levels.items()}} for k in range(3)
    ]
    chart = taken(charts.curves({"steps": steps, "runs": runs}, ["baseline", "oe"], "mae", 1.0))
    assert [view.label for view in chart.views] == ["test rows", "validation rows", "training rows"]
    (line,) = by_name(chart.views[0], "oe")
    assert len(line["x"]) == 120 and (line["x"][0], line["x"][-1]) == (0, 4990) and set(line["y"]) == {2.0}
    band = chart.views[0].traces[0]
    assert set(band["y"]) == {1.0, 3.0} and len(band["y"]) == 240
    assert charts.curves({"steps": steps, "runs": []}, ["oe"], "mae", 1.0) is None


def test_entropies_have_a_view_for_each_estimate_and_part():
    own = {estimator: [1.0, 2.0] for estimator in entropy.LABELS}
    content = {"epochs": [1, 2], "runs": [{"variant": "oe", "seed": 0, "train": own, "test": own}]}
    chart = taken(charts.entropies(content, ["oe"]))
    assert [view.label for view in chart.views][:2] == ["E1, test rows", "E1, training rows"]
    assert chart.table.rows[0].cells[0] == "1.00 → 2.00"
    assert charts.entropies({"epochs": [1], "runs": []}, ["oe"]) is None


def test_costs_are_percent_over_the_baseline():
    summary = {
        "baseline": "a",
        "methods": {"a": {"mean": 2.0}, "b": {"mean": 3.0}},
        "memory_mb": {"a": 100.0, "b": 110.0},
        "paper": {"a": {"seconds": 100, "megabytes": 5}, "b": {"seconds": 150, "megabytes": 6}},
    }
    chart = taken(charts.costs(summary))
    assert [view.label for view in chart.views] == ["time", "memory"]
    assert by_name(chart.views[0], "measured")[0]["x"] == [50.0]
    assert by_name(chart.views[1], "the paper")[0]["x"] == pytest.approx([20.0])


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([1.0, 10.0], None),
        ([0.0, 100.0], None),
        ([-1.0, 50.0], None),
        ([], None),
        ([1.0, 30.0], [1, 2, 5, 10, 20, 50, 100, 200, 500]),
    ],
)
def test_an_axis_is_logarithmic_where_numbers_are_far_apart(values, ticks):
    axis = charts._scaled(values)
    assert axis.get("tickvals") == ticks and axis.get("type") == (None if ticks is None else "log")
