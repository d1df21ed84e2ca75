"""The diversity term as an estimate, against the paper's formula in two loops."""

import pytest
import torch

from ordinal_entropy.estimators import diversity_entropy


def loop(z, y):
    """Centers of the normalised features, then the weighted mean distance over pairs of centers."""
    z = z / z.norm(dim=1, keepdim=True)
    values = sorted(set(y.tolist()))
    centers = [z[y == value].mean(0) for value in values]
    total, pairs = 0.0, 0
    for i in range(len(values)):
        for j in range(len(values)):
            if i != j:
                total += abs(values[i] - values[j]) * float((centers[i] - centers[j]).norm())
                pairs += 1
    return total / pairs


@pytest.mark.parametrize(("n", "d", "m"), [(2, 1, 2), (6, 3, 6), (30, 4, 5)])
def test_loop(n, d, m, normal):
    z = normal(n, d) + 0.5
    y = (torch.arange(n) % m).double() ** 1.5
    assert diversity_entropy(z, y).item() == pytest.approx(loop(z, y), rel=1e-9)


def test_permutation_rotation_and_length(normal, rotation):
    z, y = normal(20, 5), torch.arange(20) // 3
    expected = diversity_entropy(z, y)
    length = torch.linspace(1, 2, 20, dtype=torch.float64)[:, None]
    for same in (
        diversity_entropy(z.flip(0), y.flip(0)),
        diversity_entropy(z @ rotation(5), y),
        diversity_entropy(z * length, y),
    ):
        torch.testing.assert_close(same, expected)


def test_unit_of_the_targets(normal):
    """The paper's form grows with the unit of the targets; rescale="max" does not."""
    z, y = normal(20, 5), torch.arange(20.0)
    torch.testing.assert_close(diversity_entropy(z, 10 * y), 10 * diversity_entropy(z, y))
    torch.testing.assert_close(diversity_entropy(z, 10 * y, rescale="max"), diversity_entropy(z, y, rescale="max"))


def test_two_opposite_points():
    z = torch.tensor([[1.0, 0.0], [-5.0, 0.0]])
    assert diversity_entropy(z, torch.tensor([0.0, 3.0])).item() == pytest.approx(6)


def test_no_spread_is_zero():
    y = torch.arange(6.0)
    assert diversity_entropy(torch.ones(6, 3), y) == pytest.approx(0, abs=1e-12)
    assert diversity_entropy(torch.rand(6, 3, generator=torch.Generator().manual_seed(0)), torch.ones(6)) == 0


def test_gradcheck(normal):
    z, y = normal(7, 3).requires_grad_(), torch.arange(7) // 2
    assert torch.autograd.gradcheck(lambda z: diversity_entropy(z, y), (z,))
