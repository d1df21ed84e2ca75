"""Layouts by t-SNE: what lies together stays together, in one space for all methods; and their pictures."""

import re

import numpy as np
import pytest

pytest.importorskip("matplotlib", reason="figures are matplotlib's")
pytest.importorskip("sklearn", reason="the t-SNE is scikit-learn's")

from ordinal_entropy.figures import embedding
from ordinal_entropy.figures.embedding import draw, drawn, layout

CENTERS = np.eye(6)[:4] * 8  # far apart on the sphere


def clusters(seed, rows=25, centers=CENTERS):
    """``(4 * rows, 6)``: the rows of one cluster after those of the other."""
    noise = np.random.default_rng(seed).normal(size=(len(centers), rows, centers.shape[1]))
    return (centers[:, None] + 0.3 * noise).reshape(-1, centers.shape[1])


def neighbours_alike(places, labels):
    """The share of rows whose nearest other row has the same label."""
    apart = np.linalg.norm(places[:, None] - places, axis=2)
    np.fill_diagonal(apart, np.inf)
    return (labels[apart.argmin(1)] == labels).mean()


@pytest.mark.parametrize("dimensions", [2, 3])
def test_clusters_stay_and_those_of_two_methods_meet(dimensions):
    features = {"baseline": clusters(0), "oe": clusters(1)}
    found = layout(features, dimensions=dimensions)
    assert list(found) == ["baseline", "oe"]
    assert all(own.shape == (100, dimensions) and np.isfinite(own).all() for own in found.values())
    labels = np.repeat(np.arange(4), 25)
    for own in found.values():
        assert neighbours_alike(own, labels) > 0.95
    middles = {name: own.reshape(4, 25, -1).mean(1) for name, own in found.items()}  # (4, dimensions)
    across = np.linalg.norm(middles["baseline"][:, None] - middles["oe"], axis=2)
    assert across.argmin(1).tolist() == [0, 1, 2, 3]  # the same cluster of the other method is the nearest


def test_methods_that_differ_lie_apart():
    found = layout({"one": clusters(0), "other": -clusters(1)}, dimensions=2)
    labels = np.repeat([0, 1], 100)
    assert neighbours_alike(np.concatenate(list(found.values())), labels) > 0.99


def test_rows_on_the_sphere_have_length_one():
    found = layout({"oe": clusters(0)}, dimensions=3)["oe"]
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-12)


def test_the_same_seed_has_the_same_layout_whatever_the_length_of_rows():
    features = clusters(0, rows=10)
    first, again, other = (layout({"oe": features}, dimensions=2, seed=seed)["oe"] for seed in (0, 0, 1))
    assert np.array_equal(first, again) and not np.allclose(first, other)
    lengths = 2.0 ** np.random.default_rng(0).integers(-3, 4, size=(len(features), 1))
    assert np.allclose(layout({"oe": features * lengths}, dimensions=2)["oe"], first)


def test_keys_may_be_methods_at_epochs():
    features = {("oe", epoch): clusters(epoch, rows=3 + epoch) for epoch in (1, 2, 3)}
    found = layout(features, dimensions=2)
    assert {key: len(own) for key, own in found.items()} == {("oe", 1): 16, ("oe", 2): 20, ("oe", 3): 24}


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize(
    "rows",
    [
        np.eye(2),  # two rows
        np.eye(3),
        np.ones((5, 4)),  # all the same
        np.zeros((5, 4)),  # of no direction
        np.arange(1, 8.0)[:, None],  # one dimension
        np.concatenate([np.eye(4), np.eye(4)]).astype(np.float16),
    ],
)
def test_small_and_odd_ones_have_places(rows, dimensions):
    found = layout({"oe": rows}, dimensions=dimensions)["oe"]
    assert found.shape == (len(rows), dimensions) and np.isfinite(found).all()
    if dimensions == 3:
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)


def test_a_method_may_have_no_rows():
    found = layout({"none": np.zeros((0, 6)), "oe": clusters(0, rows=3)}, dimensions=2)
    assert [own.shape for own in found.values()] == [(0, 2), (12, 2)]


HOLES = np.ones((4, 3))
HOLES[1:3, 0] = np.nan


@pytest.mark.parametrize(
    ("features", "dimensions", "sentence"),
    [
        ({"oe": np.eye(3)}, 1, "expected 2 or 3 dimensions, got 1"),
        ({"oe": HOLES}, 2, "expected finite features of oe, got 2 of 4 rows with others"),
        ({"oe": np.full((2, 2), np.inf)}, 2, "expected finite features of oe, got 2 of 2 rows with others"),
        ({"oe": np.ones(3)}, 2, r"expected features \(n, d\) of oe, got \(3,\)"),
        ({"a": np.eye(3), "b": np.eye(4)}, 2, "as many dimensions for all methods, got a: 3, b: 4"),
        ({}, 2, "expected 2 to 10,000 rows of all methods together, got 0"),
        ({"a": np.ones((6000, 2)), "b": np.ones((4001, 2))}, 3, "together, got 10,001"),
    ],
)
def test_what_cannot_be_laid_out_is_refused(features, dimensions, sentence):
    with pytest.raises(ValueError, match=sentence):
        layout(features, dimensions=dimensions)


def test_drawn_rows_are_some_of_all():
    assert drawn(5, most=9).tolist() == [0, 1, 2, 3, 4] and drawn(0, most=9).tolist() == []
    rows = drawn(1000, most=100)
    assert len(set(rows.tolist())) == 100 and (np.diff(rows) > 0).all() and rows.max() < 1000
    assert abs(rows.mean() - 500) < 100  # from everywhere
    assert np.array_equal(rows, drawn(1000, most=100)) and not np.array_equal(rows, drawn(1000, most=100, seed=1))


