"""A training loop of one's own, tuned: what it is called with, what is chosen by, what the verdict is of."""

import math
import random

import pytest

pytest.importorskip("optuna", reason="the search is Optuna's")
pytest.importorskip("scipy", reason="the distributions are SciPy's")

from ordinal_entropy.comparison import compare, verdict
from paired_scores import summed

TUNE = {"lr": (1e-4, 1e-2), "oe": {"strength": (1e-2, 1e1)}}


def noisy(method, seed, settings, gain=0.0):
    """A bowl around lr=3e-3 with noise of the seed and of the run."""
    shared, own = random.Random(seed), random.Random(f"{method} {seed} {settings}")
    score = 3.0 + math.log10(settings["lr"] / 3e-3) ** 2 + 0.1 * shared.gauss(0, 1) - gain
    return {"validation": score + 0.1 * own.gauss(0, 1), "test": score + 0.1 * own.gauss(0, 1)}


def test_settings_are_chosen_on_tuning_seeds_and_scored_on_fresh_ones():
    calls = []

    def train(method, seed, settings):
        calls.append((method, seed, settings))
        return noisy(method, seed, settings, gain=0.5 * (method == "oe"))

    found = compare(train, ["oe", "baseline"], 5, tune=TUNE, trials=8, tuning_seeds=2, metric="MSE")
    tuning, fresh = calls[: 2 * 8 * 2], calls[2 * 8 * 2 :]
    assert {seed for _, seed, _ in tuning} == {1000, 1001} and {seed for _, seed, _ in fresh} == set(range(5))
    assert len(fresh) == 2 * 5
    for name, own in found.summary["tuning"].items():
        assert own["trials"] == 8 and own["failed"] == 0 and len(own["curve"]) == 4
        assert all(settings == own["chosen"] for method, _, settings in fresh if method == name)
        tried = [settings for method, _, settings in tuning if method == name]
        means = [
            sum(noisy(name, seed, each, 0.5 * (name == "oe"))["validation"] for seed in (1000, 1001)) / 2
            for each in tried
        ]
        assert own["validation"] == pytest.approx(min(means))
    assert not any("strength" in settings for method, _, settings in calls if method == "baseline")
    assert any("strength" in settings for method, _, settings in calls if method == "oe")
    assert list(found.summary["methods"]) == ["baseline", "oe"]
    assert found.summary["paired"]["oe"]["verdict"] == "helps"
    assert "oe is better than baseline at these settings: MSE" in str(found)
    assert "The verdict is of the rows at these settings" in str(found)
    assert found.summary["recipe"] == {"seeds": [0, 1, 2, 3, 4], "tuning_seeds": [[1000, 1001]]}


def test_test_scores_are_not_looked_at_while_tuning():
    def honest(method, seed, settings):
        return (
            noisy(method, seed, settings)
            if seed < 1000
            else {"validation": noisy(method, seed, settings)["validation"]}
        )

    def tempting(method, seed, settings):
        own = noisy(method, seed, settings)
        return own if seed < 1000 else {**own, "test": -settings["lr"]}

    summaries = [compare(train, ["baseline", "oe"], 2, tune=TUNE, trials=8).summary for train in (honest, tempting)]
    assert summaries[0]["tuning"]["oe"]["chosen"] == summaries[1]["tuning"]["oe"]["chosen"]
    assert summaries[0]["methods"] == summaries[1]["methods"]


