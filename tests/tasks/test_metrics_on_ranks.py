"""The metrics of the tasks on images on two ranks: what one process has, whoever has how many of the rows."""

import pytest
import torch

from ordinal_entropy.tasks.age.metrics import ShotErrors, shot_errors
from ordinal_entropy.tasks.crowd.metrics import CountErrors, count_errors
from ordinal_entropy.tasks.depth.metrics import DepthScores, depth_scores
from processes import streamed

COUNTS = torch.tensor([0, 19, 20, 100, 101, 353])  # training faces of the ages 0 to 5


def targets_and_noise(high, *shape):
    draw = torch.Generator().manual_seed(0)
    targets = high * torch.rand(shape, generator=draw, dtype=torch.float64)
    return targets, torch.randn(shape, generator=draw, dtype=torch.float64)


def test_two_processes_are_one():
    ages, noise = targets_and_noise(8, 100)
    ages = ages.floor()
    guessed = ages + 3 * noise
    heads, noise = targets_and_noise(3000, 100)
    counted = heads + 90 * noise
    depths, noise = targets_and_noise(12, 7, 24, 32)
    depths[2] = 0  # an image without a depth
    seen = depths + noise
    expected = [shot_errors(guessed, ages, COUNTS), count_errors(counted, heads), depth_scores(seen, depths)]
    cases = [
        (ShotErrors(COUNTS), guessed, ages, 16, (70, 100)),
        (CountErrors(), counted, heads, 16, (70, 100)),
        (DepthScores(), seen, depths, 2, (5, 7)),
    ]
    for on_ranks, whole in zip(streamed(cases), expected, strict=True):
        assert len(on_ranks) == 4  # two ways to share the rows, on two ranks
        for scores in on_ranks:
            assert list(scores) == list(whole)
            for name, value in scores.items():
                assert value.dtype == torch.float64 and value.shape == ()
                assert value.item() == pytest.approx(float(whole[name]), rel=1e-12, abs=0), name
