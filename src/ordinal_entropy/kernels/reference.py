"""The sum over all pairs as one reads it: matrices of all pairs, in float64 where the device has it.

Plain differentiable operations: higher derivatives, ``torch.func`` and any backend of ``torch.compile`` work. In
float64 the product form of a distance loses pairs closer than about 1e-7 of the spread of the points, which float32
inputs can hardly hold. Points closer than ``unit.SAME`` of their root mean square coincide, as in every kernel.
"""

import torch
from torch import Tensor

from ordinal_entropy.kernels.unit import SAME, unit_rows
from ordinal_entropy.kernels.weights import Function
from ordinal_entropy.kernels.weights import distances as distances_between


def pair_sums(
    points: Tensor,
    values: Tensor,
    amount: Tensor,
    low: Tensor | None,
    weighting: float | Function,
    distance: str,
    project: bool = False,
) -> Tensor:
    """``sum_{i<j} a_i a_j (w_ij - low) dist_ij``, one a group.

    Args:
        points: ``(g, m, d)``.
        values: ``(g, m, t)`` targets.
        amount: ``(g, m)``, the a_i.
        low: ``(g,)`` taken off the weights, or None.
        weighting: a power of the distance between values, or a function.
        distance: "l2" (coincident points get no gradient) or "cosine" (with ``project``; zero rows are at 1 from all).
        project: divide the points by their norms first.

    Returns:
        ``(g,)`` in the dtype of the points.

    Example:
        >>> x, y = torch.tensor([[[0.0], [3.0], [4.0]]]), torch.tensor([[[0.0], [1.0], [2.0]]])
        >>> pair_sums(x, y, torch.ones(1, 3), None, 1.0, "l2")  # 1 * 3 + 2 * 4 + 1 * 1
        tensor([12.])
    """
    dtype = torch.float32 if points.device.type == "mps" else torch.float64
    x = unit_rows(points.to(dtype)) if project else points.to(dtype)
    norms = x.detach().square().sum(-1)  # (g, m), squared
    x = x - x.mean(1, keepdim=True)  # (g, m, d)
    sizes = x.square().sum(-1)
    sizes = sizes[:, :, None] + sizes[:, None]  # (g, m, m), |x_i|^2 + |x_j|^2
    squares = sizes - 2 * x @ x.mT
    if distance == "cosine":
        zero = 0.5 * (norms < 0.5)
        distances = squares / 2 + zero[:, :, None] + zero[:, None]  # 1 - cos = |x_i - x_j|^2 / 2 between unit rows
    else:
        least = torch.maximum(4 * torch.finfo(dtype).eps * sizes.detach(), SAME**2 * norms.mean(1)[:, None, None])
        same = squares.detach() <= least  # False for NaN
        distances = torch.where(same, 0, torch.where(same, 1, squares).sqrt())
    if callable(weighting):
        weights = torch.stack([(weighting(v, v) + weighting(v, v).mT) / 2 for v in values])
    elif values.shape[-1] == 1:
        weights = (values - values.mT).abs().pow(weighting)
    else:
        weights = distances_between(values, values).pow(weighting)
    if low is not None:
        weights = weights - low[:, None, None]
    weights = (weights * amount[:, :, None] * amount[:, None]).triu(1)
    return (weights * distances).sum((1, 2)).to(points.dtype)
