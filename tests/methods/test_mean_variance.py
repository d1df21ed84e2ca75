"""The two terms against loops and closed forms."""

import pytest
import torch

from ordinal_entropy.methods.functional import mean_variance

GENERATOR = torch.Generator().manual_seed(0)
LIKELY = torch.randn(3, 2, 6, dtype=torch.float64, generator=GENERATOR).softmax(-1)
TARGETS = 6 * torch.rand(3, 2, dtype=torch.float64, generator=GENERATOR)
CENTERS = torch.arange(6).double() + 0.5


def test_equals_a_loop():
    found = mean_variance(LIKELY, TARGETS, CENTERS, 0.7, 0.3)
    for i in range(3):
        for j in range(2):
            p = LIKELY[i, j].tolist()
            mean = sum(q * (k + 0.5) for k, q in enumerate(p))
            variance = sum(q * (k + 0.5) ** 2 for k, q in enumerate(p)) - mean**2
            expected = 0.7 * (mean - float(TARGETS[i, j])) ** 2 / 2 + 0.3 * variance
            assert found[i, j].item() == pytest.approx(expected, rel=1e-10)


def test_published_weights_and_a_point_mass():
    assert torch.allclose(mean_variance(LIKELY, TARGETS, CENTERS), mean_variance(LIKELY, TARGETS, CENTERS, 0.2, 0.05))
    assert (mean_variance(torch.eye(6).double(), CENTERS, CENTERS) == 0).all()
    uniform = torch.full((6,), 1 / 6).double()
    found = mean_variance(uniform, torch.tensor(3.0).double(), CENTERS, variance_weight=1.0)
    assert found.item() == pytest.approx(35 / 12)


def test_gradient():
    logits = LIKELY.log().requires_grad_()
    assert torch.autograd.gradcheck(lambda x: mean_variance(x.softmax(-1), TARGETS, CENTERS), logits)
