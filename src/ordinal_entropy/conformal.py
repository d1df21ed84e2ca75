"""Prediction intervals by split conformal: their width is a quantile of errors on rows that were used for nothing else.

After Lei et al., "Distribution-Free Predictive Inference for Regression" (JASA 2018). Nothing is assumed of the model
or of the distribution, but that new rows are drawn as the calibration rows were.
"""

import math

import numpy as np
from numpy.typing import ArrayLike

_ROUNDING = 1e-9  # of a share of rows, so that 0.9 of 10 rows is 9


def halfwidth(residuals: ArrayLike, level: float) -> float:
    """Half of the width of intervals around predictions which cover a share of new targets.

    With n residuals, the ``ceil((n + 1) level)``-th smallest: averaged over calibration rows, intervals cover at least
    ``level``, and ``ceil((n + 1) level) / (n + 1)`` where no two residuals are equal.

    Args:
        residuals: ``(n,)``, differences of predictions and targets on rows that neither training nor any choice has
            seen; their signs do not matter.
        level: between 0 and 1.

    Returns:
        Infinity where n is too small for the level.

    Example:
        >>> halfwidth([0.1, -0.4, 0.2, 0.3], level=0.6)
        0.3
        >>> halfwidth([0.1, -0.4, 0.2, 0.3], level=0.9)
        inf
    """
    away = np.abs(np.asarray(residuals, dtype=np.float64))
    if away.ndim != 1 or not np.isfinite(away).all():
        raise ValueError(f"expected finite residuals (n,), got {away.shape}")
    if not 0 < level < 1:
        raise ValueError(f"expected a level between 0 and 1, got {level}")
    rank = math.ceil((len(away) + 1) * level - _ROUNDING)
    return float(np.partition(away, rank - 1)[rank - 1]) if rank <= len(away) else math.inf


def least_rows(level: float) -> int:
    """The fewest residuals that intervals of a level are finite with.

    Example:
        >>> least_rows(0.9), least_rows(0.99)
        (9, 99)
    """
    return math.ceil(level / (1 - level) - _ROUNDING)
