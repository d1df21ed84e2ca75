"""Paired comparisons: against SciPy's tests and closed forms, at the edges, and the words of the verdict."""

import json
import math
import sys

import numpy as np
import pytest
from scipy import stats

from ordinal_entropy import comparison
from ordinal_entropy.comparison import Comparison, compare, paired, spread, summary, verdict

NAN = math.nan


def scores(n, seed=0):
    """Two columns with a common part, as runs of one seed have."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=n)
    return (common + rng.normal(size=n) + 3).tolist(), (common + 2 * rng.normal(size=n) + 3.5).tolist()


def at(values):
    return {"last": values, "best_validation": values, "best_test": values}


def summed(columns, **options):
    options = {"task": "t", "metric": "MSE", "lower_is_better": True, "recipe": {}, "environment": {}, **options}
    return summary(scores={name: at(values) for name, values in columns.items()}, **options)


@pytest.mark.parametrize("n", [2, 3, 10, 200])
def test_paired_equals_scipy(n):
    values, baseline = scores(n)
    expected = stats.ttest_rel(values, baseline)
    low, high = expected.confidence_interval(0.95)
    found = paired(values, baseline)
    assert found == pytest.approx((np.mean(values) - np.mean(baseline), low, high, expected.pvalue, n), rel=1e-10)
    assert all(type(number) is float for number in found[:4])


@pytest.mark.parametrize("n", [3, 10, 200])
def test_spread_equals_the_closed_form_of_pitman_and_morgan(n):
    values, baseline = scores(n, seed=1)
    ratio = np.std(values, ddof=1) / np.std(baseline, ddof=1)
    r = np.corrcoef(values, baseline)[0, 1]
    t = (ratio**2 - 1) * math.sqrt(n - 2) / (2 * ratio * math.sqrt(1 - r**2))
    assert spread(values, baseline) == pytest.approx((ratio, 2 * stats.t.sf(abs(t), n - 2), n), rel=1e-9)


def test_changing_sides_changes_the_sign_and_inverts_the_ratio():
    values, baseline = scores(8)
    one, other = paired(values, baseline), paired(baseline, values)
    assert other == pytest.approx((-one.difference, -one.ci_high, -one.ci_low, one.p_value, 8))
    assert spread(baseline, values)[:2] == pytest.approx(
        (1 / spread(values, baseline).ratio, spread(values, baseline)[1])
    )


@pytest.mark.parametrize("test", [paired, spread])
def test_five_percent_of_comparisons_of_equals_have_p_below_five_percent(test):
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(2000, 2, 8)) + rng.normal(size=(2000, 1, 8))
    rejected = np.mean([test(*pair).p_value < 0.05 for pair in draws])
    assert abs(rejected - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 2000)


def test_equal_differences():
    assert paired([1.0, 2.0, 4.0], [2.0, 3.0, 5.0]) == (-1.0, -1.0, -1.0, 0.0, 3)
    assert paired([1.0, 2.0], [1.0, 2.0]) == (0.0, 0.0, 0.0, 1.0, 2)
    assert paired([0.1 + 0.2, 0.6, 0.9], [0.3, 0.2 + 0.4, 0.9]) == (0.0, 0.0, 0.0, 1.0, 3)  # differ by rounding
    found = paired([0.3, 0.4, 0.8], [0.1, 0.2, 0.6])
    assert found.p_value == 0 and found.ci_low == found.ci_high == pytest.approx(0.2)


def test_spread_of_columns_that_do_not_vary():
    assert spread([1.0, 2.0, 4.0], [2.0, 3.0, 5.0]) == (1.0, 1.0, 3)  # shifted
    assert spread([0.3, 0.4, 0.8], [0.1, 0.2, 0.6]).p_value == 1  # shifted, but for rounding
    assert spread([1.0, 1.0, 1.0], [1.0, 2.0, 4.0]) == (0.0, 0.0, 3)
    assert spread([1.0, 2.0, 4.0], [1.0, 1.0, 1.0]) == (math.inf, 0.0, 3)
    ratio, p_value, _ = spread([1.0, 1.0, 1.0], [2.0, 2.0, 2.0])
    assert math.isnan(ratio) and p_value == 1
    assert spread([2.0, 4.0, 8.0], [1.0, 2.0, 4.0]).p_value == pytest.approx(0, abs=1e-7)


@pytest.mark.parametrize(("test", "least"), [(paired, 2), (spread, 3)])
def test_scores_that_cannot_be_compared_are_named(test, least):
    with pytest.raises(ValueError, match=f"at least {least} pairs of scores, got {least - 1}"):
        test([1.0] * (least - 1), [2.0] * (least - 1))
    with pytest.raises(ValueError, match="as many values as the baseline has, 3, got 2"):
        test([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="finite scores, got 2 that are NaN or infinite"):
        test([1.0, NAN, 3.0], [1.0, 2.0, math.inf])


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
        "task", "metric", "lower_is_better", "methods", "paired", "spread", "recipe", "environment",
    ]  # fmt: skip
    assert found["methods"]["baseline"] == {
        "values": validation,
        "mean": pytest.approx(19 / 6),
        "std": pytest.approx(np.std(validation, ddof=1)),
        "n": 3,
        "at": columns["baseline"],
    }
    assert found["paired"] == {"oe": paired([1.0, 2.5, 3.0], validation)._asdict()}
    assert found["spread"] == {"oe": spread([1.0, 2.5, 3.0], validation)._asdict()}
    assert found["recipe"] == {"steps": 9} and found["environment"] == {"torch": "2"}
    json.dumps(found, allow_nan=False)


def test_a_run_that_diverged_is_kept_and_left_out_of_the_pairs():
    found = summed({"baseline": [3.0, 4.0, 5.0, 7.0], "oe": [2.0, NAN, 3.5, 6.5], "ld": [1.0, math.inf, 2.0, 5.0]})
    for name in ("oe", "ld"):
        method = found["methods"][name]
        assert math.isnan(method["values"][1]) and len(method["values"]) == 4 and method["n"] == 3
    assert found["methods"]["oe"]["mean"] == pytest.approx(4.0)
    assert found["paired"]["oe"] == paired([2.0, 3.5, 6.5], [3.0, 5.0, 7.0])._asdict()
    assert "1 of 4 runs of oe did not finish with a number, and those seeds are left out." in verdict(found)[0]
    found = summed({"baseline": [3.0, 4.0, NAN, 7.0, 9.0], "oe": [2.0, NAN, 3.5, 6.5, 8.0]})
    assert found["paired"]["oe"]["n"] == 3
    assert "3 seeds; 1 of 5 runs of oe and 1 of 5 runs of baseline did not finish" in verdict(found)[0]


@pytest.mark.parametrize(("column", "difference"), [([1.0, NAN], -1.0), ([NAN, NAN], NAN)])
def test_one_pair_or_none_gives_no_verdict_but_a_summary(column, difference):
    found = summed({"baseline": [2.0, 3.0], "oe": column})
    pair = found["paired"]["oe"]
    assert pair["difference"] == pytest.approx(difference, nan_ok=True) and math.isnan(pair["p_value"])
    assert "cannot show a difference, it takes at least 2" in verdict(found)[0]
    assert "nan" in str(Comparison(found))


def test_what_a_summary_needs_is_named():
    with pytest.raises(ValueError, match="scores of the baseline 'baseline', got those of ld, oe"):
        summed({"ld": [1.0], "oe": [1.0]})
    with pytest.raises(ValueError, match="expected 2 scores of 'oe' at last, one a seed, got 1"):
        summed({"baseline": [1.0, 2.0], "oe": [1.0]})
    with pytest.raises(ValueError, match="scores of 'baseline' at last, best_validation, best_test, got last"):
        summary(task="", metric="", lower_is_better=True, scores={"baseline": {"last": []}}, recipe={}, environment={})


BASELINE = [3.0, 3.2, 2.9, 3.4, 3.1]


@pytest.mark.parametrize(
    ("shift", "lower_is_better", "opening"),
    [
        (-1.0, True, "oe is better than baseline: MSE "),
        (-1.0, False, "oe is worse than baseline: MSE "),
        (1.0, True, "oe is worse than baseline: MSE "),
        (1.0, False, "oe is better than baseline: MSE "),
        (0.0, True, "oe: no difference from baseline that 5 seeds could show: MSE "),
    ],
)
def test_verdict_says_which_way(shift, lower_is_better, opening):
    values = [v + shift + e for v, e in zip(BASELINE, [0.1, -0.1, 0.05, 0.0, -0.05], strict=True)]
    [sentence] = verdict(summed({"baseline": BASELINE, "oe": values}, lower_is_better=lower_is_better))
    pair = paired(values, BASELINE)
    assert sentence.startswith(opening)
    assert f"{pair.ci_low:.3g} to {pair.ci_high:.3g}" in sentence
    assert f"({shift / 3.12:+.1%})" in sentence
    assert sentence.endswith("5 seeds.")
    assert "Holm" not in sentence


def test_verdict_adjusts_for_the_number_of_methods():
    noise = [0.5, -0.4, 0.1, -0.3, 0.3]  # the weak one: p is 0.03 alone, 0.06 among three
    weak = [v - 0.6 + e for v, e in zip(BASELINE, noise, strict=True)]
    strong = [v - 2 + e for v, e in zip(BASELINE, noise, strict=True)]
    none = [v + e for v, e in zip(BASELINE, noise, strict=True)]
    p = [paired(column, BASELINE).p_value for column in (weak, strong, none)]
    assert 0.025 < p[0] < 0.05 and p[1] < 0.01 and p[2] > 0.5
    assert "is better" in verdict(summed({"baseline": BASELINE, "weak": weak}))[0]
    sentences = verdict(summed({"baseline": BASELINE, "weak": weak, "strong": strong, "none": none}))
    assert [sentence.partition(":")[0] for sentence in sentences] == ["weak", "strong is better than baseline", "none"]
    assert f"p = {2 * p[0]:.3f} after Holm's adjustment for 3 methods" in sentences[0]
    assert f"p = {3 * p[1]:.3f} after Holm's" in sentences[1]


def test_holm_against_a_worked_example():
    found = comparison.holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})  # Holm: 0.03, 0.06, 0.06, 0.02
    assert found == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    found = comparison.holm({"a": 0.6, "b": NAN, "c": 0.01})
    assert found == pytest.approx({"a": 1.0, "b": NAN, "c": 0.03}, nan_ok=True)


def test_verdict_of_a_baseline_alone_or_of_zeros():
    assert verdict(summed({"baseline": BASELINE})) == ["Nothing to compare baseline with: no other method was run."]
    [sentence] = verdict(summed({"baseline": [0.0, 0.0], "oe": [0.0, 0.0]}))
    assert "%)" not in sentence and "no difference" in sentence


def test_compare_trains_each_pair_and_writes_what_it_found(tmp_path):
    calls = []

    def train(method, seed):
        calls.append((method, seed))
        return NAN if (method, seed) == ("oe", 7) else seed + (0.5 + 0.01 * seed) * (method == "oe")

    result = compare(train, seeds=[3, 7, 1, 2], metric="MAE", task="mine")
    assert calls == [(method, seed) for seed in (3, 7, 1, 2) for method in ("baseline", "oe")]
    assert result.summary["methods"]["baseline"]["values"] == [3.0, 7.0, 1.0, 2.0]
    assert result.summary["recipe"] == {"seeds": [3, 7, 1, 2]}
    assert result.summary["environment"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert result.verdict[0].startswith("oe is worse than baseline: MAE")
    path = result.write(tmp_path / "new")
    assert path == tmp_path / "new" / "summary.json"
    read = json.loads(path.read_text())
    assert read["methods"]["oe"]["values"][1] is None
    assert (read["task"], read["metric"], read["lower_is_better"]) == ("mine", "MAE", True)
    assert verdict(read) == result.verdict
    assert str(Comparison(read)) == str(result)


def test_compare_takes_scores_at_three_points():
    result = compare(lambda method, seed: {"last": 1.0, "best_validation": seed, "best_test": 3}, seeds=2)
    assert result.summary["methods"]["oe"]["at"] == {
        "last": [1.0, 1.0], "best_validation": [0.0, 1.0], "best_test": [3.0, 3.0],
    }  # fmt: skip
    assert result.summary["methods"]["oe"]["values"] == [0.0, 1.0]
    with pytest.raises(ValueError, match="a number or last, best_validation, best_test, got last"):
        compare(lambda method, seed: {"last": 1.0}, seeds=1)


def test_compare_without_a_baseline_takes_the_first():
    result = compare(lambda method, seed: seed + len(method), methods=["ld", "ld-cosine"], seeds=2)
    assert list(result.summary["paired"]) == ["ld-cosine"]
    assert "than ld:" in result.verdict[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 0}, "at least one method and one seed, got 2 and 0"),
        ({"methods": []}, "at least one method and one seed, got 0 and 10"),
        ({"methods": ["oe", "oe"]}, "methods that are all different"),
        ({"seeds": [1, 1]}, "seeds that are all different"),
    ],
)
def test_compare_checks_before_it_trains(options, message):
    with pytest.raises(ValueError, match=message):
        compare(lambda method, seed: pytest.fail("trained"), **options)


def test_compare_without_scipy_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy", None)
    with pytest.raises(ImportError, match=r"needs SciPy: pip install 'ordinal-entropy\[train\]'"):
        compare(lambda method, seed: pytest.fail("trained"))


def test_compare_shows_a_bar_on_a_terminal_and_nothing_elsewhere(monkeypatch, capsys):
    compare(lambda method, seed: seed, seeds=2)
    assert capsys.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    compare(lambda method, seed: seed, seeds=2)
    out, err = capsys.readouterr()
    assert out == "" and "4/4" in err and "oe, seed 1" in err
