"""Label distribution smoothing: weights against a loop, their scale, edges."""

import copy
import math
import pickle

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch
from ordinal_entropy.methods.density import joint_density
from ordinal_entropy.methods.functional import density_weights
from ordinal_entropy.methods.lds import LDS

TARGETS = torch.randn(60, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).exp()


def loop(targets, bandwidth, power, clip, ends=2000):
    """The density of each target without a grid: a sum of Gaussians, over what even targets would give there."""
    values = targets.tolist()
    low, high = min(values), max(values)
    sigma = bandwidth * (high - low)
    grid = [low + (k + 0.5) / ends * (high - low) for k in range(ends)]
    density = []
    for y in values:
        own = sum(math.exp(-(((y - other) / sigma) ** 2) / 2) for other in values)
        even = sum(math.exp(-(((y - other) / sigma) ** 2) / 2) for other in grid)
        density.append(own / even)
    weights = [each**-power for each in density]
    mean = sum(weights) / len(weights)
    weights = [min(max(each / mean, 1 / clip), clip) for each in weights]
    mean = sum(weights) / len(weights)
    return [each / mean for each in weights]


def prepared(targets=TARGETS[:, None], **options):
    method = LDS(**options)
    method.prepare(targets)
    return method


@pytest.mark.parametrize("bandwidth", [0.02, 0.2])
@pytest.mark.parametrize("power", [0.5, 1.0])
@pytest.mark.parametrize("clip", [1.5, 1e9])
def test_weights_equal_a_loop_over_all_pairs(bandwidth, power, clip):
    found = density_weights(TARGETS, bandwidth=bandwidth, power=power, clip=clip)
    expected = torch.tensor(loop(TARGETS, bandwidth, power, clip), dtype=torch.float64)
    assert torch.allclose(found, expected, rtol=0.02)  # of the grid, ten points a bandwidth
    assert found.mean().item() == pytest.approx(1.0, abs=1e-12)


def test_even_targets_weigh_the_same_up_to_both_ends():
    weights = density_weights(torch.linspace(0, 1, 1001).double(), bandwidth=0.05)
    assert (weights - 1).abs().max() < 0.02


def test_rare_targets_weigh_more():
    targets = torch.cat([torch.linspace(0, 1, 90), torch.linspace(5, 6, 10)]).double()
    weights = density_weights(targets, bandwidth=0.05, power=1.0)
    assert weights[90:].mean() / weights[:90].mean() == pytest.approx(9.0, rel=0.1)
    roots = density_weights(targets, bandwidth=0.05, power=0.5)
    assert roots[90:].mean() / roots[:90].mean() == pytest.approx(3.0, rel=0.05)


def test_the_unit_and_the_order_of_the_targets_do_not_matter():
    own = density_weights(TARGETS)
    assert torch.allclose(density_weights(1000 * TARGETS - 7), own, rtol=1e-9)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(2))
    assert torch.allclose(density_weights(TARGETS[order]), own[order], rtol=1e-9)
    assert torch.allclose(density_weights(-TARGETS), own, rtol=1e-9)


def test_weights_are_clipped_where_no_target_is():
    targets = torch.cat([torch.zeros(50), torch.ones(50)]).double()
    between = density_weights(targets, torch.tensor([0.0, 0.5, 1.0, -9.0, 9.0]).double(), clip=4.0)
    assert between.tolist() == pytest.approx([1.0, 4.0, 1.0, 1.0, 1.0])


def joint_loop(targets, bandwidth, power, clip):
    """Several numbers together: a sum of Gaussians over what it is inside the box."""
    rows = ((targets - targets.amin(0)) / (targets.amax(0) - targets.amin(0))).tolist()
    t = len(rows[0])
    h = bandwidth ** (1 / t)
    inside = lambda x: (math.erf((1 - x) / h / math.sqrt(2)) + math.erf(x / h / math.sqrt(2))) / 2  # noqa: E731
    density = [
        sum(math.exp(-((math.dist(a, b) / h) ** 2) / 2) for b in rows) / math.prod(inside(x) for x in a) for a in rows
    ]
    weights = [each**-power for each in density]
    mean = sum(weights) / len(weights)
    weights = [min(max(each / mean, 1 / clip), clip) for each in weights]
    mean = sum(weights) / len(weights)
    return [each / mean for each in weights]


BOTH = torch.stack([TARGETS, 40 * TARGETS.flip(0).square()], 1)


@pytest.mark.parametrize("t", [2, 3])
@pytest.mark.parametrize(("bandwidth", "power", "clip"), [(0.02, 0.5, 10.0), (0.001, 1.0, 2.0)])
def test_several_numbers_weigh_by_their_joint_density(t, bandwidth, power, clip):
    targets = torch.cat([BOTH, TARGETS.sin()[:, None]], 1)[:, :t]
    found = density_weights(targets, bandwidth=bandwidth, power=power, clip=clip)
    assert found.tolist() == pytest.approx(joint_loop(targets, bandwidth, power, clip), rel=1e-9)
    assert found.mean().item() == pytest.approx(1.0, abs=1e-12)
    with pytest.raises(ValueError, match=rf"{t} numbers a row, like the targets, got \(60,\)"):
        density_weights(targets, TARGETS)


