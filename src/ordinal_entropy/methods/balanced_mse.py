"""Balanced MSE: the likelihood of predictions, corrected for how frequent the targets are."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ordinal_entropy.methods.contract import Method, Range, Step, weighted_mean
from ordinal_entropy.methods.mixture import Mixture, fit_mixture, log_densities
from ordinal_entropy.methods.rows import OutputRows, paired, prediction_rows
from ordinal_entropy.methods.training_targets import moments, training_numbers


def balanced_mse(
    predictions: Tensor,
    targets: Tensor,
    noise: float | Tensor,
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """The cross-entropy of each prediction over the targets of the batch, times ``2 noise^2`` (batch Monte Carlo).

    The logit of target ``j`` for prediction ``i`` is ``-|p_i - y_j|^2 / (2 noise^2)``, and the class is ``j = i``.

    Args:
        predictions: ``(n,)`` or ``(..., n, t)``; each ``(n, t)`` is a batch of its own.
        targets: of the same shape.
        noise: standard deviation of the errors, above 0: a number, or ``(t,)`` or ``(..., 1, t)``, one of each number.
            The factor ``2 noise^2`` is then a mean over the numbers; it has no gradient.
        mask: boolean ``(..., n)``, rows that count, as predictions and as classes.
        weight: ``(..., n)``, factor of a row's loss.

    Returns:
        Scalar, at least float32, with memory for ``(n, n, t)``. A batch of a single row says nothing of how frequent
        targets are: its loss is the squared error, not the 0 that the formula has. Without rows, a zero that is part
        of the graph.

    Example:
        >>> balanced_mse(torch.tensor([0.0, 1.0]), torch.tensor([0.0, 2.0]), noise=1.0)
        tensor(0.8201)
        >>> balanced_mse(torch.tensor([[1.0, 2.0]]), torch.tensor([[0.0, 0.0]]), noise=1.0)
        tensor(5.)
    """
    p, y, sigma = _in_noise(predictions, targets, noise, mask)
    squares = (p.unsqueeze(-2) - y.unsqueeze(-3)).square().sum(-1)  # (..., n, n)
    own = squares.diagonal(dim1=-2, dim2=-1)
    n = p.shape[-2]
    if mask is None:
        evidence = (-squares / 2).logsumexp(-1) if n != 1 else torch.zeros_like(own)
    else:
        classes = mask[..., None, :] | torch.eye(n, dtype=torch.bool, device=mask.device)
        evidence = torch.where(classes, -squares / 2, -math.inf).logsumexp(-1)
        evidence = torch.where(mask.sum(-1, keepdim=True) == 1, 0, evidence)
    return weighted_mean(_factor(sigma) * (own / 2 + evidence), mask, weight)


def balanced_mse_gai(
    predictions: Tensor,
    targets: Tensor,
    noise: float | Tensor,
    mixture: Mixture,
    *,
    mask: Tensor | None = None,
    weight: Tensor | None = None,
) -> Tensor:
    """The same with the integral over all targets in closed form, for targets of a Gaussian mixture.

    With ``N(y; p, C)`` the normal density: ``-log N(y; p, noise^2) + log sum_k share_k N(p; mean_k, C_k + noise^2)``,
    times ``2 noise^2``.

    Args:
        predictions: ``(n,)`` or ``(..., n, t)``.
        targets: of the same shape.
        noise: as in :func:`balanced_mse`.
        mixture: of the training targets, as :func:`fit_mixture` gives it.
        mask: boolean ``(..., n)``, rows that count.
        weight: ``(..., n)``, factor of a row's loss.

    Returns:
        Scalar, at least float32, with memory for ``(k, n, t)``; it may be negative. Without rows, a zero that is part
        of the graph.

    Example:
        >>> normal = Mixture(torch.ones(1), torch.zeros(1, 1), torch.ones(1, 1, 1))
        >>> balanced_mse_gai(torch.tensor([1.0]), torch.tensor([1.0]), 1.0, normal)  # -log 2 - 1 / 2
        tensor(-1.1931)
    """
    p, y, sigma = _in_noise(predictions, targets, noise, mask)
    t = p.shape[-1]
    shares, means, covariances = (each.to(p) for each in mixture)
    each_noise = sigma.expand(*p.shape[:-2], 1, t)
    covariances = covariances / (each_noise.unsqueeze(-1) * each_noise.unsqueeze(-2))
    noisy = covariances + torch.eye(t, dtype=p.dtype, device=p.device)
    evidence = log_densities(p, Mixture(shares, means / each_noise, noisy)).logsumexp(-2)  # (..., n)
    likelihood = -(p - y).square().sum(-1) / 2 - t / 2 * math.log(2 * math.pi)
    return weighted_mean(_factor(sigma) * (evidence - likelihood), mask, weight)


def _in_noise(
    predictions: Tensor, targets: Tensor, noise: float | Tensor, mask: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Both in standard deviations of the noise, and the noise as a tensor."""
    p, y = paired(predictions, targets, mask)
    sigma = torch.as_tensor(noise, dtype=p.dtype, device=p.device)
    return p / sigma, y / sigma, sigma


