"""Effective rank: closed spectra, invariances, rank-deficient gradients."""

import math

import numpy as np
import pytest
import torch

from ordinal_entropy.estimators import effective_rank


def loop(z, center=True):
    z = z.numpy()
    values = np.linalg.svd(z - z.mean(0) if center else z, compute_uv=False)
    values = values[values > 1e-12 * values[0]]
    total = 0.0
    for value in values / values.sum():
        total -= value * math.log(value)
    return math.exp(total)


# --- oracle


@pytest.mark.parametrize(("n", "d"), [(2, 1), (3, 5), (20, 2), (31, 8)])
@pytest.mark.parametrize("center", [True, False])
def test_loop(n, d, center, normal):
    z = normal(n, d) + 3
    assert effective_rank(z, center=center).item() == pytest.approx(loop(z, center), rel=1e-10)


# --- properties


def test_permutation_rotation_translation_scale(normal, rotation):
    z = normal(50, 6) * torch.arange(1.0, 7.0)
    expected = effective_rank(z)
    for same in (z.flip(0), z @ rotation(6), z + 100, 1e-200 * z, 1e200 * z):
        torch.testing.assert_close(effective_rank(same), expected)


# --- closed forms


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_equal_spectrum(rank, normal, rotation):
    """Rank r with equal singular values, inside 8 dimensions: r."""
    values = (torch.arange(8) < rank).double()
    z = torch.linalg.qr(normal(40, 8)).Q * values @ rotation(8)
    assert effective_rank(z, center=False).item() == pytest.approx(rank)
    both = torch.cat([z, -z])  # mean zero: centering changes nothing
    assert effective_rank(both).item() == pytest.approx(rank)


def test_two_singular_values():
    z = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert effective_rank(z).item() == pytest.approx(math.exp(entropy))


def test_offset_is_no_direction(normal):
    z = normal(100, 4) + 1e3
    assert effective_rank(z) > 3.9
    assert effective_rank(z, center=False) < 1.1


# --- edges


@pytest.mark.parametrize("row", [0.0, 0.1, 1e8])
def test_identical_rows(row):
    z = torch.full((7, 3), row, requires_grad=True)
    value = effective_rank(z)
    assert value == 0
    value.backward()
    assert (z.grad == 0).all()


def test_two_rows_are_a_line(normal):
    assert effective_rank(normal(2, 5)).item() == pytest.approx(1)


def test_rank_deficient_gradient_is_finite(normal):
    z = (normal(20, 2) @ normal(2, 6, seed=1)).requires_grad_()
    value = effective_rank(z)
    assert value <= 2
    value.backward()
    assert z.grad.isfinite().all()


# --- gradient


@pytest.mark.parametrize(("n", "d", "center"), [(7, 3, True), (7, 3, False), (3, 5, False)])
def test_gradcheck(n, d, center, normal):
    z = (normal(n, d) + 0.5).requires_grad_()
    assert torch.autograd.gradcheck(lambda z: effective_rank(z, center=center), (z,))
