"""Task losses of density maps: squared errors of cells, summed over an image as published, or averaged."""

import torch
from torch import Tensor

from ordinal_entropy.recipes import lookup

NAMES = ("sum-mse", "mse")


def task_loss(
    predictions: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    *,
    loss: str = "mse",
    scale: float = 1.0,
) -> Tensor:
    """Squared errors of the heads in each cell; cells without a target, NaN, do not count.

    Args:
        predictions: ``(b, 1, h, w)``, heads in each cell.
        targets: likewise.
        mask: boolean, likewise: cells that count, if they have a target; None: all that have one.
        weight: of each cell's squared error, likewise; None: all 1.
        loss: "sum-mse": the sum over the cells of an image, in the mean over the images, as published for one image at
            a time; "mse": the mean over all cells of the batch.
        scale: of "mse": predictions and targets are multiplied by it beforehand.

    Returns:
        Scalar, float32 for half precision. No cells: a zero that is still part of the graph.

    Example:
        >>> cells, heads = torch.zeros(1, 1, 1, 3), torch.tensor([[[[1.0, 2.0, torch.nan]]]])
        >>> task_loss(cells, heads, loss="sum-mse"), task_loss(cells, heads, scale=2.0)
        (tensor(5.), tensor(10.))
    """
    lookup("loss", loss, dict.fromkeys(NAMES))
    if predictions.shape != targets.shape:
        raise ValueError(f"expected predictions {tuple(targets.shape)} as the targets, got {tuple(predictions.shape)}")
    if predictions.dtype in (torch.float16, torch.bfloat16):
        predictions = predictions.float()
    for name, part in (("a mask", mask), ("weights", weight)):
        if part is not None and part.shape != targets.shape:
            raise ValueError(f"expected {name} {tuple(targets.shape)} as the targets, got {tuple(part.shape)}")
    inside = ~targets.isnan() if mask is None else mask & ~targets.isnan()
    squares = (predictions - targets.to(predictions.dtype)).where(inside, 0).square()
    if weight is not None:
        squares = squares * weight.to(squares.dtype).where(inside, 0)
    if loss == "sum-mse":
        return squares.sum() / max(len(squares), 1)
    return scale**2 * squares.sum() / inside.sum().clamp(min=1)
