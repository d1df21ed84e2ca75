"""Tests of pairs: against SciPy's and closed forms, and at the edges."""

import math

import numpy as np
import pytest
from scipy import stats

from ordinal_entropy.comparison import holm, looks_skewed, paired, sign_test, skewness, spread
from paired_scores import scores

NAN = math.nan


@pytest.mark.parametrize("n", [2, 3, 10, 200])
def test_paired_equals_scipy(n):
    values, baseline = scores(n)
    expected = stats.ttest_rel(values, baseline)
    low, high = expected.confidence_interval(0.95)
    found = paired(values, baseline)
    assert found == pytest.approx((np.mean(values) - np.mean(baseline), low, high, expected.pvalue, n), rel=1e-10)
    assert all(type(number) is float for number in found[:4])


@pytest.mark.parametrize("n", [3, 10, 200])
def test_spread_is_a_paired_t_test_on_deviations_from_the_medians(n):
    values, baseline = scores(n, seed=1)
    ratio = np.std(values, ddof=1) / np.std(baseline, ddof=1)
    deviations = [np.abs(np.subtract(column, np.median(column))) for column in (values, baseline)]
    expected = (ratio, stats.ttest_rel(*deviations).pvalue, n)
    assert spread(values, baseline) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("n", [4, 8, 20])
def test_skewness_equals_scipy(n):
    values, baseline = scores(n, seed=n)
    assert skewness(values, baseline) == pytest.approx(stats.skew(np.subtract(values, baseline)), rel=1e-9)
    assert skewness(baseline, values) == pytest.approx(-skewness(values, baseline), rel=1e-9)


def test_skewness_of_differences_that_are_all_equal_but_for_rounding():
    assert skewness([0.3, 0.4, 0.8, 1.2], [0.1, 0.2, 0.6, 1.0]) == 0


@pytest.mark.parametrize("n", [8, 10, 50])
def test_what_looks_skewed_is_scipys_test_at_ten_percent(n):
    rng = np.random.default_rng(n)
    for sample in rng.exponential(size=(50, n)):
        assert looks_skewed(stats.skew(sample), n) == (stats.skewtest(sample).pvalue < 0.1)


@pytest.mark.parametrize("n", [4, 5, 7, 9, 30])
def test_one_normal_sample_in_ten_looks_skewed(n):
    samples = np.random.default_rng(0).normal(size=(4000, n))
    share = np.mean([looks_skewed(each, n) for each in stats.skew(samples, axis=1)])
    assert abs(share - 0.1) < 4 * math.sqrt(0.09 / 4000) + 0.003


def test_three_seeds_never_look_skewed():
    assert not looks_skewed(skewness([0.0, 0.0, 9.0], [0.0, 0.0, 0.0]), 3)


@pytest.mark.parametrize("n", [1, 2, 5, 9, 40, 1500])
def test_sign_test_equals_scipy(n):
    values, baseline = scores(n, seed=n)
    ups = sum(a > b for a, b in zip(values, baseline, strict=True))
    assert sign_test(values, baseline) == pytest.approx(stats.binomtest(ups, n).pvalue, rel=1e-10)


def test_sign_test_leaves_ties_out_and_knows_its_smallest_value():
    assert sign_test([1.0, 1.0, 1.0, 5.0], [2.0, 2.0, 2.0, 5.0]) == sign_test([1.0] * 3, [2.0] * 3) == 0.25
    assert sign_test([0.1 + 0.2, 1.0], [0.3, 2.0]) == 1  # a tie but for rounding
    assert sign_test([1.0, 2.0], [1.0, 2.0]) == 1
    for n in (5, 6):
        assert sign_test([0.0] * n, [1.0] * n) == 2 / 2**n
    assert sign_test([0.0, 1.0], [1.0, 0.0]) == 1


