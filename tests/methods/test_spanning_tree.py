"""Minimum spanning trees against Kruskal's algorithm and SciPy's, edge by edge."""

import math

import pytest
import torch
from scipy.sparse.csgraph import minimum_spanning_tree as scipy_tree

from ordinal_entropy.methods.functional import minimum_spanning_tree
from ordinal_entropy.methods.spanning_tree import line_tree

GENERATOR = torch.Generator().manual_seed(0)
SIZES = (2, 3, 5, 16, 17, 60)


def kruskal(distances, nodes):
    """Edges of the tree of some nodes, of equal lengths the first."""
    component = {node: node for node in nodes}
    found = set()
    for _, i, j in sorted((distances[i][j], i, j) for i in nodes for j in nodes if i < j):
        if component[i] != component[j]:
            found.add((i, j))
            old = component[i]
            component = {node: component[j] if own == old else own for node, own in component.items()}
    return found


def apart(points):
    return (points[..., :, None, :] - points[..., None, :, :]).norm(dim=-1)


def edges_of(tree):
    return [tuple(sorted(pair)) for pair in tree.tolist() if pair[0] != pair[1]]


def random(*shape):
    return torch.randn(*shape, dtype=torch.float64, generator=GENERATOR)


def grid(*shape):  # of few places: many edges of one length, and of length 0
    return torch.randint(4, shape, generator=GENERATOR).double()


@pytest.mark.parametrize("m", SIZES)
@pytest.mark.parametrize("points", [random, grid])
def test_equals_kruskals_tree_edge_by_edge(m, points):
    distances = apart(points(m, 2))
    found = edges_of(minimum_spanning_tree(distances))
    assert len(found) == m - 1 and set(found) == kruskal(distances.tolist(), range(m))


def test_total_length_equals_scipys():
    distances = apart(random(200, 3))
    tree = minimum_spanning_tree(distances)
    assert distances[tree[:, 0], tree[:, 1]].sum().item() == pytest.approx(scipy_tree(distances.numpy()).sum(), 1e-12)


def test_a_long_chain_joins_in_one_round():
    """Each point's nearest is the next one, so that roots are found along the whole chain."""
    places = torch.arange(40.0).double().pow(0.9)
    assert set(edges_of(minimum_spanning_tree(apart(places[:, None])))) == {(i, i + 1) for i in range(39)}


def test_many_graphs_and_those_of_some_nodes_at_once():
    distances = apart(grid(3, 13, 2))
    counts = torch.rand(2, 3, 13, generator=GENERATOR) < 0.6
    found = minimum_spanning_tree(distances, counts)
    assert found.shape == (2, 3, 13, 2)
    for s in range(2):
        for g in range(3):
            nodes = counts[s, g].nonzero()[:, 0].tolist()
            assert set(edges_of(found[s, g])) == kruskal(distances[g].tolist(), nodes)
            assert len(edges_of(found[s, g])) == len(nodes) - 1


def test_nodes_outside_may_have_any_distance():
    distances, counts = apart(random(9, 2)), torch.arange(9) % 3 != 1
    expected = minimum_spanning_tree(distances, counts)
    distances[~counts] = distances[:, ~counts] = math.nan
    assert torch.equal(minimum_spanning_tree(distances, counts), expected)


@pytest.mark.parametrize("m", [0, 1])
def test_without_a_pair_there_is_no_edge(m):
    assert minimum_spanning_tree(torch.zeros(m, m)).tolist() == [[0, 0]] * m
    assert line_tree(torch.zeros(m)).tolist() == [[0, 0]] * m
    alone = torch.tensor([False, True, False])
    assert minimum_spanning_tree(torch.ones(3, 3), alone).tolist() == [[0, 0], [1, 1], [2, 2]]
    assert not edges_of(minimum_spanning_tree(torch.ones(3, 3), torch.zeros(3, dtype=torch.bool)))


@pytest.mark.parametrize("points", [random, grid])
def test_on_a_line_sorting_gives_a_tree_of_the_same_length(points):
    places, counts = points(4, 21), torch.rand(4, 21, generator=GENERATOR) < 0.7
    for own, inside in zip(places, counts, strict=True):
        found = edges_of(line_tree(own, inside))
        nodes = inside.nonzero()[:, 0].tolist()
        lengths = [abs(float(own[i] - own[j])) for i, j in found]
        expected = kruskal(apart(own[:, None]).tolist(), nodes)
        assert len(found) == len(expected) and {node for pair in found for node in pair} == set(nodes)
        assert math.fsum(lengths) == pytest.approx(sum(abs(float(own[i] - own[j])) for i, j in expected), rel=1e-12)
    assert torch.equal(line_tree(places, counts)[2], line_tree(places[2], counts[2]))
