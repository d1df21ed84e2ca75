"""What a comparison found, in sentences."""

import math
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any

from ordinal_entropy.comparison.pairs import LEVEL
from ordinal_entropy.comparison.scores import both_finite, finite, mean_of, number
from ordinal_entropy.comparison.summaries import Outcome, adjusted, outcomes, parts

_SKEWED = "the 95% interval may hold less often than that, and p may be too small"
FEW = 10  # seeds, below which nothing tells whether differences are normal
_WORTH = 200  # seeds that one may still be asked for
_SHOWN = 5  # failures
_LONGEST = 300  # letters of what one says


def verdict(summary: Mapping[str, Any]) -> list[str]:
    """One sentence a method: better, worse, or no difference that so many seeds could show, and none larger than x.

    A method is called better or worse where p < 0.05; with several methods, after Holm's adjustment for their number.
    Where that is open, the sentence estimates how many more seeds would show a difference as large as the one seen.
    Differences that look skewed are named, since the interval then holds less often than it says. Further sentences
    name the runs that failed, and say what intervals are that allow to stop early.

    Args:
        summary: from :func:`summary`, or read back from ``summary.json``.

    Example:
        >>> from ordinal_entropy.comparison import summary
        >>> scores = {"baseline": [2.0, 3.5, 3.5], "oe": [1.0, 2.0, 2.5]}
        >>> at = {name: dict.fromkeys(("last", "best_validation", "best_test"), v) for name, v in scores.items()}
        >>> print(*verdict(summary(task="t", metric="MSE", lower_is_better=True, scores=at, recipe={}, environment={})))
        oe is better than baseline: MSE 1.83 against 3 (-38.9%), difference -1.17, 95% interval -1.88 to -0.45,
        p = 0.020 (sign test p = 0.250, the smallest that 3 seeds can give), 3 seeds.
    """
    sentences = [sentence for part in parts(summary) if part["paired"] for sentence in _sentences(part)]
    if not sentences:
        return [
            f"Nothing to compare {next(iter(summary['methods']))} with: no other method was run.",
            *_failed(summary),
        ]
    return [*sentences, *_failed(summary), *_stopping(summary)]


def _sentences(summary: Mapping[str, Any]) -> list[str]:
    """Of the methods that are held to one."""
    baseline = next(name for name in summary["methods"] if name not in summary["paired"])
    found, p_values = outcomes(summary), adjusted(summary)
    return [_sentence(summary, name, baseline, found[name], p_values[name]) for name in summary["paired"]]


def _sentence(summary: Mapping[str, Any], name: str, baseline: str, outcome: Outcome, adjusted: float) -> str:
    pair, pairs = summary["paired"][name], summary["paired"]
    values, base = ([number(value) for value in summary["methods"][each]["values"]] for each in (name, baseline))
    n, x_and_y = int(pair["n"]), both_finite(values, base)
    for who, own in ((name, values), (baseline, base)):
        failed = sum(failure["method"] == who for failure in summary.get("failures") or [])
        if failed and failed == len(own):
            return f"{name} against {baseline}: every run of {who} failed, so there is nothing to compare."
    lost = [
        f"{len(own) - finite(own)} of {len(own)} runs of {who}"
        for who, own in ((name, values), (baseline, base))
        if finite(own) < len(own)
    ]
    left_out = f"; {' and '.join(lost)} did not finish with a number, and those seeds are left out" if lost else ""
    if outcome == "unknown":
        few = f"{n} {_seeds(n)} cannot show a difference, it takes at least 2"
        return f"{name} against {baseline}: {few}{left_out}."
    x, y = map(mean_of, x_and_y)
    change = f"{_share(pair['difference'], y, sign=True)}, difference {pair['difference']:.3g}"
    chances = _chances(pair, adjusted, len(pairs))
    return (
        f"{_opening(summary, name, baseline, outcome, y)}: {summary['metric']} {x:.3g} against {y:.3g}"
        f"{change}, {_interval(pair)}, {chances}, {n} seeds{left_out}{_more(pair) if outcome == 'open' else ''}"
        f"{_skewed(pair)}."
    )


def _opening(summary: Mapping[str, Any], name: str, baseline: str, outcome: Outcome, center: float) -> str:
    pair = summary["paired"][name]
    better = (pair["difference"] < 0) == summary["lower_is_better"]
    told_apart = f"{name} is {'better' if better else 'worse'} than {baseline}"
    if outcome == "negligible":
        smallest = f"{summary['stop_early']['smallest']:.3g}"
        if number(pair["p_value"]) < LEVEL:
            return f"{told_apart}, but by less than {smallest}, the smallest difference that matters"
        return f"{name}: no difference from {baseline} as large as {smallest}, the smallest that matters"
    if outcome != "open":
        return told_apart
    largest = max(abs(number(pair["ci_low"])), abs(number(pair["ci_high"])))
    if largest == 0:
        return f"{name}: no difference from {baseline} at any seed, as if it were not in use"
    opening = f"{name}: no difference from {baseline} that {pair['n']} seeds could show"
    return opening if math.isnan(largest) else f"{opening}, and none larger than {largest:.3g}{_share(largest, center)}"


