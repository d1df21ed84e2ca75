"""Networks of a stack against formulas and layers of PyTorch."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ordinal_entropy.models.embeddings import Pieces, pieces_of
from ordinal_entropy.training.stacked import network
from ordinal_entropy.training.stacked.network import Perceptron, Shape
from ordinal_entropy.training.stacked.tabm import TabM
from plain_network import first_layers

PERCEPTRONS = [
    Shape(3, 5, hidden=6),
    Shape(0, 2, hidden=6, layers=1, outputs=4, embedding="periodic"),
    Shape(3, 5, hidden=6, layers=3, embedding="periodic", embedding_size=4, waves=2),
    Shape(3, 3, hidden=6, embedding="piecewise", embedding_size=4, pieces=5),
]
ENSEMBLES = [
    Shape(3, 5, hidden=6, network="tabm", members=3),
    Shape(3, 5, hidden=6, layers=1, outputs=4, network="tabm", embedding="periodic", waves=2, members=2),
    Shape(3, 5, hidden=6, layers=3, network="tabm-mini", members=3),
    Shape(3, 3, hidden=6, network="tabm-mini", embedding="piecewise", embedding_size=4, pieces=5, members=2),
]
SHAPES = [*PERCEPTRONS, *ENSEMBLES]


def named(shape):
    return f"{shape.network}-{shape.embedding}-{shape.layers}"


def plain(parameters, x, shape, pieces):
    """One run, number by number, member by member and layer by layer: features and outputs of each member."""
    parts = []
    for column in range(shape.numbers if shape.encoded else 0):
        number = x[:, column]
        if shape.embedding == "periodic":
            waves = [2 * math.pi * frequency * number for frequency in parameters["frequencies"][column]]
            encoded = torch.stack([*(w.sin() for w in waves), *(w.cos() for w in waves)], dim=1)
        else:
            encoded = torch.stack([encode(number, pieces, column, piece) for piece in range(shape.pieces)], dim=1)
        weight, bias = parameters["embedding.weight"][column], parameters["embedding.bias"][column]
        parts.append(F.relu(encoded @ weight + bias))
    first = torch.cat([*parts, x[:, shape.numbers :]], dim=1) if parts else x
    found = []
    for member in range(shape.members):
        of = lambda name: parameters[name][min(member, len(parameters[name]) - 1)]  # noqa: E731
        z = first
        for layer in range(shape.layers):
            z = z * of(f"{layer}.r") if f"{layer}.r" in parameters else z
            z = z @ parameters[f"{layer}.weight"]
            z = z * of(f"{layer}.s") if f"{layer}.s" in parameters else z
            z = F.relu(z + of(f"{layer}.bias"))
        one = shape.members == 1
        weight, bias = (parameters[name] if one else of(name) for name in ("head.weight", "head.bias"))
        found.append((z, z @ weight + bias))
    return tuple(torch.stack(each) for each in zip(*found, strict=True))


def encode(number, pieces, column, piece):
    """How far numbers have come through a piece: 0 before, 1 behind; beyond the ends of the range it goes on."""
    start, length = pieces.start[column, piece], pieces.length[column, piece]
    share = (number - start) / length
    there = [k for k in range(pieces.start.shape[1]) if pieces.length[column, k] < math.inf]
    if piece not in there:
        return torch.zeros_like(number)
    if piece != there[0]:
        share = share.clamp(min=0)
    return share if piece == there[-1] else share.clamp(max=1)


def a_network(shape, seeds=(0, 1), heads=None):
    """Of these seeds, with pieces of the range of random numbers; and what each run has."""
    random = np.random.default_rng(0)
    numbers = random.normal(size=(len(seeds), 40, shape.numbers)).astype(np.float32)
    own = [Pieces(*(part.to(shape.dtype) for part in pieces_of(each, shape.pieces))) for each in numbers]
    pieces = Pieces(*map(torch.stack, zip(*own, strict=True))) if shape.embedding == "piecewise" else None
    heads = [(count * shape.members, outputs) for count, outputs in heads or [(len(seeds), shape.outputs)]]
    net = (Perceptron if shape.network == "perceptron" else TabM)(shape, heads, torch.device("cpu"), pieces)
    outputs = [outputs for runs, outputs in heads for _ in range(runs // shape.members)]
    runs = [network.initial(replace(shape, outputs=o), seed) for o, seed in zip(outputs, seeds, strict=True)]
    for place, parameters in enumerate(runs):
        for name, view in net.parameters.of_run(place).items():
            view.copy_(parameters[name])
    return net, runs, own


def rows(*sizes, dtype=torch.float32):
    return (2 * torch.randn(*sizes, generator=torch.Generator().manual_seed(1), dtype=torch.float64)).to(dtype)


@pytest.mark.parametrize("shape", SHAPES, ids=named)
@pytest.mark.parametrize("shared", [False, True])
def test_a_stack_is_its_networks(shape, shared):
    net, runs, pieces = a_network(shape)
    x = rows(*(() if shared else (2,)), 7, shape.inputs)
    features, (outputs,) = net.predict(x)
    k = shape.members
    assert features.shape == (2 * k, 7, shape.hidden) and outputs.shape == (2 * k, 7, shape.outputs)
    for run in range(2):
        z, out = plain(runs[run], x if shared else x[run], shape, pieces[run])
        torch.testing.assert_close(features[k * run : k * (run + 1)], z)
        torch.testing.assert_close(outputs[k * run : k * (run + 1)], out)


@pytest.mark.parametrize("shape", SHAPES, ids=named)
def test_gradients_are_those_of_autograd(shape):
    """Of a loss that looks at outputs and features, with heads of several numbers of outputs; twice, on the buffers."""
    shape = replace(shape, dtype=torch.float64)
    net, runs, pieces = a_network(shape, (0, 1, 2), [(2, 1), (1, 4)])
    for n in (7, 7, 5):
        x = rows(3, n, shape.inputs, dtype=torch.float64)
        net.load(x)
        net.forward()
        net.forward_heads()
        for out, by_out in zip(net.outputs, net.by_outputs, strict=True):
            by_out.copy_(2 * out)
        net.backward_heads()
        net.by_features.add_(3.0)
        net.backward()
        for run in range(3):
            leaves = {name: tensor.clone().requires_grad_() for name, tensor in runs[run].items()}
            features, outputs = plain(leaves, x[run], shape, pieces[run])
            (outputs.square().sum() + 3 * features.sum()).backward()
            own = slice(shape.members * run, shape.members * (run + 1))
            torch.testing.assert_close(net.features[own], features.detach())
            for name, found in net.gradient.of_run(run).items():
                torch.testing.assert_close(found, leaves[name].grad, msg=f"{name} of run {run}")


@pytest.mark.parametrize("shape", [PERCEPTRONS[3], ENSEMBLES[3]], ids=named)
def test_other_rows_of_one_run_do_not_change_those_of_the_others(shape):
    net, *_ = a_network(shape)
    x, other = rows(2, 7, shape.inputs), rows(7, shape.inputs) + 1
    net.load(x)
    net.load_run(1, other)
    net.forward()
    expected, _ = net.predict(torch.stack([x[0], other]))
    torch.testing.assert_close(net.features, expected)


@pytest.mark.parametrize("shape", [PERCEPTRONS[2], ENSEMBLES[0]], ids=named)
def test_parameters_are_views_of_one_tensor(shape):
    net, *_ = a_network(shape, (0, 1, 2), [(2, 1), (1, 4)])
    net.parameters.flat.zero_()
    assert not any(view.any() for run in range(3) for view in net.parameters.of_run(run).values())
    assert not any(tensor.any() for _, tensor in net.parameters.parts())


@pytest.mark.parametrize("shape", [PERCEPTRONS[0], ENSEMBLES[0]], ids=named)
def test_dropout_leaves_out_a_share_and_its_gradients_are_those_of_what_is_left(shape):
    """As autograd has them with the factors that the seed of a run gives; without seeds nothing is left out."""
    shape = replace(shape, dropout=0.4, dtype=torch.float64)
    net, runs, _ = a_network(shape)
    x = rows(2, 50, shape.inputs, dtype=torch.float64)
    net.load(x)
    net.forward(seeds=[5, 6])
    left_out = (net.features == 0).double().mean()
    kept = net.features.clone()
    net.by_features.fill_(1.0)
    net.backward()
    found = {name: view.clone() for name, view in net.gradient.of_run(1).items() if not name.startswith("head")}
    factors = net._dropped([5, 6], *([] if shape.members == 1 else [shape.members]), 50)
    assert {float(value) for value in factors[0].unique()} == {0.0, 1 / 0.6}
    assert 0.35 < float((factors[1] == 0).double().mean()) < 0.45
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in runs[1].items()}
    z = x[1][None]
    for layer in range(2):
        if shape.members > 1:
            z = z * leaves[f"{layer}.r"][:, None]
        z = z @ leaves[f"{layer}.weight"]
        z = F.relu((z * leaves[f"{layer}.s"][:, None] if shape.members > 1 else z) + leaves[f"{layer}.bias"][:, None])
        z = z * factors[layer][1]
    z.sum().backward()
    torch.testing.assert_close(kept[shape.members :], z.detach())
    for name, gradient in found.items():
        torch.testing.assert_close(gradient, leaves[name].grad, msg=name)
    net.forward()
    assert (net.features == 0).double().mean() < left_out and not torch.equal(net.features, kept)
    net.forward(seeds=[5, 7])  # of another run beside
    assert torch.equal(net.features[: shape.members], kept[: shape.members])
    assert not torch.equal(net.features[shape.members :], kept[shape.members :])


def test_members_begin_with_random_signs_of_the_inputs_alone():
    found = network.initial(Shape(3, 5, hidden=6, network="tabm", members=200), seed=0)
    assert found["0.r"].unique().tolist() == [-1, 1] and found["0.r"].mean(0).abs().max() < 0.3
    assert all((found[name] == 1).all() for name in ("0.s", "1.r", "1.s"))
    assert all((found[name] == found[name][0]).all() for name in ("0.bias", "1.bias"))
    assert len(found["head.weight"].flatten(1).unique(dim=0)) == 200
    mini = network.initial(Shape(3, 5, hidden=6, network="tabm-mini", members=200), seed=0)
    assert mini.keys() == found.keys() - {"0.s", "1.r", "1.s"} and torch.equal(mini["0.r"], found["0.r"])
    assert mini["0.bias"].shape == (1, 6)


def test_with_embeddings_members_begin_with_a_normal_number_for_each_input():
    shape = Shape(2, 3, hidden=6, network="tabm", members=500, embedding="periodic", embedding_size=4)
    r = network.initial(shape, seed=0)["0.r"]
    assert r.shape == (500, 9) and (r[:, :4] == r[:, :1]).all() and (r[:, 4:8] == r[:, 4:5]).all()
    assert float(r.std()) == pytest.approx(1, abs=0.1) and abs(float(r.mean())) < 0.1


def test_members_are_of_ensembles():
    with pytest.raises(ValueError, match="expected one member of a perceptron, got 2"):
        Shape(0, 1, members=2)


def test_authors_initialisation():
    (weight, bias), *_ = first_layers((300, 200, 1), 0, "authors")
    assert abs(float(weight.std()) - 0.001) < 1e-5 and abs(float(weight.mean())) < 1e-5
    assert not bias.any()


def test_default_initialisation_is_distributed_like_that_of_pytorch():
    """Both uniform with the same bounds: means and variances agree."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(200, 300)
    (weight, bias), *_ = first_layers((200, 300, 1), 0, "default")
    for ours, theirs in ((weight, linear.weight), (bias, linear.bias)):
        assert 0.97 * 200**-0.5 < float(ours.abs().max()) <= 200**-0.5
        assert float(ours.std()) == pytest.approx(float(theirs.detach().std()), rel=0.15)


