"""Everything that a comparison found, as it is written to ``summary.json``."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from ordinal_entropy.comparison.anytime import critical, paired_anytime
from ordinal_entropy.comparison.planning import seeds_needed, seeds_needed_range
from ordinal_entropy.comparison.statistics import (
    LEVEL,
    Paired,
    Spread,
    both_finite,
    deviation_of,
    differences,
    holm,
    looks_skewed,
    mean_of,
    number,
    paired,
    sign_test,
    skewness,
    spread,
)

POINTS = ("last", "best_validation", "best_test")  # of a run, at which it is scored
LEAST_SEEDS = next(n for n in range(2, 100) if math.isfinite(critical(n, LEVEL)))  # that can be stopped early at

_GIVEN = ("task", "metric", "lower_is_better", "methods", "paired")  # that a summary of any version has
_COMPUTED = ("methods", "paired", "spread")

Decision = Literal["helps", "hurts", "negligible", "open", "unknown"]


class StopEarly(NamedTuple):
    """Of a comparison that may stop before its last seed."""

    at_most: int  # seeds
    smallest: float | None = None  # difference that matters

    def checked(self) -> "StopEarly":
        """The same, if such a comparison can settle anything."""
        if self.at_most < LEAST_SEEDS:
            raise ValueError(
                f"expected at least {LEAST_SEEDS} seeds where one may stop early, since fewer settle nothing, "
                f"got {self.at_most}"
            )
        if self.smallest is not None and not 0 < self.smallest < math.inf:
            raise ValueError(
                f"expected the smallest difference that matters to be a positive number, got {self.smallest}"
            )
        return self


class Failure(NamedTuple):
    """A run that raised an exception."""

    method: str
    seed: int
    type: str  # of the exception
    message: str


def summary(
    *,
    task: str,
    metric: str,
    lower_is_better: bool,
    scores: Mapping[str, Mapping[str, Sequence[float]]],
    recipe: Mapping[str, Any],
    environment: Mapping[str, Any],
    baseline: str = "baseline",
    failures: Sequence[Failure] = (),
    stop_early: StopEarly | None = None,
) -> dict[str, Any]:
    """Everything that a comparison found, as it is written to ``summary.json``.

    Args:
        task: its name.
        metric: name of the score.
        lower_is_better: of the metric.
        scores: for each method ``{"last": [...], "best_validation": [...], "best_test": [...]}``, one score a seed in
            the same order everywhere; NaN or infinite for a run that diverged or failed.
        recipe: what determined the runs but method and seed.
        environment: what they ran on.
        baseline: the method that the others are compared with.
        failures: runs that raised an exception.
        stop_early: the seeds were judged as they came in: intervals and p-values are those of
            :func:`paired_anytime`.

    Returns:
        ``{"task", "metric", "lower_is_better", "methods": {name: {"values", "mean", "std", "n", "at"}}, "paired":
        {name: {"difference", "ci_low", "ci_high", "p_value", "n", "holm_p_value", "sign_p_value", "skewness",
        "skewed", "seeds_needed", "seeds_needed_range", "verdict"}}, "spread": {name: {"ratio", "p_value", "n"}},
        "failures", "recipe", "environment"}``, and "stop_early": ``{"at_most", "smallest", "stopped"}`` where that was
        asked for. "values" are the scores at the best validation
        point, and all that is compared; "std" is that of a sample (n - 1); "n" counts the runs that ended with a
        number. "paired" and "spread" hold every method but the baseline, over the seeds at which both ended with a
        number; what so few seeds do not determine is NaN, and so is what does not hold where one may stop early: the
        p-values of the sign test and of the spread. "p_value" is that of a single comparison, "holm_p_value" adjusted
        for the number of methods. "skewed" is :func:`looks_skewed`. "seeds_needed" is an estimate,
        :func:`seeds_needed` for the difference seen, at a level divided by the number of methods;
        "seeds_needed_range" is its :func:`seeds_needed_range`. "verdict" is one of :func:`decisions`.
    """
    if baseline not in scores:
        raise ValueError(f"expected scores of the baseline {baseline!r}, got those of {', '.join(scores) or 'none'}")
    at = {}
    for name, points in scores.items():
        if set(points) != set(POINTS):
            raise ValueError(f"expected scores of {name!r} at {', '.join(POINTS)}, got {', '.join(points) or 'none'}")
        at[name] = {point: [number(value) for value in points[point]] for point in POINTS}
    n = len(at[baseline]["best_validation"])
    for name, numbers in at.items():
        for point, values in numbers.items():
            if len(values) != n:
                raise ValueError(f"expected {n} scores of {name!r} at {point}, one a seed, got {len(values)}")
    base = at[baseline]["best_validation"]
    methods: dict[str, Any] = {}
    pairs: dict[str, Any] = {}
    spreads: dict[str, Any] = {}
    level = LEVEL / max(1, len(at) - 1)
    for name, numbers in at.items():
        values = numbers["best_validation"]
        finite = [value for value in values if math.isfinite(value)]
        methods[name] = {
            "values": values,
            "mean": mean_of(finite) if finite else math.nan,
            "std": deviation_of(finite) if len(finite) > 1 else math.nan,
            "n": len(finite),
            "at": numbers,
        }
        if name != baseline:
            x, y = both_finite(values, base)
            pairs[name] = _of_pairs(x, y, level, stop_early)
            spreads[name] = _of_spread(x, y, stop_early)._asdict()
    found: dict[str, Any] = {
        "task": task,
        "metric": metric,
        "lower_is_better": lower_is_better,
        "methods": methods,
        "paired": pairs,
        "spread": spreads,
        "failures": [failure._asdict() for failure in failures],
        "recipe": dict(recipe),
        "environment": dict(environment),
    }
    if stop_early is not None:
        found["stop_early"] = {**stop_early._asdict(), "stopped": n < stop_early.at_most}
    verdicts = decisions(found)
    for name, p_value in adjusted(found).items():
        pairs[name] |= {"holm_p_value": p_value, "verdict": verdicts[name]}
    return found


def renewed(content: Mapping[str, Any]) -> dict[str, Any]:
    """A summary of any version with its statistics recomputed from its scores, in today's form.

    Args:
        content: of a ``summary.json``.

    Returns:
        The same, with "methods", "paired", "spread" and "failures" as :func:`summary` makes them of these scores. One
        score a run, as costs are, counts for all three points.

    Raises:
        ValueError: it is no summary, or a score would change.

    Example:
        >>> methods = {"baseline": {"values": [3.0, 3.2, 2.9]}, "oe": {"values": [2.0, 2.3, 2.0]}}
        >>> old = {"task": "t", "metric": "mse", "lower_is_better": True, "methods": methods, "paired": {"oe": {}}}
        >>> renewed(old)["paired"]["oe"]["verdict"]
        'helps'
    """
    missing = [key for key in _GIVEN if not isinstance(content, Mapping) or key not in content]
    if missing:
        raise ValueError(f"expected a summary of a comparison, got one without {', '.join(missing)}")
    rule = content.get("stop_early")
    failures = [Failure(**failure) for failure in content.get("failures") or []]
    made = []
    for part in parts(content):
        scores = {name: own.get("at") or dict.fromkeys(POINTS, own["values"]) for name, own in part["methods"].items()}
        for name, own in scores.items():
            if own["best_validation"] != part["methods"][name]["values"]:
                raise ValueError(f"expected the values of {name!r} to be those at the best validation point")
        made.append(
            summary(
                task=content["task"],
                metric=content["metric"],
                lower_is_better=content["lower_is_better"],
                scores=scores,
                recipe={},
                environment={},
                baseline=next(name for name in scores if name not in part["paired"]),
                failures=[failure for failure in failures if failure.method in scores],
                stop_early=StopEarly(rule["at_most"], rule["smallest"]) if rule else None,
            )
        )
    joined = {key: {name: own for part in made for name, own in part[key].items()} for key in _COMPUTED}
    ordered = {key: {name: own[name] for name in content["methods"] if name in own} for key, own in joined.items()}
    return {**content, **ordered, "failures": [failure._asdict() for failure in failures]}


def parts(summary: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The summary cut into one for each method that others are held to: each is a family of tests.

    Example:
        >>> summary = {
        ...     "methods": {"a": {}, "b": {}, "a deep": {}, "b deep": {}},
        ...     "paired": {"b": {}, "b deep": {}},
        ...     "held_to": {"b": "a", "b deep": "a deep"},
        ... }
        >>> [list(part["methods"]) for part in parts(summary)]
        [['a', 'b'], ['a deep', 'b deep']]
    """
    pairs, held_to = summary["paired"], summary.get("held_to") or {}
    bases = [name for name in summary["methods"] if name not in pairs]
    found = []
    for base in bases:
        own = [name for name in pairs if held_to.get(name, bases[0]) == base]
        methods = {name: summary["methods"][name] for name in (base, *own)}
        found.append({**summary, "methods": methods, "paired": {name: pairs[name] for name in own}})
    return found


