"""Did it help? Scores of several methods over the same seeds, compared pair by pair, with a verdict in words."""

from ordinal_entropy.comparison.anytime import paired_anytime
from ordinal_entropy.comparison.comparing import Comparison, compare
from ordinal_entropy.comparison.planning import seeds_needed, seeds_needed_range
from ordinal_entropy.comparison.statistics import (
    Paired,
    Spread,
    holm,
    looks_skewed,
    paired,
    sign_test,
    skewness,
    spread,
)
from ordinal_entropy.comparison.summaries import (
    POINTS,
    Failure,
    StopEarly,
    adjusted,
    decisions,
    parts,
    renewed,
    scored_once,
    settled,
    summary,
)
from ordinal_entropy.comparison.verdicts import skew_warning, verdict

__all__ = [
    "POINTS",
    "Comparison",
    "Failure",
    "Paired",
    "Spread",
    "StopEarly",
    "adjusted",
    "compare",
    "decisions",
    "holm",
    "looks_skewed",
    "paired",
    "paired_anytime",
    "parts",
    "renewed",
    "scored_once",
    "seeds_needed",
    "seeds_needed_range",
    "settled",
    "sign_test",
    "skew_warning",
    "skewness",
    "spread",
    "summary",
    "verdict",
]
