"""What a summary holds, and which verdict it comes to."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from ordinal_entropy.comparison import (
    Failure,
    StopEarly,
    adjusted,
    decisions,
    paired,
    paired_anytime,
    renewed,
    seeds_needed,
    settled,
    sign_test,
    skewness,
    spread,
    summary,
)
from ordinal_entropy.runs import read_json, write_json
from paired_scores import scores, summed

NAN = math.nan


def test_summary_has_the_keys_that_scripts_read():
    last, validation, test = [3.0, 4.0, 6.0], [2.0, 3.0, 4.5], [1.0, 2.0, 3.0]
    columns = {
        "baseline": {"last": last, "best_validation": validation, "best_test": test},
        "oe": {"last": test, "best_validation": [1.0, 2.5, 3.0], "best_test": test},
    }
    found = summary(
        task="linear",
        metric="MSE",
        lower_is_better=True,
        scores=columns,
        recipe={"steps": 9},
        environment={"torch": "2"},
    )
    assert list(found) == [
        "task", "metric", "lower_is_better", "methods", "paired", "spread", "failures", "recipe", "environment",
    ]  # fmt: skip
    assert found["methods"]["baseline"] == {
        "values": validation,
        "mean": pytest.approx(19 / 6),
        "std": pytest.approx(np.std(validation, ddof=1)),
        "n": 3,
        "at": columns["baseline"],
    }
    differences = np.subtract([1.0, 2.5, 3.0], validation)
    assert found["paired"] == {
        "oe": {
            **paired([1.0, 2.5, 3.0], validation)._asdict(),
            "holm_p_value": paired([1.0, 2.5, 3.0], validation).p_value,
            "sign_p_value": 0.25,
            "skewness": pytest.approx(skewness([1.0, 2.5, 3.0], validation)),
            "skewed": False,
            "seeds_needed": seeds_needed(differences.mean(), differences.std(ddof=1)),
            "seeds_needed_range": [4, 45],
            "verdict": "open",
        }
    }
    assert found["spread"] == {"oe": spread([1.0, 2.5, 3.0], validation)._asdict()}
    assert found["failures"] == [] and found["recipe"] == {"steps": 9} and found["environment"] == {"torch": "2"}
    json.dumps(found, allow_nan=False)


def test_a_summary_that_may_stop_early_has_what_holds_at_every_look_and_nothing_else():
    values, baseline = scores(8)
    found = summed({"baseline": baseline, "oe": values}, stop_early=StopEarly(20, 0.5))
    pair = found["paired"]["oe"]
    assert {key: pair[key] for key in paired_anytime(values, baseline)._fields} == paired_anytime(
        values, baseline
    )._asdict()
    assert math.isnan(pair["sign_p_value"]) and math.isnan(found["spread"]["oe"]["p_value"])
    assert found["spread"]["oe"]["ratio"] == spread(values, baseline).ratio
    assert found["stop_early"] == {"at_most": 20, "smallest": 0.5, "stopped": True}
    later = summed({"baseline": baseline, "oe": values}, stop_early=StopEarly(8))
    assert later["stop_early"] == {"at_most": 8, "smallest": None, "stopped": False}


def test_seeds_needed_is_for_a_level_divided_by_the_number_of_methods():
    values, baseline = scores(8)
    alone = summed({"baseline": baseline, "oe": values})["paired"]["oe"]["seeds_needed"]
    among = summed({"baseline": baseline, "oe": values, "ld": values})["paired"]["oe"]["seeds_needed"]
    difference = np.subtract(values, baseline)
    assert alone == seeds_needed(difference.mean(), difference.std(ddof=1))
    assert among == seeds_needed(difference.mean(), difference.std(ddof=1), 0.025) > alone


def test_a_run_that_diverged_is_kept_and_left_out_of_the_pairs():
    found = summed({"baseline": [3.0, 4.0, 5.0, 7.0], "oe": [2.0, NAN, 3.5, 6.5], "ld": [1.0, math.inf, 2.0, 5.0]})
    for name in ("oe", "ld"):
        method = found["methods"][name]
        assert math.isnan(method["values"][1]) and len(method["values"]) == 4 and method["n"] == 3
    assert found["methods"]["oe"]["mean"] == pytest.approx(4.0)
    pair, expected = found["paired"]["oe"], paired([2.0, 3.5, 6.5], [3.0, 5.0, 7.0])
    assert {key: pair[key] for key in expected._fields} == expected._asdict()
    assert pair["sign_p_value"] == sign_test([2.0, 3.5, 6.5], [3.0, 5.0, 7.0])


@pytest.mark.parametrize(("column", "difference"), [([1.0, NAN], -1.0), ([NAN, NAN], NAN)])
@pytest.mark.parametrize("rule", [None, StopEarly(9)])
def test_one_pair_or_none_is_unknown(column, difference, rule):
    found = summed({"baseline": [2.0, 3.0], "oe": column}, stop_early=rule)
    pair = found["paired"]["oe"]
    assert pair["difference"] == pytest.approx(difference, nan_ok=True)
    assert all(math.isnan(pair[key]) for key in ("ci_low", "ci_high", "p_value", "sign_p_value"))
    assert pair["seeds_needed"] is None and pair["verdict"] == "unknown" and not settled(found)


def test_what_a_summary_needs_is_named():
    with pytest.raises(ValueError, match="scores of the baseline 'baseline', got those of ld, oe"):
        summed({"ld": [1.0], "oe": [1.0]})
    with pytest.raises(ValueError, match="expected 2 scores of 'oe' at last, one a seed, got 1"):
        summed({"baseline": [1.0, 2.0], "oe": [1.0]})
    with pytest.raises(ValueError, match="scores of 'baseline' at last, best_validation, best_test, got last"):
        summary(task="", metric="", lower_is_better=True, scores={"baseline": {"last": []}}, recipe={}, environment={})


NOISE = [0.01, -0.01, 0.005, 0.0, -0.005, 0.01, -0.01, 0.0]
LEVELS = [3.0, 3.2, 2.9, 3.4, 3.1, 3.3, 2.8, 3.0]


def shifted(shift, n=8):
    return [level + shift + noise for level, noise in zip(LEVELS[:n], NOISE[:n], strict=True)]


@pytest.mark.parametrize(
    ("shift", "smallest", "expected"),
    [
        (-1.0, None, "helps"),
        (1.0, None, "hurts"),
        (0.001, None, "open"),
        (0.001, 0.1, "negligible"),
        (0.001, 0.002, "open"),
        (-0.05, 0.1, "negligible"),  # better, but by too little
        (-1.0, 0.1, "helps"),
    ],
)
def test_the_verdict_of_one_that_may_stop_early(shift, smallest, expected):
    found = summed({"baseline": LEVELS, "oe": shifted(shift)}, stop_early=StopEarly(9, smallest))
    assert decisions(found) == {"oe": expected} == {"oe": found["paired"]["oe"]["verdict"]}
    assert settled(found) == (expected != "open")
    turned = summed(
        {"baseline": LEVELS, "oe": shifted(shift)}, stop_early=StopEarly(9, smallest), lower_is_better=False
    )
    other = {"helps": "hurts", "hurts": "helps"}
    assert decisions(turned) == {"oe": other.get(expected, expected)}


def test_several_methods_are_settled_one_by_one_and_each_takes_more():
    found = summed({"baseline": LEVELS, "oe": shifted(-1), "ld": shifted(0.001)}, stop_early=StopEarly(9))
    assert decisions(found) == {"oe": "helps", "ld": "open"} and not settled(found)
    alone = paired_anytime(shifted(0.001), LEVELS)
    width = max(-alone.ci_low, alone.ci_high) * 1.0001  # the interval of one lies within, that of two does not
    assert decisions(summed({"baseline": LEVELS, "ld": shifted(0.001)}, stop_early=StopEarly(9, width))) == {
        "ld": "negligible"
    }
    columns = {"baseline": LEVELS, "oe": shifted(-1), "ld": shifted(0.001)}
    assert decisions(summed(columns, stop_early=StopEarly(9, width))) == {"oe": "helps", "ld": "open"}


def test_a_summary_of_an_older_version_has_outcomes_too():
    found = json.loads(json.dumps(summed({"baseline": LEVELS, "oe": shifted(-1)})))
    for key in ("sign_p_value", "seeds_needed", "verdict"):
        del found["paired"]["oe"][key]
    del found["failures"]
    assert decisions(found) == {"oe": "helps"}


def test_failures_are_named():
    failure = Failure("oe", 1, "ValueError", "no")
    found = summed({"baseline": [1.0, 2.0], "oe": [1.0, NAN]}, failures=[failure])
    assert found["failures"] == [{"method": "oe", "seed": 1, "type": "ValueError", "message": "no"}]


@pytest.mark.parametrize("smallest", [0.0, -1.0, NAN, math.inf])
def test_a_smallest_difference_that_is_none_is_refused(smallest):
    with pytest.raises(ValueError, match="smallest difference that matters to be a positive number, got"):
        StopEarly(9, smallest).checked()
    with pytest.raises(
        ValueError, match="at least 4 seeds where one may stop early, since fewer settle nothing, got 3"
    ):
        StopEarly(3).checked()


def test_methods_held_to_different_ones_are_adjusted_for_the_number_of_their_own():
    values, baseline = scores(8)
    found = summed({"a": baseline, "b": values, "c": values}, baseline="a")
    deep = summed({"a deep": baseline, "b deep": values}, baseline="a deep")
    joined = {**found, **{key: {**found[key], **deep[key]} for key in ("methods", "paired", "spread")}}
    joined["held_to"] = {"b": "a", "c": "a", "b deep": "a deep"}
    p = paired(values, baseline).p_value
    assert adjusted(joined) == {"b": 2 * p, "c": 2 * p, "b deep": p}
    assert {name: pair["holm_p_value"] for name, pair in joined["paired"].items()} == adjusted(joined)
    assert decisions(joined) == {name: pair["verdict"] for name, pair in joined["paired"].items()}
    again = renewed(joined)
    assert again == joined


def test_differences_with_one_far_tail_look_skewed():
    baseline = [3.0, 3.2, 2.9, 3.4, 3.1]
    even, far = [2.0, 2.3, 1.9, 2.3, 2.1], [2.0, 2.3, 1.9, 2.3, 9.1]
    found = summed({"baseline": baseline, "even": even, "far": far})["paired"]
    assert [found[name]["skewed"] for name in ("even", "far")] == [False, True]
    assert found["far"]["skewness"] > 1.4
    assert not summed({"baseline": [1.0], "oe": [2.0]})["paired"]["oe"]["skewed"]


def test_an_older_summary_is_renewed_without_a_change_of_its_scores():
    old = json.loads(json.dumps(summed({"baseline": [3.0, 3.2, 2.9], "oe": [2.0, 2.3, 2.0]})))
    new = renewed(old)
    assert new == old
    pair = {key: old["paired"]["oe"][key] for key in ("difference", "ci_low", "ci_high", "p_value", "n")}
    older = {**old, "paired": {"oe": pair}, "study": "table1-linear"}
    del older["failures"], older["spread"], older["methods"]["oe"]["at"], older["methods"]["baseline"]["at"]
    assert renewed(older) == {**new, "study": "table1-linear"}
    other = {**new, "methods": {**new["methods"], "oe": {**new["methods"]["oe"], "values": [2.0, 2.3, 1.0]}}}
    with pytest.raises(ValueError, match="expected the values of 'oe' to be those at the best validation point"):
        renewed(other)
    for wrong in ({"steps": []}, [1.0]):
        with pytest.raises(ValueError, match="expected a summary of a comparison, got one without task, metric"):
            renewed(wrong)


def test_a_summary_that_stopped_early_is_renewed_as_such(tmp_path):
    values, baseline = scores(8)
    failures = [Failure("oe", 3, "ValueError", "no")]
    columns = {"baseline": baseline, "oe": [*values[:3], NAN, *values[4:]]}
    write_json(tmp_path / "summary.json", summed(columns, stop_early=StopEarly(20, 0.5), failures=failures))
    old = read_json(tmp_path / "summary.json")
    write_json(tmp_path / "again.json", renewed(old))
    assert read_json(tmp_path / "again.json") == old


RESULTS = Path(__file__).parents[2] / "docs" / "results"
COMMITTED = [
    path
    for path in sorted(RESULTS.rglob("*.json"))
    if path.name not in ("curves.json", "entropies.json", "study.json", "search.json")
]


@pytest.mark.parametrize("path", COMMITTED, ids=lambda path: str(path.relative_to(RESULTS)))
def test_committed_summaries_have_the_documented_form_and_todays_statistics(path, tmp_path):
    content = read_json(path)
    write_json(tmp_path / "again.json", renewed(content))
    assert_close(read_json(tmp_path / "again.json"), content)


def assert_close(found, expected):
    """Equal but for the last digits, which differ between versions of SciPy."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            assert_close(found[key], value)
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    else:
        assert found == (pytest.approx(expected, rel=1e-6) if isinstance(expected, float) else expected)


def test_there_are_committed_summaries():
    assert len(COMMITTED) > 50
