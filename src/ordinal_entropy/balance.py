"""Gradient-balanced strengths: each term's gradient at the features is kept at a fraction of the task loss's there.

What a fixed strength does depends on the unit of the task loss, on the length of the features and on the batch. The
ratio of two gradients at the same place depends on none of these, so a fraction means the same on every task. The
gradients are compared by running mean squares, since those of single batches are noisy:

    strength = fraction * min(1, steps / warm_up) * sqrt(mean |d task / d features|^2 / mean |d term / d features|^2)

A gradient that is rounding and nothing else, as that of the cosine distance between features of one direction, has no
size to be compared with: a term that has none larger is given no strength.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ordinal_entropy import distributed, graph_edges

FRACTION = 0.1  # of the task loss's gradient
DECAY = 0.98  # of the running means, a step
WARM_UP = 100  # steps in which strengths grow from nothing
_ROUNDINGS = 256  # of a term's unit: a relative change of the features that changes the term by less is none
_SCALE = 2.0**12  # gradients of float16 features are computed times this: small ones would be 0


def strengths(squares: Tensor, steps: Tensor, fraction: float | Tensor, warm_up: int) -> Tensor:
    """Strengths of the terms; 0 of a term that never had a gradient, or one too small for a ratio to be finite.

    Args:
        squares: ``(1 + terms, ...)``, running sums of the squared norms: the task loss's first. What they have in
            common, as a correction for the first steps, does not matter.
        steps: in those sums, a scalar or ``(...)``.
        fraction: of the task loss's gradient that each term's is to have; one, or ``(...)``.
        warm_up: steps in which strengths grow from nothing.

    Example:
        >>> strengths(torch.tensor([4.0, 1.0, 0.0]), torch.tensor(100.0), 0.1, warm_up=100)
        tensor([0.2000, 0.0000])
    """
    task, own = squares[:1], squares[1:]
    present = own > task / torch.finfo(own.dtype).max
    ratio = torch.where(present, task / torch.where(present, own, 1), 0).sqrt()
    return fraction * (steps / max(warm_up, 1)).clamp(max=1) * ratio


def rounding(features: Tensor, unit: Tensor | float = 1.0) -> Tensor:
    """What the squared norm of a term's gradient may be by rounding alone, ``(r,)``.

    A term of normalised features changes by about its unit when they change by about their length. A gradient that
    makes 256 roundings of that, and less, says nothing; 0 for features that are all zero.

    Args:
        features: ``(r, ...)`` of each of ``r`` runs.
        unit: of the term, one or ``(r,)``: what it is when features are far apart.

    Example:
        >>> rounding(torch.ones(1, 4, 4)).sqrt() / torch.finfo(torch.float32).eps  # features of length 4
        tensor([64.])
    """
    dtype = torch.promote_types(features.dtype, torch.float32)
    length = torch.linalg.vector_norm(features.detach().flatten(1), dim=1, dtype=dtype)
    possible = torch.where(length > 0, unit / torch.where(length > 0, length, 1), 0)
    return (_ROUNDINGS * torch.finfo(dtype).eps * possible).square()


def moved(
    squares: Tensor, steps: Tensor, now: Tensor, decay: float, rounding: Tensor | float = 0.0
) -> tuple[Tensor, Tensor]:
    """The sums and their steps after one more; a step that is not finite, as a loss scale may make it, is left out.

    Args:
        squares: ``(1 + terms, ...)``, sums as in :func:`strengths`.
        steps: in those sums.
        now: ``(1 + terms, ...)``, squared norms of this step.
        decay: of the sums.
        rounding: ``(terms, ...)``; a term whose sum is no larger has no gradient.

    Example:
        >>> moved(torch.tensor([1.0, 0.0]), torch.tensor(1.0), torch.tensor([3.0, 2.0]), decay=0.5)
        (tensor([3.5000, 2.0000]), tensor(2.))
    """
    finite = now.isfinite().all(0)
    sums = decay * squares + now
    sums = torch.cat([sums[:1], torch.where(sums[1:] <= rounding, 0, sums[1:])])
    return torch.where(finite, sums, squares), steps + finite


class Balance(nn.Module):
    """The strengths of the terms of a loss, learned from their gradients as training goes.

    Its two buffers go into checkpoints, and to the device of the features in the first call. In ``eval`` mode, and
    where no gradient is wanted, the strengths are those of the last step. No step waits for a device. Under data
    parallelism the ranks share their means, so that all have the same strengths. A term whose gradients are rounding
    has a strength of 0.

    Args:
        fraction: of the norm of the task loss's gradient at the features, that each term's gradient is to have.
        decay: of the running means, a step.
        warm_up: steps in which the strengths grow from nothing.
        terms: how many there are.

    Example:
        >>> balance = Balance(0.1, warm_up=1, terms=1)
        >>> features = torch.tensor([[3.0, 4.0]], requires_grad=True)
        >>> balance(features, 0.5 * features.square().sum(), (2 * features).sum())  # gradients of length 5 and 8 ** 0.5
        tensor([0.1768])
    """

    squares: Tensor
    steps: Tensor

    def __init__(
        self, fraction: float = FRACTION, *, decay: float = DECAY, warm_up: int = WARM_UP, terms: int = 2
    ) -> None:
        super().__init__()
        if not 0 < fraction < float("inf"):
            raise ValueError(f"expected balance to be a positive fraction of the task loss's gradient, got {fraction}")
        if not 0 <= decay < 1:
            raise ValueError(f"expected decay from 0 to below 1, got {decay}")
        if warm_up < 0:
            raise ValueError(f"expected warm_up to be at least 0, got {warm_up}")
        self.fraction, self.decay, self.warm_up = float(fraction), decay, warm_up
        self.register_buffer("squares", torch.zeros(1 + terms))  # the task loss's, then each term's
        self.register_buffer("steps", torch.zeros(()))

        graph_edges.needed_by(self)

    @property
    def strengths(self) -> Tensor:
        """One a term, as of the last step; without a graph."""
        return strengths(self.squares, self.steps, self.fraction, self.warm_up)

    def forward(
        self, features: Tensor, task_loss: Tensor | None, *terms: Tensor, rounding: Tensor | float = 0.0
    ) -> Tensor:
        """The strengths from this step on.

        Args:
            features: that all losses were computed from, part of their graph.
            task_loss: scalar; needed in training. Where it is wrong on one rank, all raise an error in the same call;
                on a GPU, which is not waited for, that rank alone.
            terms: scalars.
            rounding: what the squared norm of each term's gradient may be by rounding alone, see :func:`rounding`.
        """
        if self.squares.device != features.device:  # once, if at all
            self.to(features.device)
        if self._observes(features):
            graph_edges.leave_to_python()
            self._observe(features, partial(self._measured, features, task_loss, terms), rounding)
        return self.strengths

    def weighted(
        self,
        features: Tensor,
        task_loss: Tensor | None,
        terms: Callable[[], Sequence[Tensor]],
        weights: Sequence[float],
        rounding: Callable[[], Tensor | float] = float,
        *,
        gathered: bool = False,
    ) -> Tensor:
        """The sum of the terms, each at its weight times its strength.

        Args:
            features: as in :meth:`forward`.
            task_loss: likewise.
            terms: computes them, scalars; where it raises an error on one rank, all are told.
            weights: one a term: its part of the fraction.
            rounding: computes what :meth:`forward` takes.
            gathered: the terms join the ranks, and tell them by themselves.
        """
        try:
            found = terms()
        except Exception as error:
            if gathered:
                raise
            self.give_up(features, error)
        strengths: Tensor = self(features, task_loss, *found, rounding=rounding())
        total = weights[0] * strengths[0] * found[0]
        for weight, strength, term in zip(weights[1:], strengths[1:], found[1:], strict=True):
            total = total + weight * strength * term
        return total

    def give_up(self, features: Tensor, error: Exception) -> NoReturn:
        """Raises an error that came before there were losses: the other ranks, which wait for them, are told."""

        def fail() -> Tensor:
            raise error

        if self._observes(features):
            self._observe(features, fail, 0.0)
        raise error

    def _observes(self, features: Tensor) -> bool:
        return self.training and torch.is_grad_enabled() and getattr(features, "requires_grad", False)

    def _observe(self, features: Tensor, measured: Callable[[], Tensor], rounding: Tensor | float) -> None:
        failure = None
        try:
            now = measured()
        except Exception as error:  # the other ranks wait for this one all the same
            failure, now = error, features.new_zeros(len(self.squares), dtype=self.squares.dtype)
        bound = torch.zeros_like(now[1:]) + rounding
        if dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1:
            of_all = torch.cat([now, bound, now.new_full((1,), float(failure is not None))])
            dist.all_reduce(of_all)
            now, bound = of_all[: len(now)], of_all[len(now) : -1]
            if of_all.device.type == "cpu" and of_all[-1] > 0:  # a GPU would have to be waited for
                distributed.raise_together(failure, "losses")
        if failure is not None:
            raise failure
        squares, steps = moved(self.squares, self.steps, now, self.decay, bound)
        self.squares.copy_(squares)
        self.steps.copy_(steps)

    def _measured(self, features: Tensor, task_loss: Tensor | None, terms: tuple[Tensor, ...]) -> Tensor:
        """Squared norms of the gradients of the task loss and of the terms."""
        if task_loss is None:
            raise ValueError(
                f"expected task_loss with balance={self.fraction:g}, a gradient-balanced strength, got none: call it "
                "as regularizer(features, targets, task_loss=loss)"
            )
        if task_loss.dim() != 0:
            raise ValueError(f"expected task_loss to be a scalar, got the shape {tuple(task_loss.shape)}")
        scale, dtype = _SCALE if features.dtype == torch.float16 else 1.0, self.squares.dtype
        found = []
        for loss in (task_loss, *terms):
            by_features = None
            if loss.requires_grad:
                (by_features,) = torch.autograd.grad(loss * scale, features, retain_graph=True, allow_unused=True)
            if by_features is None and loss is task_loss:
                raise ValueError(_why_no_gradient(features, task_loss))
            norm = features.new_zeros((), dtype=dtype) if by_features is None else by_features.to(dtype).norm()
            found.append((norm / scale).square())
        return torch.stack(found)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        graph_edges.needed_by(self)

    def extra_repr(self) -> str:
        """The fraction and the rest."""
        return f"{self.fraction:g}, decay={self.decay}, warm_up={self.warm_up}"


def _why_no_gradient(features: Tensor, task_loss: Tensor) -> str:
    """What is wrong with a task loss that has no gradient by the features, in words."""
    if any("Compiled" in type(each.grad_fn).__name__ for each in (features, task_loss)):
        return (
            "expected a graph of torch.compile to end at the features, got one with features and task_loss inside, "
            "from which the gradient of one by the other cannot be had: make the regularizer before anything is "
            "compiled, do not set fullgraph, and take the features from oe.capture(model), or call "
            "torch._dynamo.graph_break() between the features and the head"
        )
    return (
        "expected a task_loss that depends on the features, got one that does not; it must be of the same forward "
        "pass, and the features the tensor that went into the head"
    )
