"""Figures of paired differences."""

import pytest

pytest.importorskip("matplotlib", reason="figures are matplotlib's")

from ordinal_entropy.comparison import summary as summarised
from ordinal_entropy.figures.differences import differences, draw


def summary(**values):
    scores = {name: dict.fromkeys(("last", "best_validation", "best_test"), own) for name, own in values.items()}
    content = summarised(task="t", metric="mae", lower_is_better=True, scores=scores, recipe={}, environment={})
    return {**content, "baseline": "baseline"}


@pytest.fixture
def axes(monkeypatch, tmp_path):
    """Of the picture of a summary."""
    from matplotlib.figure import Figure

    def drawn(content):
        kept = []
        real = Figure.savefig
        monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (kept.append(self), real(self, *a, **k)))
        draw(content, tmp_path / "new" / "figure.png", title="Ages")
        assert (tmp_path / "new" / "figure.png").read_bytes().startswith(b"\x89PNG")
        assert "left is better</text>" in (tmp_path / "new" / "figure.svg").read_text()
        return kept[0].axes[0]

    return drawn


def test_each_variant_has_its_seeds_its_mean_and_its_interval(axes):
    content = summary(baseline=[8.0, 8.5, 9.0], ld=[7.9, 8.6, 8.7], oe=[7.0, 7.6, 8.2])
    found = differences(content)
    assert found["oe"].seeds == pytest.approx([-1.0, -0.9, -0.8]) and found["oe"].mean == pytest.approx(-0.9)
    pair = content["paired"]["oe"]
    assert (found["oe"].low, found["oe"].high) == (pair["ci_low"], pair["ci_high"])
    picture = axes(content)
    assert [label.get_text() for label in picture.get_yticklabels()] == ["ld", "oe"]
    assert picture.get_lines()[0].get_xdata()[0] == 0
    assert picture.containers[1][0].get_xdata() == pytest.approx([-0.9])
    assert picture.get_xlabel() == "test MAE minus that of baseline, best on validation; left is better"
    assert picture.get_title(loc="left") == "Ages: paired differences over 3 seeds"


def test_what_has_no_interval_is_left_out(axes):
    content = summary(baseline=[8.0, 8.5], oe=[7.0, 7.6])
    content["paired"]["oe"] = {"difference": None, "ci_low": None, "ci_high": None}  # as JSON has NaN
    assert differences(content) == {}
    assert not axes(content).containers


def test_seeds_without_a_number_are_left_out():
    content = summary(baseline=[8.0, 8.5, 9.0], oe=[7.0, 7.6, 8.0])
    content["methods"]["oe"]["values"][1] = None
    assert differences(content)["oe"].seeds == [-1.0, -1.0]
