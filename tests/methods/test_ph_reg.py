"""PH-Reg against loops, its gradient, its edges."""

import math
import statistics

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step
from ordinal_entropy.methods.functional import ph_reg, rank_n_contrast, rot_reg, topology_and_dimension
from ordinal_entropy.methods.ph_reg import PHReg

GENERATOR = torch.Generator().manual_seed(0)
FEATURES = torch.randn(14, 4, dtype=torch.float64, generator=GENERATOR)
TARGETS = torch.randn(14, 2, dtype=torch.float64, generator=GENERATOR)
MASK = torch.arange(14) % 5 != 2


def kruskal(points):
    """Pairs of the minimum spanning tree."""
    component, found = list(range(len(points))), []
    pairs = ((math.dist(points[i], points[j]), i, j) for j in range(len(points)) for i in range(j))
    for _, i, j in sorted(pairs):
        if component[i] != component[j]:
            found.append((i, j))
            component = [component[j] if own == component[i] else own for own in component]
    return found


def total(points):
    return math.fsum(math.dist(points[i], points[j]) for i, j in kruskal(points))


def loop(features, targets, subsamples=9, smallest=0.5):
    """Both terms with Python's floats."""
    z, y = features.tolist(), targets.reshape(len(targets), -1).tolist()
    n = len(z)
    means = [statistics.mean(math.dist(a[i], a[j]) for i in range(n) for j in range(n) if i != j) for a in (z, y)]

    def difference(i, j):
        return math.dist(z[i], z[j]) / means[0] - math.dist(y[i], y[j]) / means[1]

    topology = sum(difference(*pair) ** 2 for points in (z, y) for pair in kruskal(points)) / (n - 1)
    sizes, ratios = [], []
    for k in range(subsamples):
        fraction = smallest + (1 - smallest) * k / (subsamples - 1)
        rows = [i for i in range(n) if i * (math.sqrt(5) - 1) / 2 % 1 < fraction]
        if len(rows) > 1:
            sizes.append(math.log(len(rows)))
            ratios.append(math.log(total([z[i] for i in rows]) / total([y[i] for i in rows])))
    return topology, abs(statistics.linear_regression(sizes, ratios).slope)


def step(features, targets, mask=None):
    return Step(Batch(None, targets, mask), features, None, None)


def term(features, targets, mask=None, **options):
    return PHReg(**options).term(step(features, targets, mask))


@pytest.mark.parametrize("n", [5, 14])
@pytest.mark.parametrize("targets", [TARGETS, TARGETS[:, 0]])
def test_equals_the_loop(n, targets):
    expected = loop(FEATURES[:n], targets[:n])
    found = topology_and_dimension(FEATURES[:n], targets[:n])
    assert [each.item() for each in found] == pytest.approx(expected, rel=1e-10)
    whole = 0.3 * expected[0] + 2.0 * expected[1]
    assert ph_reg(FEATURES[:n], targets[:n], 0.3, 2.0).item() == pytest.approx(whole, rel=1e-10)
    method = PHReg(0.3, 2.0, subsamples=4, smallest=0.4)
    other = loop(FEATURES[:n], targets[:n], 4, 0.4)
    assert method.term(step(FEATURES[:n], targets[:n])).item() == pytest.approx(0.3 * other[0] + 2.0 * other[1])
    assert [each.item() for each in method.terms(step(FEATURES[:n], targets[:n]))] == pytest.approx(other)
    assert method.term_weights() == {"topology": 0.3, "dimension": 2.0}


@pytest.mark.parametrize("targets", [TARGETS, TARGETS[:, 0]])
@pytest.mark.parametrize("mask", [None, MASK])
def test_gradient(targets, mask):
    features = FEATURES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda z: torch.stack(topology_and_dimension(z, targets, mask=mask)), features)


