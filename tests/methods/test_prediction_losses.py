"""Losses in place of the task's own: each against a loop, and what all of them have in common."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import processes
from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step, functional


def seeded(seed):
    return torch.Generator().manual_seed(seed)


T = 2
TRAIN = torch.randn(60, T, dtype=torch.float64, generator=seeded(0)).exp() * torch.tensor([1.0, 40.0])
TARGETS = TRAIN[:7]
OUTPUTS = TARGETS + torch.randn(7, T, dtype=torch.float64, generator=seeded(1)) * torch.tensor([1.0, 30.0])
WEIGHT = torch.tensor([0.5, 9.0, 2.0, 1.0, 7.0, 0.0, 3.0]).double()
MASK = torch.tensor([1, 0, 1, 1, 0, 1, 1]).bool()
SCALE = TRAIN.std(0, correction=0).tolist()


def mean(values):
    values = list(values)
    return sum(values) / max(len(values), 1)


def of_errors(loss):
    """The oracle of a loss that is a mean over errors; ``loss`` is of one error and its number."""

    def oracle(p, y, w):
        return mean(w[i] * mean(loss(p[i][j] - y[i][j], j) for j in range(T)) for i in range(len(p)))

    return oracle


def focal_r(error, j):
    return abs(error) / (1 + math.exp(-1.5 * abs(error) / SCALE[j])) ** 0.7


def balanced_mse(p, y, w, noise=0.6):
    sigma = [noise * each for each in SCALE]

    def square(a, b):
        return sum(((u - v) / s) ** 2 for u, v, s in zip(a, b, sigma, strict=True))

    losses = [
        math.log(sum(math.exp(-square(a, c) / 2) for c in y)) + square(a, b) / 2 for a, b in zip(p, y, strict=True)
    ]
    return mean(s * s for s in sigma) * 2 * mean(wi * each for wi, each in zip(w, losses, strict=True))


def balanced_mse_gai(p, y, w, noise=0.6):
    """With one component: the moments of the training targets, two numbers."""
    sigma = [noise * each for each in SCALE]
    center = TRAIN.mean(0).tolist()
    rows = TRAIN.tolist()
    cov = [[mean((r[i] - center[i]) * (r[j] - center[j]) for r in rows) for j in range(T)] for i in range(T)]
    for i in range(T):
        cov[i][i] += 1e-6 * SCALE[i] ** 2 + sigma[i] ** 2
    det = cov[0][0] * cov[1][1] - cov[0][1] ** 2
    losses = []
    for a, b in zip(p, y, strict=True):
        u, v = a[0] - center[0], a[1] - center[1]
        evidence = -(cov[1][1] * u * u - 2 * cov[0][1] * u * v + cov[0][0] * v * v) / det / 2 - math.log(det) / 2
        own = sum(-(((c - d) / s) ** 2) / 2 - math.log(s) for c, d, s in zip(a, b, sigma, strict=True))
        losses.append(evidence - own)
    return mean(s * s for s in sigma) * 2 * mean(wi * each for wi, each in zip(w, losses, strict=True))


def gar(p, y, w, alpha=0.3):
    columns = []
    for j in range(T):
        a, b = ([row[j] / SCALE[j] for row in each] for each in (p, y))
        c, d = ([x - mean(each) for x in each] for each in (a, b))
        e, f = ([x / math.sqrt(mean(z * z for z in each)) for x in each] for each in (c, d))
        columns.append([
            mean(wi * abs(u - v) for wi, u, v in zip(w, a, b, strict=True)),
            mean(wi * (u - v) ** 2 for wi, u, v in zip(w, c, d, strict=True)) / 2,
            mean(wi * (u - v) ** 2 for wi, u, v in zip(w, e, f, strict=True)) / 2,
        ])  # fmt: skip
    losses = [mean(each) for each in zip(*columns, strict=True)]
    return alpha * math.log(mean(each ** (1 / alpha) for each in losses))


def dist_loss(p, y, w, share=0.4, bandwidth=0.05, points=4001):
    total = 0.0
    for j in range(T):
        column = sorted(TRAIN[:, j].tolist())
        low, high = column[0], column[-1]
        h = bandwidth * (high - low)
        normal = lambda z: math.erfc(-z / math.sqrt(2)) / 2  # noqa: E731

        def below(x):
            part = [(normal((x - v) / h) - normal((low - v) / h)) / (normal((high - v) / h) - normal((low - v) / h))
                    for v in column]  # fmt: skip
            return mean(part)

        for k, i in enumerate(sorted(range(len(p)), key=lambda i: p[i][j])):
            left, right = low, high
            for _ in range(60):
                middle = (left + right) / 2
                left, right = (middle, right) if below(middle) < (k + 0.5) / len(p) else (left, middle)
            total += w[i] * (abs(p[i][j] - y[i][j]) + share * abs(p[i][j] - left)) / T
    return total / max(len(p), 1)


CASES = {
    "l1": ({}, of_errors(lambda e, j: abs(e)), 1, 1e-12),
    "l2": ({}, of_errors(lambda e, j: e * e), 2, 1e-12),
    "focal-r": ({"beta": 1.5, "gamma": 0.7}, of_errors(focal_r), 1, 1e-12),
    "balanced-mse": ({"noise": 0.6}, balanced_mse, 2, 1e-6),  # the noise is a float32 parameter
    "balanced-mse-gai": ({"noise": 0.6, "components": 1}, balanced_mse_gai, 2, 1e-6),
    "gar": ({"alpha": 0.3}, gar, 0, 1e-12),
    "dist-loss": ({"distance_weight": 0.4, "bandwidth": 0.05}, dist_loss, 1, 1e-2),  # of the grid of the density
}
MAPS = [name for name in CASES if methods.create(name).takes_maps(name)]


def prepared(name, train=TRAIN):
    method = methods.create(name, **CASES[name][0])
    method.prepare(train)
    return method.double()


def loss_of(method, outputs, targets, mask=None, weight=None):
    return method.task_loss(Step(Batch(None, targets, mask, weight), torch.zeros(1), outputs, None))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("masked", "weighted"), [*itertools.product([False, True], repeat=2)])
def test_equals_a_loop(name, masked, weighted):
    _, oracle, _, tolerance = CASES[name]
    inside = MASK if masked else torch.ones(7, dtype=torch.bool)
    weight = WEIGHT if weighted else torch.ones(7).double()
    expected = oracle(*(each[inside].tolist() for each in (OUTPUTS, TARGETS, weight)))
    outputs, targets, mask = OUTPUTS.clone(), TARGETS.clone(), None
    if masked:
        outputs[~MASK], targets[~MASK] = math.nan, math.inf
        mask = MASK[:, None].expand(7, T)
    outputs.requires_grad_()
    found = loss_of(prepared(name), outputs, targets, mask, weight[:, None] if weighted else None)
    assert found.item() == pytest.approx(expected, rel=tolerance)
    found.backward()
    assert outputs.grad.isfinite().all() and bool((outputs.grad[~inside] == 0).all())


@pytest.mark.parametrize("name", CASES)
def test_gradient(name):
    method = prepared(name)
    outputs = OUTPUTS.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda p: loss_of(method, p, TARGETS, MASK, WEIGHT[:, None]), outputs)


@pytest.mark.parametrize("name", CASES)
def test_the_unit_of_the_targets_is_a_factor(name):
    power = CASES[name][2]
    own = loss_of(prepared(name), OUTPUTS, TARGETS)
    other = loss_of(prepared(name, 1000 * TRAIN), 1000 * OUTPUTS, 1000 * TARGETS)
    assert other.item() == pytest.approx(1000**power * own.item(), rel=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_the_order_of_the_rows_does_not_matter(name):
    order = torch.tensor([3, 1, 0, 6, 5, 2, 4])
    own = loss_of(prepared(name), OUTPUTS, TARGETS, MASK, WEIGHT[:, None])
    other = loss_of(prepared(name), OUTPUTS[order], TARGETS[order], MASK[order], WEIGHT[order, None])
    assert other.item() == pytest.approx(own.item(), rel=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_targets_without_a_dimension_of_their_own(name):
    method = prepared(name, TRAIN[:, 0])
    one = loss_of(method, OUTPUTS[:, :1], TARGETS[:, 0], MASK, WEIGHT)
    assert one == loss_of(method, OUTPUTS[:, :1], TARGETS[:, :1], MASK[:, None], WEIGHT[:, None])


@pytest.mark.parametrize("name", CASES)
def test_groups_are_batches_of_their_own(name):
    """As in points ``(b, n, t)``, and in stacks of runs."""
    method = prepared(name)
    pair = [torch.stack([each, each.flip(0) + 1]) for each in (OUTPUTS, TARGETS)]
    expected = mean(loss_of(method, p, y).item() for p, y in zip(*pair, strict=True))
    assert loss_of(method, *pair).item() == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", MAPS)
def test_maps_equal_rows(name):
    maps = [each.T.reshape(1, -1, 1, 7) for each in (OUTPUTS, TARGETS, WEIGHT[:, None])]
    mask = MASK.expand(T, 7).reshape(1, T, 1, 7)
    found = loss_of(prepared(name), *maps[:2], mask, maps[2])
    rows = loss_of(prepared(name), OUTPUTS, TARGETS, MASK, WEIGHT[:, None])
    assert found.item() == pytest.approx(rows.item(), rel=1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_rows_and_an_all_false_mask(name, n):
    for mask in (None, torch.zeros(n, T, dtype=torch.bool)):
        outputs = OUTPUTS[:n].clone().requires_grad_()
        loss = loss_of(prepared(name), outputs, TARGETS[:n], mask)
        loss.backward()
        assert loss.isfinite() and outputs.grad.isfinite().all()
        if n == 0 or mask is not None:
            assert loss == 0 and bool((outputs.grad == 0).all())
        else:
            assert bool((outputs.grad != 0).any())


@pytest.mark.parametrize("name", CASES)
def test_perfect_constant_and_coincident_numbers(name):
    method = prepared(name)
    constant = torch.full((7, T), 3.0).double()
    for outputs, targets in ((TARGETS, TARGETS), (constant, TARGETS), (OUTPUTS, constant), (constant, constant)):
        leaf = outputs.clone().requires_grad_()
        loss = loss_of(method, leaf, targets)
        loss.backward()
        assert loss.isfinite() and leaf.grad.isfinite().all()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-4), (torch.bfloat16, 3e-2)])
def test_lower_precisions(name, dtype, tolerance):
    exact = loss_of(prepared(name), OUTPUTS.to(dtype).double(), TARGETS.to(dtype).double())
    found = loss_of(prepared(name).float(), OUTPUTS.to(dtype), TARGETS.to(dtype))
    assert found.dtype == torch.float32 and found.item() == pytest.approx(exact.item(), rel=tolerance)


@pytest.mark.parametrize("name", CASES)
def test_wrong_shapes_are_named(name):
    with pytest.raises(ValueError, match=r"expected .*(7, 1)"):
        loss_of(prepared(name), OUTPUTS[:, :1], TARGETS)
    with pytest.raises(ValueError, match="expected predictions, got None"):
        loss_of(prepared(name), None, TARGETS)


def _functions():
    scale = torch.ones(1, T).double()
    mixture, distribution = functional.fit_mixture(TRAIN, 2), functional.distribution_of(TRAIN, 0.05)
    return {
        "focal_r": functional.focal_r,
        "gar": functional.gar,
        "balanced_mse": lambda p, y, **given: functional.balanced_mse(p, y, scale, **given),
        "balanced_mse_gai": lambda p, y, **given: functional.balanced_mse_gai(p, y, scale, mixture, **given),
        "dist_loss": lambda p, y, **given: functional.dist_loss(p, y, distribution, **given),
        "pinball": lambda p, y, **given: functional.pinball(p[..., None].expand(*p.shape, 2), y, (0.5, 0.9), **given),
    }


@pytest.mark.parametrize("name", _functions())
def test_no_value_is_looked_at(name):
    """As in a CUDA graph: tensors without values are enough."""
    function = _functions()[name]
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        p, y, weight, mask = (mode.from_tensor(each) for each in (OUTPUTS, TARGETS, WEIGHT, MASK))
        p.requires_grad_()
        loss = function(p, y, mask=mask, weight=weight)
        (gradient,) = torch.autograd.grad(loss, p)
        assert loss.shape == () and gradient.shape == p.shape


GATHERED = [name for name in CASES if "gather" in methods.options(name)]
RANKS = (slice(0, 3), slice(3, None))


def on_rank(rank, world, names):
    """Loss, and the gradient of the rank's own rows as data parallelism averages it."""
    own, found = RANKS[rank], []
    for name in names:
        method = methods.create(name, **CASES[name][0], gather=True).double()
        method.prepare(TRAIN)
        outputs = OUTPUTS[own].clone().requires_grad_()
        loss = loss_of(method, outputs, TARGETS[own], MASK[own, None].expand(-1, T), WEIGHT[own, None])
        loss.backward()
        plain = loss_of(method, OUTPUTS[own], TARGETS[own])
        found.append((loss.detach(), outputs.grad / world, plain))
    return found


@pytest.mark.slow
def test_two_ranks_together_equal_one_process():
    ranks = processes.run(partial(on_rank, names=GATHERED), 2)
    for place, name in enumerate(GATHERED):
        outputs = OUTPUTS.clone().requires_grad_()
        loss = loss_of(prepared(name), outputs, TARGETS, MASK[:, None].expand(-1, T), WEIGHT[:, None])
        loss.backward()
        plain = loss_of(prepared(name), OUTPUTS, TARGETS)
        for rank, own in enumerate(RANKS):
            for found, expected in zip(ranks[rank][place], (loss, outputs.grad[own], plain), strict=True):
                torch.testing.assert_close(found, expected.detach(), rtol=1e-9, atol=1e-12, msg=f"{name} on {rank}")
