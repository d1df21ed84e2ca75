"""The words of the verdict."""

import json
import math

import pytest

from ordinal_entropy.comparison import Failure, StopEarly, paired, paired_anytime, verdict
from ordinal_entropy.runs import write_json
from paired_scores import summed

NAN = math.nan
BASELINE = [3.0, 3.2, 2.9, 3.4, 3.1]
NOISE = [0.1, -0.1, 0.05, 0.0, -0.05]


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
            "oe: no difference from baseline that 5 seeds could show, and none larger than 0.0982 (3.1%): MSE ",
        ),
    ],
)
def test_verdict_says_which_way(shift, lower_is_better, opening):
    values = shifted(shift)
    [sentence] = verdict(summed({"baseline": BASELINE, "oe": values}, lower_is_better=lower_is_better))
    pair = paired(values, BASELINE)
    assert sentence.startswith(opening)
    assert f"{pair.ci_low:.3g} to {pair.ci_high:.3g}" in sentence
    assert f"({shift / 3.12:+.1%})" in sentence
    assert sentence.endswith("), 5 seeds.") and "Holm" not in sentence


def test_none_larger_than_is_the_far_end_of_the_interval():
    values = shifted(-0.06)
    pair = paired(values, BASELINE)
    [sentence] = verdict(summed({"baseline": BASELINE, "oe": values}))
    largest = max(-pair.ci_low, pair.ci_high)
    assert pair.ci_low < -pair.ci_high < 0
    assert f"and none larger than {largest:.3g} ({largest / 3.12:.1%}): " in sentence


def test_verdict_adjusts_for_the_number_of_methods():
    noise = [0.5, -0.4, 0.1, -0.3, 0.3]  # the weak one: p is 0.03 alone, 0.06 among three
    weak, strong, none = shifted(-0.6, noise), shifted(-2, noise), shifted(0, noise)
    p = [paired(column, BASELINE).p_value for column in (weak, strong, none)]
    assert 0.025 < p[0] < 0.05 and p[1] < 0.01 and p[2] > 0.5
    assert "is better" in verdict(summed({"baseline": BASELINE, "weak": weak}))[0]
    sentences = verdict(summed({"baseline": BASELINE, "weak": weak, "strong": strong, "none": none}))
    assert [sentence.partition(":")[0] for sentence in sentences] == ["weak", "strong is better than baseline", "none"]
    assert f"p = {2 * p[0]:.3f} after Holm's adjustment for 3 methods" in sentences[0]
    assert f"p = {3 * p[1]:.3f} after Holm's" in sentences[1]


def test_the_sign_test_stands_beside_few_seeds_only():
    [few] = verdict(summed({"baseline": BASELINE, "oe": shifted(-1)}))
    assert "p < 0.001 (sign test p = 0.062, the smallest that 5 seeds can give), 5 seeds" in few
    [nine] = verdict(summed({"baseline": BASELINE + BASELINE[:4], "oe": shifted(-1) + shifted(-1)[:4]}))
    assert "(sign test p = 0.004), 9 seeds" in nine
    [mixed] = verdict(summed({"baseline": BASELINE, "oe": shifted(0)}))
    assert "(sign test p = 1.000), 5 seeds" in mixed
    [ten] = verdict(summed({"baseline": BASELINE * 2, "oe": shifted(-1) * 2}))
    assert "sign test" not in ten


def test_an_open_verdict_says_how_many_more_seeds_would_settle_it():
    found = summed({"baseline": BASELINE, "oe": shifted(-0.03)})
    further = found["paired"]["oe"]["seeds_needed"] - 5
    assert 10 < further < 100
    said = f"5 seeds; if the difference is as large as it looks, about {further} more seeds would show it"
    assert verdict(found)[0].endswith(f"{said} (an estimate, 80% range 6 or more).")
    clearer = summed({"baseline": BASELINE, "oe": shifted(-0.06)})
    fewest, most = clearer["paired"]["oe"]["seeds_needed_range"]
    assert verdict(clearer)[0].endswith(f"would show it (an estimate, 80% range {fewest - 5} to {most - 5}).")
    [small] = verdict(summed({"baseline": BASELINE, "oe": shifted(0.0001)}))
    assert (
        "a difference as small as the one seen would take more than 200 more seeds to show, and is not worth" in small
    )
    [same] = verdict(summed({"baseline": BASELINE, "oe": BASELINE}))
    assert same.startswith(
        "oe: no difference from baseline at any seed, as if it were not in use: MSE 3.12 against 3.12"
    )
    assert same.endswith("5 seeds.")