@pytest.mark.parametrize("returned", [3.0, {"test": 1.0}, {"last": 1.0, "best_validation": 1.0, "best_test": 1.0}])
def test_without_a_validation_score_nothing_is_tuned(returned):
    with pytest.raises(ValueError, match="settings are chosen by validation scores, never by test scores"):
        compare(lambda method, seed, settings: returned, tune=TUNE)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"tune": TUNE, "seeds": [7, 1000]}, "expected fresh seeds that no trial was trained with, got 1000"),
        ({"tune": TUNE, "seeds": 3, "tuning_seeds": [2, 3]}, "expected fresh seeds .* got 2 among both"),
        ({"tune": TUNE, "trials": 3}, "expected at least 6 trials"),
        ({"tune": TUNE, "tunings": 3, "seeds": [1, 2]}, "to say how many, where there are several tunings"),
        ({"tune": TUNE, "stop_early": True}, "expected tune or stop_early"),
        ({"trials": 16}, "expected tune, the ranges of settings, beside trials"),
        ({"tune": {"oe": {"strength": (1, 10)}}}, "expected a range of the learning rate"),
        ({"tune": {"lr": [1e-3, 1e-2]}}, "expected lr, the first range of tune, to be a pair of numbers"),
        ({"tune": {"lr": (1e-2, 1e-3)}}, "expected lr from a number to a larger one"),
        ({"tune": {"lr": (1e-3, 1e-2), "ld": {}}}, "expected ranges of methods that are compared, got some of 'ld'"),
    ],
)
def test_what_cannot_be_tuned_is_a_sentence(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        compare(noisy, **options)


def test_trials_that_fail_do_not_end_the_comparison():
    def train(method, seed, settings):
        if method == "oe" and settings["lr"] > 1e-3:
            raise FloatingPointError("diverged")
        return noisy(method, seed, settings)

    found = compare(train, ["baseline", "oe"], 3, tune=TUNE, trials=8).summary["tuning"]
    assert found["oe"]["failed"] >= 2 and found["baseline"]["failed"] == 0
    assert found["oe"]["chosen"]["lr"] <= 1e-3
    with pytest.raises(
        RuntimeError, match="expected train to work, got ZeroDivisionError from every trial of the grid"
    ):
        compare(lambda method, seed, settings: 1 / 0, tune=TUNE)


def test_over_several_tunings_each_counts_once():
    seen = {}

    def train(method, seed, settings):
        seen.setdefault(seed, []).append(settings)
        return noisy(method, seed, settings)

    found = compare(train, ["baseline", "oe"], 4, tune=TUNE, trials=6, tuning_seeds=2, tunings=3)
    assert sorted(seen) == [*range(12), 1000, 1001, 2000, 2001, 3000, 3001]
    assert len(found.summary["methods"]["oe"]["values"]) == found.summary["paired"]["oe"]["n"] == 3
    assert len(found.summary["tuning"]["oe"]["tunings"]) == 3
    tests = [
        sum(noisy("oe", seed, own["chosen"])["test"] for seed in range(4 * k, 4 * k + 4)) / 4
        for k, own in enumerate(found.summary["tuning"]["oe"]["tunings"])
    ]
    assert found.summary["methods"]["oe"]["values"] == pytest.approx(tests)
    assert (
        "at these settings" not in str(found)
        and "n = 3 tunings" in str(found)
        and "the verdict is of tuning and then training" in str(found)
    )


def test_what_was_before_tuning_is_said():
    columns = {"baseline": [3.0, 3.2, 2.9, 3.1], "oe": [3.0, 3.1, 3.0, 3.1]}
    before = summed({name: [2 * value for value in values] for name, values in columns.items()})
    own = {"trials": 16, "seeds": 4, "tunings": 1, "fresh": 4, "sets_aside": True, "before": before}
    said = verdict({**summed(columns), "tuned": own}).notes
    assert said[0].startswith(
        "Every row was tuned once (16 trials of 4 seeds each, on validation data). All runs share"
    )
    assert said[1].startswith("Before tuning, with the learning rate of the recipe in all rows: oe against baseline")


def share_of_differences(studies, **options):
    """How often the baseline differs from itself under another name, each tuned by itself."""
    different = 0
    for study in range(studies):
        found = compare(
            lambda method, seed, settings, study=study: noisy(f"{method} {study}", seed + 10_000 * study, settings),
            ["baseline", "again"],
            tune={"lr": (1e-4, 1e-2), "decay": (1e-4, 1e-1)},
            trials=6,
            **options,
        )
        different += found.summary["paired"]["again"]["verdict"] != "open"
    return different / studies


@pytest.mark.slow
def test_a_method_that_is_the_baseline_under_another_name_differs_in_one_of_twenty_at_most():
    over_tunings = share_of_differences(400, seeds=3, tuning_seeds=1, tunings=4)
    assert over_tunings <= 0.05 + 2 * math.sqrt(0.05 * 0.95 / 400)
    once = share_of_differences(100, seeds=10, tuning_seeds=3)
    assert once > 0.5  # at these settings, which chance chose differently, the rows do differ
