"""How many seeds would settle it: an estimate, and its range."""

import math
from collections.abc import Callable

from ordinal_entropy.comparison import anytime
from ordinal_entropy.comparison.statistics import LEVEL, special_functions

POWER = 0.8
_TAIL = 0.1  # on either side of the range
_CLEAR = 1e3  # a t as clear as any
_MOST = 10_000


def seeds_needed(difference: float, deviation: float, level: float = LEVEL, *, stop_early: bool = False) -> int | None:
    """The smallest number of seeds at which a paired t-test shows such a difference with a probability of 80%.

    Of a difference and a deviation that were seen in a few seeds it is an estimate: see :func:`seeds_needed_range`.

    Args:
        difference: the mean difference, taken to be the true one.
        deviation: the standard deviation of the differences, likewise.
        level: of the two-sided test.
        stop_early: of the test that is valid at every look, at its last look.

    Returns:
        The number; None where it is beyond 10,000, for a difference of 0, and for what is not a number.

    Example:
        >>> seeds_needed(1.0, 1.0), seeds_needed(0.5, 1.0), seeds_needed(0.5, 1.0, stop_early=True)
        (10, 34, 78)
    """
    if not (math.isfinite(difference) and math.isfinite(deviation)) or difference == 0:
        return None
    enough = _enough(abs(difference) / deviation if deviation else math.inf, level, stop_early)
    if not enough(_MOST):
        return None
    low, high = 1, _MOST  # too few, enough
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def seeds_needed_range(
    difference: float, deviation: float, n: int, level: float = LEVEL, *, stop_early: bool = False
) -> tuple[int | None, int | None]:
    """From where to where :func:`seeds_needed` may lie, when difference and deviation are those of n seeds.

    The seeds needed at both ends of the 80% interval of the effect, which is the mean difference over the standard
    deviation, by the noncentral t distribution.

    Args:
        difference: the mean difference seen.
        deviation: the standard deviation of the differences seen.
        n: seeds that they were seen over.
        level: of the two-sided test that is to come.
        stop_early: of the test that is valid at every look, at its last look.

    Returns:
        The fewest and the most; None for what is beyond 10,000, as the most is wherever the effect may be 0.

    Example:
        >>> seeds_needed(0.6, 1.0), seeds_needed_range(0.6, 1.0, 10)
        (24, (10, 395))
        >>> seeds_needed_range(0.3, 1.0, 10)  # may be 0
        (18, None)
    """
    if not (math.isfinite(difference) and math.isfinite(deviation)) or not (difference or deviation):
        return None, None
    seen = math.sqrt(n) * abs(difference) / deviation if deviation else math.inf
    effects = [_center(n, seen, share) / math.sqrt(n) for share in (_TAIL, 1 - _TAIL)]
    fewest, most = (seeds_needed(effect, 1.0, level, stop_early=stop_early) for effect in effects)
    return fewest, most


def _center(n: int, seen: float, share: float) -> float:
    """The center of the noncentral t, from 0 on, of which such a share lies below the t that was seen."""
    special = special_functions()

    def below(center: float) -> float:
        found = float(special.nctdtr(n - 1, center, seen))  # NaN for some that are far out
        return found if math.isfinite(found) else float(center < seen)

    if seen > _CLEAR:
        return _CLEAR
    low, high = 0.0, 3 * seen + 10
    if below(low) <= share:
        return low
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) > share else (low, middle)
    return high


def _enough(effect: float, level: float, stop_early: bool) -> Callable[[int], bool]:
    """Whether ``n`` seeds detect an effect, given in standard deviations, on the side where it is."""
    special = special_functions()

    def enough(n: int) -> bool:
        bound = anytime.critical(n, level) if stop_early else float(special.stdtrit(n - 1, 1 - level / 2))
        center = math.sqrt(n) * effect
        if math.isinf(center) or math.isinf(bound):
            return math.isfinite(bound)
        missed = float(special.nctdtr(n - 1, center, bound))  # NaN for some that are far out
        return 1 - missed >= POWER if math.isfinite(missed) else center > bound

    return enough
