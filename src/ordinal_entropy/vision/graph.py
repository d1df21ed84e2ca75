"""A training step as a CUDA graph: all that it asks of the GPU, from rows to gradients, launched as one piece.

On small images a host takes longer to launch the kernels of a step than a GPU takes to run them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn


class Made(NamedTuple):
    """What a step gives beside gradients."""

    loss: Tensor
    predictions: Tensor  # of the training images, and
    truth: Tensor  # what they are scored against


class StepGraph:
    """The step of one number of rows. To make it changes nothing but the gradients; to call it is a step.

    A few steps must have run before, so that kernels are compiled and libraries loaded.

    Args:
        step: from rows ``(b,)`` and their draws ``(b, ...)`` to the loss and more, without a look at any value.
        parameters: whose gradients are wanted.
        rows: of some batch, and
        draws: likewise; all others have these shapes.
    """

    def __init__(
        self, step: Callable[[Tensor, Tensor], Made], parameters: Sequence[nn.Parameter], rows: Tensor, draws: Tensor
    ) -> None:
        self.rows, self.draws, self.parameters = rows.clone(), draws.clone(), parameters
        for parameter in parameters:
            parameter.grad = None  # so that the graph writes them, and adds to nothing
        kind, mixed = rows.device.type, torch.is_autocast_enabled(rows.device.type)
        dtype = torch.get_autocast_dtype(kind)
        self.graph = torch.cuda.CUDAGraph()
        # other threads write files meanwhile; casts of weights that were kept would be left out of the graph
        with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
            with torch.autocast(kind, dtype=dtype, enabled=mixed, cache_enabled=False):
                made = step(self.rows, self.draws)
            with torch.autocast(kind, enabled=False):
                made.loss.backward()
        # what autograd made belongs to the stream of the capture: steps outside must not meet it
        self.made = Made(*(each.detach() for each in made))
        self.gradients = [parameter.grad for parameter in parameters]

    def __call__(self, rows: Tensor, draws: Tensor) -> Made:
        """What the step of a batch gives; the gradients are there too, for :meth:`lend`."""
        self.rows.copy_(rows)
        self.draws.copy_(draws)
        self.graph.replay()
        return Made(*(each.clone() for each in self.made))

    def lend(self) -> None:
        """Gives the parameters their gradients, which the next call overwrites."""
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
