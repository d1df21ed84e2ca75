"""Ordinality: against SciPy, ties, drawn pairs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.distance import pdist
from scipy.stats import kendalltau, spearmanr

from ordinal_entropy.estimators import order as module
from ordinal_entropy.estimators import ordinality

SCIPY = {"spearman": spearmanr, "kendall": kendalltau}
METHODS = list(SCIPY)


def expected(z, y, method):
    y = y.reshape(len(y), -1).double()
    return SCIPY[method](pdist(z.double().numpy()), pdist(y.numpy())).statistic


# --- oracle


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("n", "d", "t"), [(3, 1, 1), (10, 3, 1), (40, 5, 2), (65, 2, 1)])
def test_scipy(method, n, d, t, normal):
    z, y = normal(n, d), normal(n, t, seed=1)
    assert ordinality(z, y, method=method).item() == pytest.approx(expected(z, y, method), abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
def test_scipy_with_ties(method, normal):
    z, y = normal(40, 2).round(), torch.arange(40) // 7
    assert ordinality(z, y, method=method).item() == pytest.approx(expected(z, y, method), abs=1e-12)


@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=15)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=3, max_size=12))
def test_scipy_on_small_integers(method, rows):
    z, y = torch.tensor(rows).double()[:, :1], torch.tensor(rows)[:, 1]
    if len(set(pdist(z.numpy()))) > 1 and len(set(pdist(y[:, None].double().numpy()))) > 1:
        assert ordinality(z, y, method=method).item() == pytest.approx(expected(z, y, method), abs=1e-9)
    else:
        assert ordinality(z, y, method=method) == 0


@pytest.mark.parametrize("elements", [1, 10, 2**21])
def test_blocks(elements, normal, monkeypatch):
    monkeypatch.setattr(module, "BLOCK_ELEMENTS", elements)
    z, y = normal(12, 3), torch.arange(12)
    assert ordinality(z, y).item() == pytest.approx(expected(z, y, "spearman"), abs=1e-12)


# --- properties


@pytest.mark.parametrize("method", METHODS)
def test_permutation_rotation_translation_scale(method, normal, rotation):
    z, y = normal(30, 4), normal(30, 1, seed=1)
    value = ordinality(z, y, method=method)
    for same in (
        ordinality(z.flip(0), y.flip(0), method=method),
        ordinality(5 * z @ rotation(4) + 10, y, method=method),
        ordinality(z, -3 * y + 1, method=method),
        ordinality(y, z, method=method),
    ):
        torch.testing.assert_close(same, value)


# --- closed forms


@pytest.mark.parametrize("method", METHODS)
def test_features_on_a_line(method):
    y = torch.tensor([0.0, 1.0, 3.0, 7.0, 15.0, 31.0])
    assert ordinality(y[:, None] * torch.tensor([1.0, 2.0]), y, method=method) == pytest.approx(1)


@pytest.mark.parametrize("method", METHODS)
def test_independent(method, normal):
    assert ordinality(normal(400, 8), normal(400, 1, seed=1), method=method).item() == pytest.approx(0, abs=0.03)


def test_one_pair_turned_round():
    """Three points: target distances 1, 2, 3; feature distances 2, 1, 3."""
    z, y = torch.tensor([[0.0], [2.0], [3.0]]), torch.tensor([0.0, 1.0, 3.0])
    assert ordinality(z, y).item() == pytest.approx(0.5)
    assert ordinality(z, y, method="kendall").item() == pytest.approx(1 / 3)


# --- edges


@pytest.mark.parametrize("method", METHODS)
def test_constant_is_zero(method, normal):
    z = normal(10, 3)
    assert ordinality(z, torch.ones(10), method=method) == 0
    assert ordinality(torch.ones(10, 3), torch.arange(10), method=method) == 0
    assert ordinality(z[:2], torch.arange(2), method=method) == 0  # one pair


@pytest.mark.parametrize("method", METHODS)
def test_drawn_pairs(method, normal):
    z = normal(300, 3)
    y = z[:, :1] + 0.2 * normal(300, 1, seed=1)
    exact = ordinality(z, y, method=method).item()
    drawn = [
        ordinality(z, y, method=method, num_pairs=20_000, generator=torch.Generator().manual_seed(seed)).item()
        for seed in (1, 2)
    ]
    assert drawn[0] != drawn[1]
    assert drawn == pytest.approx([exact, exact], abs=0.03)


def test_default_draw_repeats_and_leaves_the_global_state(normal):
    z, y = normal(60, 3), normal(60, 1, seed=1)
    state = torch.get_rng_state()
    assert ordinality(z, y, num_pairs=100) == ordinality(z, y, num_pairs=100)
    assert torch.equal(state, torch.get_rng_state())


def test_drawn_pairs_are_of_two_rows():
    first, second = module._pairs(3, 2, None)
    assert len(first) == len(second) == 2
    first, second = module._pairs(50, 1000, None)
    assert (first != second).all() and second.max() < 50 and len(set(second.tolist())) == 50


def test_bad_options(normal):
    z, y = normal(10, 2), torch.arange(10)
    with pytest.raises(ValueError, match='expected method "spearman" or "kendall", got \'pearson\''):
        ordinality(z, y, method="pearson")
    with pytest.raises(ValueError, match="expected num_pairs as an integer >= 1, got 0"):
        ordinality(z, y, num_pairs=0)
