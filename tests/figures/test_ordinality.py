"""Feature distances against target distances, and their picture."""

import numpy as np
import pytest
import torch

pytest.importorskip("matplotlib", reason="figures are matplotlib's")

from ordinal_entropy import estimators
from ordinal_entropy.figures import ordinality
from ordinal_entropy.figures.ordinality import course, draw


def test_a_course_by_hand():
    """Targets 0, 0, 1, 3: distances 0, 1, 1, 2, 3, 3, in two bins of three."""
    features = np.array([[0.0, 0], [3, 4], [0, 1], [0, 9]])
    found = course(features, np.array([0.0, 0, 1, 3]), bins=2)
    # Pairs with targets up to 1 apart (1.5 is the median): features 5, 1 and sqrt(18) apart; the others 9, sqrt(34), 8.
    low = np.sort([5, 1, 18**0.5])
    high = np.sort([9, 34**0.5, 8])
    assert found.apart.tolist() == [1, 3]
    np.testing.assert_allclose(found.middle, [low[1], high[1]])
    np.testing.assert_allclose(found.low, [(low[0] + low[1]) / 2, (high[0] + high[1]) / 2])
    np.testing.assert_allclose(found.high, [(low[1] + low[2]) / 2, (high[1] + high[2]) / 2])


def test_features_in_order_rise_and_others_do_not():
    y = np.random.default_rng(0).uniform(size=300)
    found = course(np.stack([3 * y, 4 * y], axis=1), y)
    assert len(found.apart) == 16 and (np.diff(found.apart) > 0).all()
    np.testing.assert_allclose(found.middle, 5 * found.apart)
    assert (found.low <= found.middle).all() and (found.middle <= found.high).all()
    noise = course(np.random.default_rng(1).normal(size=(300, 8)), y)
    assert np.ptp(noise.middle) < 0.1 * noise.middle.mean()


def test_drawn_pairs_are_like_all_and_never_of_a_row_with_itself():
    generator = np.random.default_rng(0)
    y = generator.uniform(size=400)
    z = np.stack([np.cos(y), np.sin(y)], axis=1) + 0.1 * generator.normal(size=(400, 2))
    every, some = course(z, y), course(z, y, pairs=20_000)
    np.testing.assert_allclose(some.middle, every.middle, rtol=0.1)
    assert np.array_equal(some.middle, course(z, y, pairs=20_000).middle)
    first, second = ordinality._drawn(3, 10_000, 0)
    counts = np.bincount(3 * first + second, minlength=9).reshape(3, 3)
    assert not counts.diagonal().any() and counts[~np.eye(3, dtype=bool)].min() > 1500


def test_equal_targets_are_one_bin():
    found = course(np.random.default_rng(0).normal(size=(20, 3)), np.ones((20, 1)))
    assert found.apart.tolist() == [0] and len(found.middle) == 1
    ages = course(np.eye(6), np.array([1, 1, 1, 2, 2, 2]), bins=16)
    assert ages.apart.tolist() == [0, 1]


def test_targets_of_several_numbers():
    y = np.array([[0.0, 0], [3, 4], [6, 8]])
    assert course(y, y, bins=2).apart.tolist() == course(y, y, bins=2).middle.tolist() == [5, 10]


@pytest.mark.parametrize(
    ("features", "targets"), [(np.ones((1, 2)), [1.0]), (np.ones(3), [1.0] * 3), (np.eye(2), [1.0])]
)
def test_what_has_no_pairs_is_refused(features, targets):
    with pytest.raises(ValueError, match=r"expected features \(n, d\) with n >= 2 and as many targets, got \("):
        course(features, np.array(targets))


def test_a_picture_has_the_number_of_each_method(tmp_path, monkeypatch):
    from matplotlib.figure import Figure

    kept, real = [], Figure.savefig
    monkeypatch.setattr(Figure, "savefig", lambda self, *a, **k: (kept.append(self), real(self, *a, **k)))
    y = np.random.default_rng(0).uniform(1, 9, size=(60, 1)).astype(np.float32)
    features = {
        "baseline": np.random.default_rng(1).normal(size=(60, 3)).astype(np.float16),
        "oe": np.concatenate([np.cos(y / 3), np.sin(y / 3)], axis=1),
    }
    targets = dict.fromkeys(features, y)
    names = {"baseline": "plain", "oe": "ordered", "lost": "diverged"}
    draw(features, targets, tmp_path / "new" / "one.png", names=names, unit="m", title="Pairs")
    (axes,) = kept[0].axes
    labels = {line.get_label(): line for line in axes.get_lines() if not line.get_label().startswith("_")}
    unit = torch.from_numpy(features["baseline"]).double()
    number = float(estimators.ordinality(unit / unit.norm(dim=1, keepdim=True), torch.from_numpy(y)))
    assert list(labels) == [f"plain: ordinality {number:.2f}", "ordered: ordinality 1.00"] and abs(number) < 0.2
    ordered = labels["ordered: ordinality 1.00"]
    apart, middle = np.array(ordered.get_xdata()), np.array(ordered.get_ydata())
    np.testing.assert_allclose(middle, 2 * np.sin(apart / 6), rtol=1e-3)  # the chord of that angle
    assert axes.get_xlabel() == "distance of two targets (m)"
    svg = (tmp_path / "new" / "one.svg").read_text()
    assert "distance of two targets (m)" in svg and "distance of their features, normalised" in svg


def test_more_methods_than_can_be_told_apart_are_refused(tmp_path):
    with pytest.raises(ValueError, match="expected up to 7 methods, got 8"):
        draw({}, {}, tmp_path / "x.png", names=dict.fromkeys("abcdefgh", ""), unit="m", title="Pairs")
