"""TabM: members of an ensemble that share their weights.

After Gorishniy et al., "TabM: Advancing Tabular Deep Learning with Parameter-Efficient Ensembling" (ICLR 2025). A
layer of k members has one matrix ``W``; member i computes ``((x * r_i) W) * s_i + b_i`` and has a head of its own. The
loss is the mean of the members' losses, each of its own predictions; the prediction is the mean of theirs. In
"tabm-mini" the members differ in the scaling of the inputs and in their heads alone.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

NETWORKS = ("perceptron", "tabm", "tabm-mini")


def shared_layer(x: Tensor, weight: Tensor, bias: Tensor, r: Tensor | None = None, s: Tensor | None = None) -> Tensor:
    """What each of k members makes of its rows: ``((x * r_i) W) * s_i + b_i``.

    Any dimensions may come before those named, such as one of several networks.

    Args:
        x: ``(k, n, i)``, or ``(1, n, i)`` where all members see the same rows and there is an ``r``.
        weight: ``(i, o)``, of all members.
        bias: ``(k, o)``, or ``(1, o)`` of all members.
        r: ``(k, i)``, by which the inputs are scaled; None: they are not.
        s: ``(k, o)``, by which the products are scaled; None: they are not.

    Returns:
        ``(k, n, o)``.

    Example:
        >>> x, weight, bias = torch.tensor([[[1.0, 2.0]]]), torch.ones(2, 1), torch.tensor([[0.0], [10.0]])
        >>> shared_layer(x, weight, bias, r=torch.tensor([[1.0, 1.0], [1.0, -1.0]]), s=torch.tensor([[2.0], [3.0]]))
        tensor([[[6.]],
        <BLANKLINE>
                [[7.]]])
    """
    if r is not None:
        x = x * r[..., None, :]
    # one product for all members; to unflatten, ONNX would take the number of rows that was traced
    z = (x.flatten(-3, -2) @ weight).reshape(*x.shape[:-1], weight.shape[-1])
    bias = bias[..., None, :]
    return z + bias if s is None else torch.addcmul(bias, z, s[..., None, :])


def first_scaling(
    members: int, inputs: int, generator: torch.Generator, *, embedded: int = 0, width: int = 1
) -> Tensor:
    """First values ``(members, embedded * width + inputs)`` of the scaling of the inputs, which tells members apart.

    Random signs; where numbers are embedded, one normal number for each number of the table, which all that its
    embedding makes of it shares.

    Args:
        members: ``k``.
        inputs: those that are not embedded, which come last.
        generator: of the draws.
        embedded: numbers that are.
        width: what each of them becomes.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> first_scaling(2, 3, generator)
        tensor([[-1.,  1.,  1.],
                [-1.,  1.,  1.]])
        >>> first_scaling(1, 1, generator, embedded=1, width=2).shape
        torch.Size([1, 3])
    """
    size = (members, embedded + inputs)
    drawn = torch.empty(size).normal_(generator=generator) if embedded else _signs(size, generator)
    return torch.cat([drawn[:, :embedded].repeat_interleave(width, dim=1), drawn[:, embedded:]], dim=1)


def _signs(size: tuple[int, int], generator: torch.Generator) -> Tensor:
    return 2.0 * torch.randint(2, size, generator=generator) - 1


class SharedLayers(nn.Module):
    """Hidden layers of TabM: from rows ``(n, i)`` to the features ``(k, n, d)`` of each member.

    Args:
        layers: whose weights the members share; all begin with their biases.
        scaling: ``(k, i)``, of the inputs, as of :func:`first_scaling`.
        activation: after every layer.
        dropout: after that.
        mini: nothing but the scaling of the inputs is a member's own.

    Example:
        >>> layers = SharedLayers([nn.Linear(3, 8), nn.Linear(8, 5)], torch.ones(4, 3), torch.relu)
        >>> layers(torch.zeros(2, 3)).shape
        torch.Size([4, 2, 5])
    """

    def __init__(
        self,
        layers: Sequence[nn.Linear],
        scaling: Tensor,
        activation: Callable[[Tensor], Tensor],
        dropout: Callable[[Tensor], Tensor] | None = None,
        *,
        mini: bool = False,
    ) -> None:
        super().__init__()
        k = len(scaling)
        self.activation, self.dropout = activation, dropout or nn.Identity()
        self.weights = nn.ParameterList(layer.weight.detach().mT.contiguous() for layer in layers)
        self.biases = nn.ParameterList(layer.bias.detach().expand(1 if mini else k, -1).clone() for layer in layers)
        own = [] if mini else [weight.detach() for weight in self.weights]
        self.r = nn.ParameterList([scaling, *(weight.new_ones(k, len(weight)) for weight in own[1:])])
        self.s = nn.ParameterList(weight.new_ones(k, weight.shape[1]) for weight in own)

    def forward(self, rows: Tensor) -> Tensor:
        """Features of each member."""
        z = rows[None]
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            r, s = (each[place] if place < len(each) else None for each in (self.r, self.s))
            z = self.dropout(self.activation(shared_layer(z, weight, bias, r, s)))
        return z