@pytest.fixture
def figures(monkeypatch):
    """All that are saved."""
    from matplotlib.figure import Figure

    kept, real = [], Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (kept.append(self), real(self, *a, **k)))
    return kept


NAMES = {"baseline": "regression", "oe": "with $L_d$", "lost": "diverged"}


def coloured(axes):
    """Places and values of the rows of a panel that are not grey."""
    return [
        (points.get_offsets().data, points.get_array()) for points in axes.collections if points.get_array() is not None
    ]


def test_panels_share_their_axes_and_their_colours(figures, tmp_path):
    generator = np.random.default_rng(0)
    places = {name: generator.normal(size=(50, 2)) for name in ("baseline", "oe")}
    values = {"baseline": generator.uniform(size=(50, 1)), "oe": generator.uniform(size=50)}
    draw(places, values, tmp_path / "new" / "one.png", names=NAMES, label="predicted depth (m)", title="Features")
    *panels, bar = figures[0].axes
    assert [axes.get_title() for axes in panels] == list(NAMES.values())
    assert bar.get_ylabel() == "predicted depth (m)"
    assert len({axes.get_xlim() for axes in panels}) == len({axes.get_ylim() for axes in panels}) == 1
    for name, axes in zip(places, panels, strict=False):
        ((shown, value),) = coloured(axes)
        assert np.array_equal(shown, places[name]) and np.array_equal(value, np.ravel(values[name]))
    (first, second), (low, high) = (
        (panel.collections[-1].norm for panel in panels[:2]),
        np.percentile(np.concatenate([np.ravel(own) for own in values.values()]), (2, 98)),
    )
    assert (first.vmin, first.vmax) == (second.vmin, second.vmax) == pytest.approx((low, high))
    assert not coloured(panels[2]) and [text.get_text() for text in panels[2].texts] == ["no number"]
    assert (tmp_path / "new" / "one.png").read_bytes().startswith(b"\x89PNG")
    svg = (tmp_path / "new" / "one.svg").read_text()
    for text in ("t-SNE 1", "t-SNE 2", "predicted depth (m)", "Features", "regression"):
        assert f">{text}</text>" in svg


def test_each_row_is_on_one_side_of_the_globe(figures, tmp_path):
    front = embedding._FRONT / np.linalg.norm(embedding._FRONT)
    aside = np.cross(front, [0, 0, 1.0])
    aside /= np.linalg.norm(aside)
    rows = np.random.default_rng(0).normal(size=(40, 3))
    rows = np.concatenate([[front, -front, (front + aside) / 2**0.5], rows / np.linalg.norm(rows, axis=1)[:, None]])
    values = np.arange(43.0)
    draw({"oe": rows}, {"oe": values}, tmp_path / "globe.png", names={"oe": "with"}, label="x", title="Features")
    near, far, _ = figures[0].axes
    (seen,), (behind,) = coloured(near), coloured(far)
    assert sorted([*seen[1], *behind[1]]) == values.tolist()
    at = {value: place for place, value in zip(seen[0], seen[1], strict=True)}
    np.testing.assert_allclose(at[0], [0, 0], atol=1e-12)  # what one looks at is in the middle
    np.testing.assert_allclose(behind[0][behind[1].tolist().index(1)], [0, 0], atol=1e-12)
    np.testing.assert_allclose(np.abs(at[2]), [0.5**0.5, 0], atol=1e-12)  # 45 degrees aside
    for own, value in (seen, behind):
        apart = rows[value.astype(int)] @ front  # how far in front of the middle
        np.testing.assert_allclose((own**2).sum(1) + apart**2, 1)
    svg = (tmp_path / "globe.svg").read_text()
    assert ">near side</text>" in svg and ">far side</text>" in svg


def test_the_rows_are_pixels_in_the_svg(tmp_path):
    rows = np.random.default_rng(0).normal(size=(4, 1200, 2))
    names = dict(zip("abcd", "abcd", strict=True))
    values = {name: np.arange(1200.0) for name in names}
    draw(dict(zip(names, rows, strict=True)), values, tmp_path / "many.png", names=names, label="x", title="Many")
    assert (tmp_path / "many.svg").stat().st_size < 1_000_000
    assert len(re.findall("<use ", (tmp_path / "many.svg").read_text())) < 1000


def test_nothing_but_lost_methods_is_drawn_too(tmp_path):
    draw({}, {}, tmp_path / "none.png", names={"oe": "with"}, label="x", title="Features")
    assert ">no number</text>" in (tmp_path / "none.svg").read_text()


@pytest.mark.parametrize(
    ("places", "values", "sentence"),
    [
        ({"oe": np.ones((3, 2))}, {}, "got places of oe and values of none"),
        ({"else": np.ones((3, 2))}, {"else": np.ones(3)}, "among baseline, oe, lost, got places of else"),
        ({"oe": np.ones((3, 4))}, {"oe": np.ones(3)}, r"n values of oe, got \(3, 4\) and \(3,\)"),
        ({"oe": np.ones((3, 2))}, {"oe": np.ones((3, 2))}, r"n values of oe, got \(3, 2\) and \(3, 2\)"),
    ],
)
def test_what_does_not_belong_together_is_refused(places, values, sentence, tmp_path):
    with pytest.raises(ValueError, match=sentence):
        draw(places, values, tmp_path / "x.png", names=NAMES, label="x", title="Features")
