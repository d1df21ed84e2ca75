"""Soft labels against a loop and another implementation, their edges."""

import math

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step
from ordinal_entropy.methods.functional import sord

CENTERS = torch.tensor([0.25, 0.75, 1.75, 2.75]).double()


@pytest.mark.parametrize("scale", [0.05, 0.7, 30.0])
def test_labels_equal_a_loop(scale):
    targets = torch.tensor([-2.0, 0.0, 0.4, 1.0, 2.7, 4.0]).double()
    for y, found in zip(targets.tolist(), sord(targets, CENTERS, scale), strict=True):
        nearest = min(abs(c - y) for c in CENTERS.tolist())
        mass = [math.exp((nearest - abs(c - y)) / scale) for c in CENTERS.tolist()]
        assert found.tolist() == pytest.approx([each / sum(mass) for each in mass], rel=1e-10)


@pytest.mark.parametrize("scale", [1e-30, 1e-3, 1e3, 1e30])
def test_any_scale_gives_a_distribution(scale):
    found = sord(torch.tensor([0.0, 0.3, 17.0, 1e6]), torch.arange(41.0), scale)
    assert found.isfinite().all() and torch.allclose(found.sum(-1), torch.ones(4))
    if scale < 1:
        assert found.argmax(-1).tolist() == [0, 0, 17, 40] and (found.amax(-1) == 1).all()


def test_centers_and_scales_of_each_number():
    centers = torch.stack([torch.arange(5.0), 10 * torch.arange(5.0)])
    found = sord(torch.tensor([[1.2, 12.0], [2.0, 20.0]]), centers, torch.tensor([0.5, 5.0]))
    assert found.shape == (2, 2, 5) and torch.allclose(found[:, 0], found[:, 1])
    assert sord(torch.ones(2).half(), torch.arange(3.0), 1.0).dtype == torch.float32
    assert sord(torch.tensor([math.nan]), CENTERS, 1.0).isnan().all()


@pytest.mark.slow
def test_equals_dlordinal():
    losses = pytest.importorskip("dlordinal.losses")
    index = torch.tensor([0, 3, 8, 5])
    logits = torch.randn(4, 9, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = losses.SORDLoss(alpha=0.8, num_classes=9, train_targets=index)(logits, index)
    own = -(sord(index.double(), torch.arange(9.0), 1 / 0.8) * logits.log_softmax(-1)).sum(-1).mean()
    assert own.item() == pytest.approx(expected.item(), rel=1e-10)
    method = methods.create("sord", bins=9 + 8, scale=4 / 3)  # four widths beyond the range on both sides
    method.prepare(torch.arange(10.0)[:, None] - 0.5)
    wide = torch.cat([torch.full((4, 4), -1e4), logits, torch.full((4, 4), -1e4)], 1)
    assert method.decode(wide)[:, 0].tolist() == pytest.approx((logits.softmax(-1) @ torch.arange(9).double()).tolist())
    step = Step(Batch(None, index.double()[:, None]), torch.zeros(1), wide, None)
    assert method.task_loss(step).isfinite()
