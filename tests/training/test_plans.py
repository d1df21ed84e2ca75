"""What is read from the result of a run."""

import json
import math

import pytest

from ordinal_entropy.training.plans import outcome


def a_result(*scores, **further):
    """As it comes back from its file; training, validation and test score of each evaluation."""
    history = [
        {part: {"mae": score} for part, score in zip(("train", "validation", "test"), each, strict=True)}
        for each in scores
    ]
    return json.loads(json.dumps({"history": history, "features": {}, **further}))


SCORES = [(1.0, None, 5.0), (1.0, 3.0, 4.0), (1.0, 2.0, 6.0), (1.0, 7.0, 3.0)]


def test_an_outcome_survives_scores_that_are_no_numbers():
    features = {"last": {"entropy": None}, "best_validation": {"entropy": 2.0}}
    found = outcome(a_result(*SCORES, features=features), "mae")
    assert (found.last, found.best_validation, found.best_test) == (3.0, 6.0, 3.0)
    assert found.steps == [1, 2, 3, 4] and found.test == [5.0, 4.0, 6.0, 3.0] and math.isnan(found.validation[0])
    assert found.details["best_validation"] == {"mae": 6.0, "entropy": 2.0}
    assert found.details["last"]["mae"] == 3.0 and math.isnan(found.details["last"]["entropy"])


def test_the_epochs_of_a_first_stage_are_never_the_best():
    scores = [(1.0, 0.1, 0.5), (1.0, 0.2, 0.1), (1.0, 2.0, 6.0), (1.0, 3.0, 5.0)]
    found = outcome(a_result(*scores, first_stage=2), "mae")
    assert (found.best_validation, found.best_test, found.last) == (6.0, 5.0, 5.0)


def test_evaluations_are_at_the_steps_that_the_run_names():
    found = outcome(a_result(*SCORES, steps=[0, 10, 20, 25]), "mae")
    assert found.steps == [0, 10, 20, 25] and found.details == {}


def test_where_no_score_is_a_number_none_is_the_best():
    found = outcome(a_result((1.0, None, 5.0), (1.0, None, None)), "mae")
    assert math.isnan(found.best_validation) and found.best_test == 5.0 and math.isnan(found.last)


@pytest.mark.parametrize(
    "result",
    [
        a_result(),
        a_result(*SCORES, first_stage=4),
        a_result(*SCORES, first_stage="one"),
        a_result(*SCORES, steps=[1, 2]),
        a_result(*SCORES, steps=[1, 2, 3, "4"]),
        a_result(*SCORES, features={"last": {"entropy": "much"}}),
        {"history": a_result(*SCORES)["history"]},
        {"history": [{"train": {"mae": 1.0}}], "features": {}},
    ],
)
def test_a_result_of_another_form_is_refused(result):
    with pytest.raises(ValueError, match="expected"):
        outcome(result, "mae")
