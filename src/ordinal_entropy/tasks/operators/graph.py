"""Training steps as a CUDA graph: captured once, then launched as one piece."""

import torch

from ordinal_entropy.tasks.operators.stepping import Stepping


def captured(stepping: Stepping, steps: int) -> torch.cuda.CUDAGraph:
    """A graph of so many steps from wherever the training is, which is not changed by capturing them.

    All that a step reads and writes lies in tensors of ``stepping`` that stay where they are; what it makes on the way
    lies in the graph's own memory.
    """
    device = stepping.stack.flat.device
    with torch.cuda.device(device):
        before = {name: tensor.clone() for name, tensor in stepping.state.items()}
        # Everything once outside: kernels are compiled, libraries loaded, for the very shapes and places in memory
        # that are captured. On a stream of its own, as PyTorch's notes on graphs ask.
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            stepping.advance(steps)
        torch.cuda.current_stream().wait_stream(side)
        stepping.restore(before)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            stepping.advance(steps)
    return graph
