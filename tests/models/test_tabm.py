"""Layers of TabM against loops and, in the slow tier, against the package ``tabm``."""

import pytest
import torch
from torch import nn

from ordinal_entropy.models.tabm import SharedLayers, first_scaling, shared_layer


def drawn(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("before", [(), (2,)])
def test_a_shared_layer_is_a_loop_over_members_rows_and_numbers(before):
    k, n, i, o = 3, 4, 5, 2
    x, weight, bias = drawn(*before, k, n, i), drawn(*before, i, o, seed=1), drawn(*before, k, o, seed=2)
    r, s = drawn(*before, k, i, seed=3), drawn(*before, k, o, seed=4)
    found = shared_layer(x, weight, bias, r, s)
    assert found.shape == (*before, k, n, o)
    of = (lambda tensor, network: tensor[network]) if before else (lambda tensor, network: tensor)
    for network in range(2 if before else 1):
        for member in range(k):
            for row in range(n):
                for number in range(o):
                    each = (of(x, network)[member, row, j] * of(r, network)[member, j] for j in range(i))
                    product = sum(each_x * of(weight, network)[j, number] for j, each_x in enumerate(each))
                    expected = product * of(s, network)[member, number] + of(bias, network)[member, number]
                    torch.testing.assert_close(of(found, network)[member, row, number], expected)


def test_without_scalings_it_is_a_linear_layer():
    layer = nn.Linear(5, 2).double()
    x = drawn(3, 4, 5)
    torch.testing.assert_close(shared_layer(x, layer.weight.mT, layer.bias[None]), layer(x))


def test_gradients():
    inputs = [drawn(1, 3, 2), drawn(2, 4, seed=1), drawn(3, 4, seed=2), drawn(3, 2, seed=3), drawn(3, 4, seed=4)]
    assert torch.autograd.gradcheck(shared_layer, [each.requires_grad_() for each in inputs])


@pytest.mark.parametrize("n", [0, 1])
def test_few_rows(n):
    layers = SharedLayers([nn.Linear(3, 4), nn.Linear(4, 2)], torch.ones(5, 3), torch.relu)
    found = layers(torch.ones(n, 3))
    found.sum().backward()
    assert found.shape == (5, n, 2) and all(own.grad.isfinite().all() for own in layers.parameters())


def test_the_first_scaling_is_signs_or_a_normal_number_for_each_embedding():
    generator = torch.Generator().manual_seed(0)
    signs = first_scaling(1000, 4, generator)
    assert signs.shape == (1000, 4) and signs.unique().tolist() == [-1, 1] and signs.mean(0).abs().max() < 0.15
    normal = first_scaling(1000, 2, generator, embedded=2, width=3)
    assert normal.shape == (1000, 8)
    assert (normal[:, :3] == normal[:, :1]).all() and (normal[:, 3:6] == normal[:, 3:4]).all()
    assert float(normal.std()) == pytest.approx(1, abs=0.05) and len(normal[:, [0, 3, 6, 7]].unique()) == 4000


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tabm", "tabm-mini"])
def test_numbers_are_those_of_the_package_tabm(kind):
    """Features, and gradients of the mean of the members' losses."""
    package = pytest.importorskip("tabm")
    torch.manual_seed(0)
    theirs = package.TabM.make(
        n_num_features=5, d_out=1, d_block=8, n_blocks=3, k=4, arch_type=kind, dropout=0.0
    ).double()
    mini = kind == "tabm-mini"
    blocks = [block[0] for block in theirs.backbone.blocks]
    ours = SharedLayers([nn.Linear(5, 8), nn.Linear(8, 8), nn.Linear(8, 8)], torch.ones(4, 5), torch.relu, mini=mini)
    ours = ours.double()
    pairs = [(own, block.weight.mT) for own, block in zip(ours.weights, blocks, strict=True)]
    pairs += [
        (own, block.bias.expand(own.shape) if mini else block.bias)
        for own, block in zip(ours.biases, blocks, strict=True)
    ]
    if mini:
        pairs.append((ours.r[0], theirs.backbone.affine.weight))
    else:
        pairs += [(own, block.r) for own, block in zip(ours.r, blocks, strict=True)]
        pairs += [(own, block.s) for own, block in zip(ours.s, blocks, strict=True)]
    assert len(pairs) == len(list(ours.parameters()))
    assert set(pairs[6][1].unique().tolist()) == {-1, 1}  # theirs begins with signs too
    with torch.no_grad():
        for own, other in pairs:
            own.copy_(other)
    x, y = drawn(7, 5), drawn(7, 1, seed=1)
    features = ours(x)
    torch.testing.assert_close(features, theirs.backbone(theirs.ensemble_view(x)).transpose(0, 1))
    outputs = features @ theirs.output.weight + theirs.output.bias[:, None]
    torch.testing.assert_close(outputs.transpose(0, 1), theirs(x))
    own = torch.stack([(each - y).square().mean() for each in outputs]).mean()
    named = dict(theirs.named_parameters())
    found = torch.autograd.grad(own, list(ours.parameters()))
    expected = dict(
        zip(named, torch.autograd.grad((theirs(x) - y[:, None]).square().mean(), list(named.values())), strict=True)
    )
    by_package = {id(parameter): expected[name] for name, parameter in named.items()}
    mine = {id(parameter): gradient for parameter, gradient in zip(ours.parameters(), found, strict=True)}
    for place, block in enumerate(blocks):
        torch.testing.assert_close(mine[id(ours.weights[place])], by_package[id(block.weight)].mT)
        torch.testing.assert_close(mine[id(ours.biases[place])].view(-1, 8).squeeze(), by_package[id(block.bias)])
    first = theirs.backbone.affine.weight if mini else blocks[0].r
    torch.testing.assert_close(mine[id(ours.r[0])], by_package[id(first)])
