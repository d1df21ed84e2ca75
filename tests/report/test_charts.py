"""The page draws what figures are described by, and plotly takes it."""

import json

import pytest

from ordinal_entropy.report import charts
from ordinal_entropy.results import summary_figures, training_figures
from ordinal_entropy.results.figures import style
from saved_folders import summary_of

objects = pytest.importorskip("plotly.graph_objects", reason="what it takes is plotly's to say")


def views(figure):
    """Those of a figure, if plotly takes them all and the figure has a table with rows."""
    assert figure.table.rows and all(len(row.cells) == len(figure.table.headings) for row in figure.table.rows)
    found = charts.views(figure)
    for view in found:
        layout = {key: value for key, value in view["layout"].items() if key != "meta"}
        objects.Figure({"data": view["traces"], "layout": layout})
        json.dumps(view, allow_nan=False)
    return found


def by_name(view, name):
    return [trace for trace in view["traces"] if trace.get("name") == name]


SUMMARY = summary_of(
    {"baseline": [4.0, 5.0, 6.0], "oe": [3.0, 3.0, 3.0], "<b>x</b>": [5.0, None, 7.0]}, paper={"oe": {"mean": 2.5}}
)


def test_a_row_of_each_method_can_be_chosen():
    (view,) = views(summary_figures.differences(SUMMARY, 1.0))
    assert [trace["x"] for trace in by_name(view, "one seed")] == [[-1.0, -2.0, -3.0], [1.0, 1.0]]
    mean = by_name(view, "mean and 95% CI")[0]
    assert mean["hovertext"][0].startswith("oe<br>mean -2.0, 95% CI -4.5 to +0.5, p after Holm's correction")
    assert mean["x"] == [-2.0] and mean["error_x"]["array"][0] == pytest.approx(2.484, abs=1e-3)
    assert mean["meta"] == {"method": "oe", "row": True, "offset": 0.0}
    assert view["layout"]["meta"] == {"rows": ["oe", "<b>x</b>"], "clip": True}
    (shape,), (key,) = view["layout"]["shapes"], by_name(view, "baseline")
    assert shape["x0"] == shape["x1"] == 0 and key["x"] == [None]  # for the legend


def test_names_cannot_be_read_as_tags():
    for figure in (summary_figures.differences(SUMMARY, 1.0), summary_figures.scores(SUMMARY, 1.0)):
        for view in views(figure):
            for trace in view["traces"]:
                assert "<b>" not in "".join(trace.get("hovertext", [])) + trace["name"]


def test_every_point_of_a_sweep_has_its_variant():
    values, variants = {"baseline": [2.0, 4.0]}, {"baseline": {"method": "baseline"}}
    for place in (1.0, 10.0, 100.0):
        name = f"oe strength={place:g}"
        values[name], variants[name] = [place, place + 2], {"method": "oe", "strength": place}
    paper = {"oe strength=1": {"mean": 1.5, "std": 0.25}}
    (view,) = views(summary_figures.sweeps(summary_of(values, paper=paper) | {"variants": variants}, 1.0)[0])
    (line,), (star,) = by_name(view, "oe"), by_name(view, "the paper")
    assert line["x"] == [1.0, 10.0, 100.0] and line["y"] == [2.0, 11.0, 101.0]
    assert line["meta"]["methods"] == ["oe strength=1", "oe strength=10", "oe strength=100"]
    assert line["hovertext"][0] == "oe strength=1<br>2.00 ± 1.41"
    band = next(trace for trace in view["traces"] if trace["meta"].get("band"))
    assert len(band["x"]) == len(band["y"]) == len(band["meta"]["methods"]) == 6
    assert (star["x"], star["y"], star["error_y"]["array"]) == ([1.0], [1.5], [0.25])
    layout = view["layout"]
    assert layout["xaxis"]["type"] == "log" and layout["xaxis"]["ticktext"] == ["1", "10", "100"]
    assert [shape["y0"] for shape in layout["shapes"]] == pytest.approx([3.0, 3 - 2**0.5])


def test_long_curves_are_thinned_and_all_panels_are_views():
    steps = list(range(0, 5000, 10))
    levels = {"train": 0.0, "validation": 3.0, "test": 1.0}
    runs = [
        {"variant": "oe", "seed": k, **{part: [k + level] * 500 for part, level in levels.items()}} for k in range(3)
    ]
    names = {"baseline": "baseline", "oe": "oe"}
    found = views(training_figures.scores({"steps": steps, "runs": runs}, names, "mae", 1.0))
    assert len(found) == 3
    (line,) = by_name(found[0], "oe")
    assert len(line["x"]) == 120 and (line["x"][0], line["x"][-1]) == (0, 4990) and set(line["y"]) == {2.0}
    assert line["meta"] == {"method": "oe"} and line["mode"] == "lines"
    assert (line["line"]["color"], line["line"]["dash"]) == (style(1).colour, style(1).dash)
    band = found[0]["traces"][0]
    assert set(band["y"]) == {1.0, 3.0} and len(band["y"]) == 240


def test_costs_have_a_view_for_time_and_one_for_memory():
    summary = {
        "baseline": "a",
        "methods": {"a": {"mean": 2.0, "values": [2.0]}, "b": {"mean": 3.0, "values": [3.0]}},
        "paired": {"b": {"difference": 1.0, "ci_low": 0.5, "ci_high": 1.5}},
        "memory_mb": {"a": 100.0, "b": 110.0},
        "paper": {"a": {"seconds": 100, "megabytes": 5}, "b": {"seconds": 150, "megabytes": 6}},
    }
    time, memory = views(summary_figures.costs(summary))
    (measured,) = by_name(time, "measured")
    assert measured["x"] == [50.0] and measured["error_x"]["array"] == [pytest.approx(25.0)]
    assert measured["hovertext"] == ["b<br>measured: +50.00%"]
    assert by_name(memory, "measured")[0]["error_x"]["array"] == [None]
    assert by_name(memory, "the paper")[0]["x"] == pytest.approx([20.0])
