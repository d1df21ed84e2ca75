"""What is said of a comparison, against sentences worked out by hand."""

import json
import math

import pytest

from ordinal_entropy.comparison import Failure, StopEarly, paired, paired_anytime
from ordinal_entropy.comparison import verdict as found_verdict
from ordinal_entropy.comparison.text import interval
from ordinal_entropy.runs import write_json
from paired_scores import summed
from saved_folders import summary_of

NAN = math.nan
BASELINE = [3.0, 3.2, 2.9, 3.4, 3.1]
NOISE = [0.1, -0.1, 0.05, 0.0, -0.05]


def verdict(summary):
    """The paragraphs."""
    return found_verdict(summary).sentences


def shifted(shift, noise=NOISE):
    return [v + shift + e for v, e in zip(BASELINE, noise, strict=True)]


@pytest.mark.parametrize(
    ("shift", "lower_is_better", "opening"),
    [
        (-1.0, True, "oe is better than baseline: MSE "),
        (-1.0, False, "oe is worse than baseline: MSE "),
        (1.0, True, "oe is worse than baseline: MSE "),
        (1.0, False, "oe is better than baseline: MSE "),
        (
            0.0,
            True,
            "oe against baseline: not significant: MSE ",
        ),
    ],
)
def test_verdict_says_which_way(shift, lower_is_better, opening):
    values = shifted(shift)
    [sentence] = verdict(summed({"baseline": BASELINE, "oe": values}, lower_is_better=lower_is_better))
    pair = paired(values, BASELINE)
    assert sentence.startswith(opening)
    difference, low, high = interval(pair.difference, pair.ci_low, pair.ci_high)
    assert f"difference {difference} ({shift / 3.12:+.1%}; 95% CI {low} to {high}; n = 5; p " in sentence
    assert "Holm" not in sentence


def test_verdict_adjusts_for_the_number_of_methods():
    noise = [0.5, -0.4, 0.1, -0.3, 0.3]  # the weak one: p is 0.03 alone, 0.06 among three
    weak, strong, none = shifted(-0.6, noise), shifted(-2, noise), shifted(0, noise)
    p = [paired(column, BASELINE).p_value for column in (weak, strong, none)]
    assert 0.025 < p[0] < 0.05 and p[1] < 0.01 and p[2] > 0.5
    assert "is better" in verdict(summed({"baseline": BASELINE, "weak": weak}))[0]
    sentences = verdict(summed({"baseline": BASELINE, "weak": weak, "strong": strong, "none": none}))
    openings = ["weak against baseline", "strong is better than baseline", "none against baseline"]
    assert [sentence.partition(":")[0] for sentence in sentences] == openings
    assert f"p = {2 * p[0]:.3f} after Holm's correction for 3 methods, p = {p[0]:.3f} before it" in sentences[0]
    assert f"p = {3 * p[1]:.3f} after Holm's" in sentences[1]


def test_the_sign_test_stands_beside_few_seeds_only():
    [few] = verdict(summed({"baseline": BASELINE, "oe": shifted(-1)}))
    assert "; n = 5; p < 0.001; sign test p = 0.062, the smallest possible with n = 5)." in few
    [nine] = verdict(summed({"baseline": BASELINE + BASELINE[:4], "oe": shifted(-1) + shifted(-1)[:4]}))
    assert "; n = 9; p < 0.001; sign test p = 0.004)." in nine
    [mixed] = verdict(summed({"baseline": BASELINE, "oe": shifted(0)}))
    assert "; sign test p = 1.000)." in mixed
    [ten] = verdict(summed({"baseline": BASELINE * 2, "oe": shifted(-1) * 2}))
    assert "sign test" not in ten


def test_an_open_verdict_says_how_many_more_seeds_would_settle_it():
    found = summed({"baseline": BASELINE, "oe": shifted(-0.03)})
    further = found["paired"]["oe"]["seeds_needed"] - 5
    assert 10 < further < 100
    said = f"). About {further} more seeds would detect a difference of this size (an estimate, 80% range 6 or more)."
    assert verdict(found)[0].endswith(said)
    clearer = summed({"baseline": BASELINE, "oe": shifted(-0.06)})
    fewest, most = clearer["paired"]["oe"]["seeds_needed_range"]
    assert verdict(clearer)[0].endswith(f"of this size (an estimate, 80% range {fewest - 5} to {most - 5}).")
    [small] = verdict(summed({"baseline": BASELINE, "oe": shifted(0.0001)}))
    assert small.endswith("Detecting a difference this small would take more than 200 more seeds.")
    [same] = verdict(summed({"baseline": BASELINE, "oe": BASELINE}))
    assert same.startswith(
        "oe: identical to baseline at every seed, as if it were not in use: MSE 3.12 against 3.12, difference 0.00 ("
    )
    assert same.endswith("sign test p = 1.000).")


