"""What methods look at in the training targets: their numbers, moments, and an even sample of them."""

import torch
from torch import Tensor


def training_numbers(targets: Tensor) -> Tensor:
    """The training targets as ``(n, t)`` in float64; a ValueError where there are none or some are not finite.

    Example:
        >>> training_numbers(torch.tensor([1, 2]))
        tensor([[1.],
                [2.]], dtype=torch.float64)
    """
    numbers = (targets.flatten(1) if targets.dim() > 1 else targets[:, None]).double()
    if not (len(numbers) and bool(numbers.isfinite().all())):
        raise ValueError(f"expected finite training targets, at least one, got {tuple(targets.shape)}")
    return numbers


def moments(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation ``(t,)`` of numbers ``(n, t)``; a deviation of 0 counts as 1.

    Example:
        >>> moments(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
        (tensor([2., 5.]), tensor([1., 1.]))
    """
    scale = numbers.std(0, correction=0)
    return numbers.mean(0), torch.where(scale > 0, scale, 1)


def evenly_spread(numbers: Tensor, most: int) -> Tensor:
    """At most so many of the rows ``(n, t)``, evenly spread in their order, which is lexicographic.

    Example:
        >>> evenly_spread(torch.tensor([[4.0], [0.0], [3.0], [1.0], [2.0]]), most=3)
        tensor([[0.],
                [2.],
                [4.]])
    """
    for place in reversed(range(numbers.shape[1])):  # in the end by the first number, ties by the second, ...
        numbers = numbers[numbers[:, place].argsort(stable=True)]
    if len(numbers) <= most:
        return numbers
    return numbers[torch.linspace(0, len(numbers) - 1, most, device=numbers.device).round().long()]
