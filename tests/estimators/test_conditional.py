"""Conditional entropy: a sum over bins, closed forms, bins too small to measure."""

import math

import pytest
import torch

from ordinal_entropy.estimators import conditional_entropy, knn_entropy


def loop(z, y, k=3):
    """Weighted sum of the entropies of the groups with equal y that have more than k rows."""
    groups = [z[y == value] for value in y.unique()]
    groups = [group for group in groups if len(group) > k]
    total = sum(len(group) for group in groups)
    return sum(len(group) / total * knn_entropy(group, k).item() for group in groups)


# --- oracle


@pytest.mark.parametrize(("n", "d", "m", "k"), [(40, 2, 4, 3), (60, 5, 7, 2), (30, 1, 3, 5)])
def test_loop(n, d, m, k, normal):
    z, y = normal(n, d), torch.arange(n) % m
    assert conditional_entropy(z, y, bins="unique", k=k).item() == pytest.approx(loop(z, y, k), rel=1e-9)


def test_one_bin_is_the_entropy(normal):
    z, y = normal(40, 3), normal(40, 1, seed=1)
    torch.testing.assert_close(conditional_entropy(z, y, bins=1), knn_entropy(z))


def test_equal_counts(normal):
    z, y = (
        normal(60, 3),
        torch.arange(60.0).exp2(),
    )  # bins of equal width would hold one row but for the first
    assert conditional_entropy(z, y, bins=4).item() == pytest.approx(loop(z, torch.arange(60) // 15), rel=1e-9)


def test_equal_targets_stay_together(normal):
    z, y = normal(60, 3), (torch.arange(60) > 40).float()
    assert conditional_entropy(z, y, bins=10).item() == pytest.approx(loop(z, y), rel=1e-9)


def test_width(normal):
    z, y = normal(60, 3), torch.linspace(-1, 1.99, 60)
    assert conditional_entropy(z, y, bin_width=0.5).item() == pytest.approx(loop(z, (y / 0.5).floor()), rel=1e-9)


def test_vector_targets(normal):
    z = normal(60, 3)
    y = torch.stack([torch.arange(60) % 2, torch.arange(60) % 3], dim=1)
    cell = y[:, 0] * 3 + y[:, 1]
    expected = loop(z, cell)
    assert conditional_entropy(z, y, bins="unique").item() == pytest.approx(expected, rel=1e-9)
    assert conditional_entropy(z, 0.5 * y + 0.1, bin_width=0.5).item() == pytest.approx(expected, rel=1e-9)


# --- properties


def test_permutation_rotation_translation_scale(normal, rotation):
    z, y = normal(80, 4), normal(80, 1, seed=1)
    expected = conditional_entropy(z, y, bins=4)
    torch.testing.assert_close(conditional_entropy(z.flip(0), y.flip(0), bins=4), expected)
    torch.testing.assert_close(conditional_entropy(z @ rotation(4) + 10, y, bins=4), expected)
    torch.testing.assert_close(conditional_entropy(2 * z, y, bins=4), expected + 4 * math.log(2))
    torch.testing.assert_close(conditional_entropy(z, y.exp(), bins=4), expected)  # any monotone map of y


# --- closed forms


def test_gaussian_noise_around_the_target(normal):
    """z = y + 0.1 noise, y one of four values: what is left is the noise."""
    y = torch.arange(4000) % 4
    z = y[:, None] + 0.1 * normal(4000, 2)
    expected = math.log(2 * math.pi * math.e * 0.01)
    assert conditional_entropy(z, y, bins="unique").item() == pytest.approx(expected, abs=0.06)


def test_uniform_bins():
    """z = y uniform: a tenth of the interval is left in each of ten bins."""
    y = torch.rand(4000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for value in (conditional_entropy(y[:, None], y), conditional_entropy(y[:, None], y, bin_width=0.1)):
        assert value.item() == pytest.approx(math.log(0.1), abs=0.05)


def test_independent_targets_tell_nothing(normal):
    z, y = normal(4000, 2), normal(4000, 1, seed=1)
    assert conditional_entropy(z, y).item() == pytest.approx(math.log(2 * math.pi * math.e), abs=0.08)


# --- edges


def test_small_bins_are_left_out(normal):
    z = normal(63, 2)
    y = torch.arange(63) // 20  # the last bin has three rows, k = 3
    torch.testing.assert_close(
        conditional_entropy(z, y, bins="unique"),
        conditional_entropy(z[:60], y[:60], bins="unique"),
        rtol=1e-9,
        atol=0,
    )


def test_many_left_out_is_said(normal):
    y = torch.cat([torch.zeros(30), torch.arange(1.0, 11.0)])
    with pytest.warns(UserWarning, match="10 of 40 rows are in bins of k=3 rows or fewer and were left out"):
        conditional_entropy(normal(40, 2), y, bins="unique")


def test_nothing_left(normal):
    with pytest.raises(ValueError, match="expected a bin with more than k=3 rows, got 40 bins for 40 rows"):
        conditional_entropy(normal(40, 2), torch.arange(40), bins="unique")


def test_collapsed_bins_are_finite_and_low():
    """One point per target: the floor is a share of the spread of all the features."""
    y = torch.arange(40) % 4
    z = y[:, None].float().requires_grad_()
    value = conditional_entropy(z, y, bins="unique")
    assert -25 < value < -15
    value.backward()
    assert z.grad.isfinite().all()


def test_identical_rows():
    assert conditional_entropy(torch.ones(40, 2), torch.arange(40) % 2, bins="unique") == -torch.inf


def test_bad_options(normal):
    z, y = normal(40, 2), normal(40, 2, seed=1)
    with pytest.raises(ValueError, match='expected bins="unique" or a bin_width for targets of 2 columns, got bins=10'):
        conditional_entropy(z, y)
    for bins in (0, 0.5, "width"):
        with pytest.raises(ValueError, match=r'expected bins as an integer >= 1 or "unique"'):
            conditional_entropy(z, y[:, 0], bins=bins)
    with pytest.raises(ValueError, match="expected a bin width above 0, got 0"):
        conditional_entropy(z, y, bin_width=0)


def test_more_bins_than_rows_is_unique(normal):
    z, y = normal(40, 2), torch.arange(40) % 3
    torch.testing.assert_close(conditional_entropy(z, y, bins=1000), conditional_entropy(z, y, bins="unique"))


# --- gradient


def test_gradcheck(normal):
    z, y = normal(16, 3).requires_grad_(), torch.arange(16) % 3
    assert torch.autograd.gradcheck(lambda z: conditional_entropy(z, y, bins="unique"), (z,))
