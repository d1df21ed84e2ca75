"""C-Mixup: rows are mixed with partners of a similar target."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Batch, Method, Range
from ordinal_entropy.methods.mixing import floating, host_draws, mixed, points_inside, require_alpha, require_inputs
from ordinal_entropy.methods.training_targets import evenly_spread, moments, training_numbers

_ROWS = 1000  # of the training set, whose distances the bandwidth is a quantile of


def mixing_probabilities(targets: Tensor, bandwidth: float | Tensor) -> Tensor:
    """With which probability each row has each other one as its partner: that of a Gaussian of the target distance.

    Args:
        targets: ``(n, t)``.
        bandwidth: standard deviation of the Gaussian, in the unit of the targets.

    Returns:
        ``(n, n)`` in float64; no row is its own partner. However far the others are, the nearest are the likeliest.

    Example:
        >>> mixing_probabilities(torch.tensor([[0.0], [1.0], [3.0]]), bandwidth=1.0)
        tensor([[0.0000, 0.9820, 0.0180],
                [0.8176, 0.0000, 0.1824],
                [0.0759, 0.9241, 0.0000]], dtype=torch.float64)
    """
    numbers = targets.double()
    return _probabilities(numbers / bandwidth, numbers.new_ones(len(numbers), dtype=torch.bool))


def _probabilities(numbers: Tensor, usable: Tensor) -> Tensor:
    """Of targets in bandwidths; rows that are not usable are nobody's partner. NaN where there is none."""
    logits = -0.5 * torch.cdist(numbers, numbers, compute_mode="donot_use_mm_for_euclid_dist").square()
    own = torch.eye(len(numbers), dtype=torch.bool, device=numbers.device)
    return logits.masked_fill(own | ~usable, -math.inf).softmax(1)


def distance_quantile(targets: Tensor, quantile: float) -> Tensor:
    """A quantile of the distances between targets ``(n, t)``, at least the smallest that is not 0; 1 if all are.

    Of many rows, a thousand that are evenly spread in their order are taken.

    Example:
        >>> distance_quantile(torch.tensor([[0.0], [0.0], [0.0], [2.0]]), 0.1)
        tensor(2., dtype=torch.float64)
    """
    numbers = evenly_spread(targets.double(), _ROWS)
    distances = torch.pdist(numbers)
    apart = distances[distances > 0]
    if not len(apart):
        return numbers.new_ones(())
    return torch.maximum(distances.quantile(quantile), apart.min())


class CMixup(Method):
    """Mixes inputs and targets of each row with a partner of a similar target (C-Mixup).

    The partner is another row of the batch, drawn with a probability that falls with the distance of the targets as a
    Gaussian does; each row has its own share, drawn from Beta(alpha, alpha). Weights are mixed likewise, and a target
    counts where both do. Each number of a target is measured in its standard deviation; maps are compared by their
    mean targets, within the batch. A row of which no target counts is nobody's partner.

    Args:
        alpha: of the Beta distribution; large ones mix by halves.
        bandwidth: standard deviation of the Gaussian, as a quantile of the distances between training targets, 0 to 1;
            at least the smallest distance that is not 0.

    Example:
        >>> method = CMixup()
        >>> method.prepare(torch.tensor([[0.0], [1.0], [9.0]]))
        >>> batch = Batch(torch.tensor([[0.0], [10.0]]), torch.tensor([[0.0], [1.0]]))
        >>> mixed = method.change(batch, torch.Generator().manual_seed(0))
        >>> bool((mixed.inputs == 10 * mixed.targets).all()), bool((mixed.targets > 0).all())
        (True, True)
    """

    kind = "mixing"
    paper = "Yao, Wang, Zhang, Zou, Finn, C-Mixup: Improving Generalization in Regression, NeurIPS 2022"
    tunable: ClassVar[Mapping[str, Range]] = {
        "alpha": Range(0.2, 4.0, log=True),
        "bandwidth": Range(0.01, 0.5, log=True, limits=(0.0, 1.0)),
    }
    maps = True
    center: Tensor
    scale: Tensor
    width: Tensor

    def __init__(self, alpha: float = 2.0, bandwidth: float = 0.1) -> None:
        super().__init__()
        self.alpha = require_alpha(alpha)
        if not 0 <= bandwidth <= 1:
            raise ValueError(f"expected bandwidth as a quantile of target distances from 0 to 1, got {bandwidth}")
        self.bandwidth = float(bandwidth)
        for name in ("center", "scale"):  # (t,), of the training targets; empty before `prepare`
            self.register_buffer(name, torch.zeros(0, dtype=torch.float64))
        self.register_buffer("width", torch.ones((), dtype=torch.float64))  # of the Gaussian, in standard deviations

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the distances of the training targets."""
        numbers = training_numbers(targets)
        center, scale = moments(numbers)
        self.center, self.scale = center.to(self.center), scale.to(self.scale)
        self.width = distance_quantile((numbers - center) / scale, self.bandwidth).to(self.width)

    def change(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The mixed batch; one of a single row as it is."""
        targets = floating(batch.targets)
        n = len(targets)
        require_inputs(batch.inputs, n)
        if n < 2:
            return batch
        return mixed(batch, *self._draw(targets, batch.mask, generator))

    def _draw(self, targets: Tensor, mask: Tensor | None, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        """The partner of each row and the share that the row itself keeps."""
        draws = host_draws(generator)
        numbers, usable = self._compared(targets, mask)
        until = _probabilities(numbers, usable).cumsum(1)
        until = until / until[:, -1:]
        place = torch.from_numpy(draws.random((len(targets), 1))).to(until)
        partner = (until <= place).sum(1)
        partner = torch.where(until[:, -1].isnan(), torch.arange(len(targets), device=targets.device), partner)
        return partner, torch.from_numpy(draws.beta(self.alpha, self.alpha, len(targets))).to(until)

    def _compared(self, targets: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """What rows are compared by, ``(n, t)`` in bandwidths, and which may be partners."""
        maps = targets.dim() > 2
        numbers, inside = points_inside(targets, mask)
        amount = inside.sum(2)
        means = torch.where(inside, numbers, 0).sum(2) / amount.clamp(min=1)  # (n, t)
        known = amount > 0
        center, scale, width = self.center, self.scale, self.width
        if maps:
            center, scale = moments(means)
        elif len(center) != means.shape[1]:
            came = f"expected targets of {len(center)} numbers, as those of training, got {tuple(targets.shape)}"
            raise ValueError(came if len(center) else "expected prepare(targets) before the first step")
        numbers = torch.where(known, (means - center) / scale, 0)
        usable = known.any(1)
        return numbers / (distance_quantile(numbers[usable], self.bandwidth) if maps else width), usable

    def extra_repr(self) -> str:
        """The options."""
        return f"alpha={self.alpha:g}, bandwidth={self.bandwidth:g}"
