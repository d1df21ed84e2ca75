"""Feature distances against target distances, and their figure."""

import numpy as np
import pytest
import torch

from ordinal_entropy import estimators
from ordinal_entropy.comparison.text import number
from ordinal_entropy.results import distances
from ordinal_entropy.results.distances import profile


def test_a_profile_by_hand():
    """Targets 0, 0, 1, 3: distances 0, 1, 1, 2, 3, 3, in two bins of three."""
    features = np.array([[0.0, 0], [3, 4], [0, 1], [0, 9]])
    found = profile(features, np.array([0.0, 0, 1, 3]), bins=2)
    # Pairs with targets up to 1 apart (1.5 is the median): features 5, 1 and sqrt(18) apart; the others 9, sqrt(34), 8.
    low = np.sort([5, 1, 18**0.5])
    high = np.sort([9, 34**0.5, 8])
    assert found.targets.tolist() == [1, 3]
    np.testing.assert_allclose(found.middle, [low[1], high[1]])
    np.testing.assert_allclose(found.low, [(low[0] + low[1]) / 2, (high[0] + high[1]) / 2])
    np.testing.assert_allclose(found.high, [(low[1] + low[2]) / 2, (high[1] + high[2]) / 2])


def test_features_in_order_rise_and_others_do_not():
    y = np.random.default_rng(0).uniform(size=300)
    found = profile(np.stack([3 * y, 4 * y], axis=1), y)
    assert len(found.targets) == 16 and (np.diff(found.targets) > 0).all()
    np.testing.assert_allclose(found.middle, 5 * found.targets)
    assert (found.low <= found.middle).all() and (found.middle <= found.high).all()
    noise = profile(np.random.default_rng(1).normal(size=(300, 8)), y)
    assert np.ptp(noise.middle) < 0.1 * noise.middle.mean()


def test_drawn_pairs_are_like_all_and_never_of_a_row_with_itself():
    generator = np.random.default_rng(0)
    y = generator.uniform(size=400)
    z = np.stack([np.cos(y), np.sin(y)], axis=1) + 0.1 * generator.normal(size=(400, 2))
    every, some = profile(z, y), profile(z, y, num_pairs=20_000)
    np.testing.assert_allclose(some.middle, every.middle, rtol=0.1)
    assert np.array_equal(some.middle, profile(z, y, num_pairs=20_000).middle)
    first, second = distances._drawn(3, 10_000, 0)
    counts = np.bincount(3 * first + second, minlength=9).reshape(3, 3)
    assert not counts.diagonal().any() and counts[~np.eye(3, dtype=bool)].min() > 1500


def test_equal_targets_are_one_bin():
    found = profile(np.random.default_rng(0).normal(size=(20, 3)), np.ones((20, 1)))
    assert found.targets.tolist() == [0] and len(found.middle) == 1
    ages = profile(np.eye(6), np.array([1, 1, 1, 2, 2, 2]), bins=16)
    assert ages.targets.tolist() == [0, 1]


def test_targets_of_several_numbers():
    y = np.array([[0.0, 0], [3, 4], [6, 8]])
    assert profile(y, y, bins=2).targets.tolist() == profile(y, y, bins=2).middle.tolist() == [5, 10]


@pytest.mark.parametrize(
    ("features", "targets"), [(np.ones((1, 2)), [1.0]), (np.ones(3), [1.0] * 3), (np.eye(2), [1.0])]
)
def test_what_has_no_pairs_is_refused(features, targets):
    with pytest.raises(ValueError, match=r"expected features \(n, d\) with n >= 2 and as many targets, got \("):
        profile(features, np.array(targets))


def test_the_figure_has_the_ordinality_of_each_method():
    y = np.random.default_rng(0).uniform(1, 9, size=(60, 1)).astype(np.float32)
    features = {
        "baseline": np.random.default_rng(1).normal(size=(60, 3)).astype(np.float16),
        "oe": np.concatenate([np.cos(y / 3), np.sin(y / 3)], axis=1),
    }
    names = {"baseline": "plain", "oe": "ordered", "lost": "diverged"}
    (panel,) = distances.ordinality(features, dict.fromkeys(features, y), names=names, unit="m").panels
    unit = torch.from_numpy(features["baseline"]).double()
    expected = float(estimators.ordinality(unit / unit.norm(dim=1, keepdim=True), torch.from_numpy(y)))
    plain, ordered = panel.series
    assert plain.label == f"plain: ordinality {number(expected)}" and abs(expected) < 0.2
    assert ordered.label == "ordered: ordinality 1.00"
    np.testing.assert_allclose(ordered.y, 2 * np.sin(np.array(ordered.x) / 6), rtol=1e-3)  # the chord of that angle
    assert panel.x.title == "distance of two targets (m)" and panel.x.from_zero and panel.y.from_zero
    nothing = distances.ordinality({}, {}, names=names)
    assert nothing.panels[0].series == [] and nothing.panels[0].x.title == "distance of two targets"
