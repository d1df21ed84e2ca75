"""Forward selection: what it adds, what it refuses, what it spends, and the same questions again after a stop."""

import math
import random

import pytest

pytest.importorskip("optuna", reason="the search is Optuna's")

from ordinal_entropy.comparison import forward
from ordinal_entropy.comparison.forward import Space, smallest
from ordinal_entropy.comparison.tuning import FIRST_SEED, Found
from ordinal_entropy.methods import Range

SLOW = 2.0  # seconds of a run of anything but the baseline
KINDS = {"lds": "weights", "sqinv": "weights", "oe": "term", "srl": "term", "bad": "mixing", "broken": "loss"}


def join(row, part):
    own = [] if row == "baseline" else row.split("+")
    taken = {KINDS[each] for each in own if KINDS[each] != "term"}
    return None if part in own or KINDS[part] in taken else "+".join([*own, part])


class Trainer:
    """Errors of which parts take off what they are worth, at a rate of their own; a second a run of the baseline."""

    def __init__(self, worth, noise=0.0, rates=None, stop_before=None):
        self.worth, self.noise, self.rates, self.stop_before = worth, noise, rates or {}, stop_before
        self.asked, self.took = [], {}

    def score(self, row, settings, seed):
        parts = [] if row == "baseline" else row.split("+")
        if "broken" in parts:
            return math.nan
        rate = next((self.rates[part] for part in parts if part in self.rates), 1e-3)
        own = random.Random(f"{row} {seed} {sorted(settings.items())}").gauss(0, self.noise)
        shared = random.Random(seed).gauss(0, 1.0)
        off = 0.5 * math.log10(settings["learning_rate"] / rate) ** 2
        off += 0.2 * sum(math.log10(settings.get(f"{part}.strength", 0.1) / 0.3) ** 2 for part in parts if part == "oe")
        return 10.0 + shared + off + own - sum(self.worth.get(part, 0.0) for part in parts)

    def __call__(self, stage, asked, seeds):
        if stage == self.stop_before:
            raise KeyboardInterrupt
        self.asked.append((stage, {row: [dict(each) for each in own] for row, own in asked.items()}, list(seeds)))
        found, total = {}, 0.0
        for row, every in asked.items():
            price = (1.0 if row == "baseline" else SLOW) * len(seeds)
            total += price * len(every)
            found[row] = [Found([self.score(row, own, seed) for seed in seeds], price) for own in every]
        self.took.setdefault(stage, total)
        return found, total

    def of(self, row):
        return [own for _, asked, _ in self.asked for own in asked.get(row, [])]


def ranges(row):
    own = {f"{part}.strength": Range(1e-2, 1.0, log=True) for part in row.split("+") if KINDS.get(part) == "term"}
    return {"weight_decay": Range(1e-5, 0.1, log=True), **own}


def selected(train, budget=20_000.0, parts=tuple(KINDS), run_seconds=1.0, **further):
    space = Space(parts, 1e-3, ranges, join)
    return forward.forward(space, train, budget, run_seconds=run_seconds, **further)


def test_parts_that_gain_are_added_one_after_the_other_and_others_are_not():
    train = Trainer({"lds": 1.0, "sqinv": 0.8, "oe": 0.5, "bad": -2.0}, noise=0.02)
    found = selected(train)
    assert found.winner.row == "lds+oe"
    assert [each.added for each in found.rounds] == ["lds", "lds+oe", None]
    assert set(found.rounds[0].screened) == set(KINDS)
    assert "lds+sqinv" not in found.rounds[1].screened  # two weightings do not join
    assert found.winner.settings["oe.strength"] == pytest.approx(0.3, rel=0.7)
    assert found.baseline.row == "baseline" and "oe.strength" not in found.baseline.settings


def test_a_row_that_fails_is_never_chosen_and_not_fatal():
    found = selected(Trainer({"broken": 9.0, "lds": 1.0}))
    assert math.isnan(found.rounds[0].screened["broken"])
    assert "broken" not in found.winner.row and "lds" in found.winner.row


def test_without_a_gain_the_baseline_wins_and_the_reason_is_said():
    found = selected(Trainer({"bad": -1.0, "lds": -1.0, "sqinv": -1.0, "oe": -1.0, "srl": -1.0}))
    assert found.winner is found.baseline and found.winner.row == "baseline"
    assert found.rounds[-1].added is None and "nothing that was tried gains on baseline" in found.ended


def test_chance_alone_is_seldom_taken_for_a_gain():
    names = [f"part{k}" for k in range(6)]
    space = Space(names, 1e-3, lambda row: {}, lambda row, part: part if row == "baseline" else None)
    added = 0
    for case in range(40):
        train = Trainer({}, noise=0.3)
        train.score = lambda row, settings, seed, case=case: random.Random(f"{case} {row} {settings} {seed}").gauss(
            10, 1
        )
        added += forward.forward(space, train, 20_000.0, run_seconds=1.0).winner.row != "baseline"
    assert added <= 0.15 * 40  # two finalists, of which each passes with a chance of one in forty


