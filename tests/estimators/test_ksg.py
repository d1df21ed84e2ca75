"""KSG mutual information: loop, closed forms, scikit-learn, ties."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma
from sklearn.feature_selection import mutual_info_regression

from ordinal_entropy.estimators import _distances, mutual_information


def loop(z, y, k):
    """The textbook form, for data without ties."""
    n = len(z)
    z = z / (z - z.mean(0)).square().sum(1).mean().sqrt()
    y = y / (y - y.mean(0)).square().sum(1).mean().sqrt()
    total = 0.0
    for i in range(n):
        others = [j for j in range(n) if j != i]
        in_z = [float((z[i] - z[j]).norm()) for j in others]
        in_y = [float((y[i] - y[j]).norm()) for j in others]
        radius = sorted(max(a, b) for a, b in zip(in_z, in_y, strict=True))[k - 1]
        total += digamma(sum(a < radius for a in in_z) + 1) + digamma(sum(b < radius for b in in_y) + 1)
    return digamma(k) + digamma(n) - total / n


def correlated(n, rho, seed=0):
    z, e = torch.randn(2, n, 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return z, rho * z + math.sqrt(1 - rho**2) * e


# --- oracle


@pytest.mark.parametrize(("n", "d", "t", "k"), [(4, 1, 1, 3), (20, 3, 1, 1), (31, 2, 2, 4)])
@pytest.mark.parametrize("elements", [1, 50, 2**21])
def test_loop(n, d, t, k, elements, normal, monkeypatch):
    monkeypatch.setattr(_distances, "BLOCK_ELEMENTS", elements)
    z, y = normal(n, d), 5 * normal(n, t, seed=1) + 2
    y[:, 0] += z[:, 0]
    assert mutual_information(z, y, k=k).item() == pytest.approx(loop(z, y, k), rel=1e-9)


@settings(max_examples=10)
@given(st.integers(5, 14), st.integers(1, 5), st.integers(1, 4), st.integers(0, 99))
def test_any_shape(n, d, k, seed):
    both = torch.randn(n, d + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    z, y = both[:, :d], both[:, d:]
    assert mutual_information(z, y, k=k).item() == pytest.approx(loop(z, y, k), rel=1e-8, abs=1e-8)


def test_scikit_learn():
    z, y = correlated(1500, 0.8)
    expected = mutual_info_regression(z.numpy(), y[:, 0].numpy(), n_neighbors=3, random_state=0)[0]
    assert mutual_information(z, y).item() == pytest.approx(expected, abs=0.01)


# --- properties


def test_permutation_rotation_translation_scale(normal, rotation):
    z = normal(200, 4)
    y = z[:, :1] + 0.3 * normal(200, 1, seed=1)
    expected = mutual_information(z, y)
    torch.testing.assert_close(mutual_information(z.flip(0), y.flip(0)), expected)
    torch.testing.assert_close(mutual_information(z @ rotation(4), y), expected)
    torch.testing.assert_close(mutual_information(1e3 * z + 7, y), expected)
    torch.testing.assert_close(mutual_information(z, 1e-3 * y - 7), expected)


def test_symmetric():
    z, y = correlated(200, 0.5)
    torch.testing.assert_close(mutual_information(z, y), mutual_information(y, z))


# --- closed forms


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9, 0.99])
def test_correlated_gaussians(rho):
    z, y = correlated(3000, rho)
    assert mutual_information(z, y).item() == pytest.approx(-0.5 * math.log(1 - rho**2), abs=0.04)


def test_vectors(normal):
    """Two independent channels carry the sum of what each carries."""
    z = normal(3000, 2)
    y = 0.9 * z + math.sqrt(1 - 0.81) * normal(3000, 2, seed=1)
    assert mutual_information(z, y).item() == pytest.approx(-math.log(1 - 0.81), abs=0.08)


def test_monotone_map_of_the_target():
    z, y = correlated(3000, 0.9)
    assert mutual_information(z, y.exp()).item() == pytest.approx(mutual_information(z, y).item(), abs=0.05)


@pytest.mark.parametrize(("values", "noise"), [(5, 0.3), (20, 1.0), (80, 3.0)])
def test_integer_targets(values, noise):
    """z = y + noise, y uniform over integers; the entropy of the mixture by numerical integration."""
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(values, (2000, 1), generator=generator)
    z = y + noise * torch.randn(2000, 1, generator=generator, dtype=torch.float64)
    grid = np.linspace(-6 * noise, values + 6 * noise, 20001)
    bells = np.exp(-(((grid[:, None] - np.arange(values)) / noise) ** 2) / 2) / noise / math.sqrt(2 * math.pi)
    density = bells.mean(1)
    mixture = -np.sum(density * np.log(density + 1e-300)) * (grid[1] - grid[0])
    expected = mixture - 0.5 * math.log(2 * math.pi * math.e * noise**2)
    assert mutual_information(z, y).item() == pytest.approx(expected, abs=0.07)


# --- edges


def test_discrete_on_both_sides():
    """Only ties: the value is the entropy of the four equally frequent values, up to psi instead of log."""
    y = torch.arange(400) % 4
    expected = digamma(400) - digamma(100)
    assert mutual_information(y[:, None].double(), y).item() == pytest.approx(expected)
    assert expected == pytest.approx(math.log(4), abs=0.01)


def test_discrete_and_independent():
    i = torch.arange(3600)
    assert mutual_information((i % 4)[:, None].double(), i % 9).item() == pytest.approx(0, abs=0.01)


def test_constant_sides(normal):
    z, one = normal(30, 2), torch.ones(30)
    for value in (
        mutual_information(z, one),
        mutual_information(one[:, None], z),
        mutual_information(one[:, None], one),
    ):
        assert value.item() == pytest.approx(0, abs=1e-6)


def test_no_noise_is_added(normal):
    z = normal(50, 2)
    z[10:20] = z[0]
    state = torch.get_rng_state()
    first = mutual_information(z, z[:, 0])
    assert first == mutual_information(z, z[:, 0])
    assert torch.equal(state, torch.get_rng_state())


def test_too_few_rows(normal):
    with pytest.raises(ValueError, match="expected at least 4 rows of features, got 3"):
        mutual_information(normal(3, 2), torch.arange(3))
    with pytest.raises(ValueError, match="expected k as an integer >= 1, got -1"):
        mutual_information(normal(9, 2), torch.arange(9), k=-1)
