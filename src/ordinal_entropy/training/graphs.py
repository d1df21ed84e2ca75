"""Training steps as CUDA graphs: captured once, then launched as one piece.

On small networks a host takes longer to launch the kernels of a step than a GPU takes to run them. What a captured step
reads and writes must lie in tensors that stay where they are; what it makes on the way lies in the graph's own memory.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

Result = TypeVar("Result")


def captured(
    step: Callable[[], Result], *, warm_up: Mapping[str, Tensor] | None = None, mode: str = "global"
) -> tuple[torch.cuda.CUDAGraph, Result]:
    """A graph of a step, and what the step returned: tensors that each replay writes anew.

    Args:
        step: looks at no value on the host.
        warm_up: all that a step changes and the next one needs, by name: the step runs once outside the graph, so that
            kernels are compiled and libraries loaded for these very shapes, and these tensors are put back. None: a few
            steps have run before.
        mode: "global", or "thread_local" where other threads use the GPU meanwhile.
    """
    if warm_up is not None:
        before = {name: tensor.clone() for name, tensor in warm_up.items()}
        side = torch.cuda.Stream()  # as PyTorch's notes on graphs ask
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        with torch.no_grad():
            for name, tensor in warm_up.items():
                tensor.copy_(before[name])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=mode):
        result = step()
    return graph, result


class Made(NamedTuple):
    """What a step on images gives beside gradients."""

    loss: Tensor
    predictions: Tensor  # of the training images, and
    truth: Tensor  # what they are scored against


class StepGraph:
    """The step of one number of rows, from rows to gradients. Making it changes nothing but the gradients.

    A few steps must have run before.

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

        def backward() -> Made:
            # casts of weights that were kept would be left out of the graph
            with torch.autocast(kind, dtype=dtype, enabled=mixed, cache_enabled=False):
                made = step(self.rows, self.draws)
            with torch.autocast(kind, enabled=False):
                made.loss.backward()
            return made

        self.graph, made = captured(backward, mode="thread_local")  # other threads write files meanwhile
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
