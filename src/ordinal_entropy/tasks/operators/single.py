"""A run of a stack that takes its training steps by itself, for methods that the stack has not written out.

It is the loop of :func:`ordinal_entropy.methods.training_loss` and AdamW on the run's slices of the stack.
"""

import logging
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from ordinal_entropy.methods import Batch, Composition, first_epochs, require, squared_error, stage_of, training_loss

_CAN = {"head", "loss", "weights", "mixing", "smoothing", "term", "parameters", "stages"}
_DRAWS = 1  # a stream of a seed
_LOG = logging.getLogger(__name__)


def require_trainable(method: Composition) -> None:
    """A ValueError where a method needs what a stack cannot do."""
    views = "views" in method.requirements()
    because = "rows of an operator have no augmented views" if views else "its networks are slices of one tensor"
    require(method, _CAN, "a stack of operators", because)


class Single:
    """One run.

    Args:
        method: of this run alone.
        seed: of its draws, and of the head that its method brings.
        layers: weight ``(fan_in, fan_out)`` and bias ``(fan_out,)`` of each, as views of the stack.
        inputs: all training rows ``(n, i)``.
        targets: ``(n, 1)``.
        steps: in all, which two stages share.
        learning_rate: of AdamW.
        weight_decay: of AdamW.
    """

    def __init__(
        self,
        method: Composition,
        seed: int,
        layers: Sequence[tuple[Tensor, Tensor]],
        inputs: Tensor,
        targets: Tensor,
        *,
        steps: int,
        learning_rate: float,
        weight_decay: float,
    ) -> None:
        require_trainable(method)
        self.seed, self.steps, self.inputs, self.targets = seed, steps, inputs, targets
        width = len(layers[-1][0])
        self.method = method.to(targets)
        self.method.prepare(targets, inputs, width)
        for note in self.method.notes:
            _LOG.warning("%s", note)
        self.parameters = [nn.Parameter(part.detach()) for layer in layers for part in layer]  # share their memory
        self.head: nn.Module = _Linear(*self.parameters[-2:])
        if method.own_head:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                self.head = method.head(width, targets.shape[1]).to(targets)
        self.optimised = dict(enumerate([*self.parameters[:-2], *self.head.parameters(), *self.method.parameters()]))
        self.optimizer = torch.optim.AdamW(self.optimised.values(), lr=learning_rate, weight_decay=weight_decay)
        for tensor in self.optimised.values():
            moments = {"exp_avg": torch.zeros_like(tensor), "exp_avg_sq": torch.zeros_like(tensor)}
            self.optimizer.state[tensor] = {"step": torch.zeros(()), **moments}

    @torch.enable_grad()
    def step(self, number: int) -> None:
        """The training step of that number, from 0 on: all rows, so that it is an epoch too."""
        drawn = int(np.random.default_rng([self.seed, _DRAWS, number]).integers(2**62))
        generator = torch.Generator().manual_seed(drawn)
        stage = stage_of(self.method, number, self.steps)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(drawn)  # of regularizers that draw rows
            batch = Batch(self.inputs, self.targets)
            loss = training_loss(self.method, self._encoder, self.head, batch, squared_error, generator, stage=stage)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.method.end_epoch()

    def in_first_stage(self, steps: int) -> bool:
        """Whether of two stages, after so many steps, the second one has not begun to train."""
        return 0 < first_epochs(self.method, self.steps) >= steps

    def state(self) -> dict[str, Tensor]:
        """All that a step changes beside the slices of the stack, by name: the tensors themselves."""
        found = dict(self.method.state_dict())
        if not isinstance(self.head, _Linear):
            found |= {f"head.{name}": tensor for name, tensor in self.head.state_dict().items()}
        for number, tensor in self.optimised.items():
            found |= {f"{key}.{number}": value for key, value in self.optimizer.state[tensor].items()}
        return found

    def _encoder(self, x: Tensor) -> Tensor:
        for weight, bias in zip(self.parameters[:-2:2], self.parameters[1:-2:2], strict=True):
            x = torch.addmm(bias, x, weight).relu()
        return x


class _Linear(nn.Module):
    """The head that is part of the stack."""

    def __init__(self, weight: nn.Parameter, bias: nn.Parameter) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, features: Tensor) -> Tensor:
        return torch.addmm(self.bias, features, self.weight)
