"""Blocked against reference, both against loops; accuracy on collapsed features; memory; the random pairs."""

import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ordinal_entropy import kernels
from ordinal_entropy.functional import diversity
from ordinal_entropy.kernels import blocked, sampled
from ordinal_entropy.kernels import pairs as reference
from ordinal_entropy.kernels.unit import unit_rows
from ordinal_entropy.kernels.weights import extremes, smallest_gap


def problem(g=2, m=23, d=5, t=1, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(g, m, d, generator=generator, dtype=torch.float64)
    values = torch.rand(g, m, t, generator=generator, dtype=torch.float64)
    amount = torch.randint(0, 3, (g, m), generator=generator)
    return points.to(dtype), values.to(dtype), amount.to(dtype)


def loops(points, values, amount, low, power, distance):
    sums = []
    for k in range(len(points)):
        x, y, a = (z[k].tolist() for z in (points, values, amount))
        total = 0.0
        for i in range(len(x)):
            for j in range(i + 1, len(x)):
                weight = math.dist(y[i], y[j]) ** power - (0.0 if low is None else low[k].item())
                if distance == "l2":
                    gap = math.dist(x[i], x[j])
                else:
                    gap = 1 - np.dot(x[i], x[j]) / ((math.hypot(*x[i]) * math.hypot(*x[j])) or 1)
                total += a[i] * a[j] * weight * gap
        sums.append(total)
    return torch.tensor(sums, dtype=torch.float64)


@pytest.fixture(params=[4, 7, 640])
def size(request, monkeypatch):
    """Tiles of several sizes, so that small problems have many."""
    monkeypatch.setitem(blocked._SIZE, "cpu", request.param)
    return request.param


@pytest.mark.parametrize("t", [1, 3])
@pytest.mark.parametrize("power", [0.0, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("distance", ["l2", "cosine"])
def test_both_kernels_are_the_loops(size, t, power, distance):
    points, values, amount = problem(t=t)
    points[0, 3] = 0  # a zero row
    low = torch.tensor([0.1, 0.2], dtype=torch.float64)
    project = distance == "cosine"
    rows = unit_rows(points) if project else points
    for floor in (None, low):
        expected = loops(points, values, amount, floor, power, distance)
        torch.testing.assert_close(reference.pair_sums(rows, values, amount, floor, power, distance), expected)
        torch.testing.assert_close(blocked.pair_sums(points, values, amount, floor, power, distance, project), expected)


@pytest.mark.parametrize("project", [True, False])
@pytest.mark.parametrize("distance", ["l2", "cosine"])
def test_gradient_made_in_the_forward_pass_is_that_of_the_reference(size, distance, project):
    project = project or distance == "cosine"
    points, values, amount = problem()
    scale = torch.tensor([2.0, -3.0], dtype=torch.float64)
    x = points.clone().requires_grad_()
    rows = unit_rows(x) if project else x
    (scale * reference.pair_sums(rows, values, amount, None, 1.0, distance)).sum().backward()
    y = points.clone().requires_grad_()
    (scale * blocked.pair_sums(y, values, amount, None, 1.0, distance, project)).sum().backward()
    torch.testing.assert_close(y.grad, x.grad)


def test_tiles_cover_every_pair_once():
    for m in (1, 2, 5, 12, 13):
        for size in (1, 2, 4, 5, 20):
            seen = torch.zeros(m, m, dtype=torch.int64)
            for i, j in blocked.tiles(m, size):
                seen[i, j] += 1
            assert (seen.triu() == torch.ones(m, m).triu()).all(), (m, size)


def test_without_a_gradient_none_is_computed():
    points, values, amount = problem()
    assert blocked.sums_and_gradient(points, values, amount, None, 1.0, "l2", False, False)[1].numel() == 0
    with torch.no_grad():
        assert not blocked.pair_sums(points.requires_grad_(), values, amount, None, 1.0, "l2").requires_grad


def test_the_operator_is_registered_as_torch_wants_it():
    points, values, amount = problem(m=6)
    arguments = (points.requires_grad_(), values, amount, None, 1.0, "l2", True, True)
    torch.library.opcheck(blocked.operator, arguments)


def test_use_switches_and_restores():
    assert kernels.describe()["chosen"] == "auto"
    with kernels.use("blocked"):
        assert kernels.describe()["chosen"] == "blocked"
    assert kernels.describe()["chosen"] == "auto"
    with pytest.raises(ValueError, match="one of auto, reference, blocked, fused, got 'fast'"), kernels.use("fast"):
        pass


# --------------------------------------------------------------------------------------------------------- accuracy


def gradient(points, values, kernel):
    x = points.clone().requires_grad_()
    sums = kernel(x, values, torch.ones_like(values[..., 0]), None, 1.0, "l2")
    sums.sum().backward()
    return x.grad.double(), sums.double()


@pytest.mark.parametrize("clusters", [1, 2, 5])
@pytest.mark.parametrize("spread", [1.0, 1e-2, 1e-3, 1e-4, 1e-6])
def test_collapsed_points_keep_their_distances(spread, clusters):
    """float32 points around one or several places: value and gradient to 1e-4, whatever the spread.

    The bound of the module: no distance is off by more than 1e-4 of itself, because tiles with close pairs are done
    in float64. Plain products lose such pairs: at a spread of 1e-4 their gradient is noise.
    """
    generator = torch.Generator().manual_seed(0)
    places = torch.nn.functional.normalize(torch.randn(clusters, 32, generator=generator), dim=1)
    points = places[torch.arange(300) % clusters] + spread * torch.randn(300, 32, generator=generator) / 32**0.5
    values = torch.rand(300, 1, generator=generator)
    exact_gradient, exact_sums = gradient(points[None].double(), values[None].double(), reference.pair_sums)
    for kernel in (blocked.pair_sums, reference.pair_sums):
        found_gradient, found_sums = gradient(points[None], values[None], kernel)
        assert (found_sums - exact_sums).abs() / exact_sums < 1e-5
        assert (found_gradient - exact_gradient).norm() / exact_gradient.norm() < 1e-4


@pytest.mark.parametrize("project", [True, False])
@pytest.mark.parametrize("copies", [2, 40, 200])
def test_few_close_pairs_among_others(copies, project):
    """Neighbours of some rows, within tiles and across them; one is a copy, one has no weight."""
    generator = torch.Generator().manual_seed(0)
    points, values = torch.randn(1, 900, 24, generator=generator), torch.rand(1, 900, 1, generator=generator)
    noise = 0.04 * torch.randn(copies, 24, generator=generator) * 0.1 ** (torch.arange(copies) % 5)[:, None]
    points[0, 900 - copies :] = points[0, 4 * torch.arange(copies)] + noise
    points[0, 899] = points[0, 0]
    values[0, 899 - copies // 2] = values[0, 4 * (copies - copies // 2 - 1)]
    amount = torch.ones(1, 900)
    x, y = points.clone().requires_grad_(), points.double().requires_grad_()
    rows = y / y.norm(dim=-1, keepdim=True) if project else y
    expected = reference.pair_sums(rows, values.double(), amount.double(), None, 1.0, "l2")
    found = blocked.pair_sums(x, values, amount, None, 1.0, "l2", project)
    (found + expected).sum().backward()
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    own = (x.grad.double() - y.grad).norm(dim=-1) / y.grad.norm(dim=-1)  # of each row
    assert own.max() < 1e-4


@pytest.mark.parametrize("spread", [1e-2, 1e-3, 1e-4])
def test_collapsed_features_are_as_exact_as_their_float32_allows(spread):
    """The whole loss on features near one direction: normalising them in float32 costs about eps / spread."""
    generator = torch.Generator().manual_seed(0)
    features = 1 + spread * torch.randn(300, 32, generator=generator)
    targets = torch.rand(300, generator=generator)
    exact = features.double().requires_grad_()
    diversity(exact, targets).backward()
    for kernel in ("reference", "blocked"):
        x = features.clone().requires_grad_()
        with kernels.use(kernel):
            diversity(x, targets).backward()
        error = (x.grad.double() - exact.grad).norm() / exact.grad.norm()
        assert error < 20 * torch.finfo(torch.float32).eps / spread


@pytest.mark.parametrize("gap", [0.0, 0.001])
def test_weights_of_pairs_that_do_not_count_may_be_larger_by_any_factor(gap):
    features, amount = torch.randn(3, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([1.0, 1.0, 0.0])
    targets = torch.tensor([5.0, 5.0 + gap, 9.0])
    expected = diversity(features[:2], targets[:2], weighting="none", grouping="none") * (gap > 0)

    def steep(a, b):
        return 20 * (a - b.mT).clamp(min=0)  # of one order alone

    for kernel in ("reference", "blocked"):
        with kernels.use(kernel):
            found = diversity(features, targets, weighting=steep, grouping="none", sample_weight=amount)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("rescale", ["max", "authors"])
def test_the_weights_of_a_function_may_have_any_unit(rescale):
    generator = torch.Generator().manual_seed(0)
    features = 1e-15 * torch.randn(30, 4, generator=generator)
    targets = torch.rand(30, generator=generator)
    expected = None
    for unit in (1.0, 2.0**100, 2.0**-100):
        x = features.clone().requires_grad_()
        with kernels.use("blocked"):
            diversity(x, unit * targets, weighting=lambda a, b: (a - b.mT).abs(), rescale=rescale).backward()
        expected = x.grad if expected is None else expected
        torch.testing.assert_close(x.grad, expected)


# ----------------------------------------------------------------------------------------------------------- memory


class Largest(TorchDispatchMode):
    """The number of elements of the largest tensor that any operation returns."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        answer = function(*args, **(kwargs or {}))
        for x in answer if isinstance(answer, (tuple, list)) else [answer]:
            if isinstance(x, torch.Tensor):
                self.elements = max(self.elements, x.untyped_storage().nbytes() // x.element_size())
        return answer


@pytest.mark.parametrize("weighting", ["l2", "squared", lambda a, b: (a[:, None] - b).abs().sum(-1)])
@pytest.mark.parametrize("t", [1, 2])
def test_no_m_by_m_matrix(weighting, t, monkeypatch):
    monkeypatch.setitem(blocked._SIZE, "cpu", 64)
    monkeypatch.setattr("ordinal_entropy.kernels.weights._BLOCK", 64)
    m, d = 700, 8
    x = torch.randn(m, d, generator=torch.Generator().manual_seed(0), requires_grad=True)
    y = torch.rand(m, t, generator=torch.Generator().manual_seed(1))
    with Largest() as largest, kernels.use("blocked"):
        diversity(x, y, weighting=weighting, rescale="authors").backward()
    assert largest.elements <= max(3 * 64**2, m * d)
    with Largest() as largest, kernels.use("reference"):
        diversity(x, y).backward()
    assert largest.elements >= m * m  # the measure does see such a matrix


def test_random_pairs_take_memory_for_the_pairs_alone():
    m, k, d = 5000, 200, 4
    x = torch.randn(m, d, generator=torch.Generator().manual_seed(0), requires_grad=True)
    with Largest() as largest:
        diversity(x, torch.arange(float(m)), num_pairs=k).backward()
    assert largest.elements <= m * d


# --------------------------------------------------------------------------------------------------------- extremes


@pytest.mark.parametrize("t", [1, 3])
def test_extremes_over_all_pairs(t, monkeypatch):
    monkeypatch.setattr("ordinal_entropy.kernels.weights._BLOCK", 4)
    _, values, amount = problem(g=1, m=13, t=t)
    amount = (amount > 0).double()
    there = values[0][amount[0] > 0]
    pairs = torch.pdist(there)
    low, high = extremes(values, amount, 1.0)
    torch.testing.assert_close(low[0], pairs.min())
    torch.testing.assert_close(high[0], pairs.max())
    if t == 1:
        torch.testing.assert_close(smallest_gap(values, amount)[0], pairs.min())


def test_extremes_of_no_pair():
    nothing = torch.zeros(1, 3, 1), torch.tensor([[0.0, 1.0, 0.0]])
    assert [x.item() for x in extremes(*nothing, 1.0)] == [0, 0]
    assert smallest_gap(*nothing).item() == 0


# ----------------------------------------------------------------------------------------------------- random pairs


@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("rescale", ["max", "authors", "none"])
@pytest.mark.parametrize("fractional", [False, True])
def test_random_pairs_are_unbiased(t, rescale, fractional):
    """The mean over very many pairs is the sum over all, weights and masked rows included."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(12, 3, dtype=torch.float64, generator=generator)
    y = torch.rand(12, t, dtype=torch.float64, generator=generator)
    weight = torch.rand(12, generator=generator) * 3 if fractional else torch.randint(0, 3, (12,), generator=generator)
    options = {"grouping": "none", "rescale": rescale, "sample_weight": weight}
    exact = x.clone().requires_grad_()
    expected = diversity(exact, y, **options)
    expected.backward()
    drawn = x.clone().requires_grad_()
    value = diversity(drawn, y, num_pairs=400_000, generator=generator, **options)
    value.backward()
    assert value.item() == pytest.approx(expected.item(), rel=0.01)
    assert (drawn.grad - exact.grad).norm() / exact.grad.norm() < 0.02


@pytest.mark.slow
def test_extremes_of_the_drawn_pairs_would_be_biased():
    """With one pair a draw, dividing by the largest drawn weight leaves no weight at all: the mean distance."""
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    y = torch.rand(30, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(2)
    mean = torch.stack([diversity(x, y, num_pairs=1, generator=generator) for _ in range(3000)]).mean()
    assert mean.item() == pytest.approx(diversity(x, y).item(), rel=0.05)
    assert diversity(x, y, weighting="none").item() > 2 * mean.item()


def variances(k, m=200, draws=400):
    """Variance of value and gradient of k random rows with all their k (k - 1) / 2 pairs, and of as many random pairs.

    Both are unbiased estimates of one number: raw weights, distinct targets.
    """
    generator = torch.Generator().manual_seed(0)
    targets = torch.rand(m, generator=generator, dtype=torch.float64)
    direction = torch.randn(2, 8, generator=generator, dtype=torch.float64)
    features = torch.stack([targets, 1 - targets], 1) @ direction
    features = features + 0.5 * torch.randn(m, 8, generator=generator, dtype=torch.float64)
    found = []
    for option in ({"max_samples": k}, {"num_pairs": k * (k - 1) // 2}):
        values, gradients = [], []
        for _ in range(draws):
            x = features.clone().requires_grad_()
            value = diversity(x, targets, rescale="none", generator=generator, **option)
            value.backward()
            values.append(value.detach())
            gradients.append(x.grad)
        found += [torch.stack(values).var().item(), torch.stack(gradients).var(0).sum().item()]
    return found  # value and gradient of rows, value and gradient of pairs


@pytest.mark.slow
@pytest.mark.parametrize("k", [8, 20, 50])
def test_random_pairs_vary_less_than_the_pairs_of_random_rows(k):
    """For k well below m, at the same number of pairs: pairs that share a row say less."""
    row_value, row_gradient, pair_value, pair_gradient = variances(k)
    assert pair_value < 0.9 * row_value
    assert pair_gradient < 0.9 * row_gradient


@pytest.mark.slow
def test_two_rows_have_one_pair_and_vary_like_one_random_pair():
    row_value, row_gradient, pair_value, pair_gradient = variances(2, draws=2000)
    assert pair_value == pytest.approx(row_value, rel=0.2)
    assert pair_gradient == pytest.approx(row_gradient, rel=0.2)


def test_random_rows_win_where_k_is_near_m():
    """All rows have all the pairs, and nothing varies: docs/kernels.md states where the order turns."""
    row_value, row_gradient, pair_value, pair_gradient = variances(198, draws=50)
    assert row_value < pair_value
    assert row_gradient < pair_gradient


def test_a_single_point_has_no_pair_to_draw():
    x = torch.ones(1, 1, 3, requires_grad=True)
    sums = sampled.pair_sums(x, torch.zeros(1, 1, 1), torch.ones(1, 1), None, 1.0, "l2", True, 5)
    assert sums.item() == 0
    sums.sum().backward()
    assert (x.grad == 0).all()
