"""RankSim against loops, its surrogate gradient too; its edges."""

import math

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step
from ordinal_entropy.methods.functional import ranks, ranksim
from ordinal_entropy.methods.ranksim import RankSim

FEATURES = torch.randn(10, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randint(4, (10, 2), generator=torch.Generator().manual_seed(1)).double()  # some rows share one


def ranks_of(scores):
    """From 1 for the largest; equal ones share the mean of their places."""
    return [1 + sum(b > a for b in scores) + (sum(b == a for b in scores) - 1) / 2 for a in scores]


def firsts(targets):
    y = targets.tolist()
    return [i for i in range(len(y)) if y[i] not in y[:i]]


def loop(features, targets, interpolation):
    """The loss of normalised rows of distinct targets, and its surrogate gradient by the cosines."""
    z, y = features.tolist(), targets.tolist()
    m = len(z)
    total, gradient = 0.0, []
    for i in range(m):
        cosines = [sum(a * b for a, b in zip(z[i], z[j], strict=True)) for j in range(m)]
        now = [rank / m for rank in ranks_of(cosines)]
        wanted = [rank / m for rank in ranks_of([-math.dist(y[i], y[j]) for j in range(m)])]
        total += sum((a - b) ** 2 for a, b in zip(now, wanted, strict=True)) / m
        by_ranks = [2 * (a - b) / m for a, b in zip(now, wanted, strict=True)]
        moved = ranks_of([c + interpolation * g for c, g in zip(cosines, by_ranks, strict=True)])
        gradient.append([(a / m - b) / interpolation for a, b in zip(moved, now, strict=True)])
    return total, torch.tensor(gradient, dtype=torch.float64)


def term(features, targets, mask=None, **options):
    return RankSim(**options).term(Step(Batch(None, targets, mask), features, None, None))


@pytest.mark.parametrize("interpolation", [0.5, 2.0, 200.0])
@pytest.mark.parametrize("t", [1, 2])
def test_value_and_gradient_equal_the_loop(interpolation, t):
    targets = TARGETS[:, :t]
    kept = firsts(targets)
    assert 3 < len(kept) < 10
    features = FEATURES.clone().requires_grad_()
    loss = term(features, targets, interpolation=interpolation)
    (found,) = torch.autograd.grad(loss, features)
    z = torch.nn.functional.normalize(features[kept], dim=1)
    expected, by_cosines = loop(z.detach(), targets[kept], interpolation)
    assert loss.item() == pytest.approx(expected, rel=1e-12)
    (gradient,) = torch.autograd.grad((by_cosines * (z @ z.T)).sum(), features)
    assert by_cosines.any() and torch.allclose(found, gradient, rtol=1e-10, atol=1e-15)


def test_the_gradient_is_linear_in_the_strength():
    features = FEATURES.clone().requires_grad_()
    one, many = (torch.autograd.grad(strength * ranksim(features, TARGETS), features)[0] for strength in (1, 1000))
    assert one.any() and torch.allclose(many, 1000 * one, rtol=1e-12)


def test_ranks_of_ties_are_means():
    scores = torch.tensor([[3.0, 1.0, 3.0, 3.0], [1.0, 2.0, 0.0, -math.inf]])
    assert ranks(scores).tolist() == [ranks_of(row) for row in scores.tolist()] == [[2, 4, 2, 2], [2, 1, 3, 4]]


def test_only_orders_count_and_steps_down_the_gradient_restore_them():
    expected = ranksim(FEATURES, TARGETS)
    assert torch.equal(ranksim(FEATURES, 1000 * TARGETS), expected)
    assert torch.allclose(ranksim(FEATURES * torch.arange(1.0, 11.0)[:, None], TARGETS), expected, rtol=1e-12)
    angle = torch.linspace(0, 1, 6).double() ** 1.3
    arc = torch.stack([angle.cos(), angle.sin()], 1)  # cosines fall with the distance along it
    assert ranksim(arc, angle) == 0 and ranksim(arc, angle**3) > 0
    features = FEATURES.clone().requires_grad_()
    for _ in range(100):
        (gradient,) = torch.autograd.grad(ranksim(features, TARGETS), features)
        features = (features - gradient).detach().requires_grad_()
    assert ranksim(features, TARGETS) < 0.3 * expected


def test_rows_outside_the_mask_leave_no_trace():
    mask = torch.arange(10) % 3 != 0
    features, targets = FEATURES.clone(), TARGETS.clone()
    features[~mask], targets[~mask] = math.nan, math.nan
    features.requires_grad_()
    loss = term(features, targets, mask[:, None].expand(10, 2))
    own = FEATURES[mask].clone().requires_grad_()
    expected = ranksim(own, TARGETS[mask])
    assert expected > 0 and torch.allclose(loss, expected, rtol=1e-12)
    loss.backward()
    expected.backward()
    assert torch.allclose(features.grad[mask], own.grad, rtol=1e-12) and (features.grad[~mask] == 0).all()


@pytest.mark.parametrize(
    ("features", "targets"),
    [
        (FEATURES[:0], TARGETS[:0]),
        (FEATURES[:1], TARGETS[:1]),
        (FEATURES, torch.ones(10, 1).double()),
        (torch.zeros(10, 4).double(), TARGETS),
        (FEATURES[:1].expand(10, 4), TARGETS),
        (1e200 * FEATURES, TARGETS),
    ],
)
def test_degenerate_batches_have_a_finite_gradient(features, targets):
    features = features.clone().requires_grad_()
    loss = term(features, targets)
    loss.backward()
    assert loss.isfinite() and features.grad.isfinite().all()
    assert (loss > 0) == (len(firsts(targets)) > 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precisions(dtype):
    low = FEATURES.to(dtype).requires_grad_()
    exact = low.detach().double().requires_grad_()
    losses = [ranksim(each, TARGETS) for each in (low, exact)]
    for each in losses:
        each.backward()
    assert losses[0].dtype == torch.float32 and losses[0].item() == pytest.approx(losses[1].item(), rel=1e-6)
    assert torch.allclose(low.grad.double(), exact.grad, rtol=1e-2, atol=1e-5)


def test_the_log_is_told_of_rights():
    method = methods.create("ranksim")
    method.prepare(TARGETS, width=4)
    (note,) = method.notes
    assert note.startswith("ranksim: ") and "CC BY-NC-SA 4.0" in note and "US 2023/0214651" in note


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="interpolation to be a positive number, got 0"):
        RankSim(interpolation=0.0)
    with pytest.raises(ValueError, match=r"features \(n, d\) for ranksim.*got \(2, 3, 4, 4\)"):
        term(torch.zeros(2, 3, 4, 4), torch.zeros(2, 1, 4, 4))
