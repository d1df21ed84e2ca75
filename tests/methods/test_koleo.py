"""KoLeo against loops and lightly; its edges."""

import math

import pytest
import torch

from ordinal_entropy import environment
from ordinal_entropy.methods import Batch, Step
from ordinal_entropy.methods.functional import koleo
from ordinal_entropy.methods.koleo import KoLeo

FEATURES = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.zeros(9, 1)


def loop(features):
    z = [[value / math.hypot(*row) for value in row] for row in features.tolist()]
    nearest = [min(math.dist(a, b) for k, b in enumerate(z) if k != i) for i, a in enumerate(z)]
    return -sum(math.log(each + 1e-8) for each in nearest) / len(z)


def term(features, targets=TARGETS, mask=None):
    return KoLeo().term(Step(Batch(None, targets, mask), features, None, None))


@pytest.mark.parametrize("n", [2, 3, 9])
def test_equals_the_loop_at_any_length(n):
    lengths = torch.logspace(-20, 20, n).double()[:, None]
    assert term(lengths * FEATURES[:n], TARGETS[:n]).item() == pytest.approx(loop(FEATURES[:n]), rel=1e-12)


@pytest.mark.slow
def test_equals_lightly():
    environment.import_torchvision()
    loss = pytest.importorskip("lightly.loss").KoLeoLoss()
    own, theirs = FEATURES.clone().requires_grad_(), FEATURES.clone().requires_grad_()
    found, expected = term(own), loss(theirs)
    found.backward()
    expected.backward()
    assert torch.allclose(found, expected, rtol=1e-6) and torch.allclose(own.grad, theirs.grad, rtol=1e-5, atol=1e-7)


def test_gradient_and_mask():
    mask = torch.arange(9) % 4 != 1
    assert torch.autograd.gradcheck(lambda z: koleo(z, mask), FEATURES.clone().requires_grad_())
    features = FEATURES.clone()
    features[~mask] = math.nan
    features.requires_grad_()
    loss = term(features, mask=mask[:, None])
    loss.backward()
    assert loss.item() == pytest.approx(loop(FEATURES[mask]), rel=1e-12)
    assert features.grad.isfinite().all() and (features.grad[~mask] == 0).all()


def test_close_pairs_keep_their_precision():
    """Through products of the features in float32, their distance of 1e-5 would be rounding."""
    pair = torch.tensor([[1.0, 0.0], [1.0, 1e-5], [-1.0, 0.0], [-1.0, -1e-5]]).requires_grad_()
    loss = koleo(pair)
    loss.backward()
    assert loss.item() == pytest.approx(-math.log(1e-5 + 1e-8), rel=1e-6)
    assert torch.allclose(pair.grad[:, 1], 0.5 * torch.tensor([1e5, -1e5, -1e5, 1e5]), rtol=2e-3)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (FEATURES[:0], 0.0),
        (FEATURES[:1], 0.0),
        (torch.zeros(5, 4), -math.log(1e-8)),
        (torch.ones(5, 4), -math.log(1e-8)),
        (torch.tensor([[0.0, 0.0], [1.0, 0.0], [-3.0, 0.0]]), 0.0),  # the zero is at a distance of 1 from both
    ],
)
def test_degenerate_batches_have_a_finite_gradient(features, expected):
    features = features.clone().requires_grad_()
    loss = term(features, torch.zeros(len(features), 1))
    loss.backward()
    assert loss.item() == pytest.approx(expected, rel=1e-6, abs=1e-7) and features.grad.isfinite().all()
    one = torch.arange(9) == 3
    for mask in (one, one & False):
        own = FEATURES.clone().requires_grad_()
        loss = term(own, mask=mask)
        loss.backward()
        assert loss == 0 and (own.grad == 0).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 5e-3)])
def test_lower_precisions(dtype, tolerance):
    found = koleo(FEATURES.to(dtype))
    assert found.dtype == torch.float32 and found.item() == pytest.approx(loop(FEATURES), abs=tolerance)


def test_maps_are_refused():
    with pytest.raises(ValueError, match=r"features \(n, d\) for koleo.*got \(2, 3, 4, 4\)"):
        term(torch.zeros(2, 3, 4, 4), torch.zeros(2, 1, 4, 4))
