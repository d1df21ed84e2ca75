"""Seeds in rounds: a few at a time are trained, and judged, until no verdict is open."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from ordinal_entropy import comparison
from ordinal_entropy.comparison import references
from ordinal_entropy.comparison.summaries import LEAST_SEEDS


def rounds_of(seeds: Sequence[int], runs_at_once: int = 1, methods: int = 2) -> list[list[int]]:
    """The fewest seeds that can give a verdict, then one at a time, or as many as keep the jobs busy.

    Example:
        >>> rounds_of(range(6))
        [[0, 1, 2, 3], [4], [5]]
        >>> rounds_of(range(8), runs_at_once=6, methods=2)
        [[0, 1, 2, 3], [4, 5, 6], [7]]
    """
    size = math.ceil(runs_at_once / methods)
    return [list(seeds[:LEAST_SEEDS]), *(list(seeds[k : k + size]) for k in range(LEAST_SEEDS, len(seeds), size))]


def train_in_rounds(
    summary_of: Callable[[Sequence[int], Sequence[int]], dict[str, Any]],
    in_rounds: Sequence[Sequence[int]],
    tell: Callable[[str], None],
) -> dict[str, Any]:
    """Trains round after round until no verdict is open.

    Args:
        summary_of: called with all seeds so far and the new ones of them; trains these, and summarises all, but that
            the references are those of the new ones.
        in_rounds: seeds of each round.
        tell: given the verdicts after each.

    Returns:
        The summary of all seeds so far; its seconds are those of all rounds.
    """
    seeds: list[int] = []
    seconds: list[dict[str, Any]] = []
    of_rounds: list[dict[str, Any]] = []
    for some in in_rounds:
        seeds += some
        summary = summary_of(seeds, some)
        seconds.append(summary["seconds"])
        of_rounds.append(summary)
        verdicts = ", ".join(f"{name} {pair['verdict']}" for name, pair in summary["paired"].items())
        tell(f"After {len(seeds)} of at most {sum(map(len, in_rounds))} seeds: {verdicts}")
        if comparison.settled(summary):
            break
    spent = sum(each["data_and_training"] for each in seconds)
    found = references.joined(of_rounds)
    return {**summary, **found, "seconds": {**seconds[0], "data_and_training": round(spent, 1)}}