def test_neither_the_unit_of_the_targets_nor_the_scale_of_the_features_matters():
    expected = ph_reg(FEATURES, TARGETS)
    torch.testing.assert_close(ph_reg(FEATURES, 1e4 * TARGETS + 7), expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(ph_reg(1e-3 * FEATURES - 5, -TARGETS), expected, rtol=1e-9, atol=0)
    order = torch.randperm(14, generator=GENERATOR)
    topology = topology_and_dimension(FEATURES[order], TARGETS[order])[0]
    torch.testing.assert_close(topology, topology_and_dimension(FEATURES, TARGETS)[0], rtol=1e-12, atol=0)


def test_features_that_are_the_targets_turned_have_no_loss():
    turned = TARGETS @ torch.linalg.qr(FEATURES[:4, :2].T).Q @ torch.eye(2, 5, dtype=torch.float64)
    assert all(each < 1e-12 for each in topology_and_dimension(3 * turned, TARGETS))


def test_the_dimension_term_is_the_difference_of_one_minus_one_over_the_dimension():
    """The spanning tree of points in d dimensions grows with n^(1 - 1/d): 1/2 and 2/3, against 0 of a line."""
    targets = torch.rand(600, generator=torch.Generator().manual_seed(1))
    for d, tolerance in ((1, 0.01), (2, 0.05), (3, 0.05)):
        points = torch.rand(600, d, generator=torch.Generator().manual_seed(2))
        slope = topology_and_dimension(points, targets, subsamples=4, smallest=0.2)[1]
        assert slope.item() == pytest.approx(1 - 1 / d, abs=tolerance)


def test_descent_brings_features_to_the_order_of_their_targets():
    features, targets = FEATURES.clone().requires_grad_(), TARGETS[:, 0]
    before = term(features, targets)
    optimizer = torch.optim.Adam([features], lr=0.2)
    for _ in range(10):
        optimizer.zero_grad()
        term(features, targets).backward()
        optimizer.step()
    assert term(features, targets) < 0.6 * before


def test_rows_outside_the_mask_leave_no_trace():
    features, targets = FEATURES.clone(), TARGETS.clone()
    features[~MASK], targets[~MASK] = math.nan, math.nan
    features.requires_grad_()
    loss = term(features, targets, MASK[:, None].expand(14, 2))
    assert loss.item() == pytest.approx(term(FEATURES[MASK], TARGETS[MASK]).item(), rel=1e-12)
    loss.backward()
    assert features.grad.isfinite().all() and (features.grad[~MASK] == 0).all() and features.grad.abs().max() > 0


def test_groups_are_averaged():
    features, targets = torch.stack([FEATURES, FEATURES.flip(0)]), torch.stack([TARGETS, 3 * TARGETS])
    mask = torch.stack([MASK, ~MASK])
    parts = [term(*each) for each in zip(features, targets, mask[..., None].expand(2, 14, 2), strict=True)]
    found = term(features, targets, mask[..., None].expand(2, 14, 2))
    assert found.item() == pytest.approx(statistics.mean(each.item() for each in parts), rel=1e-12)


@pytest.mark.parametrize(
    ("features", "targets", "expected"),
    [
        (FEATURES[:0], TARGETS[:0], 0.0),
        (FEATURES[:1], TARGETS[:1], 0.0),
        (FEATURES[:2], TARGETS[:2], 0.0),  # one distance, which is its own mean; one size
        (FEATURES[:1].expand(4, 4), TARGETS[:4, 0], None),
        (FEATURES[:5], torch.ones(5, 1).double(), None),
        (torch.zeros(5, 4).double(), torch.ones(5, 1).double(), 0.0),
        (1e-9 * FEATURES, TARGETS, None),
        (1e9 * FEATURES, TARGETS, None),
    ],
)
def test_degenerate_batches_have_a_finite_gradient(features, targets, expected):
    features = features.clone().requires_grad_()
    loss = term(features, targets)
    loss.backward()
    assert features.grad is not None and features.grad.isfinite().all()
    assert (loss.item() > 0) if expected is None else (loss.item() == pytest.approx(expected, abs=1e-15))


def test_an_all_false_mask_is_a_zero_with_zero_gradient():
    features = FEATURES.clone().requires_grad_()
    loss = term(features, TARGETS, torch.zeros_like(TARGETS, dtype=torch.bool))
    loss.backward()
    assert loss == 0 and (features.grad == 0).all()


class Synchronisations(TorchDispatchMode):
    """Operators that wait for a device: those that read a value, or whose shape depends on one."""

    def __init__(self):
        super().__init__()
        self.found = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        waits = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape} & set(func.tags)
        self.found += [func] if waits else []
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("function", [ph_reg, rot_reg, rank_n_contrast])
@pytest.mark.parametrize("t", [1, 2])
def test_no_value_is_looked_at_on_the_host(function, t):
    features = FEATURES.clone().requires_grad_()
    with Synchronisations() as seen:
        function(features, TARGETS[:, :t], mask=MASK).backward()
    assert not seen.found and features.grad.abs().max() > 0
    with Synchronisations() as seen:
        FEATURES[MASK].sum().item()
    assert len(seen.found) == 2  # it does see what waits


def test_balanced_strengths_are_one_a_term():
    method = methods.create("ph-reg", balance=0.1)
    features = FEATURES.clone().requires_grad_()
    added = method.added(step(features, TARGETS), features.square().sum())
    assert added.requires_grad and set(method.scalars()) == {"topology_strength", "dimension_strength"}
    assert all(value > 0 for value in method.scalars().values())


def test_mistakes_are_named():
    for options, message in [
        ({"topology_weight": -1.0}, "topology_weight to be a number from 0 on, got -1"),
        ({"dimension_weight": math.nan}, "dimension_weight to be a number from 0 on, got nan"),
        ({"subsamples": 1}, "subsamples to be a whole number of at least 2, got 1"),
        ({"smallest": 1.0}, "smallest as a fraction of the rows between 0 and 1, got 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            PHReg(**options)
    with pytest.raises(ValueError, match=r"features \(n, d\) for ph-reg.*got \(2, 3, 4, 4\)"):
        term(torch.zeros(2, 3, 4, 4), torch.zeros(2, 1, 4, 4))


@pytest.mark.gpu
@pytest.mark.parametrize("function", [ph_reg, rot_reg, rank_n_contrast])
@pytest.mark.parametrize("t", [1, 2])
def test_a_cuda_graph_replays_what_a_cpu_computes(function, t):
    features, targets = FEATURES.cuda().requires_grad_(), TARGETS[:, :t].cuda()

    def once():
        value = function(features, targets)
        return value.detach(), torch.autograd.grad(value, features)[0]

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        once()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = once()
    other = FEATURES.flip(0).clone().requires_grad_()
    with torch.no_grad():
        features.copy_(other)
    graph.replay()
    expected = function(other, TARGETS[:, :t])
    expected.backward()
    torch.testing.assert_close(found[0].cpu(), expected.detach(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found[1].cpu(), other.grad, rtol=1e-7, atol=1e-9)