def test_differences_that_look_skewed_are_named():
    noise = [0.0, 0.01, -0.01, 0.02, 0.9]
    [sentence] = verdict(summed({"baseline": BASELINE, "oe": shifted(-1, noise)}))
    warning = "; the differences look skewed (skewness +1.5), so the 95% interval may hold less often than that, and p"
    assert f"5 seeds{warning} may be too small." in sentence
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
    assert "%)" not in sentence and "no difference" in sentence


def test_runs_without_a_number_are_counted():
    found = summed({"baseline": [3.0, 4.0, 5.0, 7.0], "oe": [2.0, NAN, 3.5, 6.5]})
    assert "1 of 4 runs of oe did not finish with a number, and those seeds are left out; if" in verdict(found)[0]
    found = summed({"baseline": [3.0, 4.0, NAN, 7.0, 9.0], "oe": [2.0, NAN, 3.5, 6.5, 8.0]})
    assert "; 1 of 5 runs of oe and 1 of 5 runs of baseline did not finish" in verdict(found)[0]
    assert "3 seeds" in verdict(found)[0]
    [one] = verdict(summed({"baseline": [2.0, 3.0], "oe": [1.0, NAN]}))
    assert one.startswith(
        "oe against baseline: 1 seed cannot show a difference, it takes at least 2; 1 of 2 runs of oe"
    )


def test_failures_are_told():
    failures = [Failure("oe", 1, "RuntimeError", "out of memory"), Failure("oe", 3, "KeyError", "")]
    columns = {"baseline": [3.0, 3.2, 2.9, 3.3], "oe": [2.0, NAN, 2.1, NAN]}
    about_oe, first, second = verdict(summed(columns, failures=failures))
    assert "2 seeds; 2 of 4 runs of oe did not finish with a number, and those seeds are left out; if" in about_oe
    assert first == "oe, seed 1 failed: RuntimeError: out of memory"
    assert second == "oe, seed 3 failed: KeyError: no message"
    many = [Failure("oe", seed, "ValueError", "no") for seed in range(4)] + [
        Failure("baseline", seed, "ValueError", "no") for seed in range(3)
    ]
    columns = {"baseline": [NAN, NAN, NAN, 3.3], "oe": [NAN] * 4, "ld": [1.0] * 4}
    said = verdict(summed(columns, failures=many))
    assert said[0] == "oe against baseline: every run of oe failed, so there is nothing to compare."
    assert said[1].startswith("ld against baseline: 1 seed cannot show a difference")
    assert len(said) == 2 + 5 + 1 and said[-1] == "2 more runs failed; the summary names them all."
    columns = {"baseline": [NAN] * 4, "ld": [1.0] * 4}
    lost = [Failure("baseline", seed, "ValueError", "no") for seed in range(4)]
    assert verdict(summed(columns, failures=lost))[0].startswith("ld against baseline: every run of baseline failed")


def test_one_that_stopped_early_says_what_its_interval_is():
    columns = {"baseline": BASELINE, "oe": shifted(-1)}
    about_oe, rule = verdict(summed(columns, stop_early=StopEarly(20)))
    pair = paired_anytime(*reversed(columns.values()))
    assert f"95% interval {pair.ci_low:.3g} to {pair.ci_high:.3g}, p = {pair.p_value:.3f}, 5 seeds." in about_oe
    assert rule.startswith("Stopped after 5 of at most 20 seeds") and "Student's" in rule and "normal" in rule
    assert verdict(summed(columns, stop_early=StopEarly(5)))[-1].startswith("Went on to all 5 seeds")
    columns = {"baseline": BASELINE, "oe": shifted(-0.2), "ld": shifted(-0.01)}
    oe, ld, _ = verdict(summed(columns, stop_early=StopEarly(20, 0.9)))
    assert oe.startswith("oe is better than baseline, but by less than 0.9, the smallest difference that matters: MSE")
    assert ld.startswith("ld: no difference from baseline as large as 0.9, the smallest that matters: MSE")
    assert "would show it" not in ld


def test_an_interval_without_bounds_is_none_yet(tmp_path):
    found = summed({"baseline": BASELINE[:3], "oe": shifted(-1)[:3]}, stop_early=StopEarly(20))
    assert found["paired"]["oe"]["ci_low"] == -math.inf
    write_json(tmp_path / "summary.json", found)
    for each in (found, json.loads((tmp_path / "summary.json").read_text())):
        assert "oe: no difference from baseline that 3 seeds could show: MSE" in verdict(each)[0]
        assert "difference -0.983, no 95% interval yet, p = 0.087" in verdict(each)[0]


def test_a_summary_of_an_older_version_is_told_as_far_as_it_goes():
    found = summed({"baseline": BASELINE, "oe": shifted(-0.03)})
    for key in ("sign_p_value", "seeds_needed", "verdict"):
        del found["paired"]["oe"][key]
    del found["failures"]
    [sentence] = verdict(found)
    assert "sign" not in sentence and sentence.endswith("5 seeds.")