def _chances(pair: Mapping[str, Any], adjusted: float, tests: int) -> str:
    """The p-value that the verdict goes by, and in brackets what goes with it."""
    beside = [f"{_p_value(number(pair['p_value']))} unadjusted"] if tests > 1 else []
    n, sign = int(pair["n"]), number(pair.get("sign_p_value"))
    if n < FEW and not math.isnan(sign):
        smallest = sign >= LEVEL and sign == 2 / 2**n
        beside.append(f"sign test {_p_value(sign)}" + (f", the smallest that {n} seeds can give" if smallest else ""))
    holm = f" after Holm's adjustment for {tests} methods" if tests > 1 else ""
    return _p_value(adjusted) + holm + (f" ({'; '.join(beside)})" if beside else "")


def _more(pair: Mapping[str, Any]) -> str:
    """How many seeds an open verdict still takes, by an estimate and its range."""
    if "seeds_needed" not in pair or not pair["difference"]:  # none at all, or of a version that did not say
        return ""
    n = int(pair["n"])
    further = None if pair["seeds_needed"] is None else pair["seeds_needed"] - n
    if further is None or further > _WORTH:
        seen = "a difference as small as the one seen"
        return f"; {seen} would take more than {_WORTH} more seeds to show, and is not worth them"
    about = f"about {further} more {_seeds(further)} would show it (an estimate{_range(pair, n)})"
    return f"; if the difference is as large as it looks, {about}"


def _range(pair: Mapping[str, Any], n: int) -> str:
    """Of the estimate, in seeds beyond the n that there are."""
    fewest, most = pair.get("seeds_needed_range") or (None, None)
    if fewest is None:
        return ""
    return f", 80% range {max(fewest - n, 1)} {'or more' if most is None else f'to {most - n}'}"


def skew_warning(summary: Mapping[str, Any]) -> str | None:
    """Which differences look skewed, and what that means, for below a table; None where none do.

    Example:
        >>> skew_warning({"paired": {"ld": {"skewed": False}, "oe": {"skewed": True}}})
        'The differences of oe look skewed: the 95% interval may hold less often than that, and p may be too small.'
    """
    names = [name for name, pair in summary["paired"].items() if pair.get("skewed")]
    return f"The differences of {', '.join(names)} look skewed: {_SKEWED}." if names else None


def _skewed(pair: Mapping[str, Any]) -> str:
    """A warning of differences that are unlike normal ones."""
    if not pair.get("skewed"):
        return ""
    return f"; the differences look skewed (skewness {pair['skewness']:+.1f}), so {_SKEWED}"


def _failed(summary: Mapping[str, Any]) -> list[str]:
    failures: Sequence[Mapping[str, Any]] = summary.get("failures") or []
    said = [
        f"{each['method']}, seed {each['seed']} failed: {each['type']}: "
        f"{shorten(each['message'], _LONGEST, placeholder=' ...') or 'no message'}"
        for each in failures[:_SHOWN]
    ]
    rest = len(failures) - len(said)
    return said + ([f"{rest} more {'runs' if rest > 1 else 'run'} failed; the summary names them all."] if rest else [])


def _stopping(summary: Mapping[str, Any]) -> list[str]:
    rule = summary.get("stop_early")
    if not rule:
        return []
    n = len(next(iter(summary["methods"].values()))["values"])
    how_far = (
        f"Stopped after {n} of at most {rule['at_most']} seeds" if rule["stopped"] else f"Went on to all {n} seeds"
    )
    return [
        f"{how_far}, judging them as they came in. The intervals and p-values shown hold however often one looks, for "
        "differences that are normal; of skewed ones more verdicts are wrong (13%, not 5%, of exponential ones). "
        "Student's, which are narrower, hold only for a number of seeds fixed beforehand."
    ]


def _interval(pair: Mapping[str, Any]) -> str:
    low, high = number(pair["ci_low"]), number(pair["ci_high"])
    return "no 95% interval yet" if math.isnan(low) or math.isnan(high) else f"95% interval {low:.3g} to {high:.3g}"


def _share(part: float, whole: float, *, sign: bool = False) -> str:
    return f" ({part / abs(whole):{'+' if sign else ''}.1%})" if whole else ""


def _p_value(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _seeds(n: int) -> str:
    return "seed" if n == 1 else "seeds"