def adjusted(summary: Mapping[str, Any]) -> dict[str, float]:
    """The p-values after Holm's adjustment for the number of methods that are held to one: those that verdicts go by.

    Args:
        summary: from :func:`summary`, or read back from ``summary.json``.

    Example:
        >>> methods = {"baseline": {}, "ld": {}, "oe": {}}
        >>> adjusted({"methods": methods, "paired": {"ld": {"p_value": 0.01}, "oe": {"p_value": 0.03}}})
        {'ld': 0.02, 'oe': 0.03}
    """
    families = [{name: number(pair["p_value"]) for name, pair in part["paired"].items()} for part in parts(summary)]
    found = {name: p_value for family in families for name, p_value in holm(family).items()}
    return {name: found[name] for name in summary["paired"]}


def scored_once(summary: Mapping[str, Any]) -> bool:
    """Whether every run has one score, not one each at the last, the best validation and the best test point.

    That is so of costs, and of a user's training loop that returns a number. The command and the studies, whose
    summaries have "variants", score every run at the three points, even where these coincide.

    Example:
        >>> at = {"last": [3.0], "best_validation": [3.0], "best_test": [3.0]}
        >>> scored_once({"methods": {"baseline": {"values": [3.0], "at": at}}})
        True
    """
    if "variants" in summary:
        return "memory_mb" in summary
    points = [list(own.get("at", {}).values()) for own in summary["methods"].values()]
    return all(scores[1:] == scores[:-1] for scores in points)


