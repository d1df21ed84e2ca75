"""SRL: centers of features, in the order of the targets, on a smooth path that fills the sphere."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

from ordinal_entropy.kernels.unit import unit_rows
from ordinal_entropy.methods.contract import Method, Range, Step, zero
from ordinal_entropy.methods.rows import feature_rows

_SEED = 0  # of the directions, which are the same in every run


def envelope(centers: Tensor, directions: Tensor, known: Tensor | None = None) -> Tensor:
    """How far directions on the sphere are from the centers: 1 - the mean, over directions, of the largest cosine.

    Args:
        centers: ``(k, d)`` unit vectors.
        directions: ``(p, d)`` unit vectors.
        known: boolean ``(k,)``, centers that there are; None for all.

    Returns:
        Scalar between 0 and 2; without a center, a zero that is part of the graph.

    Example:
        >>> envelope(torch.eye(2), torch.tensor([[1.0, 0.0], [0.6, 0.8], [-1.0, 0.0]]))  # cosines 1, 0.8, 0
        tensor(0.4000)
    """
    if not centers.numel():
        return zero(centers)
    known = torch.ones_like(centers[:, 0], dtype=torch.bool) if known is None else known
    cosines = torch.where(known, directions @ centers.T, -2.0)
    return torch.where(known.any(), 1 - cosines.amax(1).mean(), 0)


def homogeneity(centers: Tensor, values: Tensor, known: Tensor | None = None) -> Tensor:
    """The energy of the path through the centers: the sum of ``|c_(k+1) - c_k|^2 / (y_(k+1) - y_k)``.

    Args:
        centers: ``(k, d)``.
        values: ``(k,)`` targets of the centers, ascending.
        known: boolean ``(k,)``, centers that there are, which are then neighbours; None for all.

    Returns:
        Scalar; fewer than two centers: a zero that is part of the graph.

    Example:
        >>> homogeneity(torch.eye(2), torch.tensor([0.0, 0.5]))
        tensor(4.)
    """
    k = len(centers)
    if k < 2:
        return zero(centers)
    place = torch.arange(k, device=centers.device)
    last = (place if known is None else torch.where(known, place, -1)).cummax(0).values[:-1]  # known up to each
    pairs = (last >= 0) & (True if known is None else known[1:])
    last = last.clamp(min=0)
    squared = (centers[1:] - centers[last]).square().sum(1)
    apart = (values[1:] - values[last]).to(centers.dtype)
    return torch.where(pairs, squared / torch.where(pairs, apart, 1), 0).sum()


def center_contrast(
    features: Tensor,
    index: Tensor,
    centers: Tensor,
    temperature: float = 0.1,
    known: Tensor | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The cross-entropy of each feature's own center among all, by cosines divided by the temperature (InfoNCE).

    Args:
        features: ``(n, d)`` unit vectors.
        index: ``(n,)`` of its center, which is known.
        centers: ``(k, d)`` unit vectors.
        temperature: of the cosines.
        known: boolean ``(k,)``, centers that there are; None for all.
        mask: boolean ``(n,)``, rows that count.

    Returns:
        Scalar, the mean over the rows; without any, a zero that is part of the graph.

    Example:
        >>> center_contrast(torch.eye(2), torch.tensor([0, 1]), torch.eye(2), temperature=1.0)
        tensor(0.3133)
    """
    scores = features @ centers.T / temperature  # (n, k)
    if known is not None:
        allowed = known if mask is None else known | ~mask[:, None]  # nowhere infinities alone
        scores = torch.where(allowed, scores, -math.inf)
    losses = scores.logsumexp(1) - scores.gather(1, index[:, None])[:, 0]
    if mask is None:
        return losses.sum() / max(len(losses), 1)
    return torch.where(mask, losses, 0).sum() / mask.sum().clamp(min=1)


