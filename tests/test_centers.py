"""Grouping by target against torch.unique and dictionaries."""

import pytest
import torch

from ordinal_entropy.centers import group, row_hash


@pytest.mark.parametrize("t", [1, 2, 5])
@pytest.mark.parametrize("eager", [True, False])
@pytest.mark.parametrize("weighed", [True, False])
def test_unique_targets_are_those_of_torch_unique(t, eager, weighed):
    generator = torch.Generator().manual_seed(t)
    targets = torch.randint(3, (40, t), generator=generator).float()
    features = torch.randn(40, 6, generator=generator, dtype=torch.float64)
    amount = torch.ones(1, 40) if weighed else None
    found = group(features[None], targets[None], amount, grouping="unique", eager=eager, unit=False)
    values, index = torch.unique(targets, dim=0, return_inverse=True)
    present = torch.ones(len(values), dtype=torch.bool) if found.amount is None else found.amount[0] > 0
    assert present.sum() == len(values)
    assert eager == (len(present) == len(values))
    assert {tuple(v.tolist()) for v in found.values[0][present]} == {tuple(v.tolist()) for v in values}
    torch.testing.assert_close(found.values[0][found.slot[0]], targets)
    means = torch.stack([features[index == k].mean(0) for k in range(len(values))])
    torch.testing.assert_close(found.centers[0][found.slot[0]], means[index])


def test_scalar_centers_come_in_the_order_of_their_targets():
    targets = torch.tensor([3.0, -1.0, 3.0, 0.0])
    found = group(
        torch.eye(4)[None], targets[None, :, None], torch.ones(1, 4), grouping="unique", eager=True, unit=False
    )
    assert found.values.flatten().tolist() == [-1.0, 0.0, 3.0]


def test_groups_do_not_mix():
    targets = torch.tensor([[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]])[..., None]
    features = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    found = group(features, targets, torch.ones(2, 3), grouping="unique", eager=True, unit=False)
    assert found.amount.tolist() == [[1, 1], [1, 0]]
    torch.testing.assert_close(found.centers[1, 0], features[1].mean(0))


def test_masked_rows_belong_to_no_center():
    targets = torch.tensor([0.0, 0.0, 5.0, 7.0])[None, :, None]
    features = torch.eye(4)[None]
    found = group(features, targets, torch.tensor([[1.0, 0, 2, 0]]), grouping="unique", eager=False, unit=False)
    assert found.amount.sum() == 2
    torch.testing.assert_close(found.centers[0][found.amount[0] > 0], torch.eye(4)[[0, 2]])


@pytest.mark.parametrize("width", [0.5, 1, 2.5])
def test_bins_are_valued_by_the_mean_of_their_members(width):
    targets = torch.tensor([-0.1, 0.0, 0.4, 0.5, 2.4, 2.6, 2.6])
    found = group(torch.eye(7)[None], targets[None, :, None], torch.ones(1, 7), grouping=width, eager=True, unit=False)
    bins = torch.floor(targets / width)
    expected = [targets[bins == b].mean().item() for b in bins.unique()]
    assert found.values.flatten().tolist() == pytest.approx(expected)


def test_hash_tells_rows_apart_as_equality_does():
    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.float32, torch.float64):
        rows = torch.randint(-3, 4, (5000, 4), generator=generator).to(dtype) * 2.0**20
        hashes = row_hash(rows[None])[0]
        assert len(hashes.unique()) == len(torch.unique(rows, dim=0))
    assert row_hash(torch.tensor([[[0.0, 1.0]]])) == row_hash(torch.tensor([[[-0.0, 1.0]]]))
    assert row_hash(torch.tensor([[[0.0, 1.0]]])) != row_hash(torch.tensor([[[1.0, 0.0]]]))


def test_many_target_dimensions():
    targets = torch.randn(1, 30, 5000, generator=torch.Generator().manual_seed(0))
    targets = targets[:, torch.arange(30) % 10]
    found = group(torch.randn(1, 30, 3), targets, torch.ones(1, 30), grouping="unique", eager=True, unit=False)
    assert found.centers.shape[1] == 10