def test_unknown_initialisation():
    with pytest.raises(ValueError, match=r"expected initial to be one of .*'authors', 'default'.*, got 'xavier'"):
        network.initial(SHAPES[0], 0, "xavier")


def test_pieces_lie_between_quantiles():
    column = np.repeat([0.0, 1.0, 2.0, 10.0], [70, 10, 10, 10])[:, None]
    pieces = pieces_of(np.concatenate([column, np.full((100, 1), 4.0)], axis=1), 4)
    assert pieces.length[0].tolist() == [1, 9, math.inf, math.inf]  # of the five quantiles three are 0
    assert pieces.length[1].tolist() == [math.inf] * 4  # a constant has none
    assert pieces.low[0].tolist() == [-math.inf, 0, 0, 0] and pieces.high[0].tolist() == [1, math.inf, 1, 1]


def test_first_weights_come_from_the_seed_and_not_from_the_outputs():
    one, same, many = (
        network.initial(Shape(3, 5, hidden=6, embedding="periodic", outputs=outputs), seed=3) for outputs in (1, 1, 9)
    )
    other = network.initial(Shape(3, 5, hidden=6, embedding="periodic"), seed=4)
    for name, tensor in one.items():
        assert torch.equal(tensor, same[name]) and not torch.equal(tensor, other[name])
        assert name.startswith("head") or torch.equal(tensor, many[name])
    assert one["0.weight"].abs().max() <= one["0.weight"].shape[0] ** -0.5


def test_padded_inputs_of_members_come_back():
    wide = Shape(2, 6, hidden=3, network="tabm", members=2)
    net, own = TabM(wide, [(2, 1)], torch.device("cpu")), network.initial(replace(wide, inputs=4), 0)
    for name, view in net.parameters.of_run(0, 4).items():
        view.copy_(own[name])
    assert not net.parameters.named["0.weight"][0, 4:].any() and not net.parameters.named["0.r"][0, :, 4:].any()
    assert all(torch.equal(view, own[name]) for name, view in net.parameters.of_run(0, 4).items())


def test_runs_of_fewer_inputs_are_padded_and_come_back():
    wide, narrow = Shape(2, 6, hidden=3), Shape(2, 4, hidden=3)
    net = Perceptron(wide, [(2, 1)], torch.device("cpu"))
    own = network.initial(narrow, 0)
    for name, view in net.parameters.of_run(0, narrow.first).items():
        view.copy_(own[name])
    assert net.parameters.hidden[0].shape == (2, 7, 3) and not net.parameters.hidden[0][0, 4:6].any()
    assert all(torch.equal(view, own[name]) for name, view in net.parameters.of_run(0, narrow.first).items())
