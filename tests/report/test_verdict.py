"""What is said of a comparison, against sentences worked out by hand."""

from kept_folders import summary_of
from ordinal_entropy.comparison import StopEarly
from ordinal_entropy.report.verdict import verdict
from paired_scores import summed


def pair(difference, low, high, p, n=6):
    return {"difference": difference, "ci_low": low, "ci_high": high, "p_value": p, "n": n}


def told(paired, scale=1.0, **changes):
    methods = {"baseline": {"values": [9.0] * 6}} | {name: {"values": [8.5] * 6} for name in paired}
    summary = {"metric": "mae", "lower_is_better": True, "methods": methods, "paired": paired}
    return verdict(summary | changes, scale)


def test_a_clear_difference_is_told_with_its_interval_turned_the_way_of_the_verb():
    found = told({"oe": pair(-0.32, -0.48, -0.16, 0.004)})
    assert found.headline == "oe lowers MAE by 0.32 (0.16 to 0.48), n = 6 paired seeds; p = 0.004."
    assert found.findings[0].outcome == "better"
    found = told({"oe": pair(0.32, 0.16, 0.48, 0.004)})
    assert found.headline == "oe raises MAE by 0.32 (0.16 to 0.48), n = 6 paired seeds; p = 0.004."
    assert found.findings[0].outcome == "worse"


def test_differences_that_look_skewed_are_named():
    found = told({"oe": pair(-0.32, -0.48, -0.16, 0.004) | {"skewed": True, "skewness": 1.4}})
    assert found.headline.endswith("; p = 0.004; the differences look skewed.")
    assert "the 95% interval may hold less often than that" in found.in_full[0]


def test_where_higher_is_better_raising_is():
    found = told({"oe": pair(0.32, 0.16, 0.48, 0.004)}, lower_is_better=False)
    assert found.findings[0].outcome == "better"


def test_what_the_seeds_cannot_show_is_not_claimed():
    found = told({"oe": pair(-0.06, -0.41, 0.29, 0.68)})
    assert found.findings[0].outcome == "no difference"
    assert found.headline == (
        "oe: no difference from baseline that 6 paired seeds could show: MAE −0.060 (−0.41 to 0.29); p = 0.680."
    )


def test_several_methods_are_judged_after_holms_adjustment():
    # 2 x 0.024 = 0.048, and the other is no less than that
    found = told({"ld": pair(-0.3, -0.5, -0.1, 0.03), "oe": pair(0.3, 0.1, 0.5, 0.024)})
    assert [(own.method, own.outcome) for own in found.findings] == [("ld", "better"), ("oe", "worse")]
    assert found.findings[0].sentence.endswith("; p = 0.048 after Holm's adjustment (p = 0.030 unadjusted).")
    found = told({"ld": pair(-0.3, -0.5, -0.1, 0.03), "oe": pair(0.3, 0.1, 0.5, 0.03)})
    assert {own.outcome for own in found.findings} == {"no difference"}  # 2 x 0.03 = 0.06
    assert found.headline == "None of 2 methods differs from baseline by MAE as 6 paired seeds could show."


def test_counts_of_better_and_worse_head_the_list():
    paired = {"a": pair(-1, -2, -0.5, 1e-5), "b": pair(0.1, -1, 1, 0.9), "c": pair(1, 0.5, 2, 1e-5)}
    found = told(paired)
    assert found.headline == (
        "Of 3 methods, 1 is better than baseline and 1 is worse by MAE; for the other 1, 6 paired seeds show no "
        "difference."
    )
    assert [own.method for own in found.findings] == ["a", "c", "b"]


def test_scores_are_told_in_multiples_of_the_scale():
    assert "by 0.90 (0.047 to 1.75) × 10⁻³," in told({"ld": pair(-9e-4, -1.75e-3, -4.7e-5, 0.04)}, 1e-3).headline


def test_one_seed_shows_nothing_and_a_baseline_alone_has_nothing_to_be_compared_with():
    found = verdict(summary_of({"baseline": [1.0], "oe": [2.0]}))
    assert found.headline == "oe against baseline: 1 paired seed cannot show a difference, it takes 2."
    assert verdict(summary_of({"baseline": [1.0, 2.0]})).headline.startswith("Nothing to compare baseline with")
    found = verdict(summary_of({"baseline": [1.0], "ld": [2.0], "oe": [3.0]}))
    assert found.headline == "2 methods against baseline, too few seeds to show a difference: it takes 2."


def test_equal_scores_are_no_difference():
    assert verdict(summary_of({"baseline": [1.0, 2.0], "oe": [1.0, 2.0]})).findings[0].outcome == "no difference"


def test_measurements_are_paired_by_rounds():
    found = told({"oe": pair(60.4, 44.8, 76.0, 0.004, n=3)}, metric="seconds for 10 steps", memory_mb={})
    assert found.headline == "oe raises seconds for 10 steps by 60.40 (44.80 to 76.00), n = 3 paired rounds; p = 0.004."
    assert found.in_full == []


def test_methods_are_told_against_what_they_are_held_to():
    summary = summary_of({"a": [1.0, 2.0, 3.0], "b": [1.1, 2.2, 3.1], "a deep": [5.0, 6.0, 7.0]})
    deep = summary_of({"a deep": [5.0, 6.0, 7.0], "b deep": [4.0, 4.9, 6.0]})
    summary["methods"] |= deep["methods"]
    del summary["paired"]["a deep"]
    summary["paired"] |= deep["paired"]
    summary["held_to"] = {"b": "a", "b deep": "a deep"}
    found = verdict(summary)
    assert any(sentence.startswith("b deep is better than a deep") for sentence in found.in_full)
    assert "their baseline" in found.headline


def in_rounds(smallest=0.5, **methods):
    """A comparison that may stop early: noise of the size of a hundredth, and a constant of each method's own."""
    noise = [0.01, -0.01, 0.02, -0.02, 0.01, -0.01, 0.0, 0.01]
    columns = {"baseline": [3.0] * len(noise)} | {name: [3 + own + e for e in noise] for name, own in methods.items()}
    return verdict(summed(columns, metric="mae", stop_early=StopEarly(20, smallest)))


def test_a_difference_that_does_not_matter_is_told_as_one():
    found = in_rounds(oe=0.0)
    assert found.findings[0].outcome == "negligible"
    assert found.headline.startswith("oe: no difference from baseline as large as 0.50, the smallest that matters: MAE")
    assert "n = 8 paired seeds; p = " in found.headline
    known = in_rounds(oe=-0.1).findings[0]  # better for certain, by too little
    assert known.outcome == "negligible" and "as large as 0.50" in known.sentence


def test_differences_that_do_not_matter_are_counted_apart():
    assert in_rounds(ld=0.0, oe=-0.1).headline == "None of 2 methods differs from baseline by MAE as much as 0.50."
    found = in_rounds(ld=0.0, oe=-1.0)
    assert [own.outcome for own in found.findings] == ["better", "negligible"]
    assert found.headline == (
        "Of 2 methods, 1 is better than baseline and none is worse by MAE; 1 differs by less than 0.50, which does not "
        "matter."
    )
