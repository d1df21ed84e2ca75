"""The perceptron of the operator tasks out of PyTorch's own parts."""

import torch
from torch import nn

from ordinal_entropy.training.stacked.network import Shape, initial


def plain_network(layers):
    """The same network out of PyTorch's own parts."""
    parts = []
    for weight, bias in layers:
        linear = nn.Linear(*weight.shape, dtype=torch.float64)
        with torch.no_grad():
            linear.weight.copy_(weight.T)
            linear.bias.copy_(bias)
        parts += [linear, nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def layers(parameters):
    """Weight ``(fan_in, fan_out)`` and bias ``(fan_out,)`` of each layer of a run, out of its parameters by name."""
    weights = [name for name in parameters if name.endswith(".weight")]
    return [(parameters[name], parameters[name.replace("weight", "bias")][0]) for name in weights]


def first_layers(sizes, seed, how):
    """Those of a run before its first step, in float64."""
    shape = Shape(0, sizes[0], sizes[-1], sizes[1], len(sizes) - 2, dtype=torch.float64)
    return layers(initial(shape, seed, how))