class SRL(Method):
    """SRL: centers of features on a smooth path over the sphere, features near their own center.

    Features of one bin of the target have a center. Of a bin without rows in the batch it is a running mean over the
    epochs. To the contrast of features with the running means (with the center of the batch, before there is one),
    envelope and homogeneity of the path of centers are added. Targets are single numbers; features are rows
    ``(n, d)``. Targets are measured by their range.

    Args:
        bins: of one width, over the range of the training targets; the distinct targets where there are no more.
        envelope_weight: of the envelope.
        homogeneity_weight: of the homogeneity.
        temperature: of the contrast.
        momentum: of the running means, an epoch.
        directions: random ones on the sphere, of which the envelope is a mean; others in every step.
        gather: centers of the rows of all ranks.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> method = SRL(temperature=1.0, envelope_weight=0.0)
        >>> method.prepare(torch.tensor([[5.0], [7.0]]), width=2)
        >>> method.term(Step(Batch(None, torch.tensor([[5.0], [7.0]])), torch.eye(2), None, None))  # 0.3133 + 0.1 * 2
        tensor(0.5133)
    """

    kind = "term"
    cost = "time (m + directions) bins d, memory (m + directions) bins"
    paper = (
        "Dong, Wu, Chen, Zou, Zhang, Zhou, Improve Representation for Imbalanced Regression through Geometric "
        "Constraints, CVPR 2025"
    )
    tunable: ClassVar[Mapping[str, Range]] = {
        "temperature": Range(0.02, 1.0, log=True),
        "envelope_weight": Range(0.01, 1.0, log=True),
    }
    values: Tensor
    centers: Tensor
    seen: Tensor
    sums: Tensor
    amount: Tensor
    steps: Tensor
    pool: Tensor

    def __init__(
        self,
        bins: int = 100,
        envelope_weight: float = 0.1,
        homogeneity_weight: float = 0.1,
        temperature: float = 0.1,
        momentum: float = 0.9,
        directions: int = 1000,
        gather: bool = False,
    ) -> None:
        super().__init__()
        for name, count, least in (("bins", bins, 2), ("directions", directions, 1)):
            if isinstance(count, bool) or not isinstance(count, int) or count < least:
                raise ValueError(f"expected {name} to be a whole number of at least {least}, got {count!r}")
        for name, weight in (("envelope_weight", envelope_weight), ("homogeneity_weight", homogeneity_weight)):
            if not 0 <= weight < math.inf:
                raise ValueError(f"expected {name} to be a number from 0 on, got {weight}")
        if not 0 < temperature < math.inf:
            raise ValueError(f"expected temperature to be a positive number, got {temperature}")
        if not 0 <= momentum < 1:
            raise ValueError(f"expected momentum from 0 to below 1, got {momentum}")
        self.bins, self.directions, self.gather = bins, directions, gather
        self.envelope_weight, self.homogeneity_weight = float(envelope_weight), float(homogeneity_weight)
        self.temperature, self.momentum = float(temperature), float(momentum)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
        self.register_buffer("values", torch.zeros(0, dtype=torch.float64))  # (k,) targets of the centers, ascending
        self._make_room(0, 0)

    def _make_room(self, k: int, width: int) -> None:
        """State of so many centers, with nothing seen."""
        for name in ("amount", "seen"):  # (k,): rows in this epoch; 1 where there were any before
            self.register_buffer(name, self.values.new_zeros(k))
        for name in ("sums", "centers"):  # (k, d): of this epoch; the running mean of those before
            self.register_buffer(name, self.values.new_zeros(k, width))
        self.register_buffer("pool", self.values.new_zeros(0, width), persistent=False)  # directions, made when needed

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Places the bins over the range of the training targets."""
        numbers = targets.detach().flatten(1).double()
        if numbers.shape[1] != 1:
            raise ValueError(f"expected targets of one number a row for srl, got {tuple(targets.shape)}")
        if not (len(numbers) and bool(numbers.isfinite().all())):
            raise ValueError(f"expected finite training targets, at least one, got {tuple(targets.shape)}")
        if width < 1:
            raise ValueError(f"expected the width of the features for srl, prepare(targets, width=d), got {width}")
        values, self.notes = torch.unique(numbers), ()
        if len(values) > self.bins:
            low, high = values[0], values[-1]
            size = (high - low) / self.bins
            values = low + size * (torch.arange(self.bins).to(values) + 0.5)
            self.notes = (f"targets share a center in each of {self.bins} bins of width {float(size):g}",)
        self.values = values.to(self.values)
        self.steps = torch.zeros_like(self.steps)
        self._make_room(len(values), width)

    def term(self, step: Step) -> Tensor:
        """The contrast, and envelope and homogeneity at their weights."""
        self._check(step.features)
        features, targets, mask = feature_rows(step, gather=self.gather)
        if not len(features):
            return zero(step.features)
        z, index = unit_rows(features), self._index(targets)
        counts = torch.ones_like(index, dtype=torch.bool) if mask is None else mask
        sums = z.new_zeros(self.centers.shape).index_add(0, index, torch.where(counts[:, None], z, 0))
        here = torch.zeros_like(self.seen).index_add(0, index, counts.to(self.seen)) > 0
        batch, running, seen = unit_rows(sums), unit_rows(self.centers.to(z)), self.seen > 0
        known = here | seen
        contrast = center_contrast(
            z, index, torch.where(seen[:, None], running, batch), self.temperature, known, counts
        )
        path = torch.where(here[:, None], batch, running)
        span = self.values[-1] - self.values[0]
        values = ((self.values - self.values[0]) / torch.where(span > 0, span, 1)).to(z)
        around = envelope(path, self._directions().to(z), known)
        energy = homogeneity(path, values, known)
        return contrast + self.envelope_weight * around + self.homogeneity_weight * energy

    @torch.no_grad()
    def observe(self, features: Tensor, targets: Tensor) -> None:
        """Adds the features to the centers of this epoch; those of a target that is no number are left out."""
        self._check(features)
        if not self.training:
            return
        numbers = (targets if targets.dim() > 1 else targets[:, None]).detach()
        index, known = self._index(numbers), numbers.isfinite().all(1)
        z = torch.where(known[:, None], unit_rows(features.to(self.sums.dtype)), 0)
        self.sums = self.sums.index_add(0, index, z)
        self.amount = self.amount.index_add(0, index, known.to(self.amount.dtype))
        self.steps = self.steps + 1

    @torch.no_grad()
    def end_epoch(self) -> None:
        """Moves the running means.

        Under data parallelism the centers are those of all ranks together.
        """
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            for total in (self.amount, self.sums):
                dist.all_reduce(total)
        kept = (self.momentum * self.seen)[:, None]
        here = self.amount[:, None] > 0
        self.centers = torch.where(here, kept * self.centers + (1 - kept) * unit_rows(self.sums), self.centers)
        self.seen = torch.where(here[:, 0], 1, self.seen)
        self.sums, self.amount = torch.zeros_like(self.sums), torch.zeros_like(self.amount)

    def _directions(self) -> Tensor:
        """Unit vectors ``(p, d)``: the numbers of each are shifted by one place a step, which draws it anew."""
        d = self.centers.shape[1]
        if self.pool.shape != (self.directions, d):
            drawn = torch.randn(self.directions, d, generator=torch.Generator().manual_seed(_SEED))
            self.pool = unit_rows(drawn.to(self.centers))
        place = torch.arange(d, device=self.pool.device)
        return self.pool.index_select(1, (place - self.steps) % d)

    def _index(self, targets: Tensor) -> Tensor:
        """The center of each target, ``(n,)``: that of the nearest value."""
        numbers = targets.detach().to(self.values.dtype)
        if numbers.shape[1:] != (1,):
            raise ValueError(f"expected targets of one number a row for srl, got {tuple(targets.shape)}")
        edges = (self.values[1:] + self.values[:-1]) / 2
        return torch.bucketize(numbers[:, 0].contiguous().nan_to_num(), edges)

    def _check(self, features: Tensor) -> None:
        """Rows as wide as those that `prepare` was told of."""
        width = self.centers.shape[1]
        if width == 0:
            raise ValueError("expected prepare(targets, width=d) before the first step, got features before it")
        if features.dim() != 2 or features.shape[1] != width:
            raise ValueError(f"expected features (n, {width}) for srl, not maps, got {tuple(features.shape)}")

    def extra_repr(self) -> str:
        """The options."""
        return (
            f"bins={self.bins}, envelope_weight={self.envelope_weight:g}, "
            f"homogeneity_weight={self.homogeneity_weight:g}, temperature={self.temperature:g}, "
            f"momentum={self.momentum:g}, directions={self.directions}, gather={self.gather}"
        )
