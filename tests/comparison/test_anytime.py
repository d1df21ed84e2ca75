"""The test that may be looked at after every seed: its formula by integration, its invariance, its edges."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from ordinal_entropy.comparison import paired, paired_anytime
from ordinal_entropy.comparison.anytime import SCALE, critical
from paired_scores import scores


def likelihoods(differences, effects):
    """Of the ratios between the differences: integrated over their standard deviation s with the measure ds / s."""
    x, size = np.array(differences), np.sqrt(np.mean(np.square(differences)))
    s = size * np.exp(np.linspace(-12, 12, 6000))  # ds / s = d log s
    exponent = sum(stats.norm.logpdf(each / s, effects[:, None]) - np.log(s) for each in x)
    return integrate.trapezoid(np.exp(exponent), np.log(s), axis=1)


def p_value_by_integration(differences):
    """One over the mean likelihood of normal effects, over that of none."""
    effects = np.linspace(-8 * SCALE, 8 * SCALE, 401)
    mean = integrate.trapezoid(likelihoods(differences, effects) * stats.norm.pdf(effects, scale=SCALE), effects)
    return min(1.0, likelihoods(differences, np.zeros(1))[0] / mean)


@pytest.mark.parametrize(("n", "shift"), [(2, 1.0), (3, 2.0), (4, 3.0), (6, 1.0), (6, 0.1)])
def test_the_p_value_is_that_of_the_mixture(n, shift):
    differences = np.random.default_rng(n).normal(size=n) + shift
    found = paired_anytime(differences, np.zeros(n))
    assert found.p_value == pytest.approx(p_value_by_integration(differences), rel=1e-5)


@pytest.mark.parametrize("n", [5, 9])
@pytest.mark.parametrize("end", ["ci_low", "ci_high"])
def test_at_the_ends_of_the_interval_the_p_value_is_the_level(n, end):
    values, baseline = scores(n)
    for level in (0.05, 0.01):
        moved = np.array(values) - getattr(paired_anytime(values, baseline, level), end)
        assert paired_anytime(moved, baseline).p_value == pytest.approx(level, rel=1e-9)


@settings(max_examples=200)
@given(
    st.lists(st.floats(-100, 100), min_size=2, max_size=30),
    st.sampled_from([0.1, 0.05, 0.05 / 3, 0.001]),
)
def test_the_interval_excludes_0_where_p_is_below_the_level(differences, level):
    found = paired_anytime(differences, [0.0] * len(differences), level)
    assert found.ci_low <= found.difference <= found.ci_high
    if abs(found.p_value - level) > 1e-9 * level:
        assert (found.ci_low > 0 or found.ci_high < 0) == (found.p_value < level)


def test_it_does_not_depend_on_the_unit_nor_on_what_seeds_have_in_common_nor_on_their_order():
    values, baseline = map(np.array, scores(7))
    found = paired_anytime(values, baseline)
    common = np.linspace(5, 50, 7)
    assert paired_anytime(1e-6 * (values + common), 1e-6 * (baseline + common)) == pytest.approx(
        (1e-6 * found.difference, 1e-6 * found.ci_low, 1e-6 * found.ci_high, found.p_value, 7)
    )
    assert paired_anytime(values + 3, baseline)[:3] == pytest.approx(np.array(found[:3]) + 3)
    assert paired_anytime(values[::-1], baseline[::-1]) == pytest.approx(found)
    assert paired_anytime(baseline, values) == pytest.approx(
        (-found.difference, -found.ci_high, -found.ci_low, found.p_value, 7)
    )


@pytest.mark.parametrize("n", [4, 10, 100])
def test_it_is_wider_than_students(n):
    values, baseline = scores(n)
    wide, narrow = paired_anytime(values, baseline), paired(values, baseline)
    assert wide.difference == narrow.difference
    assert wide.ci_low < narrow.ci_low and narrow.ci_high < wide.ci_high and wide.p_value > narrow.p_value


def test_differences_that_are_all_equal():
    for n in (2, 3, 4, 20):
        found = paired_anytime([1.0] * n, [2.0] * n)
        assert found.p_value == pytest.approx((1 + n * SCALE**2) ** (-(n - 1) / 2))  # never 0: n of n is no proof
        if n < 4:
            assert found[:3] == (-1, -math.inf, math.inf) and found.p_value > 0.05
        else:
            assert found[:3] == (-1, -1, -1) and found.p_value < 0.05
    assert paired_anytime([1.0] * 5, [1.0] * 5) == (0, 0, 0, 1, 5)
    assert paired_anytime([0.1 + 0.2] * 5, [0.3] * 5) == (0, 0, 0, 1, 5)  # differ by rounding


def test_few_seeds_settle_nothing_and_many_are_as_narrow_as_can_be():
    assert [n for n in range(2, 9) if math.isinf(critical(n, 0.05))] == [2, 3]
    assert math.isinf(critical(4, 0.001))
    widths = [critical(n, 0.05) / math.sqrt(n) for n in range(4, 2000)]
    assert widths == sorted(widths, reverse=True)
    assert critical(10**6, 0.05) ** 2 == pytest.approx(math.log1p(4e6) - 2 * math.log(0.05), rel=1e-4)
