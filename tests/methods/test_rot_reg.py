"""ROT-Reg against loops and POT, its gradient, its edges."""

import math
import statistics

import pytest
import torch

from ordinal_entropy.methods import Batch, Step
from ordinal_entropy.methods.functional import rot_reg, sinkhorn_plan
from ordinal_entropy.methods.rot_reg import ROTReg

GENERATOR = torch.Generator().manual_seed(0)
FEATURES = torch.randn(9, 4, dtype=torch.float64, generator=GENERATOR)
TARGETS = torch.randn(9, 2, dtype=torch.float64, generator=GENERATOR)
MASK = torch.arange(9) % 4 != 2


def plan(costs, regularization, rounds=3000):
    """Rows and columns scaled in turn, with Python's floats."""
    n = len(costs)
    kernel = [[math.exp(-costs[i][j] / regularization) if i != j else 0.0 for j in range(n)] for i in range(n)]
    u, v = [1.0] * n, [1.0] * n
    for _ in range(rounds):
        u = [1 / n / math.fsum(kernel[i][j] * v[j] for j in range(n)) for i in range(n)]
        v = [1 / n / math.fsum(kernel[i][j] * u[i] for i in range(n)) for j in range(n)]
    return [[u[i] * kernel[i][j] * v[j] for j in range(n)] for i in range(n)]


def loop(features, targets, regularization=0.1):
    z, y = features.tolist(), targets.reshape(len(targets), -1).tolist()
    norm = statistics.mean(math.hypot(*each) for each in z)
    costs = [[math.dist(a, b) / norm for b in z] for a in z]
    apart = [[math.dist(a, b) for b in y] for a in y]
    largest = max(map(max, apart))
    plans = plan([[each / largest for each in row] for row in apart], regularization), plan(costs, regularization)
    pairs = [(i, j) for i in range(len(z)) for j in range(len(z))]
    by_targets, by_features = (math.fsum(costs[i][j] * each[i][j] for i, j in pairs) for each in plans)
    return abs(by_targets - by_features)


def costs_of(points):
    return torch.cdist(points, points).fill_diagonal_(torch.inf)


def term(features, targets, mask=None, **options):
    return ROTReg(**options).term(Step(Batch(None, targets, mask), features, None, None))


@pytest.mark.parametrize("targets", [TARGETS, TARGETS[:, 0]])
def test_equals_the_loop(targets):
    expected = loop(FEATURES, targets, 0.3)
    assert rot_reg(FEATURES, targets, 0.3, iterations=200).item() == pytest.approx(expected, rel=1e-8)
    assert term(FEATURES, targets, regularization=0.3, iterations=200).item() == pytest.approx(expected, rel=1e-8)


def test_the_default_iterations_are_enough_for_a_batch_of_features():
    features = torch.randn(64, 64, generator=GENERATOR).double()
    targets = torch.randint(1, 60, (64, 1), generator=GENERATOR).double()
    assert rot_reg(features, targets).item() == pytest.approx(rot_reg(features, targets, iterations=1000).item(), 1e-4)


def test_a_plan_is_symmetric_and_has_its_marginals():
    found = sinkhorn_plan(costs_of(FEATURES), 1.0, iterations=300)
    assert torch.equal(found, found.T) and (found.diagonal() == 0).all()
    torch.testing.assert_close(found.sum(0), torch.full((9,), 1 / 9, dtype=torch.float64), rtol=1e-10, atol=0)


def test_rows_that_are_left_out_have_no_part_in_a_plan():
    costs = costs_of(FEATURES)
    costs[~MASK] = costs[:, ~MASK] = torch.inf
    found = sinkhorn_plan(costs)
    torch.testing.assert_close(found[MASK][:, MASK], sinkhorn_plan(costs_of(FEATURES[MASK])), rtol=1e-12, atol=0)
    assert (found[~MASK] == 0).all() and (found[:, ~MASK] == 0).all()
    assert (sinkhorn_plan(torch.full((3, 3), torch.inf)) == 0).all()


