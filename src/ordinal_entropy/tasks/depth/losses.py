"""Task losses over the pixels of a batch that have a depth: mean squared error, and the scale-invariant one of logs."""

from typing import NamedTuple

import torch
from torch import Tensor

from ordinal_entropy.recipes import lookup
from ordinal_entropy.tasks.depth.maps import MIN_DEPTH, planes, resized

_TINY = 1e-30  # of the mean weight, so that weights of 0 can be divided by it
_LEAST = 1e-6  # metres; a prediction below has no logarithm to learn from


class Form(NamedTuple):
    """A published form of :func:`silog`."""

    above: float  # targets of so many metres or less do not count
    unbiased: bool  # variance over n - 1


FORMS = {"adabins": Form(above=1e-3, unbiased=True), "newcrfs": Form(above=0.1, unbiased=False)}


def masked_mse(
    predictions: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    *,
    above: float = MIN_DEPTH,
    align_corners: bool = True,
) -> Tensor:
    """The mean squared error over all pixels of the batch that count.

    Args:
        predictions: ``(b, h, w)`` or ``(b, 1, h, w)``; brought to the size of the targets.
        targets: depths in metres, ``(b, h', w')`` or ``(b, 1, h', w')``.
        mask: boolean, in the shape of the targets: pixels that count, if their target does.
        weight: of each pixel's squared error, in the shape of the targets; the mean is not divided by their sum.
        above: targets of so many metres or less do not count, nor do NaN and infinite ones.
        align_corners: how smaller predictions are enlarged, see ``maps.resized``.

    Returns:
        Scalar, float32 for half precision. No pixel: a zero that is still part of the graph.

    Example:
        >>> masked_mse(torch.tensor([[[1.0, 2.0, 5.0]]]), torch.tensor([[[1.0, 4.0, 0.0]]]))
        tensor(2.)
    """
    found = _pixels(predictions, targets, mask, weight, above, align_corners)
    squares = (found.predicted - found.true).square()  # 0 where none counts
    if found.weight is not None:
        squares = found.weight * squares
    return squares.sum() / found.counts.sum().clamp(min=1)


def silog(
    predictions: Tensor,
    targets: Tensor,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
    *,
    form: str = "newcrfs",
    factor: float = 0.85,
    scale: float = 10.0,
    above: float | None = None,
    align_corners: bool = True,
) -> Tensor:
    """``scale * sqrt(var(d) + (1 - factor) * mean(d)**2)`` of ``d = log(prediction / target)`` over all pixels.

    With the factor 1 a common factor of all predictions costs nothing, with 0 it is the root mean square of ``d``.

    Args:
        predictions: ``(b, h, w)`` or ``(b, 1, h, w)``, positive (less than 1e-6 m counts as that much); brought to the
            size of the targets.
        targets: depths in metres, ``(b, h', w')`` or ``(b, 1, h', w')``.
        mask: boolean, in the shape of the targets: pixels that count, if their target does.
        weight: of each pixel in mean and variance, in the shape of the targets and at least 0; a common factor of all
            weights changes nothing.
        form: "newcrfs": targets above 0.1 m; "adabins": above 0.001 m, and the variance over n - 1.
        factor: how much of a common factor is forgiven, 0 to 1.
        scale: of the whole.
        above: targets of so many metres or less do not count, in place of the form's.
        align_corners: how smaller predictions are enlarged, see ``maps.resized``.

    Returns:
        Scalar, float32 for half precision. No pixel, or no error at all: a zero with a zero gradient.

    Example:
        >>> silog(torch.tensor([[[2.0, 4.0]]]), torch.tensor([[[1.0, 2.0]]]), factor=1.0) < 1e-5
        tensor(True)
        >>> silog(torch.tensor([[[2.0, 4.0]]]), torch.tensor([[[1.0, 1.0]]]))
        tensor(5.3129)
    """
    published = lookup("form", form, FORMS)
    if not 0 <= factor <= 1:
        raise ValueError(f"expected a factor from 0 to 1, got {factor}")
    least = published.above if above is None else above
    found = _pixels(predictions, targets, mask, weight, least, align_corners)
    # what does not count is 0 in both, hence 0 here
    difference = found.predicted.clamp(min=_LEAST).log() - found.true.clamp(min=_LEAST).log()
    number = found.counts.sum()
    weight = (
        None if found.weight is None else found.weight / (found.weight.sum() / number.clamp(min=1)).clamp(min=_TINY)
    )
    mean = _times(weight, difference).sum() / number.clamp(min=1)
    spread = torch.where(found.counts, difference - mean, 0).square()  # mean(d**2) - mean(d)**2 would lose digits
    variance = _times(weight, spread).sum() / (number - int(published.unbiased)).clamp(min=1)
    value = variance + (1 - factor) * mean.square()
    some = value > 0  # the slope of a root at 0 is infinite
    return scale * torch.where(some, torch.where(some, value, 1).sqrt(), value)


def _times(weight: Tensor | None, values: Tensor) -> Tensor:
    return values if weight is None else weight * values


class _Pixels(NamedTuple):
    """Maps ``(b, h, w)``; what does not count is 0 in all of them."""

    predicted: Tensor
    true: Tensor
    counts: Tensor  # boolean
    weight: Tensor | None


def _pixels(
    predictions: Tensor, targets: Tensor, mask: Tensor | None, weight: Tensor | None, above: float, align_corners: bool
) -> _Pixels:
    predicted, true = planes(predictions, "predictions"), planes(targets, "targets")
    if len(predicted) != len(true):
        raise ValueError(f"expected predictions of b={len(true)} maps, got {tuple(predictions.shape)}")
    if not predicted.is_floating_point():
        raise TypeError(f"expected floating-point predictions, got {predicted.dtype}")
    predicted = predicted.to(torch.promote_types(predicted.dtype, torch.float32))
    predicted = resized(predicted, (true.shape[1], true.shape[2]), align_corners=align_corners)
    counts = (true > above) & torch.isfinite(true)  # false for NaN
    if mask is not None:
        if mask.dtype != torch.bool:
            raise TypeError(f"expected a boolean mask, got {mask.dtype}")
        counts = counts & _like(true, mask, "a mask")
    if weight is not None:
        weight = torch.where(counts, _like(true, weight, "weights"), 0).to(predicted.dtype)
    return _Pixels(torch.where(counts, predicted, 0), torch.where(counts, true, 0).to(predicted.dtype), counts, weight)


def _like(true: Tensor, maps: Tensor, name: str) -> Tensor:
    """Maps of the targets' shape ``(b, h, w)``; others are a ValueError."""
    found = planes(maps, name)
    if found.shape != true.shape:
        raise ValueError(f"expected {name} in the shape of the targets {tuple(true.shape)}, got {tuple(maps.shape)}")
    return found
