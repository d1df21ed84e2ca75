"""Maps beside their images: what is drawn where, in which colours."""

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures are matplotlib's")

from ordinal_entropy.figures.predictions import Example, draw, rms


def example(seed=0, size=(12, 16), map_size=(6, 8), **more):
    generator = np.random.default_rng(seed)
    truth = generator.uniform(1, 5, size=map_size)
    truth[0, 0] = np.nan
    image = generator.integers(0, 256, size=(*size, 3)).astype(np.uint8)
    return Example(image, truth, truth + np.where(np.isnan(truth), 0, 0.5), **more)


@pytest.fixture
def figures(monkeypatch):
    """All that are saved."""
    from matplotlib.figure import Figure

    kept, real = [], Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (kept.append(self), real(self, *a, **k)))
    return kept


def test_a_row_has_input_truth_prediction_and_error(figures, tmp_path):
    found = [example(0, name="oe"), example(1, size=(20, 10), map_size=(5, 5))]
    found[1] = found[1]._replace(prediction=np.full((5, 5), 9.0))
    draw(found, tmp_path / "new" / "one.png", label="depth", unit="m", title="Rooms")
    panels = figures[0].axes[:8]
    for row, each in enumerate(found):
        own = [axes.images[0].get_array() for axes in panels[4 * row : 4 * row + 4]]
        assert np.array_equal(own[0], each.image)
        for shown, expected in zip(own[1:], (each.truth, each.prediction, each.prediction - each.truth), strict=True):
            np.testing.assert_array_equal(np.ma.filled(shown, np.nan), expected)
    truths = np.concatenate([each.truth.ravel() for each in found])
    values = [axes.images[0].norm for axes in (panels[1], panels[2], panels[5], panels[6])]
    assert {(norm.vmin, norm.vmax) for norm in values} == {(np.nanmin(truths), np.nanpercentile(truths, 99))}
    errors = [axes.images[0].norm for axes in (panels[3], panels[7])]
    assert len({(norm.vmin, norm.vmax) for norm in errors}) == 1
    assert errors[0].vmin == -errors[0].vmax  # zero is the middle of its colours
    assert panels[0].get_ylabel() == "oe" and panels[3].get_xlabel() == "RMS 0.5 m"
    assert panels[1].images[0].get_extent() == [0, 16, 12, 0]  # over the image, whatever its own size


def test_the_svg_has_its_words(tmp_path):
    draw([example()], tmp_path / "one.png", label="depth", unit="m", title="Rooms")
    svg = (tmp_path / "one.svg").read_text()
    for text in ("input", "truth", "prediction", "error: prediction - truth", "depth (m)", "error (m)", "Rooms"):
        assert f">{text}</text>" in svg
    assert (tmp_path / "one.png").read_bytes().startswith(b"\x89PNG")


def test_counts_stand_below(figures, tmp_path):
    draw(
        [example(counts=(1200.0, 1187.26))], tmp_path / "x.png", label="density", unit="heads per cell", title="Crowds"
    )
    below = [axes.get_xlabel() for axes in figures[0].axes[:4]]
    assert below == ["", "1,200 in all", "1,187.3 in all", "-12.7 in all"]


def test_rms_is_where_there_is_a_truth():
    own = example()
    assert rms(own) == pytest.approx(0.5)
    assert rms(own._replace(prediction=own.truth)) == 0
    assert np.isnan(rms(own._replace(truth=np.full((6, 8), np.nan))))


@pytest.mark.parametrize("truth", [np.zeros((6, 8)), np.full((6, 8), np.nan)])
def test_nobody_and_nothing_known_are_drawn_too(truth, tmp_path):
    own = Example(np.zeros((12, 16, 3), np.uint8), truth, np.zeros((6, 8)), counts=(0.0, 0.0))
    draw([own], tmp_path / "x.png", label="density", unit="heads per cell", title="Crowds")
    assert (tmp_path / "x.png").exists()


@pytest.mark.parametrize(
    ("examples", "sentence"),
    [
        ([], "expected at least one example, got none"),
        ([example()._replace(prediction=np.ones((3, 3)))], r"expected a prediction of \(6, 8\), got \(3, 3\)"),
        ([example()._replace(image=np.ones((3, 3), np.uint8))], r"expected an image \(h, w, 3\) .*, got \(3, 3\)"),
    ],
)
def test_what_is_no_example_is_refused(examples, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        draw(examples, tmp_path / "x.png", label="depth", unit="m", title="Rooms")