def decisions(summary: Mapping[str, Any]) -> dict[str, Decision]:
    """Does it help? One word a method.

    Args:
        summary: from :func:`summary`, or read back from ``summary.json``.

    Returns:
        "helps" or "hurts" where p < 0.05, with several methods after Holm's adjustment for their number; "negligible"
        where the difference is smaller than the smallest that matters, if one was named, by an interval of all
        methods together (its level divided by their number); "open" where the seeds show neither; "unknown" where
        fewer than two have two numbers.

    Example:
        >>> methods = {"baseline": {"values": [3.0, 3.2, 2.9]}, "oe": {"values": [2.0, 2.3, 2.0]}}
        >>> pair = {"difference": -0.93, "p_value": 0.001}
        >>> decisions({"lower_is_better": True, "methods": methods, "paired": {"oe": pair}})
        {'oe': 'helps'}
    """
    smallest = (summary.get("stop_early") or {}).get("smallest")
    p_values = adjusted(summary)
    found: dict[str, Decision] = {}
    for name, pair in summary["paired"].items():
        if math.isnan(p_values[name]):
            found[name] = "unknown"
        elif smallest is not None and _within(summary, name, smallest):
            found[name] = "negligible"
        elif p_values[name] < LEVEL:
            found[name] = "helps" if (pair["difference"] < 0) == summary["lower_is_better"] else "hurts"
        else:
            found[name] = "open"
    return found


def settled(summary: Mapping[str, Any]) -> bool:
    """Whether no verdict is open any more: the seeds that are left would not be needed."""
    return all(decision not in ("open", "unknown") for decision in decisions(summary).values())


def _within(summary: Mapping[str, Any], name: str, smallest: float) -> bool:
    """Whether the differences of a method that are still possible are all smaller."""
    methods, pairs = summary["methods"], summary["paired"]
    baseline = next(other for other in methods if other not in pairs)
    x, y = (([number(value) for value in methods[each]["values"]]) for each in (name, baseline))
    found = paired_anytime(*both_finite(x, y), level=LEVEL / len(pairs))
    return -smallest < found.ci_low and found.ci_high < smallest


def _of_pairs(x: list[float], y: list[float], level: float, stop_early: StopEarly | None) -> dict[str, Any]:
    if len(x) < 2:
        nothing = Paired(x[0] - y[0] if x else math.nan, math.nan, math.nan, math.nan, len(x))
        unknown = {"sign_p_value": math.nan, "skewness": math.nan, "skewed": False}
        return {**nothing._asdict(), **unknown, "seeds_needed": None, "seeds_needed_range": [None, None]}
    n, mean, deviation = differences(x, y)
    found = paired(x, y) if stop_early is None else paired_anytime(x, y)
    seen, many_looks = skewness(x, y), stop_early is not None
    return {
        **found._asdict(),
        "sign_p_value": sign_test(x, y) if stop_early is None else math.nan,
        "skewness": seen,
        "skewed": looks_skewed(seen, n),
        "seeds_needed": seeds_needed(mean, deviation, level, stop_early=many_looks),
        "seeds_needed_range": list(seeds_needed_range(mean, deviation, n, level, stop_early=many_looks)),
    }


def _of_spread(x: list[float], y: list[float], stop_early: StopEarly | None) -> Spread:
    if len(x) < 3:
        return Spread(math.nan, math.nan, len(x))
    found = spread(x, y)
    return found if stop_early is None else found._replace(p_value=math.nan)
