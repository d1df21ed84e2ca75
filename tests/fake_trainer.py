"""A trainer that draws its scores: what is built upon the real one can be tested in no time."""

import random
from typing import NamedTuple

import numpy as np

GAINS = {"baseline": 1.0, "ld": 0.5, "oe": 0.5}


def rows(recipe):
    """In place of those of a recipe: one of zeros to train on, and one to test, where the constant is off by 1."""
    from ordinal_entropy.tasks.operators.data import Triplets
    from ordinal_entropy.tasks.operators.train import Split

    zeros = Triplets(np.zeros((1, 100)), np.zeros((1, 1)), np.zeros((1, 1)))
    return Split(zeros, zeros, zeros._replace(values=np.ones((1, 1))))


class History(NamedTuple):
    steps: list[int]
    train: list[float]
    validation: list[float]
    test: list[float]

    @property
    def last(self):
        return self.test[-1]

    @property
    def best_validation(self):
        return self.test[min(range(len(self.test)), key=self.validation.__getitem__)]

    @property
    def best_test(self):
        return min(self.test)


class Trainer:
    """Called like the real one; keeps what it was called with."""

    def __init__(self):
        self.calls = []

    def __call__(self, jobs, split, options, *, device, folder=None, progress=None, on_metrics=None):
        self.calls.append((list(jobs), split, options, device, folder))
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        steps = [*range(0, options.steps, options.evaluate_every), options.steps]
        histories = []
        for job in jobs:
            noise = random.Random(job.seed)  # the same for all methods of a seed: paired
            level = GAINS.get(job.method, 0.8) * 3e-3 * noise.uniform(0.7, 1.3)
            scores = [level * (1 + 50 / (1 + step)) for step in steps]
            histories.append(History(steps, scores, scores, scores))
        if progress is not None:
            progress(options.steps, options.steps)
        return histories
