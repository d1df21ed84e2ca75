"""The contract of a method: what a training loop may ask of it. The defaults are the baseline.

A method is how a network is trained beyond model, data and optimizer: another head, another loss of the predictions,
weights, mixed batches, smoothed features, added terms. Each is one class that overrides the hooks it is about; parts
are joined by :func:`ordinal_entropy.methods.compose`, and :func:`ordinal_entropy.methods.training_loss` is the only
place where network and hooks are put together.
"""

import math
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor, nn

KINDS = {  # of a part but the baseline, and what a loop must let it do
    "head": "replace the head and the task loss",
    "loss": "replace the task loss",
    "weights": "weight the task loss row by row",
    "mixing": "change the batch before the network sees it",
    "smoothing": "change the features on their way to the head",
    "term": "add to the loss",
    "averaging": "predict by an average of the weights of its steps",
}


class Range(NamedTuple):
    """Where a tuned comparison looks for the value of an option.

    Example:
        >>> Range(1e-3, 1e2, log=True).widened(up=True)  # by half of its length
        Range(low=0.001, high=31622.8, log=True, whole=False, choices=(), limits=(-inf, inf))
        >>> Range(0.5, 0.9, limits=(0.0, 0.95)).widened(up=True).high
        0.95
    """

    low: float = 0.0
    high: float = 0.0
    log: bool = False  # evenly by factors, not by differences
    whole: bool = False  # whole numbers only
    choices: tuple[Any, ...] = ()  # the values themselves, in place of low and high
    limits: tuple[float, float] = (-math.inf, math.inf)  # that it is never widened beyond

    def checked(self, name: str = "a range") -> "Range":
        """The same, if a value can be found in it."""
        if self.choices:
            return self
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"expected {name} from a number to a larger one, got {self.low} to {self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"expected {name} on a log scale to begin above 0, got {self.low}")
        return self

    def share(self, value: float) -> float:
        """How far along the range a value lies: 0 at its beginning, 1 at its end."""
        low, high, at = (math.log(each) if self.log else each for each in (self.low, self.high, value))
        return (at - low) / (high - low)

    def at(self, share: float) -> float:
        """The value so far along the range; six digits."""
        low, high = (math.log(each) if self.log else each for each in (self.low, self.high))
        value = low + share * (high - low)
        return float(f"{math.exp(value) if self.log else value:.6g}")

    def widened(self, *, up: bool) -> "Range":
        """Longer by a half at one end, as far as its limits allow."""
        if up:
            return self._replace(high=min(self.at(1.5), self.limits[1]))
        return self._replace(low=max(self.at(-0.5), self.limits[0]))


STRENGTH = Range(1e-3, 1e2, log=True)  # of a term
BALANCE = Range(1e-2, 1.0, log=True)  # of one whose strength is gradient-balanced


class TaskLoss(Protocol):
    """The task's own loss of predictions."""

    def __call__(self, outputs: Tensor, targets: Tensor, mask: Tensor | None, weight: Tensor | None) -> Tensor:
        """Scalar. A weight is a factor of each target's loss, in the targets' shape; weights of 1 are no weight."""
        ...


class Batch(NamedTuple):
    """What a step sees."""

    inputs: Any
    targets: Tensor  # (n, t), or maps (n, t, h, w)
    mask: Tensor | None = None  # boolean, in the targets' shape: those that count
    weight: Tensor | None = None  # factor of the task loss, in the targets' shape
    repeats: Tensor | None = None  # (n,), rows that count like repetition, in added terms too; already in the weight


class Step(NamedTuple):
    """What there is after the network ran."""

    batch: Batch
    features: Tensor  # (n, d), or maps (n, d, h, w): before they are calibrated
    outputs: Any  # of the head; None where a loop does not know them
    task: TaskLoss


