"""Gradient Aligned Regression: its three losses, the power mean of them, its guards."""

import math

import pytest
import torch

from ordinal_entropy.methods import create
from ordinal_entropy.methods.functional import gar

P = torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
Y = P + torch.randn(20, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def three(p, y):
    errors = p - y
    pairs = (errors[:, None] - errors).square()
    return [errors.abs().mean(), pairs.mean() / 4, 1 - torch.corrcoef(torch.stack([p, y]))[0, 1]]


def test_the_three_losses_are_error_pairs_and_correlation():
    assert gar(P, Y, 1.0).exp().item() == pytest.approx(torch.stack(three(P, Y)).mean().item(), rel=1e-12)


def test_alpha_goes_from_the_largest_loss_to_their_geometric_mean():
    losses = torch.stack(three(P, Y))
    assert gar(P, Y, 1e-4).item() == pytest.approx(losses.max().log().item(), abs=1e-3)
    assert gar(P, Y, 1e4).item() == pytest.approx(losses.log().mean().item(), abs=1e-3)
    values = [gar(P, Y, alpha).item() for alpha in (0.1, 0.5, 1.0, 3.0, 10.0)]
    assert values == sorted(values, reverse=True)


def test_the_gradient_is_that_of_the_losses_at_their_shares():
    p = P.clone().requires_grad_()
    (found,) = torch.autograd.grad(gar(p, Y, 0.5), p)
    losses = three(p, Y)
    share = torch.stack(losses).detach() ** 2
    share = share / share.sum()
    parts = [torch.autograd.grad(each.log(), p, retain_graph=True)[0] for each in losses]
    assert torch.allclose(found, sum(s * part for s, part in zip(share, parts, strict=True)))


def test_losses_of_zero_have_a_logarithm():
    p = Y.clone().requires_grad_()
    for alpha in (0.1, 1.0, 10.0):
        loss = gar(p, Y, alpha)
        (gradient,) = torch.autograd.grad(loss, p)
        assert loss.item() == pytest.approx(math.log(1e-12)) and (gradient == 0).all()
        (gradient,) = torch.autograd.grad(gar(p + 2.0, Y, alpha), p)  # two of the three are zero
        assert gradient.isfinite().all() and (gradient > 0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("level", [0.0, 1e-3, 7.3e4])
def test_constant_predictions_have_no_shape(level, dtype):
    p = torch.full((20,), level, dtype=dtype, requires_grad=True)
    loss = gar(p, Y.to(dtype), 1.0)
    (gradient,) = torch.autograd.grad(loss, p)
    assert gradient.isfinite().all()
    error = (level - Y).abs().mean()
    assert loss.exp().item() == pytest.approx(((error + Y.var(correction=0) / 2 + 0.5) / 3).item(), rel=1e-5)


def test_mistakes_are_named():
    for alpha in (0.0, -1.0, math.inf):
        with pytest.raises(ValueError, match="alpha to be a positive number"):
            create("gar", alpha=alpha)
