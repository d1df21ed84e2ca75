"""VICReg's variance and covariance against loops and lightly; its edges."""

import math

import pytest
import torch

from ordinal_entropy import environment, methods
from ordinal_entropy.methods import Batch, Step
from ordinal_entropy.methods.functional import vicreg
from ordinal_entropy.methods.vicreg import VICReg

FEATURES = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
FEATURES = FEATURES * torch.tensor([0.1, 0.5, 0.9, 3.0])  # three that spread too little
TARGETS = torch.zeros(9, 1)


def loop(features):
    n, d = features.shape
    columns = [[value - sum(own) / n for value in own] for own in features.T.tolist()]
    covariance = [[sum(a * b for a, b in zip(x, y, strict=True)) / (n - 1) for y in columns] for x in columns]
    variance = sum(max(0.0, 1 - math.sqrt(covariance[k][k] + 1e-4)) for k in range(d)) / d
    return variance, sum(covariance[k][j] ** 2 for k in range(d) for j in range(d) if k != j) / d


def term(features, targets=TARGETS, mask=None, **options):
    return VICReg(**options).term(Step(Batch(None, targets, mask), features, None, None))


@pytest.mark.parametrize("n", [2, 9])
def test_equals_the_loop(n):
    variance, covariance = loop(FEATURES[:n])
    found = vicreg(FEATURES[:n])
    assert [each.item() for each in found] == [pytest.approx(variance, rel=1e-12), pytest.approx(covariance, rel=1e-12)]
    assert term(FEATURES[:n], TARGETS[:n]).item() == pytest.approx(25 * variance + covariance, rel=1e-12)
    weighted = term(FEATURES[:n], TARGETS[:n], variance_weight=2.0, covariance_weight=3.0)
    assert weighted.item() == pytest.approx(2 * variance + 3 * covariance, rel=1e-12)


@pytest.mark.slow
def test_equals_lightly():
    environment.import_torchvision()
    loss = pytest.importorskip("lightly.loss").VICRegLoss(lambda_param=0.0, mu_param=25.0, nu_param=1.0)
    own, theirs = FEATURES.clone().requires_grad_(), FEATURES.clone().requires_grad_()
    found, expected = term(own, covariance_weight=2.0), loss(theirs, theirs)  # it adds the covariances of two views
    found.backward()
    expected.backward()
    assert torch.allclose(found, expected, rtol=1e-12) and torch.allclose(own.grad, theirs.grad, rtol=1e-10)


def test_gradient_and_mask():
    mask = torch.arange(9) % 4 != 1
    for number in range(2):
        loss = lambda z, number=number: vicreg(z, mask)[number]  # noqa: E731
        assert torch.autograd.gradcheck(loss, FEATURES.clone().requires_grad_())
    expected = loop(FEATURES[mask])
    assert [each.item() for each in vicreg(FEATURES, mask)] == [pytest.approx(each, rel=1e-12) for each in expected]


def test_places_of_maps_are_rows():
    maps = torch.randn(2, 3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rows = maps.permute(0, 2, 3, 1).reshape(-1, 3)
    inside = torch.rand(2, 1, 4, 5, generator=torch.Generator().manual_seed(2)) > 0.3
    found = term(maps, torch.zeros(2, 1, 4, 5), inside)
    assert torch.allclose(found, term(rows[inside.flatten()], torch.zeros(int(inside.sum()), 1)), rtol=1e-12)


@pytest.mark.parametrize(
    ("features", "expected"),
    [
        (FEATURES[:0], 0.0),
        (FEATURES[:1], 0.0),
        (torch.zeros(5, 4), 25 * 0.99),
        (torch.ones(5, 4), 25 * 0.99),
        (torch.zeros(5, 0), 0.0),
    ],
)
def test_degenerate_batches_have_a_finite_gradient(features, expected):
    features = features.clone().requires_grad_()
    loss = term(features, torch.zeros(len(features), 1))
    loss.backward()
    assert loss.item() == pytest.approx(expected) and features.grad.isfinite().all()
    one = torch.arange(9) == 3
    for mask in (one, one & False):
        own = FEATURES.clone().requires_grad_()
        loss = term(own, mask=mask)
        loss.backward()
        assert loss == 0 and (own.grad == 0).all()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 3e-2), (torch.float16, 5e-3)])
def test_lower_precisions(dtype, tolerance):
    found = vicreg(FEATURES.to(dtype))
    assert all(each.dtype == torch.float32 for each in found)
    assert [each.item() for each in found] == [pytest.approx(each, rel=tolerance) for each in loop(FEATURES)]


def test_strengths_balance_the_parts_by_their_relative_weights():
    method = methods.create("vicreg", balance=0.1)
    features = FEATURES.clone().requires_grad_()
    for _ in range(100):  # the warm-up
        total = method(features, TARGETS, task_loss=features.pow(3).sum())
    task, *own = (
        torch.autograd.grad(make(features), features)[0].norm()
        for make in (lambda z: z.pow(3).sum(), lambda z: vicreg(z)[0], lambda z: vicreg(z)[1])
    )
    strengths = [0.1 * weight * task / norm for weight, norm in zip((1, 1 / 25), own, strict=True)]
    expected = sum(a * b for a, b in zip(strengths, vicreg(features), strict=True))
    assert total.item() == pytest.approx(expected.item())
    assert set(method.scalars()) == {"variance_strength", "covariance_strength"}


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="variance_weight to be a number from 0 on, got -1"):
        VICReg(variance_weight=-1)
    with pytest.raises(ValueError, match="covariance_weight to be positive, got 0 for both"):
        VICReg(0.0, 0.0)
