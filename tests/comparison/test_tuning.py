"""The search: one budget for all rows, a common grid, ranges that widen, the same questions again after a stop."""

import math
import sys
from contextlib import suppress

import pytest

pytest.importorskip("optuna", reason="the search is Optuna's")

from ordinal_entropy.comparison import POINTS
from ordinal_entropy.comparison.tuning import Budget, Found, around, between, over_tunings, require_fresh, tuned
from ordinal_entropy.methods import Range

NAN = math.nan
STRENGTH = {"strength": Range(1e-2, 1.0, log=True)}


def bowl(rate=1e-3, strength=0.1, seeds=2):
    """Scores that are best at a rate and a strength; what is missing is at its default, a strength of 0.1."""

    def score(settings):
        off = math.log10(settings["rate"] / rate) ** 2 + math.log10(settings.get("strength", 0.1) / strength) ** 2
        return Found([1.0 + off] * seeds, 0.5)

    return score


class Asked:
    """Answers, and keeps what was asked for in each stage."""

    def __init__(self, score, stop_before=None):
        self.score, self.stop_before, self.stages = score, stop_before, {}

    def __call__(self, stage, asked):
        if stage == self.stop_before:
            raise KeyboardInterrupt
        assert stage not in self.stages
        self.stages[stage] = {row: [dict(each) for each in own] for row, own in asked.items()}
        return {row: [self.score(each) for each in own] for row, own in asked.items()}

    def of(self, row):
        return [each for asked in self.stages.values() for each in asked.get(row, [])]


