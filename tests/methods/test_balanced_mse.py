"""Balanced MSE and the mixture that it takes: limits, one against the other, the noise that is learned."""

import math

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step
from ordinal_entropy.methods.functional import balanced_mse, balanced_mse_gai, fit_mixture
from ordinal_entropy.methods.mixture import Mixture, log_densities


def seeded(seed):
    return torch.Generator().manual_seed(seed)


TARGETS = torch.randn(9, 2, dtype=torch.float64, generator=seeded(0))
PREDICTIONS = TARGETS + torch.randn(9, 2, dtype=torch.float64, generator=seeded(1))
NORMAL = Mixture(*(each.double() for each in (torch.ones(1), torch.zeros(1, 1), torch.ones(1, 1, 1))))


def test_a_single_row_has_the_squared_error():
    squared = (PREDICTIONS - TARGETS).square().sum(1)
    assert balanced_mse(PREDICTIONS[:1], TARGETS[:1], 0.7).item() == pytest.approx(squared[0].item())
    one = torch.arange(9) == 3
    assert balanced_mse(PREDICTIONS, TARGETS, 0.7, mask=one).item() == pytest.approx(squared[3].item())
    groups = balanced_mse(PREDICTIONS[:, None], TARGETS[:, None], 0.7, weight=torch.arange(9.0)[:, None])
    assert groups.item() == pytest.approx((squared * torch.arange(9)).mean().item())


def test_a_small_noise_leaves_what_lies_nearer_to_other_targets():
    squares = torch.cdist(PREDICTIONS, TARGETS).square()
    expected = (squares.diagonal() - squares.amin(1)).mean()
    assert expected > 0.1 and balanced_mse(PREDICTIONS, TARGETS, 1e-3).item() == pytest.approx(expected.item())


def test_a_noise_of_each_number_measures_it_in_its_own_unit():
    unit = torch.tensor([1.0, 50.0]).double()
    own = balanced_mse(PREDICTIONS, TARGETS, torch.ones(2).double())
    other = balanced_mse(PREDICTIONS * unit, TARGETS * unit, unit)
    assert other.item() == pytest.approx(own.item() * (1 + 2500) / 2)
    assert own.item() == pytest.approx(balanced_mse(PREDICTIONS, TARGETS, 1.0).item())


def test_the_batch_stands_for_the_integral():
    """Of many targets, the mean over the batch is what the mixture has in closed form."""
    y = torch.randn(1000, 1, dtype=torch.float64, generator=seeded(2))
    p = torch.linspace(-1.5, 1.5, 1000)[:, None].double()
    noise = 0.8
    sampled = balanced_mse(p, y, noise) - 2 * noise**2 * math.log(1000)
    assert sampled.item() == pytest.approx(balanced_mse_gai(p, y, noise, NORMAL).item(), abs=0.03)


def test_a_noise_stretches_the_best_predictions_of_normal_targets():
    y = TARGETS[:, 0]
    p = ((1 + 0.7**2) * y).requires_grad_()
    (gradient,) = torch.autograd.grad(balanced_mse_gai(p, y, 0.7, NORMAL), p)
    assert torch.allclose(gradient, torch.zeros(9).double(), atol=1e-12)


def test_rare_targets_pull_more():
    """In one step from predictions in the middle, by the gradient: of mean squared errors both pull alike."""
    y = torch.tensor([[0.0]] * 9 + [[4.0]]).double()
    p = torch.full((10, 1), 2.0, dtype=torch.float64, requires_grad=True)
    for value in (
        balanced_mse(p, y, 1.5),
        balanced_mse_gai(p, y, 1.5, fit_mixture(y, 2)),
    ):
        (gradient,) = torch.autograd.grad(value, p)
        assert gradient[-1].abs() > 3 * gradient[0].abs() and gradient[-1] < 0


@pytest.mark.parametrize("name", ["balanced-mse", "balanced-mse-gai"])
def test_the_noise_is_learned_or_stays(name):
    method = methods.create(name, noise=0.5)
    fixed = methods.create(name, noise=0.5, learned=False)
    assert [key for key, _ in method.named_parameters()] == [f"parts.{name}.log_noise"]
    assert list(fixed.parameters()) == [] and "parameters" not in fixed.requirements()
    found = []
    for own in (method, fixed):
        own.prepare(TARGETS)
        found.append(own.task_loss(Step(Batch(None, TARGETS), torch.zeros(1), PREDICTIONS, None)))
    assert found[0] == found[1]
    found[0].backward()
    parameter = method.parts[name].log_noise
    assert parameter.grad.isfinite() and parameter.grad != 0
    assert method.scalars()["noise"].item() == pytest.approx(0.5)


