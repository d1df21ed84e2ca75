"""What a training loop of one's own returned, as scores of a run."""

import math
from collections.abc import Mapping
from typing import Any

from ordinal_entropy.comparison.summaries import POINTS

VALIDATION, TEST = "validation", "test"
EXPECTED = f"a number, {{{', '.join(POINTS)}}} or {{{VALIDATION}, {TEST}}}"


def points_of(returned: Any, *, lower_is_better: bool) -> dict[str, float]:
    """The scores of a run at the three points.

    Args:
        returned: a number; a mapping of the three points; or one of "validation" and "test", each a number or a
            sequence of as many.
        lower_is_better: of the score.

    Example:
        >>> points_of(0.5, lower_is_better=True)
        {'last': 0.5, 'best_validation': 0.5, 'best_test': 0.5}
        >>> points_of({"validation": [0.5, 0.3, 0.4], "test": [0.7, 0.6, 0.5]}, lower_is_better=True)
        {'last': 0.5, 'best_validation': 0.6, 'best_test': 0.5}
    """
    if isinstance(returned, Mapping) and set(returned) == {VALIDATION, TEST}:
        return points_during(returned[VALIDATION], returned[TEST], lower_is_better=lower_is_better)
    if isinstance(returned, Mapping) and set(returned) != set(POINTS):
        raise ValueError(f"expected train to return {EXPECTED}, got {', '.join(map(str, returned)) or 'none'}")
    try:
        if isinstance(returned, Mapping):
            return {point: float(returned[point]) for point in POINTS}
        return dict.fromkeys(POINTS, float(returned))
    except (TypeError, ValueError):
        raise ValueError(f"expected train to return {EXPECTED}, got {returned!r}") from None


def points_during(validation: Any, test: Any, *, lower_is_better: bool) -> dict[str, float]:
    """The test scores at the three points of a training: the last, that with the best validation score, the best.

    Args:
        validation: scores, one each time that the model was evaluated; a number is a sequence of one.
        test: as many.
        lower_is_better: of both.

    Returns:
        NaN is never the best; of several that are equally good the first is. Where no validation score is a number,
        that at the best one is NaN. One test score is that at all three points.
    """
    chosen, scores = _numbers(validation, VALIDATION), _numbers(test, TEST)
    if len(chosen) != len(scores):
        raise ValueError(
            f"expected train to return as many scores of validation as of test, got {len(chosen)} and {len(scores)}"
        )
    if len(scores) == 1:  # there is nothing to choose
        return dict.fromkeys(POINTS, scores[0])
    best, own = _best(chosen, lower_is_better), _best(scores, lower_is_better)
    return {
        "last": scores[-1],
        "best_validation": math.nan if best is None else scores[best],
        "best_test": math.nan if own is None else scores[own],
    }


def best_validation(validation: Any, *, lower_is_better: bool) -> float:
    """The best of the scores on validation data, by which settings are chosen; NaN where none is a number.

    Example:
        >>> best_validation([0.5, float("nan"), 0.4], lower_is_better=True), best_validation(0.3, lower_is_better=True)
        (0.4, 0.3)
    """
    scores = _numbers(validation, VALIDATION)
    best = _best(scores, lower_is_better)
    return math.nan if best is None else scores[best]


def _best(scores: list[float], lower_is_better: bool) -> int | None:
    known = [place for place, score in enumerate(scores) if not math.isnan(score)]
    return min(known, key=lambda place: scores[place] if lower_is_better else -scores[place], default=None)


def _numbers(scores: Any, what: str) -> list[float]:
    """One or more scores; of a list, a tuple, an array or a tensor."""
    plain = scores.tolist() if hasattr(scores, "tolist") else scores
    try:
        found = [float(score) for score in (plain if isinstance(plain, (list, tuple)) else [plain])]
    except (TypeError, ValueError):
        raise ValueError(f"expected train to return numbers as {what} scores, got {scores!r}") from None
    if not found:
        raise ValueError(f"expected train to return at least one {what} score, got none")
    return found