class Method(nn.Module):
    """One part of how a network is trained; by itself, the baseline.

    A subclass says what ``kind`` of part it is and overrides the hooks it needs. Options are the arguments of its
    constructor. Parameters are optimised with the network's, buffers are in every checkpoint, and a buffer takes the
    shape it was saved with, so that :meth:`prepare` may set it.
    """

    kind: ClassVar[str] = "baseline"  # or one of KINDS
    paper: ClassVar[str] = ""  # authors, title, venue and year of what it is from
    tunable: ClassVar[Mapping[str, Range]] = {}  # options that a tuned comparison searches; strengths it always does
    cost: ClassVar[str] = ""  # of a step in rows m and width d, where it is more than a pass over the features
    # Beyond its kind: "views", "stages"; "predictions": the steps of its terms have these as their outputs; "tables":
    # inputs are rows of numbers (n, features).
    needs: ClassVar[frozenset[str]] = frozenset()
    stages: tuple[str, ...] = ("joint",)  # or ("encoder", "head"): the terms alone, then the head on fixed features
    first_stage: float = 0.5  # share of the epochs that the first of two stages takes
    views: int = 1  # augmented views of each row that a batch holds, one after the other
    maps: ClassVar[bool] = False  # takes maps as well as rows, and honours the mask
    weighs_repeats: ClassVar[bool] = False  # honours ``batch.repeats``
    # Stacks call it once for many runs: a term of features (g, n, d), or with each buffer (g, ...) a loss of outputs
    # (g, n, o), is the mean over the groups.
    over_groups: ClassVar[bool] = False
    exact_gradient: ClassVar[bool] = True  # False: a surrogate, which numerical differences do not confirm
    notes: tuple[str, ...] = ()  # what a log is to say, known after `prepare`

    def prepare(self, targets: Tensor, inputs: Any = None, width: int = 0) -> None:
        """Looks at the training rows once, before the first step.

        Args:
            targets: ``(n, t)``, of all training rows, or a fair sample of the points of maps.
            inputs: of the same rows; None where a loop does not hold them in memory.
            width: ``d``, of the features.
        """

    def outputs(self, t: int) -> int:
        """How many numbers the head gives for targets of ``t`` numbers."""
        return t

    def head(self, width: int, t: int) -> nn.Module:
        """The last layer. Loops with linear layers of their own kind ask for it only where it is overridden."""
        return nn.Linear(width, self.outputs(t))

    def decode(self, outputs: Tensor) -> Tensor:
        """Predictions ``(n, t)``, or maps, from what the head gives."""
        return outputs

    def change(self, batch: Batch, generator: torch.Generator | None = None) -> Batch:
        """The batch that the network is to see: mixed, or weighted. Draws come from the generator."""
        return batch

    def calibrate(self, features: Tensor, batch: Batch) -> Tensor:
        """The features as the head is to see them, in training."""
        return features

    def task_loss(self, step: Step) -> Tensor:
        """The loss of the outputs: a scalar."""
        own = step.batch
        return step.task(step.outputs, own.targets, own.mask, own.weight)

    def term(self, step: Step) -> Tensor:
        """What is added to the task loss, a scalar, without its strength."""
        return zero(step.features)

    def terms(self, step: Step) -> tuple[Tensor, ...]:
        """The terms that have a strength each where strengths are gradient-balanced; else their sum is :meth:`term`."""
        return (self.term(step),)

    def term_weights(self) -> dict[str, float]:
        """The name and the relative weight of each of :meth:`terms`; the name is "" where there is one."""
        return {"": 1.0}

    def rounding(self, features: Tensor, targets: Tensor) -> Tensor | float:
        """What the squared norm of each term's gradient may be by rounding alone."""
        return 0.0

    def observe(self, features: Tensor, targets: Tensor) -> None:
        """Told of each training step: features before they are calibrated, without their graph, and targets.

        Under data parallelism those of its own rank; what is to be of all ranks is for the method to join.
        """

    def end_epoch(self) -> None:
        """Told that all training rows were seen once more."""

    def share(self, step: Tensor, steps: int) -> Tensor:
        """How much the weights after a step are of the average that predictions are made by.

        Args:
            step: counted from 1, any shape.
            steps: of the whole training.

        Returns:
            In the shape of the step, from 0 to 1; 1 where the average is those weights alone.
        """
        return torch.ones_like(step, dtype=torch.float64)

    def after_step(self, model: nn.Module) -> None:
        """Told that the optimizer stepped."""

    def scalars(self) -> dict[str, Tensor]:
        """Numbers for the log of an epoch, by name."""
        return {}

    def measures(self, step: Step) -> dict[str, Tensor]:
        """Numbers of one step, for logs that ask for them; never computed in training itself."""
        return {}

    def targets_are_mixed(self, targets: Tensor) -> str | None:
        """Told, before :meth:`prepare`, that batches will be mixed, which makes targets unique; a note for the log."""
        return None

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any, **kwargs: Any) -> None:
        resize_buffers(self, state_dict, prefix)
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)


def resize_buffers(module: nn.Module, state_dict: Mapping[str, Any], prefix: str) -> None:
    """Gives the buffers of a module the shapes that they were saved with, for its ``_load_from_state_dict``."""
    for name, buffer in module._buffers.items():
        saved = state_dict.get(prefix + name)
        if buffer is not None and isinstance(saved, Tensor) and saved.shape != buffer.shape:
            module._buffers[name] = buffer.new_zeros(saved.shape)


def overrides(method: Method, hook: str) -> bool:
    """Whether the class of a method has a hook of its own.

    Example:
        >>> overrides(Method(), "decode")
        False
    """
    return getattr(type(method), hook) is not getattr(Method, hook)


def zero(features: Tensor) -> Tensor:
    """A zero that is part of the graph of the features, float32 for half precision.

    Example:
        >>> zero(torch.eye(2, requires_grad=True))
        tensor(0., grad_fn=<SumBackward0>)
    """
    half = features.dtype in (torch.float16, torch.bfloat16)
    return features.flatten()[:0].sum(dtype=torch.float32 if half else None)


def weighted_mean(losses: Tensor, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
    """The mean of weight times loss over all that count; not divided by the sum of the weights.

    Args:
        losses: any shape; of finite numbers, or a gradient through what is masked is NaN.
        mask: boolean, broadcast against them.
        weight: likewise; its mean over the training set is 1.

    Returns:
        Scalar; without anything that counts, a zero that is part of the graph.

    Example:
        >>> weighted_mean(torch.tensor([1.0, 3.0, 9.0]), torch.tensor([True, True, False]))
        tensor(2.)
    """
    if mask is not None:
        mask = mask.expand_as(losses)
        losses = torch.where(mask, losses, 0)
    if weight is not None:
        weight = weight.to(losses.dtype).expand_as(losses)
        losses = losses * (weight if mask is None else torch.where(mask, weight, 0))
    if mask is None:
        return losses.sum() / max(losses.numel(), 1)
    return losses.sum() / mask.sum().clamp(min=1)


def squared_error(outputs: Tensor, targets: Tensor, mask: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
    """The mean squared error, as a :class:`TaskLoss`.

    Example:
        >>> squared_error(torch.tensor([[1.0], [3.0]]), torch.zeros(2, 1))
        tensor(5.)
    """
    if mask is not None:
        targets = torch.where(mask, targets, outputs.detach())
    return weighted_mean((outputs - targets).square(), mask, weight)