def test_a_head_that_wants_another_learning_rate_is_searched_there():
    found = selected(Trainer({"oe": 1.0}, rates={"oe": 2.5e-3}), parts=("oe",))
    assert found.winner.row == "oe"
    assert found.winner.settings["learning_rate"] == pytest.approx(2.5e-3, rel=0.5)


def test_the_baseline_has_as_many_trials_as_led_to_the_winner():
    train = Trainer({"lds": 1.0, "oe": 0.5}, noise=0.02)
    found = selected(train)
    own = [
        settings
        for stage, asked, _ in train.asked
        if "confirming" not in stage
        for settings in asked.get("baseline", [])
    ]
    assert found.baseline.trials == len(found.tuned.trials) == len(own) == found.winner.trials


def test_choices_are_made_by_tuning_seeds_and_confirmed_by_others():
    train = Trainer({"lds": 1.0, "oe": 0.5})
    selected(train)
    confirming = {seed for stage, _, seeds in train.asked if "confirming" in stage for seed in seeds}
    choosing = {seed for stage, _, seeds in train.asked if "confirming" not in stage for seed in seeds}
    assert confirming and choosing and not confirming & choosing
    assert min(confirming | choosing) >= FIRST_SEED  # fresh seeds count from 0


@pytest.mark.parametrize("budget", [60.0, 200.0, 600.0, 2_000.0])
def test_the_budget_holds_the_fresh_runs_included(budget):
    train = Trainer({"lds": 1.0, "oe": 0.5}, noise=0.02)
    found = selected(train, budget)
    fresh = found.fresh * (1.0 + SLOW)
    assert sum(train.took.values()) + fresh <= 1.05 * budget
    assert 3 <= found.fresh <= 10


def test_a_budget_for_some_of_the_parts_takes_the_first_ones():
    parts = ("lds", "oe", "srl", "sqinv", "bad")
    found = selected(Trainer({"lds": 1.0}), 30.0, parts)
    first = found.rounds[0]
    assert 0 < len(first.screened) < len(parts) and list(first.screened) == list(parts[: len(first.screened)])
    assert first.left_out == len(parts) - len(first.screened)


def test_too_small_a_budget_is_refused_with_the_smallest_that_works():
    train = Trainer({})
    with pytest.raises(ValueError, match=r"budget of at least 2 min 15 s, since a run takes about 10 s, got 1 min 0 s"):
        selected(train, 60.0, run_seconds=10.0)
    assert not train.asked
    selected(train, smallest(10.0), run_seconds=10.0)
    assert train.asked


def test_a_stop_leads_to_the_same_questions():
    whole = Trainer({"lds": 1.0, "oe": 0.5}, noise=0.05)
    expected = selected(whole)
    for stage in ("baseline-search-1", "round-1-screening-1", "round-2-search-1", "round-2-confirming"):
        with pytest.raises(KeyboardInterrupt):
            selected(Trainer({"lds": 1.0, "oe": 0.5}, noise=0.05, stop_before=stage))
        again = Trainer({"lds": 1.0, "oe": 0.5}, noise=0.05)
        found = selected(again)
        assert again.asked == whole.asked
        assert found.winner.settings == expected.winner.settings


def test_higher_is_better_the_other_way_round():
    class Upside(Trainer):
        def score(self, row, settings, seed):
            return -super().score(row, settings, seed)

    found = selected(Upside({"lds": 1.0, "bad": -2.0}), lower_is_better=False)
    assert "lds" in found.winner.row and "bad" not in found.winner.row


def test_without_any_score_of_the_baseline():
    train = Trainer({})
    train.score = lambda row, settings, seed: math.nan
    with pytest.raises(ValueError, match="expected a validation score of at least one trial of baseline, got none"):
        selected(train)


def test_a_slow_part_does_not_take_the_time_of_the_others():
    class Slow(Trainer):
        def __call__(self, stage, asked, seeds):
            found, total = super().__call__(stage, asked, seeds)
            if any("srl" in row for row in asked):
                more = 60.0 * sum(len(own) * len(seeds) for row, own in asked.items() if "srl" in row)
                found = {
                    row: [Found(each.scores, 62.0 * len(seeds) if "srl" in row else each.seconds) for each in own]
                    for row, own in found.items()
                }
                self.took[stage] = total = total + more
            return found, total

    train = Slow({"srl": 0.3, "lds": 0.2, "oe": 0.1}, noise=0.01)
    found = selected(train, 900.0, ("srl", "lds", "oe"))
    assert "srl" in found.rounds[0].screened and "srl" not in found.rounds[0].tuned
    assert {"lds", "oe"} <= set(found.rounds[0].tuned) and found.winner.row.startswith("lds")
