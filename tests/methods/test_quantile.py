"""Quantile regression: the pinball loss against a loop, medians and intervals, edges."""

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step
from ordinal_entropy.methods.functional import pinball
from ordinal_entropy.methods.quantile import Quantile
from ordinal_entropy.tasks import option_value

LEVELS = (0.2, 0.5, 0.95)
OUTPUTS = torch.randn(6, 2, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
WEIGHT = torch.tensor([0.5, 9.0, 2.0, 1.0, 7.0, 0.0]).double()
MASK = torch.tensor([1, 0, 1, 1, 0, 1]).bool()


def loop(rows):
    total = 0.0
    for i in rows:
        for j in range(2):
            for k, level in enumerate(LEVELS):
                error = float(TARGETS[i, j] - OUTPUTS[i, j, k])
                total += float(WEIGHT[i]) * (level * error if error > 0 else (level - 1) * error) / 6
    return total / len(rows)


def loss_of(outputs, targets, mask=None, weight=None):
    step = Step(Batch(None, targets, mask, weight), torch.zeros(1), outputs, None)
    return Quantile(LEVELS).task_loss(step)


def test_equals_a_loop():
    found = loss_of(OUTPUTS.flatten(1), TARGETS, None, WEIGHT[:, None])
    assert found.item() == pytest.approx(loop(range(6)), rel=1e-12)
    outputs, targets = OUTPUTS.flatten(1).clone(), TARGETS.clone()
    outputs[~MASK], targets[~MASK] = torch.nan, torch.nan
    found = loss_of(outputs.requires_grad_(), targets, MASK, WEIGHT[:, None])
    assert found.item() == pytest.approx(loop([0, 2, 3, 5]), rel=1e-12)
    found.backward()
    assert outputs.grad.isfinite().all()
    direct = pinball(OUTPUTS.masked_fill(~MASK[:, None, None], torch.nan), targets, LEVELS, mask=MASK, weight=WEIGHT)
    assert direct.item() == pytest.approx(found.item(), rel=1e-12)


def test_maps_and_points_equal_rows():
    rows = loss_of(OUTPUTS.flatten(1), TARGETS, None, WEIGHT[:, None])
    outputs, targets, weight = (each.T.reshape(1, -1, 2, 3) for each in (OUTPUTS.flatten(1), TARGETS, WEIGHT[:, None]))
    assert loss_of(outputs, targets, None, weight).item() == pytest.approx(rows.item(), rel=1e-12)
    points = loss_of(OUTPUTS.flatten(1)[None], TARGETS[None], None, WEIGHT[None, :, None])
    assert points.item() == pytest.approx(rows.item(), rel=1e-12)
    method = Quantile(LEVELS)
    assert torch.equal(method.decode(outputs).flatten(2)[0].T, method.decode(OUTPUTS.flatten(1)))
    assert method.intervals(outputs).shape == (1, 2, 2, 3, 3)
    assert torch.equal(method.intervals(outputs)[0].flatten(1, 2).transpose(0, 1), method.intervals(OUTPUTS.flatten(1)))


def test_quantiles_do_not_cross_and_the_median_lies_between():
    method = Quantile(LEVELS)
    found = method.intervals(OUTPUTS.flatten(1))
    assert found.shape == (6, 2, 3) and (found.diff(dim=-1) >= 0).all()
    assert torch.equal(found, OUTPUTS.sort(-1).values)
    assert torch.equal(method.decode(OUTPUTS.flatten(1)), found[..., 1])


def test_the_smallest_loss_is_at_the_quantiles():
    targets = torch.rand(2001, 1, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).exp()
    best = targets[:, 0].quantile(torch.tensor(LEVELS).double())
    smallest = pinball(best.expand(2001, 1, 3), targets, LEVELS)
    for k in range(3):
        for away in (-0.05, 0.05):
            other = best + away * torch.eye(3)[k]
            assert pinball(other.expand(2001, 1, 3), targets, LEVELS) > smallest


@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_rows_and_an_all_false_mask(n):
    for mask in (None, torch.zeros(n, dtype=torch.bool)):
        outputs = OUTPUTS[:n].flatten(1).clone().requires_grad_()
        loss = loss_of(outputs, TARGETS[:n], mask)
        loss.backward()
        assert outputs.grad.isfinite().all() and (loss == 0) == (n == 0 or mask is not None)


def test_an_option_on_the_command_line():
    for text in ("0.05 0.25 0.5 0.95", "0.05,0.25,0.5,0.95"):
        method = methods.create("quantile", quantiles=option_value("quantile.quantiles", text))
        assert method.parts["quantile"].quantiles == (0.05, 0.25, 0.5, 0.95) and method.outputs(2) == 8
    median = methods.create("quantile", quantiles=option_value("quantile.quantiles", "0.5"))
    assert median.outputs(1) == 1


def test_mistakes_are_named():
    for quantiles in ((0.1, 0.9), (0.5, 0.1), (0.0, 0.5), (0.5, 0.5), ()):
        with pytest.raises(ValueError, match="ascending quantiles between 0 and 1 with"):
            Quantile(quantiles)
    with pytest.raises(ValueError, match=r"predictions with 6 numbers a row, got \(6, 5\)"):
        loss_of(OUTPUTS.flatten(1)[:, :5], TARGETS)
    with pytest.raises(ValueError, match=r"outputs with 3 quantiles of each number, got \(6, 5\)"):
        Quantile(LEVELS).decode(OUTPUTS.flatten(1)[:, :5])
    with pytest.raises(ValueError, match=r"predictions \(..., n, t, q\), got \(6, 2, 3\) for targets \(6, 2\) and 2 q"):
        pinball(OUTPUTS, TARGETS, LEVELS[:2])