@pytest.mark.parametrize("trials", [6, 9, 16])
def test_rows_spend_the_same_and_share_a_grid_at_defaults(trials):
    asked = Asked(bowl(3e-3, 0.5))
    found = tuned({"baseline": {}, "oe": STRENGTH}, around("rate", 1e-3, trials // 2), trials, asked)
    grid = asked.stages["grid"]
    assert grid["baseline"] == grid["oe"] and all(list(each) == ["rate"] for each in grid["oe"])
    assert len(grid["oe"]) == trials // 2 and {"rate": 1e-3} in grid["oe"]
    values = [each["rate"] for each in grid["oe"]]
    assert values[-1] / values[0] == pytest.approx(100, rel=1e-4)
    assert len(asked.of("baseline")) == len(asked.of("oe")) == trials
    assert [len(own.trials) for own in found.values()] == [trials, trials]
    assert found["oe"].described(around("rate", 1e-3, 3))["seconds"] == trials / 2


def test_the_choice_is_the_best_mean_over_the_seeds():
    def score(settings):
        return Found([settings["rate"], 3 * settings["rate"]])

    axis = between("rate", 1.0, 100.0, 3)
    lowest = tuned({"a": {}}, axis, 6, Asked(score))["a"]
    highest = tuned({"a": {}}, axis, 6, Asked(score), lower_is_better=False)["a"]
    means = [2 * trial.settings["rate"] for trial in highest.trials]
    assert highest.best.found.mean == pytest.approx(max(means)) and highest.best.settings["rate"] > 100
    assert lowest.best.settings["rate"] < 1.0


def test_a_choice_at_the_end_of_the_grid_makes_it_longer_out_of_the_same_budget():
    asked = Asked(bowl(rate=1.0))
    found = tuned({"far": {}, "near": {}}, around("rate", 1e-3, 4), 8, lambda stage, each: {
        row: (asked if row == "far" else Asked(bowl()))(f"{stage}", {row: own})[row] for row, own in each.items()
    })  # fmt: skip
    step = around("rate", 1e-3, 4).step
    assert [each["rate"] for each in asked.stages["wider-1"]["far"]] == [pytest.approx(1e-3 * step**3, rel=1e-4)]
    assert [each["rate"] for each in asked.stages["wider-2"]["far"]] == [pytest.approx(1e-3 * step**4, rel=1e-4)]
    assert "wider-3" not in asked.stages
    assert len(found["far"].curve("rate")) == 6 and len(found["near"].curve("rate")) == 4
    assert len(found["far"].trials) == len(found["near"].trials) == 8
    assert found["far"].at_edge == ["rate"] and found["near"].at_edge == []


def test_a_range_is_widened_where_the_best_lies_at_its_edge_and_never_beyond_its_limits():
    def most(settings):
        return Found([-settings.get("strength", 0.0)])

    def largest(limits):
        ranges = {"a": {"strength": Range(0.0, 1.0, limits=limits)}}
        found = tuned(ranges, around("rate", 1.0, 20), 40, Asked(most), seed=1)["a"]
        return max(trial.settings.get("strength", 0.0) for trial in found.trials)

    assert 1.5 < largest((0.0, math.inf)) <= 2.25  # a half longer, twice
    assert 1.0 < largest((0.0, 1.1)) <= 1.1


def test_whole_numbers_and_choices():
    ranges = {"a": {"bins": Range(10, 100, log=True, whole=True), "decay": Range(choices=(0.9, "none"))}}
    asked = Asked(bowl(rate=1.0))
    tuned(ranges, around("rate", 1.0, 6), 12, asked)
    searched = [each for each in asked.of("a") if "bins" in each]
    assert len(searched) == 6
    assert all(type(each["bins"]) is int and 10 <= each["bins"] <= 100 for each in searched)
    assert {each["decay"] for each in searched} == {0.9, "none"}


def test_the_same_scores_lead_to_the_same_questions_after_a_stop():
    def run(stop_before=None, seed=0):
        asked = Asked(bowl(5e-3, 3.0), stop_before)
        with suppress(KeyboardInterrupt):
            tuned({"baseline": {}, "oe": STRENGTH}, around("rate", 1e-3, 8), 16, asked, seed=seed)
        return asked.stages

    whole = run()
    assert {"grid", "search-1", "search-2"} <= set(whole)
    stopped = run("search-2")
    assert stopped == {stage: whole[stage] for stage in stopped} and "search-2" not in stopped
    assert run() == whole
    assert run(seed=1)["search-1"] != whole["search-1"] and run(seed=1)["grid"] == whole["grid"]


def test_a_row_is_tuned_the_same_whatever_other_rows_there_are():
    alone, beside = Asked(bowl()), Asked(bowl())
    tuned({"oe": STRENGTH}, around("rate", 1e-3, 4), 8, alone)
    tuned({"baseline": {}, "oe": STRENGTH}, around("rate", 1e-3, 4), 8, beside)
    assert alone.of("oe") == beside.of("oe")


def test_trials_that_fail_are_counted_and_never_chosen():
    def score(settings):
        return Found([1.0, NAN]) if settings["rate"] > 1e-3 else Found([2.0, math.inf if len(settings) > 2 else 2.0])

    axis = around("rate", 1e-3, 4)
    found = tuned({"a": STRENGTH}, axis, 8, Asked(score))["a"]
    described = found.described(axis)
    assert described["failed"] == sum(math.isnan(trial.found.mean) for trial in found.trials) >= 2
    assert described["validation"] == 2.0 and described["chosen"]["rate"] <= 1e-3 and described["trials"] == 8
    assert described["untuned"] == 2.0
    nothing = tuned({"a": STRENGTH}, axis, 8, Asked(lambda settings: Found([NAN])))["a"]
    assert nothing.best is None and nothing.described(axis)["failed"] == 8 and nothing.described(axis)["chosen"] == {}


@pytest.mark.parametrize(
    ("budget", "seeds", "sentence"),
    [
        (Budget(trials=5), 10, "expected at least 6 trials of each row"),
        (Budget(seeds=0), 10, "expected at least one seed of a trial"),
        (Budget(tunings=2), 10, "expected one tuning, or at least 3 for an interval over them, got 2"),
        (Budget(), 1001, "expected fresh seeds that no trial was trained with, got 1000 among both"),
        (Budget(tunings=3), 334, "expected fresh seeds that no trial was trained with, got 1000 among both"),
    ],
)
def test_a_budget_that_finds_nothing_is_refused(budget, seeds, sentence):
    with pytest.raises(ValueError, match=sentence):
        budget.checked(seeds)


def test_seeds_of_tunings_are_all_different():
    budget = Budget(trials=16, seeds=3, tunings=4).checked(10)
    fresh = [seed for k in range(4) for seed in budget.fresh_seeds(k, 10)]
    seen = [seed for k in range(4) for seed in budget.tuning_seeds(k)]
    assert len({*fresh, *seen}) == 40 + 12
    require_fresh(fresh, seen)


def test_without_optuna_one_sentence_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"needs Optuna: pip install 'ordinal-entropy\[tune\]'"):
        tuned({"a": {}}, around("rate", 1.0, 3), 6, Asked(bowl()))


def test_a_tuning_counts_once_by_the_seeds_at_which_all_rows_ended():
    first = {"baseline": [1.0, 2.0, 6.0], "oe": [1.0, 1.0, NAN]}
    second = {"baseline": [NAN], "oe": [1.0]}
    each = [{row: dict.fromkeys(POINTS, values) for row, values in part.items()} for part in (first, second)]
    found = over_tunings(each, POINTS)
    assert found["baseline"]["last"] == [1.5, pytest.approx(NAN, nan_ok=True)]
    assert found["oe"]["best_test"] == [1.0, pytest.approx(NAN, nan_ok=True)]
