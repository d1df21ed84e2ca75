"""Minimum spanning trees of many graphs at once, on any device, without a look at a value on the host.

The lengths of the edges of a minimum spanning tree are the deaths of the connected components of a Vietoris-Rips
filtration: its persistent homology of dimension 0.
"""

import torch
from torch import Tensor


def minimum_spanning_tree(distances: Tensor, counts: Tensor | None = None) -> Tensor:
    """The edges of the minimum spanning tree of each complete graph, by Boruvka's rounds.

    In each round every component takes its shortest edge to another one, so that their number at least halves. Of
    edges of one length the one between the first nodes comes first, by its lower end and then by its higher end, so
    that the tree is unique. All shapes are static, and the rounds are ``ceil(log2 m)``.

    Args:
        distances: ``(..., m, m)``, symmetric; what lies on the diagonal does not matter.
        counts: boolean ``(..., m)``, nodes that the tree is to span; it may have more leading dimensions.

    Returns:
        Pairs of nodes ``(..., m, 2)``, int64. One node that counts, and those that do not, have no edge: their pair is
        the node itself twice. The others have one edge each, with no edge twice. No graph.

    Example:
        >>> places = torch.tensor([0.0, 5.0, 6.0, 1.0])
        >>> minimum_spanning_tree((places[:, None] - places).abs())
        tensor([[0, 0],
                [1, 3],
                [1, 2],
                [0, 3]])
    """
    distances = distances.detach()
    m = distances.shape[-1]
    lead = distances.shape[:-2] if counts is None else torch.broadcast_shapes(distances.shape[:-2], counts.shape[:-1])
    node = torch.arange(m, device=distances.device).expand(*lead, m)
    edges = torch.stack([node, node], -1)
    component = node  # each named by one of its nodes, its root
    joinable = True if counts is None else counts[..., :, None] & counts[..., None, :]
    for done in range(max(m - 1, 0).bit_length()):
        apart = (component[..., :, None] != component[..., None, :]) & joinable
        candidates = torch.where(apart, distances, torch.inf)
        other = candidates.argmin(-1)  # of equally near ones the first
        edge = torch.minimum(node, other) * m + torch.maximum(node, other)
        nearest, edge = _least_of_each(component, candidates.gather(-1, other[..., None])[..., 0], edge)
        found = nearest < torch.inf
        ends = torch.stack([edge // m, edge % m], -1)
        to = torch.where(found, component.gather(-1, ends[..., 0]) + component.gather(-1, ends[..., 1]) - node, node)
        stays = (to.gather(-1, to) == node) & (node <= to)  # of two that take the same edge, one
        to = torch.where(stays, node, to)
        edges = torch.where((found & ~stays)[..., None], ends, edges)
        for _ in range((m >> done).bit_length()):  # to the root of the joined components
            to = to.gather(-1, to)
        component = to.gather(-1, component)
    return edges


def line_tree(places: Tensor, counts: Tensor | None = None) -> Tensor:
    """The same for points on a line, by sorting.

    Args:
        places: ``(..., m)``.
        counts: boolean ``(..., m)``, as above.

    Returns:
        Pairs of nodes ``(..., m, 2)``, likewise; of equal places each has an edge to the next in their order.

    Example:
        >>> line_tree(torch.tensor([0.0, 5.0, 6.0, 1.0]))
        tensor([[0, 3],
                [3, 1],
                [1, 2],
                [2, 2]])
    """
    if counts is not None:
        places = torch.where(counts, places.detach(), torch.inf)
    order = torch.argsort(places.detach(), dim=-1, stable=True)  # what does not count, last
    following = torch.cat([order[..., 1:], order[..., -1:]], -1)
    if counts is not None:
        following = torch.where(counts.expand_as(order).gather(-1, following), following, order)
    return torch.stack([order, following], -1)


def _least_of_each(component: Tensor, lengths: Tensor, edges: Tensor) -> tuple[Tensor, Tensor]:
    """The shortest of the edges that the nodes of a component propose, at its root; infinite lengths at the others.

    Args:
        component: ``(..., m)``, of each node.
        lengths: ``(..., m)``.
        edges: ``(..., m)``, numbers that decide between edges of one length.
    """
    nearest = torch.full_like(lengths, torch.inf).scatter_reduce(-1, component, lengths, "amin")
    shortest = lengths == nearest.gather(-1, component)
    last = edges.shape[-1] ** 2 - 1  # a number that can be read as an edge where there is none
    first = torch.full_like(edges, last).scatter_reduce(-1, component, torch.where(shortest, edges, last), "amin")
    return nearest, first
