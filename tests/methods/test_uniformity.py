"""Uniformity against loops and a closed form; its edges."""

import math

import pytest
import torch

from ordinal_entropy.methods import Batch, Step
from ordinal_entropy.methods.functional import uniformity
from ordinal_entropy.methods.uniformity import Uniformity

FEATURES = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.zeros(9, 1)


def loop(features, t):
    z = [[value / math.hypot(*row) for value in row] for row in features.tolist()]
    each = [math.exp(-t * math.dist(a, b) ** 2) for i, a in enumerate(z) for k, b in enumerate(z) if k != i]
    return math.log(sum(each) / len(each))


def term(features, targets=TARGETS, mask=None, **options):
    return Uniformity(**options).term(Step(Batch(None, targets, mask), features, None, None))


@pytest.mark.parametrize("t", [0.5, 2.0])
@pytest.mark.parametrize("n", [2, 3, 9])
def test_equals_the_loop_at_any_length(n, t):
    lengths = torch.logspace(-20, 20, n).double()[:, None]
    assert term(lengths * FEATURES[:n], TARGETS[:n], t=t).item() == pytest.approx(loop(FEATURES[:n], t), rel=1e-12)


@pytest.mark.slow
def test_directions_without_order_have_the_integral_over_the_sphere():
    """In three dimensions the squared distance of two random directions is uniform between 0 and 4."""
    features = torch.randn(3000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    assert uniformity(features).item() == pytest.approx(math.log((1 - math.exp(-8)) / 8), abs=0.01)


def test_gradient_and_mask():
    mask = torch.arange(9) % 4 != 1
    assert torch.autograd.gradcheck(lambda z: uniformity(z, 2.0, mask), FEATURES.clone().requires_grad_())
    features = FEATURES.clone()
    features[~mask] = math.nan
    features.requires_grad_()
    loss = term(features, mask=mask[:, None])
    loss.backward()
    assert loss.item() == pytest.approx(loop(FEATURES[mask], 2.0), rel=1e-12)
    assert features.grad.isfinite().all() and (features.grad[~mask] == 0).all()


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (FEATURES[:0], 0.0),
        (FEATURES[:1], 0.0),
        (torch.zeros(5, 4), 0.0),
        (torch.ones(5, 4), 0.0),
        (torch.tensor([[0.0, 0.0], [3.0, 0.0]]), -2.0),  # the zero is at a distance of 1
        (torch.tensor([[1.0, 0.0], [-3.0, 0.0]]), -8.0),
    ],
)
def test_degenerate_batches_have_a_finite_gradient(features, expected):
    features = features.clone().requires_grad_()
    loss = term(features, torch.zeros(len(features), 1))
    loss.backward()
    assert loss.item() == pytest.approx(expected, abs=1e-6) and features.grad.isfinite().all()
    one = torch.arange(9) == 3
    for mask in (one, one & False):
        own = FEATURES.clone().requires_grad_()
        loss = term(own, mask=mask)
        loss.backward()
        assert loss == 0 and (own.grad == 0).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 5e-3)])
def test_lower_precisions(dtype, tolerance):
    found = uniformity(FEATURES.to(dtype))
    assert found.dtype == torch.float32 and found.item() == pytest.approx(loop(FEATURES, 2.0), rel=tolerance)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="t to be a positive number, got 0"):
        Uniformity(t=0.0)
    with pytest.raises(ValueError, match=r"features \(n, d\) for uniformity.*got \(2, 3, 4, 4\)"):
        term(torch.zeros(2, 3, 4, 4), torch.zeros(2, 1, 4, 4))
