"""Embeddings of numbers, in the slow tier against the package ``rtdl_num_embeddings``; tests/training has loops."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from ordinal_entropy.models.embeddings import Piecewise, embedded, pieces_of


def columns():
    """A normal one, one with few values, one that is constant but for a row, and one of two values."""
    random = np.random.default_rng(0)
    found = [random.normal(size=100), random.integers(0, 4, 100), np.eye(100)[3], np.arange(100) % 2]
    return np.stack(found, 1).astype(np.float32)


def test_a_piecewise_layer_is_each_column_by_itself():
    numbers = columns()
    layers = [nn.Linear(6, 3) for _ in range(4)]
    found = Piecewise(pieces_of(numbers, 6), layers)(torch.from_numpy(numbers))
    assert found.shape == (100, 12)
    for column, layer in enumerate(layers):
        alone = Piecewise(pieces_of(numbers[:, [column]], 6), [layer])(torch.from_numpy(numbers[:, [column]]))
        torch.testing.assert_close(found[:, 3 * column : 3 * column + 3], alone)


def test_beyond_the_range_it_goes_on_and_a_constant_is_its_bias():
    pieces, layer = pieces_of(np.array([[0.0], [1.0], [3.0]]), 2), nn.Linear(2, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.eye(2))
        layer.bias.copy_(torch.tensor([10.0, 10.0]))
    found = Piecewise(pieces, [layer])(torch.tensor([[-2.0], [0.5], [2.0], [7.0]])) - 10
    torch.testing.assert_close(found, torch.tensor([[-2.0, 0.0], [0.5, 0.0], [1.0, 0.5], [1.0, 3.0]]))
    constant = Piecewise(pieces_of(np.ones((5, 1)), 2), [layer])(torch.tensor([[1.0], [9.0]]))
    torch.testing.assert_close(constant, torch.full((2, 2), 10.0))


def test_gradients_and_no_rows():
    numbers = columns().astype(np.float64)
    layer = Piecewise(pieces_of(numbers, 3), [nn.Linear(3, 2) for _ in range(4)]).double()
    names, tensors = zip(*layer.named_parameters(), strict=True)
    rows = torch.from_numpy(numbers[:5]) + 0.01

    def call(*parameters):
        return torch.func.functional_call(layer, dict(zip(names, parameters, strict=True)), rows)

    assert torch.autograd.gradcheck(call, tensors)
    empty = layer(rows[:0])
    empty.sum().backward()
    assert empty.shape == (0, 8) and layer.weight.grad.isfinite().all()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:The 2-th feature has just two bin edges")
def test_pieces_and_embeddings_are_those_of_the_package():
    """The same quantiles; theirs puts the last piece of a column with few behind those that are missing."""
    package = pytest.importorskip("rtdl_num_embeddings")
    numbers = columns()[:, [0, 1, 3]]
    x = torch.from_numpy(numbers)
    bins = package.compute_bins(x, n_bins=7)
    pieces = pieces_of(numbers, 7)
    torch.manual_seed(0)
    theirs = package.PiecewiseLinearEmbeddings(bins, 5, activation=True, version="A")
    ours = Piecewise(pieces, [nn.Linear(7, 5) for _ in range(3)])
    for column, edges in enumerate(bins):
        there = pieces.length[column] < math.inf
        count = int(there.sum())
        torch.testing.assert_close(pieces.start[column][there], edges[:-1])
        torch.testing.assert_close(pieces.length[column][there], edges.diff())
        width = theirs.linear.weight.shape[1]  # of the most pieces that any has
        with torch.no_grad():
            ours.weight[column].zero_()
            ours.weight[column, : count - 1] = theirs.linear.weight[column, : count - 1]
            ours.weight[column, count - 1] = theirs.linear.weight[column, width - 1]
            ours.bias[column, 0] = theirs.linear.bias[column]
    rows = torch.cat([x, 3 * x + 0.3])
    torch.testing.assert_close(ours(rows), theirs(rows).flatten(1), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_periodic_embeddings_are_those_of_the_package():
    package = pytest.importorskip("rtdl_num_embeddings")
    torch.manual_seed(0)
    theirs = package.PeriodicEmbeddings(
        3, 5, n_frequencies=4, frequency_init_scale=0.3, activation=True, lite=False
    ).double()
    cosines, sines = theirs.linear.weight.detach().split(4, dim=1)
    parameters = {
        "frequencies": theirs.periodic.weight.detach()[None],
        "embedding.weight": torch.cat([sines, cosines], dim=1)[None],
        "embedding.bias": theirs.linear.bias.detach()[None, :, None],
    }
    x = torch.randn(20, 3, dtype=torch.float64)
    torch.testing.assert_close(embedded(parameters, x.mT[None], None)[0], theirs(x).detach().flatten(1))
