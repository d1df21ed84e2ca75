"""What a training loop returns: the three points of scores during training, for either direction and with NaN."""

import math

import numpy as np
import pytest
import torch

from ordinal_entropy.comparison import compare
from ordinal_entropy.comparison.returned import best_validation, points_during, points_of

NAN = math.nan


def by_hand(validation, test, lower):
    """The same, one score after the other."""
    best, at, own = None, NAN, NAN
    for chosen, score in zip(validation, test, strict=True):
        if not math.isnan(chosen) and (best is None or (chosen < best if lower else chosen > best)):
            best, at = chosen, score
        if not math.isnan(score) and (math.isnan(own) or (score < own if lower else score > own)):
            own = score
    return {"last": test[-1], "best_validation": at, "best_test": own}


@pytest.mark.parametrize("lower", [True, False])
def test_points_are_those_of_a_loop(lower):
    noise = np.random.default_rng(0)
    for _ in range(200):
        scores = noise.integers(0, 4, size=(2, noise.integers(2, 6))).astype(float)  # with ties
        scores[noise.random(scores.shape) < 0.2] = NAN
        found = points_during(*scores, lower_is_better=lower)
        assert found == pytest.approx(by_hand(*scores.tolist(), lower), nan_ok=True)
        known = [score for score in scores[0] if not math.isnan(score)]
        wanted = (min if lower else max)(known) if known else NAN
        assert best_validation(scores[0], lower_is_better=lower) == pytest.approx(wanted, nan_ok=True)


@pytest.mark.parametrize(
    "kind", [list, tuple, np.array, torch.tensor, lambda own: [torch.tensor(each) for each in own]]
)
def test_sequences_of_any_kind(kind):
    returned = {"validation": kind([2.0, 1.0, 3.0]), "test": kind([5.0, 4.0, 3.0])}
    assert points_of(returned, lower_is_better=True) == {"last": 3.0, "best_validation": 4.0, "best_test": 3.0}


def test_one_evaluation_is_one_score():
    for returned in ({"validation": NAN, "test": 2.0}, {"validation": [1.0], "test": [2.0]}):
        assert set(points_of(returned, lower_is_better=True).values()) == {2.0}


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"validation": [1.0, 2.0], "test": [1.0]}, "as many scores of validation as of test, got 2 and 1"),
        ({"validation": [], "test": []}, "at least one validation score, got none"),
        ({"validation": [1.0], "test": ["a"]}, r"numbers as test scores, got \['a'\]"),
        ({"validation": [1.0]}, "a number, .* got validation"),
    ],
)
def test_what_cannot_be_scored_is_named(returned, message):
    with pytest.raises(ValueError, match=f"expected train to return {message}"):
        compare(lambda method, seed: returned, seeds=1)


def test_compare_takes_scores_during_training():
    def train(method, seed):
        return {"validation": [0.1, 0.9, 0.5], "test": [0.3 + seed, 0.2 + seed, 0.4 + seed]}

    at = compare(train, seeds=2, lower_is_better=False).summary["methods"]["oe"]["at"]
    assert at == {"last": [0.4, 1.4], "best_validation": [0.2, 1.2], "best_test": [0.4, 1.4]}
