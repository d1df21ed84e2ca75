"""What one run on a table is, and which runs make a stack."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ordinal_entropy.methods import Composition, first_epochs
from ordinal_entropy.tasks.tabular.inputs import Seen
from ordinal_entropy.training.stacked.members import Member, steps_and_rows
from ordinal_entropy.training.stacked.network import Shape


class Settings(NamedTuple):
    """What the runs of a stack share."""

    epochs: int
    batch_size: int  # rows of a step, at most
    learning_rate: float  # of AdamW
    weight_decay: float
    feature_rows: int  # training and test rows of which features are kept


@dataclass(frozen=True)
class Job:
    """One run: what it sees, how its network looks, what its method is."""

    seed: int
    seen: Seen
    shape: Shape
    method: Composition  # as made; a stack prepares a copy

    def key(self, settings: Settings) -> Hashable:
        """What runs of one stack have in common; inputs may differ in number."""
        staged = first_epochs(self.method, settings.epochs)  # parameters of a stage step together
        steps = steps_and_rows(len(self.seen.train.targets), settings.batch_size)
        return replace(self.shape, inputs=0), settings, steps, staged

    def member(self) -> Member:
        """Of a stack."""
        return Member(self.seed, self.method, first=self.shape.first)
