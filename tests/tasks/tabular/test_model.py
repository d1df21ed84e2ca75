"""Networks of a stack against formulas and layers of PyTorch."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from ordinal_entropy.tasks.tabular import model
from ordinal_entropy.tasks.tabular.model import Pieces, Shape

SHAPES = [
    Shape(3, 5, hidden=6),
    Shape(0, 2, hidden=6, layers=1, outputs=4, embedding="periodic"),
    Shape(3, 5, hidden=6, layers=3, embedding="periodic", embedding_size=4, waves=2),
    Shape(3, 3, hidden=6, embedding="piecewise", embedding_size=4, pieces=5),
]


def plain(parameters, x, shape, pieces):
    """One run, number by number and layer by layer."""
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
    z = torch.cat([*parts, x[:, shape.numbers :]], dim=1) if parts else x
    for layer in range(shape.layers):
        z = F.relu(F.linear(z, parameters[f"{layer}.weight"].T, parameters[f"{layer}.bias"][0]))
    return z, F.linear(z, parameters["head.weight"].T, parameters["head.bias"][0])


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


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"{shape.embedding}-{shape.layers}")
def test_a_stack_is_its_networks(shape):
    random = np.random.default_rng(0)
    numbers = random.normal(size=(2, 40, shape.numbers)).astype(np.float32)
    own = [model.pieces_of(each, shape.pieces) for each in numbers]
    pieces = Pieces(*map(torch.stack, zip(*own, strict=True))) if shape.embedding == "piecewise" else None
    runs = [model.initial(shape, seed) for seed in (0, 1)]
    x = torch.from_numpy(2 * random.normal(size=(2, 7, shape.inputs)).astype(np.float32))
    features = model.forward(model.stacked(runs), x, shape, pieces)
    outputs = model.outputs(model.stacked(runs), features)
    assert features.shape == (2, 7, shape.hidden) and outputs.shape == (2, 7, shape.outputs)
    for run in range(2):
        z, out = plain(runs[run], x[run], shape, own[run])
        torch.testing.assert_close(features[run], z)
        torch.testing.assert_close(outputs[run], out)


def test_pieces_lie_between_quantiles():
    column = np.repeat([0.0, 1.0, 2.0, 10.0], [70, 10, 10, 10])[:, None]
    pieces = model.pieces_of(np.concatenate([column, np.full((100, 1), 4.0)], axis=1), 4)
    assert pieces.length[0].tolist() == [1, 9, math.inf, math.inf]  # of the five quantiles three are 0
    assert pieces.length[1].tolist() == [math.inf] * 4  # a constant has none
    assert pieces.low[0].tolist() == [-math.inf, 0, 0, 0] and pieces.high[0].tolist() == [1, math.inf, 1, 1]


def test_first_weights_come_from_the_seed_and_not_from_the_outputs():
    one, same, many = (
        model.initial(Shape(3, 5, hidden=6, embedding="periodic", outputs=outputs), seed=3) for outputs in (1, 1, 9)
    )
    other = model.initial(Shape(3, 5, hidden=6, embedding="periodic"), seed=4)
    for name, tensor in one.items():
        assert torch.equal(tensor, same[name]) and not torch.equal(tensor, other[name])
        assert name.startswith("head") or torch.equal(tensor, many[name])
    assert one["0.weight"].abs().max() <= one["0.weight"].shape[0] ** -0.5


def test_runs_of_fewer_inputs_are_padded_and_come_back():
    shapes = [Shape(2, 4, hidden=3), Shape(2, 6, hidden=3)]
    runs = [model.initial(shape, 0) for shape in shapes]
    stack = model.stacked(runs)
    assert stack["0.weight"].shape == (2, 6, 3) and stack["0.weight"][0, 4:].abs().sum() == 0
    for run, shape in enumerate(shapes):
        back = model.of_run(stack, run, shape)
        assert all(torch.equal(back[name], runs[run][name]) for name in back)
