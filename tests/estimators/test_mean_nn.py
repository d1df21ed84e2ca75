"""MeanNN: Eq. 1 as printed, its corrected scale, and closed forms of its own expectation."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import digamma

from ordinal_entropy.estimators import _distances, knn_entropy, mean_nn_entropy


def loop(z):
    n, d = z.shape
    total = sum(math.log(float((z[i] - z[j]).square().sum())) for i in range(n) for j in range(n) if i != j)
    return d / (n * (n - 1)) * total


# --- oracle


@pytest.mark.parametrize(("n", "d"), [(2, 1), (3, 5), (20, 2), (31, 8)])
@pytest.mark.parametrize("elements", [1, 50, 2**21])
def test_loop(n, d, elements, normal, monkeypatch):
    monkeypatch.setattr(_distances, "BLOCK_ELEMENTS", elements)
    z = 3 * normal(n, d) + 5
    assert mean_nn_entropy(z).item() == pytest.approx(loop(z), rel=1e-10)
    unit = z / z.norm(dim=1, keepdim=True)
    if d > 1:
        assert mean_nn_entropy(z, normalize=True).item() == pytest.approx(loop(unit), rel=1e-10)


@settings(max_examples=15)
@given(st.integers(2, 12), st.integers(1, 6), st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(0, 99))
def test_any_offset_and_scale(n, d, offset, scale, seed):
    z = torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    shift = offset * scale * 1e-3  # the digits of z survive the sum
    assert mean_nn_entropy(scale * z + shift).item() == pytest.approx(loop(scale * z + shift), rel=1e-7, abs=1e-7)


def test_close_pairs(normal):
    """Tight clusters far from the origin: a spread of 1e-6 of the distance to the other cluster."""
    z = 100 + normal(2, 16)[torch.arange(30) % 2] + 1e-6 * normal(30, 16, seed=1)
    assert mean_nn_entropy(z).item() == pytest.approx(loop(z), rel=1e-10)


# --- properties


def test_permutation_rotation_translation(normal, rotation):
    z = normal(50, 6)
    expected = mean_nn_entropy(z)
    for same in (z.flip(0), z @ rotation(6), z + 100, -z):
        torch.testing.assert_close(mean_nn_entropy(same), expected)


def test_scale_as_printed_is_twice_that_of_an_entropy(normal):
    z = normal(50, 6)
    assert (mean_nn_entropy(2 * z) - mean_nn_entropy(z)).item() == pytest.approx(2 * 6 * math.log(2))
    for scale in ("entropy", "absolute"):
        growth = mean_nn_entropy(2 * z, scale=scale) - mean_nn_entropy(z, scale=scale)
        assert growth.item() == pytest.approx(6 * math.log(2))
    torch.testing.assert_close(mean_nn_entropy(z, scale="entropy"), mean_nn_entropy(z) / 2)


def test_normalized_does_not_depend_on_length(normal):
    z = normal(30, 4)
    length = torch.linspace(0.1, 100, 30, dtype=torch.float64)[:, None]
    torch.testing.assert_close(mean_nn_entropy(z * length, normalize=True), mean_nn_entropy(z, normalize=True))


# --- closed forms


@pytest.mark.parametrize("d", [1, 2, 8, 64])
def test_unit_gaussian(d, normal):
    """|z_i - z_j|^2 is twice a chi-squared variable with d degrees of freedom."""
    expected = d * (digamma(d / 2) + 2 * math.log(2))
    assert mean_nn_entropy(normal(4000, d)).item() == pytest.approx(expected, abs=0.01 * d + 0.05)


@pytest.mark.parametrize("d", [2, 3, 16])
def test_sphere(d, normal):
    """Directions of Gaussian rows fill the sphere: |z_i - z_j|^2 / 4 is Beta((d-1)/2, (d-1)/2)."""
    expected = d * (2 * math.log(2) + digamma((d - 1) / 2) - digamma(d - 1))
    assert mean_nn_entropy(normal(4000, d), normalize=True).item() == pytest.approx(expected, abs=0.02)


def test_uniform_interval():
    """E log |u - v| = -3/2, so -3 as printed."""
    z = torch.rand(4000, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert mean_nn_entropy(z).item() == pytest.approx(-3, abs=0.02)


@pytest.mark.parametrize(("d", "bias"), [(1, -0.015), (2, 0.116), (4, 0.539), (64, 20.024)])
def test_bias_of_the_absolute_scale(d, bias, normal):
    """Far pairs are pairs too: on Gaussian rows the bias nears 0.35 nats per dimension."""
    ball = d / 2 * math.log(math.pi) - math.lgamma(d / 2 + 1)
    expected = d / 2 * (digamma(d / 2) + 2 * math.log(2)) + 1 + ball
    assert expected - d / 2 * math.log(2 * math.pi * math.e) == pytest.approx(bias, abs=0.006)
    assert mean_nn_entropy(normal(3000, d), scale="absolute").item() == pytest.approx(expected, abs=0.05 + d / 200)


def test_absolute_is_the_mean_of_knn_over_k(normal):
    """Averaging Kozachenko-Leonenko over k = 1 .. n-1 leaves the constant 1 + log c_D, for any n."""
    z = normal(12, 3)
    mean = sum(knn_entropy(z, k) for k in range(1, 12)) / 11
    torch.testing.assert_close(mean_nn_entropy(z, scale="absolute"), mean)


# --- edges


def test_duplicates_count_at_the_floor(normal):
    z = normal(20, 3)
    z[7] = z[3]
    z[9] = z[3]
    spread = (z - z.mean(0)).square().sum(1).mean().sqrt()
    total = 0.0
    for i in range(20):
        for j in range(20):
            if i != j:
                total += math.log(max(float((z[i] - z[j]).square().sum()), float(1e-3 * spread) ** 2))
    assert mean_nn_entropy(z, floor=1e-3).item() == pytest.approx(3 / 380 * total)
    assert mean_nn_entropy(z, floor=1e-12) < mean_nn_entropy(z) < mean_nn_entropy(z, floor=1e-3)
    assert mean_nn_entropy(z, floor=0) == -torch.inf


def test_more_duplicates_less_entropy(normal):
    z = normal(40, 3)
    values = []
    for copies in (0, 5, 20, 38):
        z[:copies] = z[-1]
        values.append(mean_nn_entropy(z).item())
    assert values == sorted(values, reverse=True) and math.isfinite(values[-1])


@pytest.mark.parametrize("row", [0.0, 0.1, 1e8])
def test_identical_rows(row):
    z = torch.full((7, 3), row, requires_grad=True)
    for normalize in (False, True):
        value = mean_nn_entropy(z, normalize)
        assert value == -torch.inf
        (gradient,) = torch.autograd.grad(value, z)
        assert (gradient == 0).all()


def test_one_direction_normalized_is_one_point():
    z = torch.outer(torch.linspace(1, 2, 9).double(), torch.tensor([0.3, 0.7, -0.1]).double())
    assert mean_nn_entropy(z, normalize=True) == -torch.inf
    assert mean_nn_entropy(z).isfinite()


def test_zero_row_normalized_stays_zero(normal):
    z = normal(8, 3)
    z[2] = 0
    unit = z / z.norm(dim=1, keepdim=True).clamp(min=1e-300)
    z.requires_grad_()
    value = mean_nn_entropy(z, normalize=True)
    assert value.item() == pytest.approx(loop(unit))
    value.backward()
    assert z.grad.isfinite().all() and z.grad.abs().max() < 100


def test_duplicates_pass_no_gradient_and_do_no_harm(normal):
    z = normal(10, 3)
    z[4] = z[1]
    z.requires_grad_()
    mean_nn_entropy(z).backward()
    assert z.grad.isfinite().all()
    torch.testing.assert_close(z.grad[4], z.grad[1])


def test_bad_options(normal):
    with pytest.raises(ValueError, match='expected scale "printed", "entropy" or "absolute", got'):
        mean_nn_entropy(normal(3, 2), scale="half")
    with pytest.raises(ValueError, match=r"expected a floor in \[0, 1\)"):
        mean_nn_entropy(normal(3, 2), floor=-1.0)


# --- gradient


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("elements", [20, 2**21])
def test_gradcheck(normalize, elements, normal, monkeypatch):
    monkeypatch.setattr(_distances, "BLOCK_ELEMENTS", elements)
    z = normal(9, 3).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: mean_nn_entropy(z, normalize, scale="entropy"), (z,))


def test_gradient_of_close_pairs(normal):
    """Against autograd through differences, on clusters whose spread is 1e-5 of their distance."""
    z = (normal(2, 8)[torch.arange(20) % 2] + 1e-5 * normal(20, 8, seed=1)).requires_grad_()
    (ours,) = torch.autograd.grad(mean_nn_entropy(z), z)
    i, j = torch.triu_indices(20, 20, 1)
    value = 8 * (z[i] - z[j]).square().sum(1).log().mean()
    (expected,) = torch.autograd.grad(value, z)
    torch.testing.assert_close(ours, expected, rtol=1e-8, atol=1e-8 * expected.abs().max().item())
