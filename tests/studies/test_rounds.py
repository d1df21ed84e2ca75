"""Seeds in rounds: which, and their summaries as one."""

import math

import pytest

pytest.importorskip("scipy", reason="a comparison needs SciPy")

from ordinal_entropy import runs, tasks
from ordinal_entropy.comparison import StopEarly, paired_anytime
from ordinal_entropy.studies import grid, rounds
from ordinal_entropy.tasks.age.recipe import AGE, TASKS
from ordinal_entropy.training.plans import Outcome, failed

BASELINE, OE = [3.0, 3.2, 2.9, 3.4, 3.1], [2.0, 2.3, 2.0, 2.2, 2.1]


@pytest.mark.parametrize(("jobs", "methods", "size"), [(1, 2, 1), (2, 2, 1), (3, 2, 2), (8, 2, 4), (8, 3, 3)])
def test_a_round_keeps_the_jobs_busy(jobs, methods, size):
    found = rounds.rounds_of(range(20), jobs, methods)
    assert [len(some) for some in found[:3]] == [4, size, size]
    assert [seed for some in found for seed in some] == list(range(20))
    assert rounds.rounds_of(range(4), jobs, methods) == [[0, 1, 2, 3]]


class Runs:
    """In place of the training of a task: outcomes by method and seed, found again after each round."""

    def __init__(self, monkeypatch, broken=(), details=lambda method, seed: {}):
        self.broken, self.details, self.trained = broken, details, []
        monkeypatch.setattr(tasks.Task, "train", lambda task, plans, **options: self.outcomes(plans, self.trained))
        monkeypatch.setattr(tasks.Task, "gather", lambda task, plans, **options: self.outcomes(plans, []))
        age = AGE._replace(references=self.references)
        monkeypatch.setitem(TASKS, "age", age)
        self.referred = []

    def references(self, recipe, seeds, without):
        self.referred.append(list(seeds))
        return {"constant": [4.0 + seed for seed in seeds]}

    def outcomes(self, plans, asked):
        asked.extend((plan.method, plan.seed) for plan in plans)
        return [self.outcome(plan.method, plan.seed) for plan in plans]

    def outcome(self, method, seed):
        if (method, seed) in self.broken:
            return failed({"type": "OSError", "message": "full"})
        score = {"baseline": BASELINE, "oe": OE}[method][seed]
        return Outcome([0, 9], *[[1.0, score]] * 3, score, score, score, self.details(method, seed))


def summed(folder, in_rounds, rule):
    """The summary of so many rounds; no verdict ends them before."""
    told, variants = [], [grid.Variant("baseline"), grid.Variant("oe")]

    def summary_of(seeds, new):
        found = grid.summary_of(
            "age", variants, {"": tasks.recipe("age")}, seeds, out=folder, device="cpu", new=new, stop_early=rule
        )
        told.append(found["seconds"])
        return found

    return rounds.train_in_rounds(summary_of, in_rounds, lambda sentence: None), told


@pytest.fixture(autouse=True)
def open_verdicts(monkeypatch):
    monkeypatch.setattr(rounds.comparison, "settled", lambda summary: False)


def test_rounds_are_judged_together(tmp_path, monkeypatch):
    made = Runs(monkeypatch)
    found, seconds = summed(tmp_path, [[0, 1, 2, 3], [4]], StopEarly(9))
    assert made.trained == [*((m, s) for m in ("baseline", "oe") for s in range(4)), ("baseline", 4), ("oe", 4)]
    assert found["methods"]["oe"]["values"] == OE and found["methods"]["baseline"]["at"]["last"] == BASELINE
    pair, expected = found["paired"]["oe"], paired_anytime(OE, BASELINE)
    assert {key: pair[key] for key in expected._fields} == expected._asdict()
    assert found["stop_early"] == {"at_most": 9, "smallest": None, "stopped": True}
    spent = sum(each["data_and_training"] for each in seconds)
    assert found["seconds"] == {"data_and_training": pytest.approx(spent), "resumed": False}
    assert found["device"] == "cpu" and "details" not in found


def test_references_are_those_of_all_rounds_each_computed_once(tmp_path, monkeypatch):
    made = Runs(monkeypatch)
    found, _ = summed(tmp_path, [[0, 1, 2, 3], [4]], StopEarly(9))
    assert found["reference_values"] == {"constant": [4.0, 5.0, 6.0, 7.0, 8.0]} and made.referred == [[0, 1, 2, 3], [4]]
    assert found["references"] == {"constant": 6.0} and found["constant"] == "the training median"


def test_the_first_verdict_that_is_not_open_ends_them(tmp_path, monkeypatch):
    made = Runs(monkeypatch)
    monkeypatch.setattr(rounds.comparison, "settled", lambda summary: True)
    found, _ = summed(tmp_path, [[0, 1, 2, 3], [4]], StopEarly(5))
    assert len(made.trained) == 8 and found["methods"]["oe"]["values"] == OE[:4]


def test_failures_of_all_rounds_are_told(tmp_path, monkeypatch):
    Runs(monkeypatch, broken=[("oe", 1), ("oe", 4)])
    found, _ = summed(tmp_path, [[0, 1, 2, 3], [4]], StopEarly(9))
    failure = {"method": "oe", "type": "OSError", "message": "full"}
    assert found["failures"] == [{**failure, "seed": seed} for seed in (1, 4)] and found["paired"]["oe"]["n"] == 3


def test_further_scores_are_joined_seed_by_seed(tmp_path, monkeypatch):
    own = {0: {"gm": 1.0}, 1: {"gm": 2.0}, 2: {"gm": 3.0, "few": 0.5}}
    Runs(monkeypatch, details=lambda method, seed: {"last": own.get(seed, {}) if method == "oe" else {}})
    details = summed(tmp_path, [[0, 1], [2], [3, 4]], StopEarly(9))[0]["details"]
    assert details["oe"]["last"]["gm"] == pytest.approx([1, 2, 3, math.nan, math.nan], nan_ok=True)
    assert details["oe"]["last"]["few"] == pytest.approx([math.nan, math.nan, 0.5, math.nan, math.nan], nan_ok=True)


def test_curves_are_ordered_as_in_one_study(tmp_path, monkeypatch):
    Runs(monkeypatch)
    summed(tmp_path, [[0, 1], [2]], None)
    found = runs.read_json(tmp_path / "curves.json")
    assert found["steps"] == [0, 9]
    assert [(run["variant"], run["seed"]) for run in found["runs"]] == [
        (v, s) for v in ("baseline", "oe") for s in range(3)
    ]