def test_differences_that_look_skewed_are_named():
    noise = [0.0, 0.01, -0.01, 0.02, 0.9]
    [sentence] = verdict(summed({"baseline": BASELINE, "oe": shifted(-1, noise)}))
    warning = "The differences look skewed (skewness +1.5): the 95% CI may cover less than 95%, and p may be too small."
    assert sentence.endswith(f"). {warning}")
    assert "skewed" not in verdict(summed({"baseline": BASELINE, "oe": shifted(-1)}))[0]
    about, rule = verdict(summed({"baseline": BASELINE, "oe": shifted(-1, noise)}, stop_early=StopEarly(20)))
    assert warning in about and "13%" in rule


def test_every_method_is_told_of_against_what_it_is_held_to():
    found = summed({"a": BASELINE, "b": shifted(-1)}, baseline="a")
    deep = summed({"a deep": shifted(5), "b deep": shifted(6, [0, 0, 0, 0, 0.1])}, baseline="a deep")
    joined = {**found, **{key: {**found[key], **deep[key]} for key in ("methods", "paired", "spread")}}
    first, second = verdict({**joined, "held_to": {"b": "a", "b deep": "a deep"}})
    assert first.startswith("b is better than a: ") and second.startswith("b deep is worse than a deep: ")
    assert "Holm" not in first + second


def test_verdict_of_a_baseline_alone_or_of_zeros():
    assert verdict(summed({"baseline": BASELINE})) == ["Nothing to compare baseline with: no other method was run."]
    [sentence] = verdict(summed({"baseline": [0.0, 0.0], "oe": [0.0, 0.0]}))
    assert "%;" not in sentence.replace("95% CI", "") and sentence.startswith("oe: identical to baseline")


def test_runs_without_a_number_are_counted():
    found = summed({"baseline": [3.0, 4.0, 5.0, 7.0], "oe": [2.0, NAN, 3.5, 6.5]})
    assert "). 1 of 4 runs of oe did not finish with a number; those seeds are left out. About" in verdict(found)[0]
    found = summed({"baseline": [3.0, 4.0, NAN, 7.0, 9.0], "oe": [2.0, NAN, 3.5, 6.5, 8.0]})
    assert " 1 of 5 runs of oe and 1 of 5 runs of baseline did not finish" in verdict(found)[0]
    assert "; n = 3; " in verdict(found)[0]
    [one] = verdict(summed({"baseline": [2.0, 3.0], "oe": [1.0, NAN]}))
    assert one.startswith(
        "oe: not compared with baseline: 1 paired seed, and it takes at least 2. 1 of 2 runs of oe did not finish"
    )


def test_failures_are_told():
    failures = [Failure("oe", 1, "RuntimeError", "out of memory"), Failure("oe", 3, "KeyError", "")]
    columns = {"baseline": [3.0, 3.2, 2.9, 3.3], "oe": [2.0, NAN, 2.1, NAN]}
    about_oe, first, second = verdict(summed(columns, failures=failures))
    assert "; n = 2; " in about_oe and "). 2 of 4 runs of oe did not finish with a number; those seeds" in about_oe
    assert first == "oe, seed 1 failed: RuntimeError: out of memory"
    assert second == "oe, seed 3 failed: KeyError: no message"
    many = [Failure("oe", seed, "ValueError", "no") for seed in range(4)] + [
        Failure("baseline", seed, "ValueError", "no") for seed in range(3)
    ]
    columns = {"baseline": [NAN, NAN, NAN, 3.3], "oe": [NAN] * 4, "ld": [1.0] * 4}
    said = verdict(summed(columns, failures=many))
    assert said[0] == "oe: not compared with baseline: every run of oe failed."
    assert said[1].startswith("ld: not compared with baseline: 1 paired seed, and it takes")
    assert len(said) == 2 + 5 + 1 and said[-1] == "2 more runs failed; the summary names them all."
    columns = {"baseline": [NAN] * 4, "ld": [1.0] * 4}
    lost = [Failure("baseline", seed, "ValueError", "no") for seed in range(4)]
    assert verdict(summed(columns, failures=lost))[0].startswith(
        "ld: not compared with baseline: every run of baseline failed"
    )


def test_one_that_stopped_early_says_what_its_interval_is():
    columns = {"baseline": BASELINE, "oe": shifted(-1)}
    about_oe, rule = verdict(summed(columns, stop_early=StopEarly(20)))
    pair = paired_anytime(*reversed(columns.values()))
    _, low, high = interval(pair.difference, pair.ci_low, pair.ci_high)
    assert f"95% CI {low} to {high}; n = 5; p = {pair.p_value:.3f})." in about_oe
    assert rule.startswith("Stopped after 5 of at most 20 seeds") and "Student's" in rule and "normal" in rule
    assert verdict(summed(columns, stop_early=StopEarly(5)))[-1].startswith("All 5 seeds were run")
    columns = {"baseline": BASELINE, "oe": shifted(-0.2), "ld": shifted(-0.01)}
    oe, ld, _ = verdict(summed(columns, stop_early=StopEarly(20, 0.9)))
    assert oe.startswith("oe is better than baseline, but by less than 0.90, the smallest difference that matters: MSE")
    assert ld.startswith("ld: no difference from baseline as large as 0.90, the smallest that matters: MSE")
    assert "would detect" not in ld


