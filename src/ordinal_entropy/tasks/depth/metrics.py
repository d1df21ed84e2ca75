"""Scores of depth maps: of each image under the Eigen crop, then the mean over the images."""

import torch
from torch import Tensor

from ordinal_entropy.environment import import_torchvision
from ordinal_entropy.tasks.depth.maps import EIGEN, MAX_DEPTH, MIN_DEPTH, Box, inside, planes, resized, valid

import_torchvision()  # which torchmetrics would import

from torchmetrics import Metric  # noqa: E402

SCORES = ("delta1", "delta2", "delta3", "rel", "rms", "log10", "silog")
_DELTA = 1.25
_AT_ONCE = 2**21  # pixels that are scored in one go: each takes some hundred bytes meanwhile


def image_scores(
    predictions: Tensor, targets: Tensor, *, crop: Box | None = EIGEN, align_corners: bool = True
) -> Tensor:
    """The scores of each image, over its pixels with a depth between 0.001 and 10 m inside the crop.

    "delta1" to "delta3" are the shares of pixels off by a factor of less than 1.25, 1.25**2 and 1.25**3; "rel" is the
    mean of abs(error) / target, "rms" the root of the mean squared error in metres, "log10" the mean absolute
    difference of decimal logarithms, "silog" a hundred times the standard deviation of log(prediction / target).
    No prediction is rescaled.

    Args:
        predictions: metres, ``(b, h, w)`` or ``(b, 1, h, w)``; brought to the size of the targets, then clamped to
            0.001..10, NaN being 0.001.
        targets: metres, ``(b, h', w')`` or ``(b, 1, h', w')``.
        crop: given for 480 x 640, scaled to the targets; None: the whole map.
        align_corners: how smaller predictions are enlarged, see ``maps.resized``.

    Returns:
        float64 ``(b, 7)``, in the order of ``SCORES``; NaN for an image without a valid pixel.

    Example:
        >>> targets = torch.full((1, 48, 64), 2.0)
        >>> image_scores(torch.full((1, 24, 32), 2.5), targets)[0, 2:6]
        tensor([1.0000, 0.2500, 0.5000, 0.0969], dtype=torch.float64)
    """
    predicted, true = planes(predictions.detach(), "predictions"), planes(targets, "targets").double()
    if len(predicted) != len(true):
        raise ValueError(f"expected predictions of b={len(true)} maps, got {tuple(predictions.shape)}")
    predicted = resized(predicted.double(), (true.shape[1], true.shape[2]), align_corners=align_corners)
    counts = valid(true)  # (b, h, w)
    if crop is not None:
        counts = inside(counts, crop)
    predicted = torch.where(counts, clamped(predicted), 1)
    true = torch.where(counts, true, 1)  # what does not count has no error
    number = counts.sum((1, 2))  # (b,)

    def mean(values: Tensor) -> Tensor:
        return torch.where(counts, values, 0).sum((1, 2)) / number  # 0 / 0 is NaN

    error, logs = (predicted - true).abs(), (predicted / true).log()
    factor = torch.maximum(predicted / true, true / predicted)
    off = mean(logs)
    scores = [mean((factor < _DELTA**power).double()) for power in (1, 2, 3)]
    scores += [mean(error / true), mean(error.square()).sqrt(), mean((predicted.log10() - true.log10()).abs())]
    scores += [100 * mean((logs - off[:, None, None]).square()).sqrt()]
    return torch.stack(scores, 1)


def depth_scores(
    predictions: Tensor, targets: Tensor, *, crop: Box | None = EIGEN, align_corners: bool = True
) -> dict[str, Tensor]:
    """The mean over the images of :func:`image_scores`; those without a valid pixel do not count.

    Args:
        predictions: metres, ``(b, h, w)`` or ``(b, 1, h, w)``.
        targets: metres, ``(b, h', w')`` or ``(b, 1, h', w')``.
        crop: given for 480 x 640; None: the whole map.
        align_corners: how smaller predictions are enlarged.

    Returns:
        float64 scalars by the names of ``SCORES``; NaN without any image.

    Example:
        >>> targets = torch.full((2, 48, 64), 2.0)
        >>> predictions = torch.tensor([2.5, 4.0])[:, None, None].expand(2, 48, 64)
        >>> {name: round(float(value), 3) for name, value in depth_scores(predictions, targets).items()}
        {'delta1': 0.0, 'delta2': 0.5, 'delta3': 0.5, 'rel': 0.625, 'rms': 1.25, 'log10': 0.199, 'silog': 0.0}
    """
    return _means(*_sums(image_scores(predictions, targets, crop=crop, align_corners=align_corners)))


