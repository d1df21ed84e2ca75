"""Feature distribution smoothing: features take on the statistics of those with similar targets."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from ordinal_entropy.methods.contract import Batch, Method, Range
from ordinal_entropy.methods.training_targets import training_numbers

_FACTORS = (0.1, 10.0)  # of variances, the smallest and the largest
_ROUNDING = 1e-12  # of the mean square: a smaller variance is none
# Where the bins are not given, the training rows in each, on average, and the most bins: a variance of ten rows has a
# standard error of half of its value, and one of two rows is noise, which features would be replaced by.
_ROWS_IN_A_BIN, _MOST_BINS = 10, 100


class FDS(Method):
    """Recolours features by statistics smoothed over neighbouring bins of the target (feature distribution smoothing).

    Of each bin of the target, the mean and the variance of the features of an epoch go into a running mean. From the
    epoch ``start`` on, features on their way to the head, in training, are shifted and scaled from the statistics of
    their bin to those of the bins around it. Features of bins that nothing was seen of stay as they are, and so do
    numbers without a variance. Targets are single numbers; features are rows ``(n, d)``.

    Args:
        bins: of one width, over the range of the training targets. None: as many as leave ten training rows in each on
            average, from 2 to 100; the statistics of fewer rows are noise.
        kernel: how many bins are smoothed over, an odd number.
        sigma: standard deviation of the Gaussian that weighs them, in bins.
        momentum: of the running statistics, an epoch.
        start: epochs in which statistics are collected and nothing is changed.

    Example:
        >>> method = FDS(bins=2, kernel=3, sigma=1.0)
        >>> method.prepare(torch.tensor([[0.0], [1.0]]), width=1)
        >>> features, targets = torch.tensor([[0.0], [2.0], [4.0], [8.0]]), torch.tensor([[0.0], [0.0], [1.0], [1.0]])
        >>> method.observe(features, targets)
        >>> method.end_epoch()
        >>> method.calibrate(features, Batch(None, targets))  # means were 1 and 6, variances 1 and 4
        tensor([[1.4274],
                [4.3481],
                [2.4190],
                [5.8056]])
    """

    kind = "smoothing"
    paper = "Yang, Zha, Chen, Wang, Katabi, Delving into Deep Imbalanced Regression, ICML 2021"
    tunable: ClassVar[Mapping[str, Range]] = {
        "sigma": Range(0.5, 8.0, log=True),
        "momentum": Range(0.5, 0.99, limits=(0.0, 0.999)),
    }
    low: Tensor
    high: Tensor
    epochs: Tensor
    amount: Tensor
    sums: Tensor
    squares: Tensor
    seen: Tensor
    mean: Tensor
    variance: Tensor
    center: Tensor
    factor: Tensor
    aim: Tensor

    def __init__(
        self, bins: int | None = None, kernel: int = 5, sigma: float = 2.0, momentum: float = 0.9, start: int = 1
    ) -> None:
        super().__init__()
        for name, value, least in (
            ("bins", 2 if bins is None else bins, 2),
            ("kernel", kernel, 1),
            ("start", start, 1),
        ):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ValueError(f"expected {name} to be a whole number of at least {least}, got {value!r}")
        if kernel % 2 == 0:
            raise ValueError(f"expected kernel to be an odd number of bins, got {kernel}")
        if not 0 < sigma < math.inf:
            raise ValueError(f"expected sigma to be a positive number of bins, got {sigma}")
        if not 0 <= momentum < 1:
            raise ValueError(f"expected momentum from 0 to below 1, got {momentum}")
        self.bins, self.kernel, self.sigma, self.momentum, self.start = bins, kernel, float(sigma), momentum, start
        for name in ("low", "high"):  # of the training targets
            self.register_buffer(name, torch.zeros((), dtype=torch.float64))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.int64))
        self._make_room(bins or 0, 0)

    def _make_room(self, bins: int, width: int) -> None:
        """State of so many bins of features of a width, with nothing seen."""
        for name in ("amount", "seen"):  # (bins,): rows in this epoch; 1 where there were any before
            self.register_buffer(name, self.low.new_zeros(bins))
        for name in ("sums", "squares", "mean", "variance"):  # (bins, d): of this epoch; of those before
            self.register_buffer(name, self.low.new_zeros(bins, width))
        for name in ("center", "aim"):  # (bins, d): the calibrated feature is (feature - center) * factor + aim
            self.register_buffer(name, self.low.new_zeros(bins, width))
        self.register_buffer("factor", self.low.new_ones(bins, width))

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the range of the training targets and the width of the features."""
        numbers = training_numbers(targets)
        if numbers.shape[1] != 1:
            raise ValueError(f"expected targets of one number a row for fds, got {tuple(targets.shape)}")
        if width < 1:
            raise ValueError(f"expected the width of the features for fds, prepare(targets, width=d), got {width}")
        self.low, self.high = numbers.min().to(self.low), numbers.max().to(self.low)
        self.epochs.zero_()
        self._make_room(self.bins or min(max(len(numbers) // _ROWS_IN_A_BIN, 2), _MOST_BINS), width)

    def calibrate(self, features: Tensor, batch: Batch) -> Tensor:
        """The features with smoothed statistics, in training; as they came before that begins."""
        self._check(features)
        if not self.training:
            return features
        index, known = self._index(batch.targets)
        center, factor, aim = (each[index].to(features) for each in (self.center, self.factor, self.aim))
        return torch.where(known[:, None], (features - center) * factor + aim, features)

    @torch.no_grad()
    def observe(self, features: Tensor, targets: Tensor) -> None:
        """Adds the features to the statistics of this epoch; those of a target that is no number are left out.

        Under data parallelism those of all ranks, in every step: then a checkpoint of one rank holds all of them, and a
        wrapper that hands the buffers of the first rank to the others changes nothing.
        """
        self._check(features)
        index, known = self._index(targets)
        features = torch.where(known[:, None], features.to(self.sums.dtype), 0)
        own = torch.cat([known[:, None].to(features), features, features.square()], 1)
        added = own.new_zeros(len(self.amount), own.shape[1]).index_add(0, index, own)
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            dist.all_reduce(added)
        amount, sums, squares = added.split([1, *[features.shape[1]] * 2], 1)
        self.amount += amount[:, 0]
        self.sums += sums
        self.squares += squares

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Moves the running statistics, and from the epoch ``start`` on what features are calibrated by."""
        rows = self.amount[:, None].clamp(min=1)
        mean, square = self.sums / rows, self.squares / rows
        variance = square - mean.square()
        variance = torch.where(variance > _ROUNDING * square, variance, 0)
        kept = (self.momentum * self.seen)[:, None]
        here = (self.amount > 0)[:, None]
        self.mean.copy_(torch.where(here, kept * self.mean + (1 - kept) * mean, self.mean))
        self.variance.copy_(torch.where(here, kept * self.variance + (1 - kept) * variance, self.variance))
        self.seen.copy_(torch.where(here[:, 0], 1, self.seen))
        for total in (self.amount, self.sums, self.squares):
            total.zero_()
        self.epochs += 1
        if int(self.epochs) >= self.start:
            self._smooth()

    def _smooth(self) -> None:
        """Statistics of each bin from those around it that were seen."""
        place = torch.arange(len(self.amount)).to(self.mean)
        away = (place[:, None] - place).abs()
        share = torch.exp(-0.5 * (away / self.sigma).square()) * self.seen
        share = torch.where(away <= self.kernel // 2, share, 0)
        share = share / share.sum(1, keepdim=True).clamp(min=torch.finfo(share.dtype).tiny)
        varies = (self.seen[:, None] > 0) & (self.variance > 0)
        ratio = (share @ self.variance) / torch.where(varies, self.variance, 1)
        self.factor.copy_(torch.where(varies, ratio.clamp(*_FACTORS).sqrt(), 1))
        self.center.copy_(torch.where(varies, self.mean, 0))
        self.aim.copy_(torch.where(varies, share @ self.mean, 0))

    def _index(self, targets: Tensor) -> tuple[Tensor, Tensor]:
        """The bin of each target, ``(n,)``, and whether it is a number; those beyond the range are in the last bins."""
        numbers = (targets.detach() if targets.dim() > 1 else targets.detach()[:, None]).flatten(1).to(self.low.dtype)
        if numbers.shape[1] != 1:
            raise ValueError(f"expected targets of one number a row for fds, got {tuple(targets.shape)}")
        known = numbers[:, 0].isfinite()
        span = torch.where(self.high > self.low, self.high - self.low, 1)
        place = (numbers[:, 0] - self.low) / span * len(self.amount)
        return torch.where(known, place, 0).floor().clamp(0, len(self.amount) - 1).long(), known

    def _check(self, features: Tensor) -> None:
        """Rows as wide as those that `prepare` was told of."""
        width = self.mean.shape[1]
        if width == 0:
            raise ValueError("expected prepare(targets, width=d) before the first step, got features before it")
        if features.dim() != 2 or features.shape[1] != width:
            raise ValueError(f"expected features (n, {width}) for fds, not maps, got {tuple(features.shape)}")

    def extra_repr(self) -> str:
        """The options."""
        return (
            f"bins={self.bins}, kernel={self.kernel}, sigma={self.sigma:g}, momentum={self.momentum:g}, "
            f"start={self.start}"
        )
