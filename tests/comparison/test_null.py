"""Honest under the null: methods that do not differ are called better or worse in one study of twenty at most.

Of N simulated studies at most the 99.9% quantile of a binomial distribution (N, 5%) may say so.
"""

import math

import numpy as np
import pytest
from scipy import stats

from ordinal_entropy.comparison import StopEarly, compare, decisions, paired_anytime, settled
from ordinal_entropy.comparison.anytime import critical
from paired_scores import summed

LOOKS = 50


def most(studies):
    return stats.binom.ppf(0.999, studies, 0.05)


def wrong(summaries):
    return sum(any(word in ("helps", "hurts") for word in decisions(each).values()) for each in summaries)


def noise(studies, methods, seeds, seed):
    """Scores of methods of one distribution: what runs of a seed share, and what each has of its own."""
    rng = np.random.default_rng(seed)
    return rng.normal(size=(studies, methods, seeds)) + rng.normal(size=(studies, 1, seeds))


@pytest.mark.parametrize(("names", "n"), [(("baseline", "a"), 5), (("baseline", "a", "b", "c", "d"), 8)])
def test_a_fixed_number_of_seeds(names, n):
    drawn = noise(1500, len(names), n, seed=n)
    found = wrong(summed(dict(zip(names, study.tolist(), strict=True))) for study in drawn)
    assert found <= most(1500)
    assert found > 0.02 * 1500  # and no more careful than it says


def test_without_holm_it_would_be_wrong_more_often():
    drawn = noise(1500, 5, 8, seed=8)
    apart = [stats.ttest_rel(study[1:], study[:1], axis=1).pvalue.min() < 0.05 for study in drawn]
    assert sum(apart) > most(1500)


def students_t(differences):
    """Of every study after every seed: ``(studies, seeds)``."""
    n = np.arange(1, differences.shape[1] + 1)
    mean = differences.cumsum(1) / n
    squares = (differences**2).cumsum(1) - n * mean**2
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.abs(mean) / np.sqrt(squares / (n - 1) / n)


def bounds(level=0.05):
    return np.array([math.inf, math.inf, *(critical(n, level) for n in range(3, LOOKS + 1))])


def test_fifty_looks_at_what_may_stop_early():
    t = students_t(np.random.default_rng(0).normal(size=(20_000, LOOKS)))
    assert 0.01 * 20_000 < (t > bounds()).any(1).sum() <= most(20_000)
    student = np.array([math.inf, math.inf, *stats.t.isf(0.025, np.arange(2, LOOKS))])
    assert (t > student).any(1).mean() > 0.25  # what looking does to an interval that does not allow for it


def test_fifty_looks_at_several_methods_with_one_baseline():
    drawn = noise(5000, 4, LOOKS, seed=1)
    crossed = np.stack([(students_t(drawn[:, k] - drawn[:, 0]) > bounds(0.05 / 3)).any(1) for k in (1, 2, 3)])
    assert crossed.any(0).sum() <= most(5000)


def test_the_interval_holds_the_true_difference_at_every_look():
    rng = np.random.default_rng(2)
    missed = 0
    for study in rng.normal(loc=3.0, scale=0.1, size=(300, 20)):
        found = [paired_anytime(study[:n], np.zeros(n)) for n in range(2, 21)]
        missed += any(not pair.ci_low <= 3.0 <= pair.ci_high for pair in found)
    assert missed <= most(300)


def studied(drawn, names, **options):
    return compare(lambda method, seed: drawn[names.index(method), seed], methods=names, seeds=len(drawn[0]), **options)


def test_compare_stops_where_the_boundary_is_crossed():
    drawn = noise(12, 2, 20, seed=3)
    drawn[:, 1] -= 1.5
    crossed = students_t(drawn[:, 1] - drawn[:, 0]) > bounds()[:20]
    for study, own in zip(drawn, crossed, strict=True):
        found = studied(study, ["baseline", "oe"], stop_early=True).summary
        expected = int(own.argmax()) + 1 if own.any() else 20
        assert found["paired"]["oe"]["n"] == expected
        assert found["paired"]["oe"]["verdict"] == ("helps" if own.any() else "open")


def test_a_real_difference_is_found_and_stops_early():
    t = students_t(np.random.default_rng(4).normal(loc=1.0, size=(5000, LOOKS)))
    crossed = t > bounds()
    assert crossed.any(1).mean() > 0.99
    assert 12 < np.mean(crossed.argmax(1) + 1) < 16  # as docs/compare.md says, where the t-test takes 10 fixed ones
    t = students_t(np.random.default_rng(5).normal(loc=2.0, size=(5000, LOOKS)))
    assert (t > bounds()).any(1).all() and np.mean((t > bounds()).argmax(1) + 1) < 7


@pytest.mark.slow
@pytest.mark.parametrize("names", [["baseline", "oe"], ["baseline", "a", "b", "c"]])
def test_compare_itself_under_the_null(names):
    found = [studied(study, names, stop_early=True).summary for study in noise(500, len(names), LOOKS, seed=6)]
    assert wrong(found) <= most(500)


@pytest.mark.slow
def test_a_difference_that_matters_is_not_called_negligible():
    rng = np.random.default_rng(7)
    called = 0
    for study in rng.normal(loc=0.5, scale=1.0, size=(500, LOOKS)):  # as large as the smallest that matters
        for n in range(4, LOOKS + 1):
            columns = {"baseline": [0.0] * n, "oe": study[:n].tolist()}
            found = summed(columns, stop_early=StopEarly(LOOKS, 0.5))
            if settled(found):
                called += found["paired"]["oe"]["verdict"] == "negligible"
                break
    assert called <= most(500)
