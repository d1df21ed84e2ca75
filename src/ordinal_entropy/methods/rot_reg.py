"""ROT-Reg: what is moved to the nearest features is moved to the nearest targets, by optimal transport."""

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from ordinal_entropy.methods.contract import Method, Range, Step, zero
from ordinal_entropy.methods.distances import accurate, distances, grouped
from ordinal_entropy.methods.rows import feature_groups


def rot_reg(
    features: Tensor,
    targets: Tensor,
    regularization: float = 0.1,
    iterations: int = 20,
    mask: Tensor | None = None,
) -> Tensor:
    """What it costs more, in distances of features, to move each row by the plan of the targets than by their own.

    With the costs ``C_z``, the distances of the features divided by their mean norm, and ``C_y``, those of the targets
    divided by the largest, and the plan ``T(C)`` of :func:`sinkhorn_plan` that moves no row to itself:
    ``|sum C_z * T(C_y) - sum C_z * T(C_z)|``.

    Args:
        features: ``(n, d)``, or groups ``(g, n, d)``, of which the term is the mean.
        targets: ``(n,)`` or ``(n, t)``; of groups ``(g, n)`` or ``(g, n, t)``. Their unit does not matter.
        regularization: of the plans, in the unit of the costs; both are about 1 at most.
        iterations: of Sinkhorn's algorithm.
        mask: boolean ``(n,)`` or ``(g, n)``, rows that count.

    Returns:
        Scalar, at least float32; computed in float64 with memory for ``(n, n)``. All of it is differentiated, the plan
        of the features too; there is no second derivative. Fewer than two rows: a zero that is part of the graph.

    Example:
        >>> features = torch.tensor([[0.0], [1.0], [5.0], [6.0]])
        >>> in_order, mixed = torch.tensor([0.0, 1.0, 5.0, 6.0]), torch.tensor([0.0, 5.0, 1.0, 6.0])
        >>> rot_reg(features, in_order), rot_reg(features, mixed)
        (tensor(0.0050), tensor(1.3306))
    """
    n = features.shape[-2]
    if n < 2:
        return zero(features)
    dtype = torch.promote_types(features.dtype, torch.float32)
    features, targets, counts = grouped(accurate(features), accurate(targets), mask)
    closed = ~(counts[:, :, None] & counts[:, None]) | torch.eye(n, dtype=torch.bool, device=features.device)
    norms = torch.where(counts, torch.linalg.vector_norm(features, dim=-1), 0)
    norm = norms.sum(-1) / counts.sum(-1).clamp(min=1)
    costs = distances(features) / torch.where(norm > 0, norm, 1)[:, None, None]
    apart = distances(targets).masked_fill(closed, 0)
    largest = apart.amax((-2, -1), keepdim=True)
    apart = apart / torch.where(largest > 0, largest, 1)
    by_targets, by_features = (
        sinkhorn_plan(each.masked_fill(closed, torch.inf), regularization, iterations) for each in (apart, costs)
    )
    return (costs * (by_targets - by_features)).sum((-2, -1)).abs().mean().to(dtype)


