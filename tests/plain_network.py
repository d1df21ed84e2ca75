"""The perceptron of the operator tasks out of PyTorch's own parts."""

import torch
from torch import nn


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
