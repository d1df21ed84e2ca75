"""How many seeds would settle it."""

import math
from collections.abc import Callable

from ordinal_entropy.comparison import anytime
from ordinal_entropy.comparison.pairs import LEVEL
from ordinal_entropy.comparison.scores import special_functions

POWER = 0.8
_MOST = 10_000


def seeds_needed(difference: float, deviation: float, level: float = LEVEL, *, stop_early: bool = False) -> int | None:
    """The smallest number of seeds at which a paired t-test shows such a difference with a probability of 80%.

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


def _enough(effect: float, level: float, stop_early: bool) -> Callable[[int], bool]:
    """Whether so many seeds show an effect of so many standard deviations, on the side where it is."""
    special = special_functions()

    def enough(n: int) -> bool:
        bound = anytime.critical(n, level) if stop_early else float(special.stdtrit(n - 1, 1 - level / 2))
        center = math.sqrt(n) * effect
        if math.isinf(center) or math.isinf(bound):
            return math.isfinite(bound)
        missed = float(special.nctdtr(n - 1, center, bound))  # NaN for some that are far out
        return 1 - missed >= POWER if math.isfinite(missed) else center > bound

    return enough