def test_an_interval_without_bounds_is_none_yet(tmp_path):
    found = summed({"baseline": BASELINE[:3], "oe": shifted(-1)[:3]}, stop_early=StopEarly(20))
    assert found["paired"]["oe"]["ci_low"] == -math.inf
    write_json(tmp_path / "summary.json", found)
    for each in (found, json.loads((tmp_path / "summary.json").read_text())):
        assert "oe against baseline: not significant: MSE" in verdict(each)[0]
        assert "difference -0.98 (-32.4%; no 95% CI yet; n = 3; p = 0.087" in verdict(each)[0]


def test_a_summary_of_an_older_version_is_told_as_far_as_it_goes():
    found = summed({"baseline": BASELINE, "oe": shifted(-0.03)})
    for key in ("sign_p_value", "seeds_needed", "verdict"):
        del found["paired"]["oe"][key]
    del found["failures"]
    [sentence] = verdict(found)
    assert "sign test" not in sentence and "more seeds" not in sentence


def pair(difference, low, high, p, n=6):
    return {"difference": difference, "ci_low": low, "ci_high": high, "p_value": p, "n": n}


def told(paired, scale=1.0, **changes):
    methods = {"baseline": {"values": [9.0] * 6}} | {name: {"values": [8.5] * 6} for name in paired}
    summary = {"metric": "mae", "lower_is_better": True, "methods": methods, "paired": paired}
    return found_verdict(summary | changes, scale)


def test_the_headline_of_one_method_is_its_sentence():
    found = told({"oe": pair(-0.5, -0.78, -0.22, 0.004)})
    assert (
        found.headline
        == found.findings[0].sentence
        == (
            "oe is better than baseline: MAE 8.50 against 9.00, difference -0.50 (-5.6%; 95% CI -0.78 to -0.22; n = 6; "
            "p = 0.004)."
        )
    )
    assert found.findings[0].decision == "better"
    assert told({"oe": pair(-0.5, -0.78, -0.22, 0.004)}, lower_is_better=False).findings[0].decision == "worse"
    open_one = told({"oe": pair(-0.06, -0.41, 0.29, 0.68)})
    assert open_one.findings[0].decision == "not significant"
    assert open_one.headline == (
        "oe against baseline: not significant: MAE 8.50 against 9.00, difference -0.06 (-0.7%; 95% CI -0.41 to +0.29; "
        "n = 6; p = 0.680)."
    )


def test_counts_head_several_methods():
    paired = {"a": pair(-1, -2, -0.5, 1e-5), "b": pair(0.1, -1, 1, 0.9), "c": pair(1, 0.5, 2, 1e-5)}
    found = told(paired)
    counts = "1 better than baseline, 1 worse than baseline, 1 not significant"
    assert found.headline == f"Of 3 methods, {counts} (MAE, n = 6)."
    assert [own.method for own in found.findings] == ["a", "b", "c"]
    one = found_verdict(summary_of({"baseline": [1.0], "ld": [2.0], "oe": [3.0]}))
    assert one.headline == "Of 2 methods, 2 not compared (MAE, n = 1)."
    held = told({"ld": pair(-0.3, -0.5, -0.1, 0.03), "oe": pair(0.3, 0.1, 0.5, 0.03)})
    assert held.headline == "None of 2 methods differs significantly from baseline (MAE, n = 6)."  # 2 x 0.03 = 0.06


def test_scores_are_told_in_multiples_of_the_scale():
    said = told({"ld": pair(-9e-4, -1.75e-3, -4.7e-5, 0.04)}, 1e-3).headline
    assert " x 1e-3, difference -0.90 (" in said and "95% CI -1.75 to -0.05;" in said


def test_measurements_are_paired_by_rounds():
    found = told({"oe": pair(60.4, 44.8, 76.0, 0.004, n=3)}, metric="seconds for 10 steps", memory_mb={})
    assert found.headline.startswith(
        "oe is worse than baseline: seconds for 10 steps 8.50 against 9.00, difference +60 ("
    )
    assert found.headline.endswith("; n = 3 rounds; p = 0.004).")


def test_differences_that_do_not_matter_are_counted_apart():
    noise = [0.01, -0.01, 0.02, -0.02, 0.01, -0.01, 0.0, 0.01]

    def in_rounds(**methods):
        columns = {"baseline": [3.0] * 8} | {name: [3 + own + e for e in noise] for name, own in methods.items()}
        return found_verdict(summed(columns, metric="mae", stop_early=StopEarly(20, 0.5)))

    assert in_rounds(ld=0.0, oe=-0.1).headline == "Of 2 methods, 2 within ±0.50 of baseline (MAE, n = 8)."
    found = in_rounds(ld=0.0, oe=-1.0)
    assert [own.decision for own in found.findings] == ["negligible", "better"]
    assert found.headline == "Of 2 methods, 1 better than baseline, 1 within ±0.50 of baseline (MAE, n = 8)."
