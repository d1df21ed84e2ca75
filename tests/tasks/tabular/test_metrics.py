"""Errors of runs with different numbers of rows, against scikit-learn's."""

import math

import numpy as np
import torch
from sklearn import metrics as theirs

from ordinal_entropy.tasks.tabular.metrics import errors


def test_errors_are_scikit_learns():
    random = np.random.default_rng(0)
    targets, predictions = random.normal(50, 10, (3, 20)), random.normal(50, 10, (3, 20))
    mask = np.ones((3, 20), dtype=bool)
    mask[0, 12:] = False
    predictions[0, 15] = np.nan  # does no harm outside
    found = errors(*map(torch.from_numpy, (predictions, targets, mask)))
    for run in range(3):
        y, guess = targets[run][mask[run]], predictions[run][mask[run]]
        np.testing.assert_allclose(found.rmse[run], theirs.root_mean_squared_error(y, guess))
        np.testing.assert_allclose(found.mae[run], theirs.mean_absolute_error(y, guess))
        np.testing.assert_allclose(found.r2[run], theirs.r2_score(y, guess))


def test_equal_targets_have_no_r2_and_a_run_that_diverged_no_error():
    y = torch.tensor([[1.0, 1.0], [1.0, 2.0]])
    found = errors(torch.tensor([[1.0, 2.0], [math.nan, 1.0]]), y, torch.ones(2, 2, dtype=torch.bool))
    assert math.isnan(found.r2[0]) and found.rmse[0] == 0.5**0.5
    assert all(math.isnan(own[1]) for own in found)
