"""Averages of the weights over training steps, as controls: they vary less than the last weights do."""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from ordinal_entropy.methods.contract import Method, Range


class EMA(Method):
    """Predictions by an exponential moving average of the weights.

    Early in training the average is shorter, so that it has forgotten the first weights.

    Args:
        decay: of the average, a step.

    Example:
        >>> EMA(decay=0.9).share(torch.tensor([1, 10, 1000]), steps=1000)
        tensor([0.8182, 0.4500, 0.1000], dtype=torch.float64)
    """

    kind = "averaging"
    cost = "a copy of the weights, one pass over it in each step"
    maps = True
    paper = "Polyak and Juditsky, Acceleration of Stochastic Approximation by Averaging, SIAM J. Control Optim. 1992"
    tunable: ClassVar[Mapping[str, Range]] = {"decay": Range(choices=(0.9, 0.97, 0.99, 0.997, 0.999, 0.9997))}

    def __init__(self, decay: float = 0.999) -> None:
        super().__init__()
        if not 0 <= decay < 1:
            raise ValueError(f"expected decay from 0 to below 1, got {decay}")
        self.decay = float(decay)

    def share(self, step: Tensor, steps: int) -> Tensor:
        """``1 - min(decay, (1 + step) / (10 + step))``."""
        step = step.double()
        return 1 - ((1 + step) / (10 + step)).clamp(max=self.decay)

    def extra_repr(self) -> str:
        """The decay."""
        return f"decay={self.decay:g}"


class SWA(Method):
    """Predictions by the mean of the weights of the last part of training (stochastic weight averaging).

    Args:
        start: share of the training after which the mean begins.

    Example:
        >>> SWA(start=0.5).share(torch.tensor([1, 4, 5, 6, 8]), steps=8)
        tensor([1.0000, 1.0000, 0.5000, 0.3333, 0.2000], dtype=torch.float64)
    """

    kind = "averaging"
    cost = "a copy of the weights, one pass over it in each step"
    maps = True
    paper = "Izmailov et al., Averaging Weights Leads to Wider Optima and Better Generalization, UAI 2018"
    tunable: ClassVar[Mapping[str, Range]] = {"start": Range(0.25, 0.9, limits=(0.0, 0.99))}

    def __init__(self, start: float = 0.75) -> None:
        super().__init__()
        if not 0 <= start < 1:
            raise ValueError(f"expected start as a share of the training from 0 to below 1, got {start}")
        self.start = float(start)

    def share(self, step: Tensor, steps: int) -> Tensor:
        """``1 / k`` for the k-th step of the mean."""
        return 1 / (step.double() - max(int(self.start * steps), 1) + 1).clamp(min=1)

    def extra_repr(self) -> str:
        """The start."""
        return f"start={self.start:g}"


class Average(nn.Module):
    """An average of the weights of a model; what is counted in the model, as of batch normalisation, included.

    Args:
        model: whose weights are averaged; not changed.

    Example:
        >>> model = nn.Linear(1, 1, bias=False)
        >>> average = Average(model)
        >>> with torch.no_grad():
        ...     model.weight.fill_(3.0)
        ...     average.model.weight.fill_(1.0)
        ...     average.update(model, torch.tensor(0.25))
        ...     with average.in_place_of(model):
        ...         model(torch.ones(1, 1)), average.model.weight
        Parameter containing:
        tensor([[3.]], requires_grad=True)
        Parameter containing:
        tensor([[1.]])
        (tensor([[1.5000]]), Parameter containing:
        tensor([[3.]]))
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).requires_grad_(False)

    @torch.no_grad()
    def update(self, model: nn.Module, share: Tensor) -> None:
        """Moves the average towards the weights of now, by their share in it."""
        own, now = (_floating(each) for each in (self.model, model))
        torch._foreach_lerp_(own, now, float(share))

    @contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Inside, the model has the average for its weights, and the average those of the model."""
        self.exchange(model)
        try:
            yield
        finally:
            self.exchange(model)

    @torch.no_grad()
    def exchange(self, model: nn.Module) -> None:
        """Gives each the weights of the other, in the same memory."""
        own, now = (_floating(each) for each in (self.model, model))
        before: Any = [each.clone() for each in now]
        torch._foreach_copy_(now, own)
        torch._foreach_copy_(own, before)


def _floating(model: nn.Module) -> list[Tensor]:
    """Parameters and buffers, but whole numbers."""
    return [each for each in model.state_dict().values() if each.is_floating_point()]
