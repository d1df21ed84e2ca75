"""Figures of a setting: what is drawn, for odd summaries too."""

import pytest

pytest.importorskip("matplotlib", reason="figures are matplotlib's")

from ordinal_entropy.figures.sweep import Line, lines, sweep


def score(mean, std=0.1):
    return {"mean": mean, "std": std, "n": 2, "values": [] if mean is None else [mean - 0.1, mean + 0.1]}


def summary(means, series="authors"):
    variants = {f"ld samples={m}": {"method": "ld", "samples": m, "rescale": series} for m in means}
    return {
        "metric": "mse",
        "baseline": "baseline",
        "methods": {"baseline": score(3.0), **{f"ld samples={m}": score(mean) for m, mean in means.items()}},
        "variants": {"baseline": {"method": "baseline"}, **variants},
        "paper": {"baseline": {"mean": 3.0, "std": 0.9}, "ld samples=10": {"mean": 1.6, "std": None}},
    }


def test_lines_rise_along_the_axis_and_leave_out_what_has_no_number():
    found = lines(summary({100: 2.0, 10: 1.0, 1000: None}), "samples", "rescale")
    assert found == {"authors": Line([10.0, 100.0], [1.0, 2.0], [0.1, 0.1])}
    assert lines(summary({10: 1.0}), "strength") == {}


@pytest.mark.parametrize("means", [{10: 1.0, 100: 2.0}, {10: 0.01, 100: 20.0}, {10: 1.0}, {10: None}])
def test_a_picture_is_written(means, tmp_path):
    path = tmp_path / "new" / "figure.png"
    sweep(summary(means), path, key="samples", label="M", title="Error", series="rescale", scale=1e-3)
    assert path.read_bytes().startswith(b"\x89PNG")
    assert ">M</text>" in path.with_suffix(".svg").read_text()


def drawn(monkeypatch, tmp_path, content):
    """The axes of a picture."""
    from matplotlib.figure import Figure

    kept = []
    real = Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (kept.append(self), real(self, *a, **k)))
    sweep(content, tmp_path / "figure.png", key="samples", label="M", title="Error", series="rescale", scale=0.5)
    return kept[0].axes[0]


def test_means_bands_baseline_and_paper_are_drawn_in_the_unit_of_the_scale(monkeypatch, tmp_path):
    axes = drawn(monkeypatch, tmp_path, summary({10: 1.0, 100: 2.0}))
    by_label = {line.get_label(): line for line in axes.get_lines()}
    assert list(by_label["authors"].get_ydata()) == pytest.approx([2.0, 4.0])
    assert list(by_label["authors"].get_xdata()) == [10.0, 100.0]
    assert by_label["baseline"].get_ydata()[0] == pytest.approx(6.0)
    assert axes.get_ylabel() == "test MSE x 5e-1, best on validation"
    assert axes.get_xscale() == "log"
    (paper,) = (c for c in axes.containers if c.get_label() == "the paper, best on test")
    assert list(paper[0].get_ydata()) == pytest.approx([3.2])


def test_series_differ_by_more_than_their_colour(monkeypatch, tmp_path):
    both = summary({10: 1.0, 100: 2.0})
    for m in (20, 200):
        both["variants"][f"raw {m}"] = {"method": "ld", "samples": m, "rescale": "none"}
        both["methods"][f"raw {m}"] = score(1.5)
    marked = [
        line for line in drawn(monkeypatch, tmp_path, both).get_lines() if line.get_label() in ("authors", "none")
    ]
    assert len({line.get_marker() for line in marked}) == len({line.get_linestyle() for line in marked}) == 2


def test_scores_over_decades_have_a_logarithmic_axis(monkeypatch, tmp_path):
    assert drawn(monkeypatch, tmp_path, summary({10: 0.2, 100: 20.0})).get_yscale() == "log"
