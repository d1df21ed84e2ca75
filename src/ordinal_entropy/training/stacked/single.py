"""One run of a stack as a plain module, for its use after training: no stack, and nothing to be trained."""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ordinal_entropy.methods import Composition
from ordinal_entropy.models.embeddings import Pieces
from ordinal_entropy.models.tabm import shared_layer
from ordinal_entropy.training.stacked import network
from ordinal_entropy.training.stacked.network import Shape, first_inputs

FIRST = f"network.{network.FIRST}"  # of what is learned: the parameter whose rows are the inputs


class Single(nn.Module):
    """From inputs ``(n, i)`` to predictions ``(n, 1)`` in the unit of the targets, in float64.

    Args:
        shape: of the network.
        method: as made; the run's part that decodes and its head are read from ``learned``.
        learned: as :meth:`ordinal_entropy.training.stacked.stack.Stack.learned` gives it.
        center: mean of the targets that the run was trained on, before they were standardized.
        scale: and their standard deviation.

    Raises:
        ValueError: something is missing in ``learned``, or of another shape.
    """

    def __init__(
        self,
        shape: Shape,
        method: Composition,
        learned: Mapping[str, Tensor],
        *,
        center: float = 0.0,
        scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.shape = shape
        self._names = {}  # of buffers, by those of parameters: a module has no dots in names
        for name, tensor in _inside(learned, "network.").items():
            self._names[name] = f"network_{name.replace('.', '_')}"
            self.register_buffer(self._names[name], tensor)
        self._pieces = [name for name in Pieces._fields if f"pieces.{name}" in learned]
        for name in self._pieces:
            self.register_buffer(f"pieces_{name}", learned[f"pieces.{name}"])
        self.heads, self.decoders = nn.ModuleList(), nn.ModuleList()
        for member in range(shape.members):
            own = copy.deepcopy(method)
            decoder = own.decoding
            if decoder is not None:
                _restore(decoder, _inside(learned, f"{member}.decoder."))
                self.decoders.append(decoder)
            if own.own_head:
                head = own.head(shape.hidden, 1).to(shape.dtype)
                _restore(head, _inside(learned, f"{member}.head."))
                self.heads.append(head)
        for name, value in (("center", center), ("scale", scale)):
            self.register_buffer(name, torch.tensor(value, dtype=torch.float64))
        self._check()
        self.requires_grad_(False).eval()

    def features(self, inputs: Tensor) -> Tensor:
        """``(n, hidden)``, of the first member."""
        return self._encoded(inputs)[0]

    def forward(self, inputs: Tensor) -> Tensor:
        """Predictions ``(n, 1)``, the mean of those of the members."""
        z = self._encoded(inputs)
        weight, bias = (self._parameters_by_name[f"head.{name}"] for name in ("weight", "bias"))
        outputs = z @ weight + bias  # (k, n, o)
        if len(self.decoders):
            each = []
            for member, decoder in enumerate(self.decoders):
                own = self.heads[member](z[member]) if len(self.heads) else outputs[member]
                each.append(decoder.decode(own))  # type: ignore[operator]
            outputs = torch.stack(each)
        return outputs.mean(0).double() * self.get_buffer("scale") + self.get_buffer("center")

    @property
    def _parameters_by_name(self) -> dict[str, Tensor]:
        return {name: self.get_buffer(own) for name, own in self._names.items()}

    def _encoded(self, inputs: Tensor) -> Tensor:
        """Features ``(k, n, hidden)`` of the members."""
        own = self._parameters_by_name
        pieces = Pieces(*(self.get_buffer(f"pieces_{name}")[None] for name in self._pieces)) if self._pieces else None
        first = {name: tensor[None] for name, tensor in own.items() if not name[0].isdigit()}
        z = first_inputs(self.shape, first, inputs.to(self.shape.dtype)[None], pieces)  # (1, n, first)
        for layer in range(self.shape.layers):
            weight, bias, r, s = (own.get(f"{layer}.{kind}") for kind in ("weight", "bias", "r", "s"))
            assert weight is not None and bias is not None
            z = shared_layer(z, weight, bias, r, s).relu()
        return z

    def _check(self) -> None:
        """Predicts two rows: what is missing or does not fit is found here."""
        missing = [
            name
            for name in ("head.weight", "head.bias", *(f"{layer}.weight" for layer in range(self.shape.layers)))
            if name not in self._names
        ]
        if missing:
            raise ValueError(f"expected parameters of a network, got none of {', '.join(missing)}")
        with torch.no_grad():
            found = self(torch.zeros(2, self.shape.inputs, dtype=self.shape.dtype))
        if found.shape != (2, 1):
            raise ValueError(f"expected a network that predicts (2, 1) for two rows, got {tuple(found.shape)}")


def _inside(learned: Mapping[str, Tensor], front: str) -> dict[str, Tensor]:
    return {name.removeprefix(front): each for name, each in learned.items() if name.startswith(front)}


def _restore(module: nn.Module, state: dict[str, Any]) -> None:
    """Gives a part its state; whatever does not fit is a ValueError."""
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(" ".join(str(error).split())) from error
