"""Rank-N-Contrast against loops, its gradient, its edges."""

import copy
import math
import pickle

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step
from ordinal_entropy.methods import rank_n_contrast as module
from ordinal_entropy.methods.functional import rank_n_contrast
from ordinal_entropy.methods.rank_n_contrast import RankNContrast

FEATURES = torch.randn(9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randint(4, (9, 2), generator=torch.Generator().manual_seed(1)).double()  # many ties


def loop(features, targets, temperature):
    """The formula, pair by pair, with Python's floats."""
    z, y = features.tolist(), targets.tolist()
    near = [[-math.dist(a, b) for b in z] for a in z]
    far = [[sum(abs(p - q) for p, q in zip(a, b, strict=True)) for b in y] for a in y]
    total, n = 0.0, len(z)
    for i in range(n):
        for j in range(n):
            if i != j:
                rivals = [near[i][k] / temperature for k in range(n) if k != i and far[i][k] >= far[i][j]]
                total += max(rivals) + math.log(sum(math.exp(each - max(rivals)) for each in rivals))
                total -= near[i][j] / temperature
    return total / (n * (n - 1))


def term(features, targets, mask=None, **options):
    return RankNContrast(**options).term(Step(Batch(None, targets, mask), features, None, None))


@pytest.mark.parametrize("temperature", [0.1, 2.0])
@pytest.mark.parametrize("n", [2, 3, 9])
def test_equals_the_loop(n, temperature):
    expected = loop(FEATURES[:n], TARGETS[:n], temperature)
    assert rank_n_contrast(FEATURES[:n], TARGETS[:n], temperature).item() == pytest.approx(expected, rel=1e-12)
    assert term(FEATURES[:n], TARGETS[:n], temperature=temperature).item() == pytest.approx(expected, rel=1e-12)
    one = TARGETS[:n, 0]
    assert rank_n_contrast(FEATURES[:n], one).item() == pytest.approx(loop(FEATURES[:n], one[:, None], 2.0), rel=1e-12)


def test_gradient():
    assert torch.autograd.gradcheck(lambda z: rank_n_contrast(z, TARGETS), FEATURES.clone().requires_grad_())
    mask = torch.arange(9) % 4 != 1
    assert torch.autograd.gradcheck(lambda z: rank_n_contrast(z, TARGETS, 0.5, mask), FEATURES.clone().requires_grad_())


def test_only_the_order_of_the_distances_counts():
    expected = rank_n_contrast(FEATURES, TARGETS)
    assert torch.equal(rank_n_contrast(FEATURES, 1000 * TARGETS), expected)
    assert torch.equal(rank_n_contrast(FEATURES, 7 - TARGETS), expected)
    order = torch.randperm(9, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(rank_n_contrast(FEATURES[order], TARGETS[order]), expected, rtol=1e-12)
    turned = torch.linalg.qr(FEATURES[:4]).Q
    assert torch.allclose(rank_n_contrast(FEATURES @ turned + 100, TARGETS), expected, rtol=1e-10)


def test_features_in_the_order_of_their_targets_have_the_smaller_loss():
    targets = torch.arange(9.0).double()
    line = torch.stack([targets, torch.zeros(9)], 1)
    shuffled = line[torch.randperm(9, generator=torch.Generator().manual_seed(3))]
    assert rank_n_contrast(line, targets) < rank_n_contrast(shuffled, targets)


def test_rows_outside_the_mask_leave_no_trace():
    mask = torch.arange(9) % 3 != 0
    features, targets = FEATURES.clone(), TARGETS.clone()
    features[~mask], targets[~mask] = math.nan, math.nan
    features.requires_grad_()
    loss = term(features, targets, mask[:, None].expand(9, 2))
    assert loss.item() == pytest.approx(loop(FEATURES[mask], TARGETS[mask], 2.0), rel=1e-12)
    loss.backward()
    assert features.grad.isfinite().all() and (features.grad[~mask] == 0).all()
    with pytest.raises(ValueError, match="got 1 rows with NaN"):
        term(FEATURES, torch.cat([TARGETS[:8], torch.full((1, 2), math.nan)]))


@pytest.mark.parametrize(
    ("features", "targets", "expected"),
    [
        (FEATURES[:0], TARGETS[:0], 0.0),
        (FEATURES[:1], TARGETS[:1], 0.0),
        (torch.zeros(3, 4).double(), TARGETS[:3], None),
        (FEATURES[:1].expand(4, 4), TARGETS[:4], None),
        (FEATURES[:5], torch.ones(5, 1).double(), None),
        (torch.zeros(5, 4).double(), torch.ones(5, 1).double(), math.log(4)),
        (1e-9 * FEATURES, TARGETS, None),
        (1e6 * FEATURES, TARGETS, None),
    ],
)
def test_degenerate_batches_have_a_finite_gradient(features, targets, expected):
    features = features.clone().requires_grad_()
    loss = term(features, targets)
    loss.backward()
    assert loss.item() == pytest.approx(loop(features, targets, 2.0) if expected is None else expected, rel=1e-9)
    assert features.grad is not None and features.grad.isfinite().all()


def test_an_all_false_mask_is_a_zero_with_zero_gradient():
    features = FEATURES.clone().requires_grad_()
    loss = term(features, TARGETS, torch.zeros(9, dtype=torch.bool))
    loss.backward()
    assert loss == 0 and (features.grad == 0).all()


def test_coincident_rows_among_others_have_no_gradient_of_their_own_pair():
    features = FEATURES.clone()
    features[3] = features[7]
    features.requires_grad_()
    rank_n_contrast(features, TARGETS).backward()
    assert features.grad.isfinite().all() and features.grad.abs().max() < 1


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_lower_precisions(dtype, tolerance):
    features = FEATURES.clone().requires_grad_()
    exact = rank_n_contrast(features, TARGETS)
    exact.backward()
    low = FEATURES.to(dtype).requires_grad_()
    loss = rank_n_contrast(low, TARGETS.to(dtype))
    loss.backward()
    assert loss.dtype == torch.float32 and low.grad.dtype == dtype
    assert loss.item() == pytest.approx(exact.item(), rel=tolerance)
    assert (low.grad.double() - features.grad).norm() <= 2 * tolerance * features.grad.norm()


def test_collapsed_features_far_from_zero_keep_their_precision():
    close = (1e-4 * FEATURES + 100).requires_grad_()
    rank_n_contrast(close, TARGETS, 1e-4).backward()
    exact = FEATURES.clone().requires_grad_()
    rank_n_contrast(exact, TARGETS, 1.0).backward()
    assert (1e-4 * close.grad - exact.grad).norm() < 1e-6 * exact.grad.norm()


@pytest.mark.parametrize("pairs", [1, 30, 63])  # blocks of one anchor, of three with a rest, of all but two
def test_blocks_of_anchors_change_nothing(monkeypatch, pairs):
    def value_and_gradient():
        features = FEATURES.clone().requires_grad_()
        loss = rank_n_contrast(features, TARGETS, 0.5, torch.arange(9) % 4 != 1)
        loss.backward()
        return loss.detach(), features.grad

    whole = value_and_gradient()
    monkeypatch.setattr(module, "_PAIRS", pairs)
    torch.testing.assert_close(value_and_gradient(), whole, rtol=1e-12, atol=1e-15)


def test_no_tensor_is_larger_than_one_block_of_distances(monkeypatch):
    """What the graph keeps, and what the way back makes: neither all pairs, nor pairs of a block and numbers."""
    n, d = 64, 50
    largest = 0
    monkeypatch.setattr(module, "_PAIRS", n * n // 4)

    class Sizes(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for each in out if isinstance(out, tuple | list) else [out]:
                if isinstance(each, torch.Tensor):
                    largest = max(largest, each.numel())
            return out

    features = torch.randn(n, d, requires_grad=True)
    with Sizes():
        rank_n_contrast(features, torch.rand(n, 3)).backward()
    assert largest <= max(n * n // 4, n * d)


def test_there_is_no_second_derivative_that_could_be_wrong():
    features = FEATURES.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(rank_n_contrast(features, TARGETS), features, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        gradient.sum().backward()


def test_views_and_stages():
    published = methods.create("rnc", views=2, stages=2)
    assert (published.stages, published.views, published.first_stage) == (("encoder", "head"), 2, 0.8)
    assert set(published.requirements()) == {"term", "views", "stages"}
    plain = methods.create("rnc")
    assert (plain.stages, plain.views) == (("joint",), 1) and set(plain.requirements()) == {"term"}
    assert [methods.stage_of(published, epoch, 5) for epoch in range(5)] == ["encoder"] * 4 + ["head"]


def test_a_method_has_no_state_and_can_be_copied_and_pickled():
    method = methods.create("rnc", views=2, stages=2, temperature=0.3)
    assert method.state_dict() == {}
    for twin in (copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert twin(FEATURES, TARGETS) == method(FEATURES, TARGETS)
        assert twin.stages == method.stages and twin.views == 2


def test_mistakes_are_named():
    for options, message in [
        ({"temperature": 0.0}, "temperature to be a positive number, got 0"),
        ({"views": 0}, "views to be a whole number of at least 1, got 0"),
        ({"stages": 3}, "stages to be 1 or 2, got 3"),
        ({"first_stage": 1.0}, "between 0 and 1, got 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            RankNContrast(**options)
    with pytest.raises(ValueError, match=r"features \(n, d\) for rank-n-contrast.*got \(2, 3, 4, 4\)"):
        term(torch.zeros(2, 3, 4, 4), torch.zeros(2, 1, 4, 4))
    with pytest.raises(ValueError, match="targets with n=9 rows"):
        term(FEATURES, TARGETS[:8])