def _factor(sigma: Tensor) -> Tensor:
    """``2 noise^2`` as the mean over the numbers of a target, ``(..., 1)`` or a number; noise learns nothing by it."""
    return 2 * sigma.detach().square().mean(-1)


class BalancedMSE(Method):
    """Squared error corrected for how frequent the targets are, over those of the batch (Balanced MSE, BMC).

    Args:
        noise: standard deviation of the errors, in those of the training targets; where learning starts from. One
            larger than the errors stretches predictions, of normal targets by ``1 + noise^2``: it starts small.
        learned: the noise is trained as a parameter; else it stays.
        gather: take the targets of all ranks.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> method = BalancedMSE(noise=1.0)
        >>> method.prepare(torch.tensor([[-1.0], [1.0]]))  # a standard deviation of 1
        >>> step = Step(Batch(None, torch.tensor([[0.0], [2.0]])), torch.eye(2), torch.tensor([[0.0], [1.0]]), None)
        >>> method.task_loss(step)
        tensor(0.8201, grad_fn=<DivBackward0>)
    """

    kind = "loss"
    tunable: ClassVar[Mapping[str, Range]] = {
        "noise": Range(0.02, 1.0, log=True),
    }
    cost = "time and memory m^2 for m rows"
    paper = "Ren, Zhang, Yu, Liu, Balanced MSE for Imbalanced Visual Regression, CVPR 2022"
    over_groups = True
    scale: Tensor
    log_noise: Tensor

    def __init__(self, noise: float = 0.1, learned: bool = True, gather: bool = False) -> None:
        super().__init__()
        if not 0 < noise < math.inf:
            raise ValueError(f"expected noise to be a positive number of standard deviations, got {noise}")
        self.learned, self.gather = bool(learned), gather
        start = torch.tensor(float(noise)).log()  # any number is a noise above 0
        if learned:
            self.log_noise = torch.nn.Parameter(start)
        else:
            self.register_buffer("log_noise", start)
        self._start = float(noise)
        self.register_buffer("scale", torch.ones(1, dtype=torch.float64))  # (t,)

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Takes the standard deviation of each number of the training targets."""
        self.scale = moments(training_numbers(targets))[1].to(self.scale)

    def task_loss(self, step: Step) -> Tensor:
        """The mean over rows; of one number a target, in the unit of the squared error."""
        found = prediction_rows(step, gather=self.gather)
        noise = self._noise(found)
        return balanced_mse(found.outputs, found.targets, noise, mask=found.mask, weight=found.weight)

    def scalars(self) -> dict[str, Tensor]:
        """The noise, in standard deviations of the training targets."""
        return {"noise": self.log_noise.detach().exp()}

    def _noise(self, found: OutputRows) -> Tensor:
        """In the unit of the targets, ``(1, t)``, or ``(g, 1, t)`` of runs."""
        log_noise = self.log_noise.to(found.outputs)[..., None, None]
        return log_noise.exp() * self.scale.to(found.outputs).unsqueeze(-2)

    def extra_repr(self) -> str:
        """The options."""
        return f"noise={self._start}, learned={self.learned}, gather={self.gather}"


class BalancedMSEGAI(BalancedMSE):
    """Squared error corrected for how frequent the targets are, by a Gaussian mixture (Balanced MSE, GAI).

    Args:
        components: Gaussians of the mixture that is fitted to the training targets.
        noise: standard deviation of the errors, in those of the training targets; where learning starts from. One
            larger than the errors stretches predictions, of normal targets by ``1 + noise^2``: it starts small.
        learned: the noise is trained as a parameter; else it stays.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> method = BalancedMSEGAI(components=1, noise=1.0)
        >>> method.prepare(torch.tensor([[-1.0], [1.0]]))  # a mean of 0 and a standard deviation of 1
        >>> method.task_loss(Step(Batch(None, torch.ones(1, 1)), torch.eye(1), torch.ones(1, 1), None))
        tensor(-1.1931, grad_fn=<DivBackward0>)
    """

    maps = True
    shares: Tensor
    means: Tensor
    covariances: Tensor

    def __init__(self, components: int = 8, noise: float = 0.1, learned: bool = True) -> None:
        super().__init__(noise, learned)
        if isinstance(components, bool) or not isinstance(components, int) or components < 1:
            raise ValueError(f"expected components to be a whole number of at least 1, got {components!r}")
        self.components = components
        for name, shape in (("shares", (0,)), ("means", (0, 0)), ("covariances", (0, 0, 0))):  # k, t; before `prepare`
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Fits the mixture to the training targets."""
        super().prepare(targets)
        found = fit_mixture(training_numbers(targets), self.components)
        self.shares, self.means, self.covariances = (each.to(self.shares) for each in found)

    def task_loss(self, step: Step) -> Tensor:
        """The mean over rows; of one number a target, in the unit of the squared error."""
        if not self.shares.numel():
            raise ValueError("expected prepare(targets) before the first step, which fits their mixture")
        found = prediction_rows(step)
        mixture = Mixture(self.shares, self.means, self.covariances)
        noise = self._noise(found)
        return balanced_mse_gai(found.outputs, found.targets, noise, mixture, mask=found.mask, weight=found.weight)

    def extra_repr(self) -> str:
        """The options."""
        return f"components={self.components}, noise={self._start}, learned={self.learned}"
