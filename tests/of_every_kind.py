"""A small method of each kind, and what a loop without names of its own makes of them."""

import pytest
import torch

from ordinal_entropy import methods


class Bent(methods.Method):
    """A term with a parameter."""

    kind = "term"

    def __init__(self):
        super().__init__()
        self.power = torch.nn.Parameter(torch.tensor(1.0))

    def term(self, step):
        return (step.features.square().sum() / max(step.features.numel(), 1) - self.power).square()


class Deep(methods.Method):
    """A head of two layers."""

    kind = "head"

    def head(self, width, t):
        return torch.nn.Sequential(torch.nn.Linear(width, 3), torch.nn.ReLU(), torch.nn.Linear(3, t))


class Rare(methods.Method):
    """Weights by the size of the target."""

    kind = "weights"

    def change(self, batch, generator=None):
        return batch._replace(weight=1 + batch.targets.abs())


class Mixed(methods.Method):
    """Rows mixed with their neighbours in the batch."""

    kind = "mixing"

    def change(self, batch, generator=None):
        share = torch.rand(len(batch.targets), 1, generator=generator).to(batch.targets)
        mixed = [share * each + (1 - share) * each.roll(1, 0) for each in (batch.inputs, batch.targets)]
        return batch._replace(inputs=mixed[0], targets=mixed[1])


class Shrunk(methods.Method):
    """Features divided by their size in the epoch before."""

    kind = "smoothing"

    def __init__(self):
        super().__init__()
        self.register_buffer("size", torch.ones(()))
        self.register_buffer("next", torch.ones(()))

    def calibrate(self, features, batch):
        return features / self.size

    def observe(self, features, targets):
        if len(features):
            self.next.copy_(features.abs().mean() + 0.5)

    def end_epoch(self):
        self.size.copy_(self.next)


class First(methods.Method):
    """A term alone, then the head alone."""

    kind = "term"
    stages = ("encoder", "head")

    def term(self, step):
        return (step.features.mean(1) - step.batch.targets[:, 0]).square().sum() / max(len(step.features), 1)


KINDS = (Bent, Deep, Rare, Mixed, Shrunk, First)
NAMES = [
    "bent", "deep", "rare", "mixed", "shrunk", "first", "huber", "classification+rare+mixed+shrunk+oe+bent",
    "deep+oe",
]  # fmt: skip


@pytest.fixture
def of_every_kind(monkeypatch):
    """They are registered for one test."""
    monkeypatch.setattr(methods.registry, "_REGISTRY", dict(methods.registry._REGISTRY))
    for kind in KINDS:
        methods.register(kind.__name__.lower(), kind)
