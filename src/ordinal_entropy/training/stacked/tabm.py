"""TabM as the networks of a stack: one product a layer for all members of a run, differentiated by autograd."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ordinal_entropy.models.tabm import shared_layer
from ordinal_entropy.training.stacked.network import Network, Views, first_inputs


class TabM(Network):
    """Members that share their weights; see ``models/tabm.py`` for the mathematics."""

    _made: Tensor | None = None  # features (r, k, n, hidden) of this step, with their graph

    def load(self, x: Tensor) -> None:
        """Rows ``(r, n, inputs)`` for the next steps, which all members of a run see."""
        if x.shape[1] != self._n:
            self._make_room(x.shape[1])
        self._x = x

    def load_run(self, run: int, x: Tensor) -> None:
        """Other rows ``(n, inputs)`` of one run."""
        self._x = self._x.clone()
        self._x[run] = x

    def forward(self, *, differentiable: bool = True, seeds: Sequence[int] = ()) -> None:
        """Features of the rows that were loaded."""
        factors = self._dropped(seeds, self.shape.members, self._n) if seeds else []
        with torch.set_grad_enabled(differentiable):
            self._made = self._encoded(self._named, self._x, factors)
        self.features.copy_(self._made.detach().flatten(0, 1))

    def backward(self) -> None:
        """Gradients of all that is below the features, from that at the features."""
        assert self._made is not None
        for tensor in self.gradient.named.values():
            tensor.zero_()
        torch.autograd.backward(self._made, self.by_features.view_as(self._made))
        self._made = None

    def _layers_with_room(self) -> int:
        return 1

    def _features(self, own: Views, x: Tensor) -> Tensor:
        return self._encoded(own.named, x, []).flatten(0, 1)

    def _encoded(self, own: Mapping[str, Tensor], x: Tensor, factors: Sequence[Tensor]) -> Tensor:
        """Features ``(r, k, n, hidden)`` of rows ``(r, n, inputs)``."""
        z = first_inputs(self.shape, own, x, self.pieces)[:, None]
        for layer in range(self.shape.layers):
            weight, bias, r, s = (own.get(f"{layer}.{kind}") for kind in ("weight", "bias", "r", "s"))
            assert weight is not None and bias is not None
            z = shared_layer(z, weight, bias, r, s).relu()
            if factors:
                z = z * factors[layer]
        return z
