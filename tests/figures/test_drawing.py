"""Figures in print show what they are described by."""

import pytest

pytest.importorskip("matplotlib", reason="figures are matplotlib's")

from ordinal_entropy.figures import drawing
from ordinal_entropy.results import summary_figures, training_figures
from ordinal_entropy.results.figures import MEAN, PAPER, Axis, Figure, Level, Panel, Series, style
from ordinal_entropy.results.tables import Table
from saved_folders import summary_of

NO_TABLE = Table("", [], [])


@pytest.fixture
def drawn(monkeypatch, tmp_path):
    """The figure of matplotlib, and the text of its SVG."""
    from matplotlib.figure import Figure as Drawn

    def draw(figure, **options):
        kept, real = [], Drawn.savefig
        monkeypatch.setattr(Drawn, "savefig", lambda self, *a, **k: (kept.append(self), real(self, *a, **k)))
        path = tmp_path / "new" / "figure.png"
        drawing.draw(figure, path, **options)
        assert path.read_bytes().startswith(b"\x89PNG")
        return kept[0], path.with_suffix(".svg").read_text()

    return draw


def line(label, place, x, y, *, band=0.5):
    low, high = [value - band for value in y], [value + band for value in y]
    return Series(label, style(place), [label] * len(x), x, y, low, high, line=True)


def labelled(axes):
    return dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))


def test_lines_points_and_levels_are_drawn_with_their_looks(drawn):
    star = Series("the paper", PAPER, ["a"], [10.0], [1.5], [None], [None])
    level = Level(3.0, "baseline", 2.0, 4.0, "dot")
    across = Axis("M", True, [1.0, 10.0, 100.0])
    series = [line("a", 0, [1.0, 10.0, 100.0], [2.0, 3.0, 4.0]), line("b", 1, [1.0, 10.0], [1.0, 2.0]), star]
    figure = Figure("Scores", "A caption.", [Panel(across, Axis("MSE", from_zero=True), series, [level])], NO_TABLE)
    picture, svg = drawn(figure, title="Error against M")
    (axes,) = picture.axes
    found = labelled(axes)
    assert list(found) == ["baseline", "a", "b", "the paper"]
    assert list(found["a"].get_ydata()) == [2.0, 3.0, 4.0] and list(found["b"].get_xdata()) == [1.0, 10.0]
    assert found["a"].get_color() == style(0).colour and found["b"].get_color() == style(1).colour
    assert len({(found[n].get_marker(), found[n].get_linestyle()) for n in "ab"}) == 2
    assert found["baseline"].get_ydata()[0] == 3.0 and found["baseline"].get_linestyle() == ":"
    assert axes.get_xscale() == "log" and axes.get_yscale() == "linear" and axes.get_ylim()[0] == 0
    assert [text.get_text() for text in axes.get_xticklabels()] == ["1", "10", "100"]
    for text in ("Error against M", "A caption.", ">M</text>", ">MSE</text>", ">the paper</text>"):
        assert text in svg
    assert ">Scores</text>" not in svg


def test_ticks_beyond_what_is_drawn_do_not_widen_the_axis(drawn):
    ticks = [0.1, 1.0, 10.0, 100.0, 1000.0]
    figure = Figure("", "", [Panel(Axis("step"), Axis("MSE", True, ticks), [line("a", 0, [0, 1], [2, 50])])], NO_TABLE)
    (axes,) = drawn(figure)[0].axes
    assert list(axes.get_yticks()) == [10.0] or list(axes.get_yticks()) == [10.0, 100.0]
    assert axes.get_yscale() == "log" and axes.get_ylim()[1] < 100


def test_rows_have_their_names_and_bars_along_them(drawn):
    summary = summary_of({"baseline": [8.0, 8.5, 9.0], "ld": [7.9, 8.6, 8.7], "oe": [7.0, 7.6, 8.2]})
    picture, svg = drawn(summary_figures.differences(summary, 1.0))
    (axes,) = picture.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["ld", "oe"]
    assert axes.get_lines()[0].get_xdata()[0] == 0 and axes.get_ylim() == (1.5, -0.5)  # the first on top
    (container,) = axes.containers
    assert container[0].get_xdata() == pytest.approx([-0.1, -0.9]) and list(container[0].get_ydata()) == [0, 1]
    (bars,) = container[2]
    pair = summary["paired"]["oe"]
    assert bars.get_segments()[1][:, 0] == pytest.approx([pair["ci_low"], pair["ci_high"]])
    assert axes.get_xlabel() == "Test MAE minus that of baseline"
    assert ">Left of the line is better. Over 3 seeds, best on validation.</text>" in svg


def test_a_bar_that_is_not_known_is_left_out(drawn):
    series = Series("measured", MEAN, ["a", "b"], [1.0, 2.0], low=[0.5, None], high=[1.5, None])
    picture, _ = drawn(Figure("", "", [Panel(Axis("%"), Axis(""), [series], rows=["a", "b"])], NO_TABLE))
    (bars,) = picture.axes[0].containers[0][2]
    known, unknown = bars.get_segments()
    assert known[:, 0] == pytest.approx([0.5, 1.5]) and not len(unknown)


def test_panels_stand_side_by_side_with_one_legend(drawn):
    numbers = {part: {name: [3.0, 1.0] for name in ("E1", "E2", "E3")} for part in ("train", "test")}
    content = {"epochs": [1, 2], "runs": [{"variant": name, "seed": 0, **numbers} for name in ("ld", "oe")]}
    names = {"ld": "$L_d$", "oe": "both"}
    shown = [("train", ["ld", "oe"], "training"), ("test", ["ld", "oe"], "testing"), ("test", ["oe"], "testing, oe")]
    panels = [training_figures.Curves(part, each, own, title) for each in ("E1", "E3") for part, own, title in shown]
    picture, svg = drawn(training_figures.entropies(content, names, panels, columns=3, unit="m"))
    axes = picture.axes
    assert len(axes) == 6 and len(picture.legends) == 1
    assert [text.get_text() for text in picture.legends[0].get_texts()] == ["$L_d$", "both"]
    assert [own.get_ylabel() for own in axes] == ["E1: meanNN entropy (nats)", "", "", "E3: diversity (m)", "", ""]
    assert [own.get_xlabel() for own in axes] == ["", "", "", "epoch", "epoch", "epoch"]
    assert axes[0].get_shared_y_axes().joined(axes[0], axes[1])
    assert not axes[0].get_shared_y_axes().joined(axes[1], axes[2])  # others are drawn there
    assert svg.count(">testing, oe</text>") == 2


def test_a_panel_of_nothing_says_so(drawn):
    assert ">no number</text>" in drawn(Figure("", "", [Panel(Axis("x"), Axis("y"), [])], NO_TABLE))[1]