@pytest.mark.parametrize("name", ["balanced-mse", "balanced-mse-gai"])
def test_the_noise_is_drawn_to_the_standard_deviation_of_the_errors(name):
    y = torch.randn(300, 1, dtype=torch.float64, generator=seeded(3))
    p = y + 0.3 * torch.randn(300, 1, dtype=torch.float64, generator=seeded(4))
    slopes = []
    for noise in (0.2, 0.4):
        method = methods.create(name, noise=noise)
        method.prepare(y)
        method.task_loss(Step(Batch(None, y), torch.zeros(1), p, None)).backward()
        slopes.append(method.parts[name].log_noise.grad.item())
    assert slopes[0] < 0 < slopes[1]


def test_densities_equal_those_of_torch():
    mixture = fit_mixture(torch.cat([TARGETS, PREDICTIONS + 5]), 3)
    normal = torch.distributions.MultivariateNormal(mixture.means, mixture.covariances)
    expected = normal.log_prob(TARGETS[:, None]).T + mixture.shares.log()[:, None]
    assert torch.allclose(log_densities(TARGETS, mixture), expected, rtol=1e-10)


def test_a_mixture_finds_separate_groups_in_any_order():
    parts = [torch.randn(k, 2, dtype=torch.float64, generator=seeded(k)) + 20 * i for i, k in enumerate((30, 60, 10))]
    rows = torch.cat(parts)
    found = fit_mixture(rows, 3)
    assert found.shares.tolist() == pytest.approx([0.3, 0.6, 0.1])
    for k, part in enumerate(parts):
        assert torch.allclose(found.means[k], part.mean(0), rtol=1e-6)
        assert torch.allclose(found.covariances[k], part.T.cov(correction=0), atol=1e-3)
    order = torch.randperm(100, generator=seeded(7))
    for one, two in zip(found, fit_mixture(rows[order], 3), strict=True):
        assert torch.allclose(one, two, atol=1e-9)
    shifted = fit_mixture(1000 * rows - 7, 3)
    assert torch.allclose(shifted.means, 1000 * found.means - 7)
    assert torch.allclose(shifted.covariances, 1e6 * found.covariances)


def test_a_mixture_of_fewer_rows_or_values_than_components():
    for rows in (torch.zeros(1, 1), torch.full((50, 2), 3.0), torch.tensor([[1.0]] * 40 + [[2.0]])):
        found = fit_mixture(rows, 8)
        assert all(each.isfinite().all() for each in found)
        assert found.shares.sum().item() == pytest.approx(1.0) and found.means.shape == (8, rows.shape[1])
        assert log_densities(rows.double(), found).logsumexp(0).isfinite().all()


@pytest.mark.slow
def test_a_mixture_is_as_likely_as_that_of_scikit_learn():
    sklearn = pytest.importorskip("sklearn.mixture")
    generator = seeded(5)
    for rows in (
        torch.rand(1000, 1, dtype=torch.float64, generator=generator).log().neg(),
        torch.randn(1000, 2, dtype=torch.float64, generator=generator).cumsum(1).exp(),
    ):
        other = sklearn.GaussianMixture(6, n_init=3, random_state=0, max_iter=300).fit(rows.numpy())
        found = log_densities(rows, fit_mixture(rows, 6)).logsumexp(0).mean().item()
        assert found > other.score(rows.numpy()) - 0.05


def test_mistakes_are_named():
    for options, message in (
        ({"noise": 0.0}, "noise to be a positive number of standard deviations, got 0"),
        ({"components": 0}, "components to be a whole number of at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=message):
            methods.create("balanced-mse-gai", **options)
    with pytest.raises(ValueError, match=r"prepare\(targets\) before the first step"):
        methods.create("balanced-mse-gai").task_loss(Step(Batch(None, TARGETS), torch.zeros(1), PREDICTIONS, None))
    with pytest.raises(ValueError, match=r"predictions and targets of one shape, .* got \(9, 2\) and \(9,\)"):
        balanced_mse(PREDICTIONS, TARGETS[:, 0], 1.0)
