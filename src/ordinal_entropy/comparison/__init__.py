"""Did it help? Scores of several methods over the same seeds, compared pair by pair, with a verdict in words."""

from ordinal_entropy.comparison.anytime import paired_anytime
from ordinal_entropy.comparison.comparing import Comparison, compare
from ordinal_entropy.comparison.pairs import Paired, Spread, holm, paired, sign_test, spread
from ordinal_entropy.comparison.planning import seeds_needed
from ordinal_entropy.comparison.summaries import Failure, StopEarly, outcomes, settled, summary
from ordinal_entropy.comparison.words import verdict

__all__ = [
    "Comparison",
    "Failure",
    "Paired",
    "Spread",
    "StopEarly",
    "compare",
    "holm",
    "outcomes",
    "paired",
    "paired_anytime",
    "seeds_needed",
    "settled",
    "sign_test",
    "spread",
    "summary",
    "verdict",
]