@pytest.mark.parametrize("regularization", [1e-1, 1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_small_regularization_gives_no_nan(regularization, dtype):
    features = FEATURES.to(dtype, copy=True).requires_grad_()
    found = sinkhorn_plan(costs_of(features.detach()), regularization)
    assert found.isfinite().all() and (found <= 1 / 9 + 1e-6).all()
    loss = rot_reg(features, TARGETS, regularization)
    loss.backward()
    assert loss.isfinite() and features.grad.isfinite().all()


@pytest.mark.parametrize("iterations", [1, 20])
@pytest.mark.parametrize("mask", [None, MASK])
def test_gradient_whether_the_plan_has_converged_or_not(iterations, mask):
    features = FEATURES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: rot_reg(z, TARGETS, 0.1, iterations, mask), features)


def test_gradient_of_a_plan_by_its_costs():
    upper = torch.rand(6, 6, dtype=torch.float64, generator=GENERATOR).triu(1).requires_grad_()
    diagonal = torch.eye(6, dtype=torch.bool)
    assert torch.autograd.gradcheck(
        lambda half: sinkhorn_plan((half + half.T).masked_fill(diagonal, torch.inf), 0.2, 7), upper
    )


def test_neither_units_nor_the_order_of_the_rows_matter():
    expected = rot_reg(FEATURES, TARGETS)
    order = torch.randperm(9, generator=GENERATOR)
    for features, targets in [
        (FEATURES, 1e5 * TARGETS - 3),
        (1e-4 * FEATURES, TARGETS),
        (FEATURES[order], TARGETS[order]),
    ]:
        torch.testing.assert_close(rot_reg(features, targets), expected, rtol=1e-9, atol=0)


def test_features_in_the_order_of_their_targets_have_the_smaller_loss():
    targets = torch.arange(9.0).double()
    line = torch.stack([targets, torch.zeros(9)], 1)
    shuffled = line[torch.randperm(9, generator=GENERATOR)]
    assert rot_reg(line, targets) < 0.2 * rot_reg(shuffled, targets)


def test_rows_outside_the_mask_leave_no_trace():
    features, targets = FEATURES.clone(), TARGETS.clone()
    features[~MASK], targets[~MASK] = math.nan, math.nan
    features.requires_grad_()
    loss = term(features, targets, MASK[:, None].expand(9, 2))
    assert loss.item() == pytest.approx(term(FEATURES[MASK], TARGETS[MASK]).item(), rel=1e-12)
    loss.backward()
    assert features.grad.isfinite().all() and (features.grad[~MASK] == 0).all() and features.grad.abs().max() > 0


def test_groups_are_averaged():
    features, targets = torch.stack([FEATURES, FEATURES.flip(0)]), torch.stack([TARGETS, 3 * TARGETS])
    mask = torch.stack([MASK, ~MASK])[..., None].expand(2, 9, 2)
    parts = [term(*each).item() for each in zip(features, targets, mask, strict=True)]
    assert term(features, targets, mask).item() == pytest.approx(statistics.mean(parts), rel=1e-12)


@pytest.mark.parametrize(
    ("features", "targets"),
    [
        (FEATURES[:0], TARGETS[:0]),
        (FEATURES[:1], TARGETS[:1]),
        (FEATURES[:2], TARGETS[:2]),  # one plan that there can be
        (FEATURES[:3], TARGETS[:3, :1] * 0),
        (FEATURES[:1].expand(4, 4), TARGETS[:4]),
        (torch.zeros(5, 4).double(), TARGETS[:5]),
        (torch.zeros(5, 4).double(), torch.ones(5, 1).double()),
    ],
)
def test_degenerate_batches_have_no_loss_and_a_finite_gradient(features, targets):
    features = features.clone().requires_grad_()
    loss = term(features, targets, regularization=1.0, iterations=100)
    loss.backward()
    assert loss.item() == pytest.approx(0.0, abs=1e-12)
    assert features.grad is not None and features.grad.isfinite().all()


def test_an_all_false_mask_is_a_zero_with_zero_gradient():
    features = FEATURES.clone().requires_grad_()
    loss = term(features, TARGETS, torch.zeros_like(TARGETS, dtype=torch.bool))
    loss.backward()
    assert loss == 0 and (features.grad == 0).all()


def test_mistakes_are_named():
    for options, message in [
        ({"regularization": 0.0}, "regularization to be a positive number, got 0"),
        ({"iterations": 0}, "iterations to be a whole number of at least 1, got 0"),
    ]:
        with pytest.raises(ValueError, match=message):
            ROTReg(**options)
    with pytest.raises(ValueError, match=r"features \(n, d\) for rot-reg.*got \(2, 3, 4, 4\)"):
        term(torch.zeros(2, 3, 4, 4), torch.zeros(2, 1, 4, 4))


@pytest.mark.slow
@pytest.mark.parametrize("regularization", [0.1, 0.3])
def test_a_plan_equals_pots(regularization):
    ot = pytest.importorskip("ot")
    points = torch.randn(60, 8, dtype=torch.float64, generator=GENERATOR)
    costs = costs_of(points) / points.norm(dim=1).mean()
    uniform = torch.full((60,), 1 / 60, dtype=torch.float64)
    expected = ot.sinkhorn(uniform, uniform, costs, regularization, numItermax=20000, stopThr=1e-14, warn=False)
    torch.testing.assert_close(sinkhorn_plan(costs, regularization, 2000), expected, rtol=1e-6, atol=1e-12)
