"""How many seeds it takes: against SciPy's noncentral t, and against simulated comparisons."""

import math

import numpy as np
import pytest
from scipy import stats

from ordinal_entropy.comparison import seeds_needed, seeds_needed_range
from ordinal_entropy.comparison.anytime import critical


def power(n, effect, bound):
    return float(stats.nct.sf(bound, n - 1, math.sqrt(n) * effect))


@pytest.mark.parametrize("effect", [0.1, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("level", [0.05, 0.0125])
@pytest.mark.parametrize("stop_early", [False, True])
def test_it_is_the_smallest_number_with_that_power(effect, level, stop_early):
    def bound(n):
        return critical(n, level) if stop_early else stats.t.isf(level / 2, n - 1)

    found = seeds_needed(-3 * effect, 3.0, level, stop_early=stop_early)
    assert power(found, effect, bound(found)) >= 0.8 > power(found - 1, effect, bound(found - 1))


def test_four_of_five_comparisons_of_so_many_seeds_show_it():
    n = seeds_needed(0.8, 1.0)
    drawn = np.random.default_rng(0).normal(0.8, 1.0, size=(4000, n))
    shown = np.mean(stats.ttest_1samp(drawn, 0.0, axis=1).pvalue < 0.05)
    assert 0.8 - 4 * 0.4 / math.sqrt(4000) < shown < 0.85


def test_what_so_many_seeds_cannot_show_or_any_would():
    assert seeds_needed(0.0, 1.0) is None
    assert seeds_needed(1e-9, 1.0) is None
    assert seeds_needed(math.nan, 1.0) is None and seeds_needed(1.0, math.nan) is None
    assert seeds_needed(1.0, 0.0) == 2  # differences that are all equal
    assert seeds_needed(1.0, 0.0, stop_early=True) == 4
    assert seeds_needed(0.0, 0.0) is None
    assert all(seeds_needed(effect, 1.0) == 2 for effect in (27.0, 50.0, 1e6, 1e300))


@pytest.mark.parametrize(("effect", "n"), [(0.3, 10), (0.8, 5), (0.8, 20)])
def test_the_range_holds_the_number_that_the_true_effect_takes(effect, n):
    needed = seeds_needed(effect, 1.0)
    drawn = np.random.default_rng(0).normal(effect, 1.0, size=(400, n))
    ranges = [seeds_needed_range(float(x.mean()), float(x.std(ddof=1)), n) for x in drawn]
    share = np.mean([fewest <= needed and (most is None or needed <= most) for fewest, most in ranges])
    assert share > 0.8 - 4 * 0.4 / math.sqrt(400)
    assert n < 20 or share < 0.9  # more where the effect may be 0


def test_the_range_of_an_effect_that_may_be_none_has_no_end():
    assert seeds_needed_range(0.1, 1.0, 10)[1] is None
    fewest, most = seeds_needed_range(0.6, 1.0, 10)
    assert fewest < seeds_needed(0.6, 1.0) < most
    assert seeds_needed_range(0.6, 1.0, 10, 0.01)[0] > fewest
    assert seeds_needed_range(0.6, 1.0, 10, stop_early=True)[0] > fewest
    assert seeds_needed_range(1.0, 0.0, 5) == (2, 2)
    assert seeds_needed_range(0.0, 0.0, 5) == seeds_needed_range(math.nan, 1.0, 5) == (None, None)
    assert all(seeds_needed_range(effect, 1.0, 3) == (2, 2) for effect in (50.0, 1e6, 1e300))
