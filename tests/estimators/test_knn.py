"""Kozachenko-Leonenko entropy: loop, closed forms, ties, gradient."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma

from ordinal_entropy.estimators import _distances, knn_entropy


def loop(z, k, floor=0.0):
    n, d = z.shape
    total = 0.0
    for i in range(n):
        distances = sorted(float((z[i] - z[j]).norm()) for j in range(n) if j != i)
        total += math.log(max(distances[k - 1], floor))
    ball = math.pi ** (d / 2) / math.gamma(d / 2 + 1)
    return digamma(n) - digamma(k) + math.log(ball) + d / n * total


# --- oracle


@pytest.mark.parametrize(("n", "d", "k"), [(2, 1, 1), (5, 3, 4), (20, 2, 3), (31, 8, 5)])
@pytest.mark.parametrize("elements", [1, 50, 2**21])
def test_loop(n, d, k, elements, normal, monkeypatch):
    monkeypatch.setattr(_distances, "BLOCK_ELEMENTS", elements)
    z = 3 * normal(n, d) + 5
    assert knn_entropy(z, k).item() == pytest.approx(loop(z, k), rel=1e-10)


@settings(max_examples=15)
@given(st.integers(4, 12), st.integers(1, 6), st.integers(1, 3), st.floats(-1e3, 1e3), st.integers(0, 99))
def test_shapes_and_offsets(n, d, k, offset, seed):
    z = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + offset
    assert knn_entropy(z, k).item() == pytest.approx(loop(z, k), rel=1e-7, abs=1e-7)


def test_close_pairs(normal):
    """Clusters of spread 1e-8 in distinct places: nearest neighbours are exactly what cancellation loses."""
    z = 100 + normal(3, 16)[torch.arange(30) % 3] + 1e-8 * normal(30, 16, seed=1)
    assert knn_entropy(z).item() == pytest.approx(loop(z, 3), rel=1e-10)


# --- properties


def test_permutation_rotation_translation_scale(normal, rotation):
    z = normal(50, 6)
    expected = knn_entropy(z)
    for same in (z.flip(0), z @ rotation(6), z + 100, -z):
        torch.testing.assert_close(knn_entropy(same), expected)
    torch.testing.assert_close(knn_entropy(2 * z), expected + 6 * math.log(2))


# --- closed forms


@pytest.mark.parametrize(("d", "within"), [(1, 0.04), (2, 0.05), (3, 0.06), (5, 0.15)])
def test_gaussian(d, within, normal):
    expected = d / 2 * math.log(2 * math.pi * math.e)
    assert knn_entropy(normal(4000, d)).item() == pytest.approx(expected, abs=within)


def test_correlated_gaussian(normal):
    mix = torch.tensor([[2.0, 0.0, 0.0], [1.0, 0.5, 0.0], [0.0, 1.0, 3.0]], dtype=torch.float64)
    expected = 1.5 * math.log(2 * math.pi * math.e) + float(torch.logdet(mix))
    assert knn_entropy(normal(4000, 3) @ mix.T).item() == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize(("d", "within"), [(1, 0.04), (2, 0.05), (3, 0.1)])
def test_uniform_cube(d, within):
    """Entropy d log(side); below 0 for a small cube. The faces bias it upwards."""
    z = 0.1 * torch.rand(4000, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert knn_entropy(z).item() == pytest.approx(d * math.log(0.1), abs=within)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_sphere_on_its_own_dimension(d, normal):
    """Uniform on the unit sphere of R^d: the log of its surface area."""
    z = torch.nn.functional.normalize(normal(4000, d), dim=1)
    area = 2 * math.pi ** (d / 2) / math.gamma(d / 2)
    assert knn_entropy(z, dimension=d - 1).item() == pytest.approx(math.log(area), abs=0.05)


def test_sphere_in_the_space_around_it_has_no_entropy(normal):
    """More rows, lower value, without end: the estimate goes to -inf as it should."""
    z = torch.nn.functional.normalize(normal(4000, 2), dim=1)
    assert knn_entropy(z) < knn_entropy(z[:500]) - 1.5


# --- edges


def test_ties_count_at_the_floor(normal):
    z = normal(20, 3)
    z[:6] = z[0]  # five duplicates each: the third neighbour is at 0
    spread = float((z - z.mean(0)).square().sum(1).mean().sqrt())
    assert knn_entropy(z, floor=1e-4).item() == pytest.approx(loop(z, 3, 1e-4 * spread))
    assert knn_entropy(z, floor=0) == -torch.inf
    assert knn_entropy(z, k=6).item() == pytest.approx(loop(z, 6))  # beyond the duplicates: no floor needed


def test_fewer_than_k_duplicates_need_no_floor(normal):
    z = normal(10, 3)
    z[4] = z[1]
    assert knn_entropy(z, floor=0).item() == pytest.approx(loop(z, 3))


def test_identical_rows():
    z = torch.full((7, 3), 0.1, requires_grad=True)
    value = knn_entropy(z)
    assert value == -torch.inf
    value.backward()
    assert (z.grad == 0).all()


def test_ties_pass_no_gradient(normal):
    z = normal(12, 3)
    z[:5] = z[0]
    z.requires_grad_()
    for floor in (1e-9, 0.0):
        (gradient,) = torch.autograd.grad(knn_entropy(z, floor=floor), z)
        assert gradient.isfinite().all()


def test_bad_options(normal):
    with pytest.raises(ValueError, match="expected at least 4 rows of features, got 3"):
        knn_entropy(normal(3, 2))
    with pytest.raises(ValueError, match="expected k as an integer >= 1, got 0"):
        knn_entropy(normal(3, 2), k=0)
    with pytest.raises(ValueError, match="expected a dimension above 0 and at most d=2, got 3"):
        knn_entropy(normal(9, 2), dimension=3)
    with pytest.raises(ValueError, match=r"expected a floor in \[0, 1\)"):
        knn_entropy(normal(9, 2), floor=1.0)


# --- gradient


@pytest.mark.parametrize("dimension", [None, 2])
def test_gradcheck(dimension, normal):
    z = normal(9, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: knn_entropy(z, dimension=dimension), (z,))


def test_ascent_spreads_the_features(normal):
    z = normal(50, 2).requires_grad_()
    (gradient,) = torch.autograd.grad(knn_entropy(z), z)
    assert knn_entropy(z + 1e-3 * gradient) > knn_entropy(z)
