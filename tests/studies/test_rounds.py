"""Seeds in rounds: which, where, and their summaries as one."""

import math
from pathlib import Path

import pytest

pytest.importorskip("scipy", reason="a comparison needs SciPy")

from ordinal_entropy import runs
from ordinal_entropy.comparison import StopEarly, paired_anytime
from ordinal_entropy.studies import rounds
from paired_scores import summed

BASELINE, OE = [3.0, 3.2, 2.9, 3.4, 3.1], [2.0, 2.3, 2.0, 2.2, 2.1]


def part(start, end, **more):
    columns = {"baseline": BASELINE[start:end], "oe": OE[start:end]}
    made = {"baseline": "baseline", "device": "cpu", "seconds": {"data_and_training": 1.26, "resumed": start > 0}}
    return {**summed(columns, task="age"), **made, **more}


@pytest.mark.parametrize(("jobs", "methods", "size"), [(1, 2, 1), (2, 2, 1), (3, 2, 2), (8, 2, 4), (8, 3, 3)])
def test_a_round_on_images_keeps_the_jobs_busy(jobs, methods, size):
    found = rounds.rounds_of("age", range(20), jobs, methods)
    assert [len(some) for some in found[:3]] == [4, size, size]
    assert [seed for some in found for seed in some] == list(range(20))
    assert [len(some) for some in rounds.rounds_of("linear", range(6), jobs, methods)] == [4, 1, 1]
    assert rounds.rounds_of("age", range(4), jobs, methods) == [[0, 1, 2, 3]]


def test_runs_with_a_folder_each_share_one_and_stacks_do_not():
    assert rounds.folder_of("depth", [4], Path("out")) == rounds.folder_of("depth", [5], Path("out")) == Path("out")
    assert rounds.folder_of("tabular", [4], Path("out")) == Path("out")
    assert rounds.folder_of("linear", [4, 5], Path("out")) != rounds.folder_of("linear", [6, 7], Path("out"))
    assert rounds.folder_of("linear", [4, 5], Path("out")).is_relative_to(Path("out") / "training")


def test_rounds_are_judged_together():
    found = rounds.joined([part(0, 4), part(4, 5)], StopEarly(9))
    assert found["methods"]["oe"]["values"] == OE and found["methods"]["baseline"]["at"]["last"] == BASELINE
    pair, expected = found["paired"]["oe"], paired_anytime(OE, BASELINE)
    assert {key: pair[key] for key in expected._fields} == expected._asdict()
    assert found["stop_early"] == {"at_most": 9, "smallest": None, "stopped": True}
    assert found["seconds"] == {"data_and_training": 2.5, "resumed": False} and found["device"] == "cpu"
    assert "details" not in found


def test_failures_of_all_rounds_are_told():
    failure = {"method": "oe", "seed": 4, "type": "OSError", "message": "full"}
    first, second = part(0, 4), part(4, 5, failures=[failure])
    second["methods"]["oe"]["at"] = {at: [math.nan] for at in ("last", "best_validation", "best_test")}
    found = rounds.joined([first, second], StopEarly(9))
    assert found["failures"] == [failure] and found["paired"]["oe"]["n"] == 4


def test_further_scores_are_joined_seed_by_seed():
    def own(*values):
        return {"oe": {"last": {"gm": list(values)}}, "baseline": {"last": {}}}

    first = part(0, 2, details=own(1.0, 2.0))
    second = part(2, 3, details={"oe": {"last": {"gm": [3.0], "few": [0.5]}}, "baseline": {"last": {}}})
    third = part(3, 5, details={"oe": {"last": {}}, "baseline": {"last": {}}})
    details = rounds.joined([first, second, third], StopEarly(9))["details"]
    assert details["oe"]["last"]["gm"] == pytest.approx([1, 2, 3, math.nan, math.nan], nan_ok=True)
    assert details["oe"]["last"]["few"] == pytest.approx([math.nan, math.nan, 0.5, math.nan, math.nan], nan_ok=True)


def test_run_folders_of_rounds_are_gathered(tmp_path):
    for name, run in (("seeds-0-3", "oe-seed0"), ("seeds-4-4", "oe-seed4")):
        runs.write_json(tmp_path / "training" / name / "training" / run / "recipe.json", {"in": name})
    for _ in range(2):
        rounds.gather_runs(tmp_path)
        assert runs.read_json(tmp_path / "training" / "oe-seed4" / "recipe.json") == {"in": "seeds-4-4"}
    assert (tmp_path / "training" / "oe-seed0").is_dir()


def test_curves_are_ordered_as_in_one_study(tmp_path):
    def curves(*seeds):
        return {"steps": [0, 9], "runs": [{"variant": v, "seed": s, "test": [1]} for v in ("a", "b") for s in seeds]}

    rounds.join_curves(tmp_path, [curves(0, 1), curves(2)])
    found = runs.read_json(tmp_path / "curves.json")
    assert found["steps"] == [0, 9]
    assert [(run["variant"], run["seed"]) for run in found["runs"]] == [(v, s) for v in ("a", "b") for s in range(3)]