class DepthScores(Metric):
    """:func:`depth_scores` of everything that came in, batch by batch and on all ranks.

    Args:
        crop: given for 480 x 640; None: the whole map.
        align_corners: how smaller predictions are enlarged.

    Example:
        >>> metric = DepthScores()
        >>> metric.update(torch.full((1, 48, 64), 2.5), torch.full((1, 48, 64), 2.0))
        >>> metric.update(torch.full((1, 24, 32), 4.0), torch.full((1, 48, 64), 2.0))
        >>> metric.compute()["rms"]
        tensor(1.2500, dtype=torch.float64)
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    total: Tensor
    number: Tensor

    def __init__(self, *, crop: Box | None = EIGEN, align_corners: bool = True) -> None:
        super().__init__()
        self.crop = crop
        self.align_corners = align_corners
        total, number = _sums(torch.zeros(0, len(SCORES), dtype=torch.float64))
        self.add_state("total", total, dist_reduce_fx="sum")  # over images, (7,)
        self.add_state("number", number, dist_reduce_fx="sum")

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Adds a batch: ``(b, h, w)`` or ``(b, 1, h, w)`` both; b may be 0."""
        predictions, targets = planes(predictions, "predictions"), planes(targets, "targets")
        if len(predictions) != len(targets):
            raise ValueError(f"expected predictions of b={len(targets)} maps, got {tuple(predictions.shape)}")
        some = max(_AT_ONCE // max(targets[:1].numel(), 1), 1)
        for predicted, true in zip(predictions.split(some), targets.split(some), strict=True):
            scores = image_scores(predicted, true, crop=self.crop, align_corners=self.align_corners)
            total, number = _sums(scores)
            self.total = self.total + total
            self.number = self.number + number

    def compute(self) -> dict[str, Tensor]:
        """The scores of :func:`depth_scores`."""
        return _means(self.total, self.number)


class QuickRms(Metric):
    """The "rms" of :class:`DepthScores` of whole maps, not clamped, and in float32: what a training step can afford.

    Predictions in float64 are scored in float64.

    Args:
        align_corners: how smaller predictions are enlarged.

    Example:
        >>> metric = QuickRms()
        >>> metric.update(torch.full((1, 48, 64), 2.5), torch.full((1, 48, 64), 2.0))
        >>> metric.compute()
        {'rms': tensor(0.5000, dtype=torch.float64)}
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False

    total: Tensor
    number: Tensor

    def __init__(self, *, align_corners: bool = True) -> None:
        super().__init__()
        self.align_corners = align_corners
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")  # over images
        self.add_state("number", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, predictions: Tensor, targets: Tensor) -> None:
        """Adds a batch: ``(b, h, w)`` or ``(b, 1, h, w)`` both."""
        predicted, true = planes(predictions.detach(), "predictions"), planes(targets, "targets")
        predicted = predicted.to(torch.promote_types(predicted.dtype, torch.float32))
        predicted = resized(predicted, (true.shape[1], true.shape[2]), align_corners=self.align_corners)
        counts = valid(true)
        number = counts.sum((1, 2))  # (b,)
        squares = torch.where(counts, predicted - true, 0).square().sum((1, 2))
        self.total = self.total + (squares / number.clamp(min=1)).sqrt().sum()
        self.number = self.number + (number > 0).sum()

    def compute(self) -> dict[str, Tensor]:
        """The mean over the images with a valid pixel."""
        return {"rms": self.total / self.number}


def clamped(predictions: Tensor) -> Tensor:
    """Predictions in 0.001..10 m: infinite ones are 10, NaN is 0.001.

    Example:
        >>> clamped(torch.tensor([-1.0, 3.0, float("inf"), float("nan")]))
        tensor([1.0000e-03, 3.0000e+00, 1.0000e+01, 1.0000e-03])
    """
    return predictions.nan_to_num(nan=MIN_DEPTH, posinf=MAX_DEPTH, neginf=MIN_DEPTH).clamp(MIN_DEPTH, MAX_DEPTH)


def flip_averaged(predictions: Tensor, mirrored: Tensor, *, ramp: bool = False) -> Tensor:
    """The mean of the predictions for images and for the mirrored images, each clamped first.

    Args:
        predictions: for the images, metres, ``(..., w)``.
        mirrored: for the images mirrored left to right, in the same shape, not mirrored back.
        ramp: in the 5% of the columns at the left border the mirrored prediction counts alone, at the right border the
            other one, and up to 10% more and more of both: what NeW-CRFs do.

    Example:
        >>> flip_averaged(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([5.0, 4.0, 3.0]))
        tensor([2., 3., 4.])
        >>> flip_averaged(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([5.0, 4.0, 3.0]), ramp=True)
        tensor([3., 3., 3.])
    """
    if predictions.shape != mirrored.shape:
        raise ValueError(f"expected both in one shape, got {tuple(predictions.shape)} and {tuple(mirrored.shape)}")
    plain, back = clamped(predictions), clamped(mirrored).flip(-1)
    if not ramp:
        return (plain + back) / 2
    place = torch.linspace(0, 1, plain.shape[-1], device=plain.device, dtype=plain.dtype)  # of a column
    left = 1 - (20 * (place - 0.05)).clamp(0, 1)
    share = (1 + left - left.flip(-1)) / 2  # of the mirrored one
    return share * back + (1 - share) * plain


def _sums(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Over the images that have scores: their sum ``(7,)`` and how many they are."""
    there = ~scores.isnan().any(1)
    return torch.where(there[:, None], scores, 0).sum(0), there.sum()


def _means(total: Tensor, number: Tensor) -> dict[str, Tensor]:
    return dict(zip(SCORES, total / number, strict=True))
