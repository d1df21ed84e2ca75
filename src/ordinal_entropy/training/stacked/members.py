"""The runs of a stack: what one is, which are computed together, and what each has of its own."""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ordinal_entropy.methods import Composition, Method, require
from ordinal_entropy.training.stacked.regularizers import unit_of

_CAN = {
    "averaging",
    "head",
    "loss",
    "weights",
    "mixing",
    "smoothing",
    "term",
    "parameters",
    "stages",
    "predictions",
    "progress",
    "tables",
}


@dataclass(frozen=True)
class Member:
    """A run of a stack."""

    seed: int  # of the first parameters, the batches and the draws
    method: Composition  # as made; a stack prepares a copy
    learning_rate: float  # of AdamW
    weight_decay: float
    samples: int | None = None  # rows drawn in each step, without replacement, if it is a regularizer alone; None: all
    initial: str = "float32"  # first parameters, see network.initial
    first: int | None = None  # inputs of its first layer, where it has fewer than the stack


class Rows(NamedTuple):
    """Training rows of the runs, and how steps take them."""

    inputs: Tensor  # (s, n, i), of each set of rows, which runs may share; padded
    targets: Tensor  # (r, n, 1), float64: as each run is trained on them
    which: Sequence[int]  # the set of each run
    counts: Sequence[int]  # rows of each set
    seeds: Sequence[int]  # of each set, for its batches
    epochs: int  # that the stages of a method share
    batch_size: int | None = None  # rows of a step, at most; None: all, in their order

    def steps_and_rows(self) -> tuple[int, int]:
        """Steps of an epoch, and the rows of each."""
        return (1, self.counts[0]) if self.batch_size is None else steps_and_rows(self.counts[0], self.batch_size)

    def of_run(self, run: int) -> tuple[Tensor, Tensor]:
        """Inputs ``(n, i)`` and targets ``(n, 1)`` of a run, without what they are padded with."""
        own = self.which[run]
        return self.inputs[own, : self.counts[own]], self.targets[run, : self.counts[own]]


def steps_and_rows(count: int, batch_size: int) -> tuple[int, int]:
    """Steps of an epoch over so many training rows, and the rows of each.

    The few rows that are left, fewer than steps, sit the epoch out, so that there is nothing to mask in a step.

    Example:
        >>> steps_and_rows(742, 128), steps_and_rows(128, 128)
        ((6, 123), (1, 128))
    """
    steps = math.ceil(count / batch_size)
    return steps, count // steps


class Own(nn.Module):
    """What a run has beside its part of the stack; of TabM, each of its members."""

    def __init__(self, method: Composition, head: nn.Module) -> None:
        super().__init__()
        self.method = method
        self.head = head  # nn.Identity: the linear one of the stack


def prepared(member: Member, inputs: Tensor, targets: Tensor, hidden: int, members: int = 1) -> list[Own]:
    """Copies of the method of a run that has seen its training rows, each with the head that it brings, if any.

    Args:
        member: the run.
        inputs: ``(n, i)``.
        targets: ``(n, 1)``.
        hidden: width of the features.
        members: of its network, each of which has a copy.
    """
    require_trainable(member.method)
    method = copy.deepcopy(member.method).to(targets)
    method.prepare(targets, inputs, hidden)
    heads: list[nn.Module] = [nn.Identity() for _ in range(members)]
    if method.own_head:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(member.seed)
            heads = [method.head(hidden, 1).to(targets) for _ in range(members)]
    return [Own(method if place == 0 else copy.deepcopy(method), head) for place, head in enumerate(heads)]


def require_trainable(method: Composition, of: str = "runs") -> None:
    """A ValueError where a method needs what a stack cannot do."""
    views = "views" in method.requirements()
    because = "its rows have no augmented views" if views else "its runs share one step"
    require(method, _CAN, f"a stack of {of}", because)


class Kind(NamedTuple):
    """How a run is computed; those of one kind lie side by side in a stack."""

    outputs: int  # of its head
    rank: int  # 0: the baseline; 1: a regularizer; 2: a loss over groups; 3: by itself
    name: str  # the same of those that are computed together
    samples: int  # 0: all


def kind_of(member: Member, targets: Tensor) -> Kind:
    """The kind of a run that is trained on some targets."""
    method, outputs = member.method, member.method.outputs(1)
    unit = unit_of(method, targets)
    if unit is not None:
        idle = unit.diversity_weight == unit.tightness_weight == 0
        return Kind(outputs, 0, "", 0) if idle else Kind(outputs, 1, repr(unit), member.samples or 0)
    needs = method.requirements()
    if not needs:
        return Kind(outputs, 0, "", 0)
    part = next(iter(method.parts.values()))
    alone = len(method.parts) == 1 and isinstance(part, Method) and part.over_groups and not method.own_head
    if alone and needs.keys() <= {"head", "loss"}:
        return Kind(outputs, 2, repr(method), 0)
    return Kind(outputs, 3, method.name, 0)


def order_of(members: Sequence[Member], rows: Rows) -> list[int]:
    """Places of the members such that those of one kind come together."""
    kinds = [kind_of(member, rows.of_run(run)[1]) for run, member in enumerate(members)]
    return sorted(range(len(members)), key=lambda k: (kinds[k], k))


def joined(methods: Sequence[Composition]) -> Composition:
    """One method for runs of the same kind: each buffer ``(g, ...)``."""
    found = copy.deepcopy(methods[0])
    every = [dict(method.named_modules()) for method in methods]
    for name, module in found.named_modules():
        for own in module._buffers:
            module._buffers[own] = torch.stack([each[name]._buffers[own] for each in every])
    return found
