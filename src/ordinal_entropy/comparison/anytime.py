"""Paired differences that may be looked at after every seed: a t-test and an interval that hold at all times at once.

Student's interval is wrong at most 5% of the time *for one number of seeds, fixed beforehand*. Whoever looks after
every seed, and stops when it excludes 0, is wrong far more often. What is here is wrong at most 5% of the time *at any
look, ever*, so that one may stop whenever one likes.

The differences are taken to be independent draws from one normal distribution, with any mean ``m`` and any standard
deviation ``s``; that is the one assumption. If the mean is c, the ratios of the numbers ``x_i - c`` to each other have
a distribution without unknowns. Their likelihood under ``m = c + delta s``, averaged over ``delta`` from a normal
distribution with mean 0 and variance ``g``, over their likelihood under ``m = c`` is, with Student's ``t`` for c,

    e = (1 + n g)^(-1/2) * ((1 + t^2 / (n - 1)) / (1 + t^2 / ((n - 1) (1 + n g))))^(n / 2),

the integrals over ``s`` (with the measure ds / s, which makes them those of the ratios) and ``delta`` being closed
forms. A ratio of likelihoods is a martingale of mean 1 under the hypothesis in its denominator, so by Ville's
inequality it ever reaches ``1 / level`` with a probability of at most ``level``. Hence ``1 / e`` is a p-value at every
look, and all c with ``e < 1 / level`` make an interval at every look. Solved for ``t``, with
``k = ((1 + n g) / level^2)^(1 / n)``,

    t^2 = (n - 1) (k - 1) / (1 - k / (1 + n g)),

and there is no bound where ``k >= 1 + n g``: so few seeds settle nothing, however clear they look. Any ``g`` is valid;
it decides for differences of which size the test is best.
"""

import math
from collections.abc import Sequence

from ordinal_entropy.comparison.statistics import LEVEL, Paired, differences

# The mixture's standard deviation, in those of the differences: sqrt(g). With 2 a difference of one standard deviation
# takes 14 seeds in the mean, of two 6, of three 5; four are the least. More would cost small differences more seeds
# than it saves large ones, less the other way round.
SCALE = 2.0


def paired_anytime(values: Sequence[float], baseline: Sequence[float], level: float = LEVEL) -> Paired:
    """Like :func:`paired`, but valid however often it was looked at before, for differences that are normal.

    Args:
        values: scores of a method, one a seed.
        baseline: scores of the baseline for the same seeds, in the same order.
        level: the interval is that of 1 - level, of all looks together.

    Returns:
        The comparison; the interval excludes 0 where p < level. It is infinite for fewer than four seeds at 95%.

    Example:
        >>> paired_anytime([1.0, 2.0, 3.0, 2.0], [2.0, 3.0, 4.5, 2.9])
        Paired(difference=-1.1, ci_low=-2.0767..., ci_high=-0.1232..., p_value=0.0410..., n=4)
        >>> paired_anytime([1.0, 2.0, 3.0], [2.0, 3.0, 4.5])[1:3]
        (-inf, inf)
    """
    n, mean, deviation = differences(values, baseline)
    bound = critical(n, level)
    half = deviation / math.sqrt(n) * bound if math.isfinite(bound) else math.inf
    equal = math.inf if mean else 0.0  # t of differences that are all equal: as far from 0 as can be, or at it
    t_squared = n * (mean / deviation) ** 2 if deviation else equal
    return Paired(mean, mean - half, mean + half, math.exp(-max(0.0, _log_e(t_squared, n))), n)


def critical(n: int, level: float) -> float:
    """What Student's t must exceed, after n seeds, to be told from 0 at all times together; infinite for a few seeds.

    Example:
        >>> critical(4, 0.05), critical(10, 0.05), critical(3, 0.05)
        (7.2139..., 3.9709..., inf)
    """
    growth = math.log1p(n * SCALE**2)
    k = (growth - 2 * math.log(level)) / n  # its logarithm
    if k >= growth:
        return math.inf
    return math.sqrt((n - 1) * math.expm1(k) / -math.expm1(k - growth))


def _log_e(t_squared: float, n: int) -> float:
    """The logarithm of the ratio of likelihoods, of Student's t and the number of pairs."""
    growth = math.log1p(n * SCALE**2)
    if math.isinf(t_squared):
        return (n - 1) / 2 * growth
    share = t_squared / (n - 1)
    return n / 2 * (math.log1p(share) - math.log1p(share * math.exp(-growth))) - growth / 2
