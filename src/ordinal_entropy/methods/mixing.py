"""What parts that mix batches have in common: inputs that can be mixed, draws, and rows mixed with partners."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Batch


def mixed(batch: Batch, partner: Tensor, share: Tensor) -> Batch:
    """Each row mixed with its partner: inputs, targets and weights; a target counts where both do.

    Args:
        batch: of ``n`` rows.
        partner: ``(n,)``, which row it is.
        share: ``(n,)``, that the row itself keeps.

    Example:
        >>> batch = Batch(torch.tensor([[0.0], [4.0]]), torch.tensor([[1.0], [3.0]]))
        >>> mixed(batch, torch.tensor([1, 0]), torch.tensor([0.25, 1.0]))[:2]
        (tensor([[3.],
                [4.]]), tensor([[2.5000],
                [3.0000]]))
    """

    def of_both(value: Tensor) -> Tensor:
        other = value[partner]
        return other + share.to(value.dtype).view(-1, *[1] * (value.dim() - 1)) * (value - other)

    return Batch(
        each_tensor(of_both, batch.inputs),
        of_both(floating(batch.targets)),
        None if batch.mask is None else batch.mask & batch.mask[partner],
        None if batch.weight is None else of_both(batch.weight),
        None if batch.repeats is None else of_both(batch.repeats),
    )


def host_draws(
    generator: torch.Generator | None,
) -> "np.random.Generator":  # a name alone: numpy.random loads when used
    """A generator on the host, which has a Beta distribution, out of the one that a loop gives."""
    device = None if generator is None else generator.device
    return np.random.default_rng(int(torch.randint(2**62, (1,), generator=generator, device=device)))


def require_alpha(alpha: float) -> float:
    """That of a Beta distribution, or a ValueError."""
    if not 0 < alpha < math.inf:
        raise ValueError(f"expected alpha to be a positive number, got {alpha}")
    return float(alpha)


def floating(targets: Tensor) -> Tensor:
    """Whole numbers as floating-point ones, others as they are."""
    return targets if targets.is_floating_point() else targets.to(torch.get_default_dtype())


def points_inside(targets: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """The targets of each row as ``(n, t, points)``, and which of them are numbers inside the mask.

    Args:
        targets: rows ``(n,)`` and ``(n, t)``, which are of one point, or maps ``(n, h, w)`` and ``(n, t, h, w)``.
        mask: boolean, in their shape, with or without ``t``.
    """
    numbers = _points(targets.detach().double())
    inside = numbers.isfinite()
    if mask is not None:
        inside = inside & _points((mask if mask.dim() == targets.dim() else mask.unsqueeze(1)).expand_as(targets))
    return numbers, inside


def _points(targets: Tensor) -> Tensor:
    if targets.dim() > 2:
        return targets.flatten(2) if targets.dim() == 4 else targets.flatten(1)[:, None]
    return targets[..., None] if targets.dim() == 2 else targets[:, None, None]


def each_tensor(change: Callable[[Tensor], Any], inputs: Any) -> Any:
    """A change of all tensors in a tuple, a list or a dictionary."""
    if isinstance(inputs, dict):
        return {name: each_tensor(change, each) for name, each in inputs.items()}
    if isinstance(inputs, tuple | list):
        found = [each_tensor(change, each) for each in inputs]
        return type(inputs)(*found) if hasattr(inputs, "_fields") else type(inputs)(found)
    return change(inputs)


def require_inputs(inputs: Any, n: int) -> None:
    """A mistake, in one sentence, where inputs cannot be mixed."""

    def check(each: Any) -> None:
        if not isinstance(each, Tensor) or not each.is_floating_point():
            came = each.dtype if isinstance(each, Tensor) else type(each).__name__
            raise TypeError(f"expected inputs of floating-point numbers, which can be mixed, got {came}")
        if each.dim() == 0 or len(each) != n:
            raise ValueError(f"expected inputs of n={n} rows like the targets, got {tuple(each.shape)}")

    each_tensor(check, inputs)
