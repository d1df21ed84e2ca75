"""Split conformal: its definition in a loop, and the coverage that theory has."""

import math

import numpy as np
import pytest

from ordinal_entropy.conformal import halfwidth, least_rows


def by_definition(residuals, level):
    """The smallest width that covers at least ``(n + 1) level`` of n + 1 rows, the new one being beyond all others."""
    n = len(residuals)
    for width in sorted(map(abs, residuals)):
        if sum(abs(each) <= width for each in residuals) >= (n + 1) * level - 1e-9:
            return width
    return math.inf


@pytest.mark.parametrize("level", [0.05, 0.5, 0.8, 0.9, 0.95, 0.99])
@pytest.mark.parametrize("n", [1, 2, 9, 10, 19, 60, 99, 100])
def test_against_the_definition(n, level):
    residuals = np.random.default_rng(n).normal(size=n)
    assert halfwidth(residuals, level) == by_definition(residuals.tolist(), level)
    assert math.isfinite(halfwidth(residuals, level)) == (n >= least_rows(level))


def test_order_signs_and_unit():
    residuals = np.random.default_rng(0).normal(size=50)
    assert halfwidth(-residuals[::-1], 0.9) == halfwidth(residuals, 0.9)
    assert halfwidth(8 * residuals, 0.9) == 8 * halfwidth(residuals, 0.9)
    assert halfwidth(np.zeros(20), 0.9) == 0 and halfwidth([], 0.9) == math.inf


def test_mistakes():
    with pytest.raises(ValueError, match="expected finite residuals"):
        halfwidth([1.0, math.nan], 0.9)
    for level in (0.0, 1.0, 90.0):
        with pytest.raises(ValueError, match="expected a level between 0 and 1"):
            halfwidth([1.0], level)


@pytest.mark.parametrize("n", [39, 150, 1000])
def test_coverage_is_what_theory_says(n):
    """Over 20 splits, within two standard errors of ``ceil(0.9 (n + 1)) / (n + 1)``, also of a model that is off."""
    random = np.random.default_rng(n)
    covered = []
    for _ in range(20):
        x = random.normal(size=n + 4000)
        away = 2 * x + random.exponential(size=len(x)) - 1.5 * x  # of a model that has half of the slope
        covered.append(np.mean(np.abs(away[n:]) <= halfwidth(away[:n], 0.9)))
    expected = math.ceil(0.9 * (n + 1) - 1e-9) / (n + 1)
    error = np.std(covered, ddof=1) / math.sqrt(len(covered))
    assert abs(np.mean(covered) - expected) <= 2 * error