def test_changing_sides_changes_the_sign_and_inverts_the_ratio():
    values, baseline = scores(8)
    one, other = paired(values, baseline), paired(baseline, values)
    assert other == pytest.approx((-one.difference, -one.ci_high, -one.ci_low, one.p_value, 8))
    assert sign_test(values, baseline) == sign_test(baseline, values)
    assert spread(baseline, values)[:2] == pytest.approx(
        (1 / spread(values, baseline).ratio, spread(values, baseline)[1])
    )


def test_five_percent_of_comparisons_of_equals_have_p_below_five_percent():
    rng = np.random.default_rng(0)
    draws = rng.normal(size=(2000, 2, 8)) + rng.normal(size=(2000, 1, 8))
    rejected = np.mean([paired(*pair).p_value < 0.05 for pair in draws])
    assert abs(rejected - 0.05) < 4 * math.sqrt(0.05 * 0.95 / 2000)


@pytest.mark.parametrize("law", ["normal", "student", "exponential"])
def test_no_more_than_five_percent_of_equal_spreads_are_told_apart(law):
    rng = np.random.default_rng(0)
    drawn = {"normal": rng.normal, "student": lambda size: rng.standard_t(3, size), "exponential": rng.exponential}
    parts = drawn[law](size=(2000, 3, 8))
    columns = parts[:, :2] + parts[:, 2:]  # of equal variance, with a part in common
    assert np.mean([spread(*pair).p_value < 0.05 for pair in columns]) < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)
    assert np.mean([spread(5 * x, y).p_value < 0.05 for x, y in columns]) > 0.4


def test_equal_differences():
    assert paired([1.0, 2.0, 4.0], [2.0, 3.0, 5.0]) == (-1.0, -1.0, -1.0, 0.0, 3)
    assert paired([1.0, 2.0], [1.0, 2.0]) == (0.0, 0.0, 0.0, 1.0, 2)
    assert paired([0.1 + 0.2, 0.6, 0.9], [0.3, 0.2 + 0.4, 0.9]) == (0.0, 0.0, 0.0, 1.0, 3)  # differ by rounding
    found = paired([0.3, 0.4, 0.8], [0.1, 0.2, 0.6])
    assert found.p_value == 0 and found.ci_low == found.ci_high == pytest.approx(0.2)


def test_spread_of_columns_that_do_not_vary():
    assert spread([1.0, 2.0, 4.0], [2.0, 3.0, 5.0]) == (1.0, 1.0, 3)  # shifted
    assert spread([0.3, 0.4, 0.8], [0.1, 0.2, 0.6]).p_value == 1  # shifted, but for rounding
    assert spread([1.0, 1.0, 1.0], [1.0, 2.0, 4.0]).ratio == 0
    assert spread([1.0, 2.0, 4.0], [1.0, 1.0, 1.0]).ratio == math.inf
    ratio, p_value, _ = spread([1.0, 1.0, 1.0], [2.0, 2.0, 2.0])
    assert math.isnan(ratio) and p_value == 1


@pytest.mark.parametrize(("test", "least"), [(sign_test, 1), (paired, 2), (spread, 3)])
def test_scores_that_cannot_be_compared_are_named(test, least):
    with pytest.raises(ValueError, match=f"at least {least} pairs of scores, got {least - 1}"):
        test([1.0] * (least - 1), [2.0] * (least - 1))
    with pytest.raises(ValueError, match="as many values as the baseline has, 3, got 2"):
        test([1.0, 2.0], [1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match="finite scores, got 2 that are NaN or infinite"):
        test([1.0, NAN, 3.0], [1.0, 2.0, math.inf])


def test_holm_against_a_worked_example():
    found = holm({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005})  # Holm: 0.03, 0.06, 0.06, 0.02
    assert found == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    found = holm({"a": 0.6, "b": NAN, "c": 0.01})
    assert found == pytest.approx({"a": 1.0, "b": NAN, "c": 0.03}, nan_ok=True)
