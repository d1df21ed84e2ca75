"""Label distributions against a loop and a histogram, their edges."""

import math

import pytest
import torch

from ordinal_entropy.methods.functional import dldl, hl_gauss

CENTERS = torch.tensor([0.25, 0.75, 1.75, 2.75]).double()


@pytest.mark.parametrize("sigma", [0.05, 0.7, 30.0])
def test_distributions_equal_a_loop(sigma):
    targets = torch.tensor([-2.0, 0.0, 0.4, 1.0, 2.7, 4.0]).double()
    for y, found in zip(targets.tolist(), dldl(targets, CENTERS, sigma), strict=True):
        nearest = min(abs(c - y) for c in CENTERS.tolist())
        mass = [math.exp((nearest**2 - (c - y) ** 2) / 2 / sigma**2) for c in CENTERS.tolist()]
        assert found.tolist() == pytest.approx([each / sum(mass) for each in mass], rel=1e-10)


@pytest.mark.parametrize("sigma", [1e-30, 1e-3, 1e3, 1e30])
def test_any_sigma_gives_a_distribution(sigma):
    found = dldl(torch.tensor([0.0, 0.3, 17.0, 1e6]), torch.arange(41.0), sigma)
    assert found.isfinite().all() and torch.allclose(found.sum(-1), torch.ones(4))
    if sigma < 1:
        assert found.argmax(-1).tolist() == [0, 0, 17, 40] and (found.amax(-1) == 1).all()
    if sigma > 1e20:
        assert torch.allclose(found, torch.full((4, 41), 1 / 41))


def test_a_wide_one_is_the_histogram_of_its_gaussian():
    targets, centers = torch.tensor([20.0, 20.3]).double(), torch.arange(41).double()
    off = dldl(targets, centers, 4.0) - hl_gauss(targets, torch.arange(42).double() - 0.5, 4.0)
    assert off.abs().max() < 5e-4


def test_its_mean_is_the_target_where_it_is_wide_enough():
    targets = torch.linspace(30.0, 31.0, 11).double()
    centers = torch.arange(61).double()
    for sigma in (1.0, 2.0, 5.0):
        assert torch.allclose((dldl(targets, centers, sigma) * centers).sum(-1), targets, atol=1e-6)


def test_centers_and_sigmas_of_each_number():
    centers = torch.stack([torch.arange(5.0), 10 * torch.arange(5.0)])
    found = dldl(torch.tensor([[1.2, 12.0], [2.0, 20.0]]), centers, torch.tensor([0.5, 5.0]))
    assert found.shape == (2, 2, 5) and torch.allclose(found[:, 0], found[:, 1])
    assert dldl(torch.ones(2).half(), torch.arange(3.0), 1.0).dtype == torch.float32
    assert dldl(torch.tensor([math.nan]), CENTERS, 1.0).isnan().all()
    assert dldl(torch.zeros(0), CENTERS, 1.0).shape == (0, 4)