def test_a_rare_pair_of_frequent_numbers_weighs_more():
    noise = 0.01 * torch.randn(100, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    corners = torch.tensor([[0.0, 0.0], [1.0, 1.0]]).double().repeat(50, 1)
    corners[0] = torch.tensor([0.0, 1.0])  # each of which half of the rows have
    weights = density_weights(corners + noise, bandwidth=0.01, power=1.0, clip=100.0)
    assert weights[0] / weights[1:].mean() == pytest.approx(50.0, rel=0.1)


def test_even_rows_weigh_the_same_up_to_the_corners():
    side = torch.linspace(0, 1, 31).double()
    assert (density_weights(torch.cartesian_prod(side, side), bandwidth=0.01) - 1).abs().max() < 0.1


def test_many_rows_are_thinned_evenly():
    targets = torch.rand(2500, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(4)).square()
    order = torch.randperm(2500, generator=torch.Generator().manual_seed(5))
    method = prepared(targets)
    assert method.table.shape == (2, 2000)
    assert torch.equal(method.table, prepared(targets[order]).table)
    assert method.change(Batch(None, targets)).weight.mean().item() == pytest.approx(1.0, abs=0.02)


@pytest.mark.slow
def test_the_joint_density_is_that_of_scikit_learn():
    neighbors = pytest.importorskip("sklearn.neighbors")
    rows = (BOTH - BOTH.amin(0)) / (BOTH.amax(0) - BOTH.amin(0))
    places = torch.rand(20, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(6))
    estimate = neighbors.KernelDensity(bandwidth=0.02**0.5, rtol=1e-12).fit(rows.numpy())
    inside = (torch.special.ndtr((1 - places) / 0.02**0.5) - torch.special.ndtr(-places / 0.02**0.5)).prod(1)
    expected = torch.from_numpy(estimate.score_samples(places.numpy())).exp() / inside
    assert torch.allclose(joint_density(places, rows, 0.02), expected, rtol=1e-9)


@pytest.mark.parametrize("targets", [torch.zeros(1), torch.full((7,), 3.0), torch.full((7,), 1e20)])
def test_one_distinct_target_weighs_1(targets):
    assert density_weights(targets).tolist() == pytest.approx([1.0] * len(targets))


def test_the_weight_has_a_shape_that_fits_the_targets():
    weights = density_weights(TARGETS)
    for shape in [(60,), (60, 1), (6, 10, 1), (6, 1, 2, 5), (6, 2, 5)]:
        targets = TARGETS.reshape(shape)
        found = prepared().change(Batch(None, targets)).weight
        assert found.shape == targets.shape and torch.allclose(found.flatten(), weights)
    both = torch.stack([TARGETS, TARGETS.square()], 1)
    method, expected = prepared(both), density_weights(both)
    assert torch.allclose(method.change(Batch(None, both)).weight, expected[:, None])
    maps = both.T.reshape(2, 6, 2, 5).transpose(0, 1)
    found = method.change(Batch(None, maps)).weight
    assert found.shape == (6, 1, 2, 5) and torch.allclose(found.flatten(), expected)


def test_a_batch_that_has_a_weight_keeps_it_as_a_factor():
    own = torch.arange(60.0).double()[:, None]
    batch = Batch("inputs", TARGETS[:, None], TARGETS[:, None] > 1, own, own[:, 0])
    found = prepared().change(batch)
    assert torch.allclose(found.weight, own * prepared().change(batch._replace(weight=None)).weight)
    assert found._replace(weight=own) == batch  # and nothing else changes


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows(rows):
    assert prepared().change(Batch(None, TARGETS[:rows, None])).weight.shape == (rows, 1)


def test_what_lies_outside_the_mask_weighs_some_finite_number():
    targets = torch.tensor([[1.0], [math.nan], [math.inf], [-math.inf]]).double()
    mask = torch.tensor([[True], [False], [False], [False]])
    found = prepared().change(Batch(None, targets, mask)).weight
    assert found.isfinite().all() and found[0] == prepared().change(Batch(None, targets[:1])).weight


@pytest.mark.parametrize(
    ("dtype", "tolerance", "becomes"),
    [
        (torch.float64, 1e-12, torch.float64),
        (torch.float32, 1e-4, torch.float32),
        (torch.bfloat16, 0.1, torch.float32),
    ],
)
def test_types(dtype, tolerance, becomes):
    found = prepared().change(Batch(None, TARGETS[:, None].to(dtype))).weight
    assert found.dtype == becomes
    assert torch.allclose(found[:, 0].double(), density_weights(TARGETS), rtol=tolerance, atol=tolerance)
    assert density_weights((10 * TARGETS).to(dtype)).dtype == becomes
    whole = TARGETS.round()[:, None]
    assert torch.equal(
        prepared().change(Batch(None, whole.long())).weight, prepared().change(Batch(None, whole)).weight.float()
    )


def test_the_density_is_state_and_a_fresh_method_takes_it_as_it_was():
    method = methods.create("lds", bandwidth=0.1)
    method.prepare(TARGETS[:, None])
    fresh = methods.create("lds", bandwidth=0.1)
    fresh.load_state_dict(method.state_dict())
    batch = Batch(None, TARGETS[:, None])
    for twin in (fresh, copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert torch.equal(twin.change(batch).weight, method.change(batch).weight)


def test_mistakes_are_named():
    for options, message in [
        ({"bandwidth": 0.0}, "bandwidth as a fraction of the range from 0.0001 to 1, got 0"),
        ({"power": 0.0}, "power to be a positive number"),
        ({"clip": 0.5}, "clip to be a factor of at least 1, got 0.5"),
    ]:
        with pytest.raises(ValueError, match=message):
            LDS(**options)
    with pytest.raises(ValueError, match=r"prepare\(targets\) before the first step"):
        LDS().change(Batch(None, TARGETS))
    with pytest.raises(ValueError, match=r"finite training targets, at least one, got \(0, 1\)"):
        LDS().prepare(torch.zeros(0, 1))
    with pytest.raises(ValueError, match="finite training targets"):
        LDS().prepare(torch.tensor([[math.nan]]))
    with pytest.raises(ValueError, match=r"targets of 2 numbers, as those of training, got \(60, 1\)"):
        prepared(torch.rand(60, 2)).change(Batch(None, TARGETS[:, None]))
