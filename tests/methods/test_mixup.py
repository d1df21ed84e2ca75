"""Mixup: any other row is the partner, alike often; the rest is that of C-Mixup."""

import math

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch
from ordinal_entropy.methods.mixup import Mixup, even_partners

N = 200
TARGETS = torch.randint(20, (N, 1), generator=torch.Generator().manual_seed(0)).double()
PLACES = torch.eye(N, dtype=torch.float64)  # as inputs: a mixed row tells of whom it was made


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def pairs(mixed):
    """The partner of each row and the share that it keeps, of mixed ``PLACES``."""
    share = mixed.diagonal()
    return (mixed - torch.diag(share)).argmax(1), share


def test_every_other_usable_row_is_the_partner_alike_often():
    usable = torch.tensor([1, 0, 1, 1, 0, 1]).bool()
    chance = (torch.arange(600) + 0.5) / 600
    for row in range(6):
        found = [int(even_partners(usable, chance[k].expand(6))[row]) for k in range(600)]
        others = [j for j in (0, 2, 3, 5) if j != row]
        assert {j: found.count(j) for j in others} == {j: 600 // len(others) for j in others}


def test_the_ends_of_the_chance_are_rows_too():
    for chance in (0.0, 1.0):
        found = even_partners(torch.ones(4, dtype=torch.bool), torch.full((4,), chance))
        assert (found != torch.arange(4)).all() and found.max() < 4
    assert even_partners(torch.tensor([False, True, False]), torch.rand(3)).tolist() == [1, 1, 1]
    assert even_partners(torch.zeros(3, dtype=torch.bool), torch.rand(3)).tolist() == [0, 1, 2]
    assert even_partners(torch.ones(1, dtype=torch.bool), torch.rand(1)).tolist() == [0]


def test_shares_are_of_a_beta_distribution_and_partners_of_any_target():
    partner, share = pairs(Mixup(alpha=2.0).change(Batch(PLACES, TARGETS), seeded()).inputs)
    assert (partner != torch.arange(N)).all() and partner.unique().numel() > N / 2
    assert share.mean().item() == pytest.approx(0.5, abs=0.06)
    assert share.var().item() == pytest.approx(0.05, abs=0.02)  # of Beta(2, 2)
    assert (TARGETS - TARGETS[partner]).abs().mean().item() == pytest.approx(20 / 3, abs=1.5)


def test_targets_weights_and_masks_go_with_the_partner():
    mask = torch.arange(N)[:, None] % 3 != 0
    targets = torch.where(mask, TARGETS, math.nan)
    weight = torch.rand(N, 1, generator=seeded(1)).double()
    found = Mixup().change(Batch(PLACES, targets, mask, weight, weight[:, 0]), seeded())
    partner, share = pairs(found.inputs)
    assert bool(mask[partner].all()) and torch.equal(found.mask, mask)
    expected = share[:, None] * TARGETS + (1 - share[:, None]) * TARGETS[partner]
    assert torch.allclose(found.targets[mask], expected[mask])
    assert torch.allclose(found.weight, share[:, None] * weight + (1 - share[:, None]) * weight[partner])
    assert torch.equal(found.repeats, found.weight[:, 0])


def test_maps_are_mixed_as_a_whole():
    targets = torch.rand(4, 1, 3, 5, generator=seeded())
    mask = torch.rand(4, 3, 5, generator=seeded(1)) > 0.3
    found = Mixup().change(Batch(PLACES[:4, :4], targets, mask), seeded())
    partner, share = pairs(found.inputs)
    share = share.view(4, 1, 1, 1).float()
    assert torch.equal(found.mask, mask & mask[partner])
    assert torch.allclose(found.targets, share * targets + (1 - share) * targets[partner])


@pytest.mark.parametrize("rows", [0, 1])
def test_a_single_row_stays_as_it_is(rows):
    batch = Batch(PLACES[:rows], TARGETS[:rows])
    assert Mixup().change(batch, seeded()) is batch


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="alpha to be a positive number, got 0"):
        methods.create("mixup", alpha=0.0)
    with pytest.raises(TypeError, match=r"floating-point numbers, which can be mixed, got torch\.int64"):
        Mixup().change(Batch(torch.zeros(N, dtype=torch.long), TARGETS))