def sinkhorn_plan(costs: Tensor, regularization: float = 0.1, iterations: int = 20) -> Tensor:
    """The entropic plan that moves as much away from each row as to it, by a symmetric Sinkhorn iteration.

    ``T_ij = exp((f_i + f_j - C_ij) / regularization)``, whose rows sum to 1 / n. The potentials are found in the log
    domain: each is replaced by the mean of itself and of what would make its row exact.

    Args:
        costs: ``(..., n, n)``, symmetric; infinite where nothing may be moved.
        regularization: in the unit of the costs; the smaller, the more iterations.
        iterations: how many; fewer rows, and features of few dimensions, need more too.

    Returns:
        The plan ``(..., n, n)``, symmetric, no entry above 1 / n whatever the regularization. Rows with infinite costs
        alone are left out: their plan is 0, and n is the number of the others.

    Example:
        >>> far = torch.tensor([[0.0, 1.0, 9.0], [1.0, 0.0, 9.0], [9.0, 9.0, 0.0]])
        >>> sinkhorn_plan(far.fill_diagonal_(torch.inf), regularization=10.0, iterations=50)
        tensor([[0.0000, 0.1667, 0.1667],
                [0.1667, 0.0000, 0.1667],
                [0.1667, 0.1667, 0.0000]])
    """
    out = costs.isinf().all(-1)
    itself = torch.diag_embed(out)  # rows that are left out stay where they are, so that all is finite
    share = -(~out).sum(-1, keepdim=True).clamp(min=1).to(costs).log()  # of a row, as a logarithm
    costs = torch.where(itself, 0, costs)
    potentials = _Potentials.apply(costs, share, regularization, iterations)
    powers = (potentials[..., :, None] + potentials[..., None, :] - costs) / regularization
    plan = torch.minimum(powers, share[..., None]).exp()  # larger by rounding alone
    return torch.where(itself, 0, plan)


class _Potentials(torch.autograd.Function):
    """The iteration, whose backward pass makes the matrix of each step anew: it keeps vectors alone."""

    @staticmethod
    def forward(ctx: Any, costs: Tensor, share: Tensor, regularization: float, iterations: int) -> Tensor:
        potentials = [torch.zeros_like(costs[..., 0])]
        for _ in range(iterations):
            filled = torch.logsumexp((potentials[-1][..., None, :] - costs) / regularization, -1)
            exact = regularization * (share - filled)
            potentials.append((potentials[-1] + exact) / 2)
        ctx.save_for_backward(costs, *potentials[:-1])
        ctx.regularization = regularization
        return potentials[-1]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None, None, None]:
        costs, *potentials = ctx.saved_tensors
        by_costs = torch.zeros_like(costs)
        for each in reversed(potentials):
            shares = torch.softmax((each[..., None, :] - costs) / ctx.regularization, -1)
            half = slope[..., None, :] / 2
            by_costs.addcmul_(half.mT, shares)
            slope = (half - half @ shares)[..., 0, :]
        return by_costs, None, None, None


class ROTReg(Method):
    """ROT-Reg: the plan that moves targets to their neighbours moves features at the least cost too.

    Args:
        regularization: of the plans, where distances of targets are at most 1, and norms of features 1 on average.
        iterations: of Sinkhorn's algorithm; a smaller regularization needs more.
        gather: move between the rows of all ranks.

    Example:
        >>> from ordinal_entropy.methods import Batch
        >>> features = torch.tensor([[0.0], [1.0], [5.0], [6.0]])
        >>> ROTReg().term(Step(Batch(None, torch.tensor([0.0, 5.0, 1.0, 6.0])), features, None, None))
        tensor(1.3306)
    """

    kind = "term"
    tunable: ClassVar[Mapping[str, Range]] = {
        "regularization": Range(0.05, 1.0, log=True),
    }
    cost = "time m^2 (d + iterations), memory m^2"
    paper = "Zhang, Yan, Yao, Improving Deep Regression with Tightness, ICLR 2025"
    over_groups: ClassVar[bool] = True

    def __init__(self, regularization: float = 0.1, iterations: int = 20, gather: bool = False) -> None:
        super().__init__()
        if not 0 < regularization < math.inf:
            raise ValueError(f"expected regularization to be a positive number, got {regularization}")
        if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
            raise ValueError(f"expected iterations to be a whole number of at least 1, got {iterations!r}")
        self.regularization, self.iterations, self.gather = float(regularization), iterations, gather

    def term(self, step: Step) -> Tensor:
        """The difference of the two costs, at least 0."""
        features, targets, counts = feature_groups(step, "rot-reg", gather=self.gather)
        return rot_reg(features, targets, self.regularization, self.iterations, counts)

    def extra_repr(self) -> str:
        """The options."""
        return f"regularization={self.regularization:g}, iterations={self.iterations}, gather={self.gather}"
