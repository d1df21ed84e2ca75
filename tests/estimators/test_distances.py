"""Squared distances: exact for close pairs, the same whatever the block."""

import pytest
import torch

from ordinal_entropy.estimators import _distances
from ordinal_entropy.estimators._distances import distance_rows, kth_neighbour, squared_distances


def loop(a, b):
    return torch.stack([torch.stack([(p - q).square().sum() for q in b]) for p in a])


@pytest.mark.parametrize(("p", "q", "d"), [(1, 1, 1), (3, 5, 1), (4, 2, 7), (9, 9, 3)])
def test_loop(p, q, d, normal):
    a, b = normal(p, d), normal(q, d, seed=1)
    torch.testing.assert_close(squared_distances(a, b), loop(a, b), rtol=1e-12, atol=0)


@pytest.mark.parametrize("gap", [1e-2, 1e-4, 1e-6, 1e-9, 1e-12])
def test_close_pairs_keep_their_digits(gap, normal):
    """Two tight clusters: every pair within one is lost to the product form."""
    centers = normal(2, 32)
    z = centers[torch.arange(40) % 2] + gap * normal(40, 32, seed=1)
    off = ~torch.eye(40, dtype=torch.bool)
    torch.testing.assert_close(squared_distances(z, z)[off], loop(z, z)[off], rtol=1e-10, atol=0)


def test_equal_rows_are_at_zero(normal):
    z = normal(5, 64).repeat(2, 1)
    squared = squared_distances(z, z)
    assert (squared[:5, 5:].diagonal() == 0).all()


@pytest.mark.parametrize("elements", [1, 7, 40, 10_000])
def test_blocks(elements, normal, monkeypatch):
    z = normal(13, 3)
    expected = loop(z, z)
    expected.fill_diagonal_(torch.inf)
    monkeypatch.setattr(_distances, "BLOCK_ELEMENTS", elements)
    blocks = list(distance_rows(z))
    assert all(len(squared) <= max(1, elements // 13) for _, squared in blocks)
    torch.testing.assert_close(torch.cat([squared for _, squared in blocks]), expected)
    assert torch.equal(kth_neighbour(z, 2), expected.sort(dim=1).indices[:, 1])


def test_a_row_is_no_close_pair_of_its_own(normal, monkeypatch):
    """Else every block would be computed twice."""

    def refused(*inputs, **options):
        raise AssertionError("computed again from differences")

    monkeypatch.setattr(torch, "cdist", refused)
    assert len(list(distance_rows(normal(30, 8)))) == 1
