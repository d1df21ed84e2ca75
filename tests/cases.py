"""Cases of several options in place of their full product, which is left to the slow tier."""

from collections import Counter
from itertools import combinations, product

import pytest


def every_value(indirect=(), **options):
    """A parametrisation in whose fast tier every value of every option is in a case; the rest is slow."""
    return _covering(1, indirect, options)


def every_pair(indirect=(), **options):
    """A parametrisation in whose fast tier every two values of two options meet in a case; the rest is slow.

    Most faults need no more than two options to show; four options of three values then take nine cases, not 81.
    """
    return _covering(2, indirect, options)


def _covering(strength, indirect, options):
    values = [list(each) for each in options.values()]
    sizes = [len(each) for each in values]
    fast = set(covering(sizes, strength))
    cases = [
        pytest.param(
            *(each[place] for each, place in zip(values, places, strict=True)),
            marks=() if places in fast else pytest.mark.slow,
        )
        for places in product(*(range(size) for size in sizes))
    ]
    return pytest.mark.parametrize(list(options), cases, indirect=list(indirect))


def covering(sizes, strength):
    """Cases, as places in lists of such sizes, in which any values of ``strength`` lists meet: always the same ones."""
    return min((_greedy(sizes, strength, even) for even in (True, False)), key=len)


def _greedy(sizes, strength, even):
    """One case after the other in which most meet for the first time; of equals the first, or the least used values."""
    cases = list(product(*(range(size) for size in sizes)))
    missing = {places for case in cases for places in _together(case, strength)}
    chosen, uses = [], Counter()

    def gain(case):
        return len(missing & _together(case, strength)), -even * sum(uses[value] for value in enumerate(case))

    while missing:
        best = max(cases, key=gain)
        chosen.append(best)
        uses.update(enumerate(best))
        missing -= _together(best, strength)
    return chosen


def _together(case, strength):
    return set(combinations(enumerate(case), strength))
