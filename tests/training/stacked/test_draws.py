import pytest
import torch

from ordinal_entropy.training.stacked.draws import drawn_rows


def splitmix(x):
    """The finaliser of SplitMix64 in Python's whole numbers."""
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    return x ^ (x >> 31)


@pytest.mark.parametrize("rows", [2, 5, 64, 100])
def test_draws_are_those_of_the_hash(rows):
    seeds, steps, count = [0, 7, -3, 2**62], [0, 1, 99_999], max(1, rows // 2)
    found = drawn_rows(torch.tensor(seeds), torch.tensor(steps), rows, count)
    low_bits = (1 << (rows - 1).bit_length()) - 1
    for s, step in enumerate(steps):
        for r, seed in enumerate(seeds):
            stream = splitmix((splitmix(seed % 2**64) + step) % 2**64)
            keys = [splitmix((stream + row * 0x9E3779B97F4A7C15) % 2**64) & ~low_bits | row for row in range(rows)]
            signed = [key - 2**64 if key >= 2**63 else key for key in keys]
            expected = sorted(range(rows), key=lambda row: -signed[row])[:count]
            assert found[s, r].tolist() == expected


def test_draws_are_distinct_and_even():
    rows, count, steps = 50, 10, 4000
    found = drawn_rows(torch.arange(3), torch.arange(steps), rows, count)
    assert found.shape == (steps, 3, count)
    in_order = found.sort(-1).values
    assert bool((in_order[..., 1:] > in_order[..., :-1]).all())
    for run in range(3):
        times = torch.bincount(found[:, run].flatten(), minlength=rows).double()
        expected = steps * count / rows
        # a sum of Bernoulli draws without replacement: variance expected * (1 - count / rows)
        assert float(((times - expected) ** 2).mean()) == pytest.approx(expected * (1 - count / rows), rel=0.6)


def test_draws_depend_on_seed_and_step_only():
    together = drawn_rows(torch.tensor([4, 9, 2]), torch.arange(10, 20), 100, 7)
    alone = drawn_rows(torch.tensor([9]), torch.tensor([13]), 100, 7)
    assert torch.equal(together[3, 1], alone[0, 0])
    fewer = drawn_rows(torch.tensor([9]), torch.tensor([13]), 100, 3)
    assert torch.equal(fewer, alone[..., :3])
    assert not torch.equal(together[3, 0], together[3, 1])
    assert not torch.equal(together[3, 0], together[4, 0])


def test_all_rows_come_in_order():
    assert torch.equal(drawn_rows(torch.tensor([1]), torch.tensor([0]), 5, 9)[0, 0], torch.arange(5))
