"""Dist Loss: the distribution of the targets, and the distance of the predictions to it."""

import pytest
import torch

from ordinal_entropy.methods import create
from ordinal_entropy.methods.dist_loss import quantiles_at
from ordinal_entropy.methods.functional import dist_loss, distribution_of

TARGETS = torch.randn(300, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).exp()
PREDICTIONS = torch.randn(40, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).exp()


def test_the_distance_is_that_of_sorted_predictions():
    distribution = distribution_of(TARGETS, 0.01)
    quantiles = quantiles_at((torch.arange(40).double()[:, None] + 0.5) / 40, distribution)[:, 0]
    expected = (PREDICTIONS.sort().values - quantiles).abs().mean()
    assert dist_loss(PREDICTIONS, PREDICTIONS, distribution).item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.slow
def test_that_is_the_wasserstein_distance():
    stats = pytest.importorskip("scipy.stats")
    distribution = distribution_of(TARGETS, 0.01)
    quantiles = quantiles_at((torch.arange(40).double()[:, None] + 0.5) / 40, distribution)[:, 0]
    expected = stats.wasserstein_distance(PREDICTIONS.numpy(), quantiles.numpy())
    assert dist_loss(PREDICTIONS, PREDICTIONS, distribution).item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_level_between_two_values_has_the_lower_one_in_every_precision(dtype):
    targets = torch.arange(10).repeat_interleave(20)  # a tenth of the rows have each
    distribution = [each.to(dtype) for each in distribution_of(targets, 0.005)]
    levels = torch.arange(1, 10, dtype=dtype)[:, None] / 10
    found = quantiles_at(levels, type(distribution_of(targets, 0.1))(*distribution))[:, 0]
    assert (found - torch.arange(9)).abs().max() < 0.3


def test_quantiles_of_a_narrow_kernel_are_those_of_the_targets():
    levels = torch.linspace(0.02, 0.9, 25).double()
    found = quantiles_at(levels[:, None], distribution_of(TARGETS, 1e-3))[:, 0]
    assert (found - TARGETS.quantile(levels)).abs().max() < 0.05


def test_equal_targets_keep_their_share_at_the_ends_of_the_range():
    targets = torch.cat([torch.zeros(60), torch.ones(40)]).double()
    found = quantiles_at(torch.tensor([[0.01], [0.58], [0.62], [0.99]]).double(), distribution_of(targets, 0.005))
    assert found[:, 0].tolist() == pytest.approx([0.0, 0.0, 1.0, 1.0], abs=0.02)


def test_one_distinct_target_is_every_quantile():
    distribution = distribution_of(torch.full((5, 1), 3.0), 0.005)
    assert quantiles_at(torch.tensor([[0.0], [0.3], [1.0]]).double(), distribution)[:, 0].tolist() == [3.0] * 3
    assert dist_loss(torch.tensor([1.0, 5.0]), torch.tensor([3.0, 3.0]), distribution) == 4.0


def test_equal_predictions_are_ranked_in_their_order_and_part():
    p = torch.full((4,), 1.0, dtype=torch.float64, requires_grad=True)
    dist_loss(p, torch.ones(4).double(), distribution_of(torch.linspace(0, 2, 50), 0.01)).backward()
    assert p.grad.sign().tolist() == [1, 1, -1, -1]


def test_mistakes_are_named():
    for options, message in (
        ({"distance_weight": -1.0}, "distance_weight to be a number from 0 on, got -1"),
        ({"bandwidth": 0.0}, "bandwidth as a fraction of the range from 0.0001 to 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            create("dist-loss", **options)
    with pytest.raises(ValueError, match=r"prepare\(targets\) before the first step"):
        create("dist-loss")(torch.zeros(2, 3), torch.zeros(2), None, torch.zeros(2, 1))
