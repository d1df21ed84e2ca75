"""What a comparison found, in sentences: the same in a terminal, on the page and in Python."""

import math
from collections.abc import Mapping, Sequence
from textwrap import shorten
from typing import Any, Literal, NamedTuple

from ordinal_entropy.comparison import references
from ordinal_entropy.comparison.statistics import LEVEL, both_finite, finite, mean_of
from ordinal_entropy.comparison.statistics import number as stored
from ordinal_entropy.comparison.summaries import Decision, adjusted, decisions, parts
from ordinal_entropy.comparison.text import count, duration, interval, metric_name, number, p_equals, share, times

FEW = 10  # seeds, below which nothing tells whether differences are normal
_SKEWED = "the 95% CI may cover less than 95%, and p may be too small"
_WORTH = 200  # seeds that one may still be asked for
_SHOWN = 5  # failures
_LONGEST = 300  # letters of what one says
_CALLED: dict[Decision, Literal["better", "worse", "negligible", "not significant", "unknown"]] = {
    "helps": "better",
    "hurts": "worse",
    "negligible": "negligible",
    "open": "not significant",
    "unknown": "unknown",
}


class Finding(NamedTuple):
    """Of one method against its baseline."""

    method: str
    decision: Literal["better", "worse", "negligible", "not significant", "unknown"]
    sentence: str  # with the interval, the number of seeds and p
    remarks: list[str]  # further sentences: seeds that are left out, how many more it takes, skewed differences


class Verdict(NamedTuple):
    """Of a whole comparison."""

    headline: str
    findings: list[Finding]  # in the order of the summary
    notes: list[str]  # runs that failed; what the intervals of a comparison that may stop early are
    references: list[str]  # what is worse than a constant; what needs no network and is better

    @property
    def sentences(self) -> list[str]:
        """All of it: a paragraph for each method, then what the references say, and the notes."""
        found = [" ".join([each.sentence, *each.remarks]) for each in self.findings]
        return [*(found or [self.headline]), *self.references, *self.notes]


def verdict(summary: Mapping[str, Any], scale: float = 1.0) -> Verdict:
    """A headline, a sentence for each method, and remarks.

    A method is better or worse where p < 0.05, with several methods after Holm's correction for their number;
    negligible where it differs by less than the smallest difference that matters, if one was named; else the
    difference is not significant. Then a remark estimates how many more seeds would detect a difference as large as
    the one seen. Differences that look skewed are named, since the interval then covers less often than it says.

    Args:
        summary: from :func:`summary`, or read back from ``summary.json``.
        scale: numbers are multiples of it.

    Example:
        >>> from ordinal_entropy.comparison import summary
        >>> scores = {"baseline": [2.0, 3.5, 3.5], "oe": [1.0, 2.0, 2.5]}
        >>> at = {name: dict.fromkeys(("last", "best_validation", "best_test"), v) for name, v in scores.items()}
        >>> found = summary(task="t", metric="mse", lower_is_better=True, scores=at, recipe={}, environment={})
        >>> print(verdict(found).headline)
        oe is better than baseline: MSE 1.83 against 3.00, difference -1.17 (-38.9%; 95% CI -1.88 to -0.45; n = 3;
        p = 0.020; sign test p = 0.250, the smallest possible with n = 3).
    """
    findings = []
    called, p_values = decisions(summary), adjusted(summary)
    for part in parts(summary):
        base = next(name for name in part["methods"] if name not in part["paired"])
        findings += [_finding(part, name, base, called[name], p_values[name], scale) for name in part["paired"]]
    headline = " ".join([*_chosen(summary), _headline(summary, findings, scale)])
    notes = [*_failed(summary), *_stopping(summary), *_tuned(summary, scale)]
    return Verdict(headline, findings, notes, references.sentences(summary, scale))


def unit(summary: Mapping[str, Any]) -> str:
    """What is paired: runs of a seed, measurements of a round, or means over the runs of a tuning.

    Example:
        >>> unit({}), unit({"memory_mb": {}})
        ('seed', 'round')
    """
    if (summary.get("tuned") or {}).get("tunings", 1) > 1:
        return "tuning"
    return "round" if "memory_mb" in summary else "seed"


def skew_warning(summary: Mapping[str, Any]) -> str | None:
    """Which differences look skewed, and what that means, for below a table; None where none do.

    Example:
        >>> skew_warning({"paired": {"ld": {"skewed": False}, "oe": {"skewed": True}}})
        'The differences of oe look skewed: the 95% CI may cover less than 95%, and p may be too small.'
    """
    names = [name for name, pair in summary["paired"].items() if pair.get("skewed")]
    return f"The differences of {', '.join(names)} look skewed: {_SKEWED}." if names else None


def _finding(
    summary: Mapping[str, Any], name: str, base: str, decision: Decision, adjusted: float, scale: float
) -> Finding:
    pair, tests = summary["paired"][name], len(summary["paired"])
    values, others = ([stored(value) for value in summary["methods"][each]["values"]] for each in (name, base))
    for who, own in ((name, values), (base, others)):
        failed = sum(failure["method"] == who for failure in summary.get("failures") or [])
        if failed and failed == len(own):
            return Finding(name, "unknown", f"{name}: not compared with {base}: every run of {who} failed.", [])
    remarks = _left_out({name: values, base: others})
    if decision == "unknown":
        few = count(int(pair["n"]), f"paired {unit(summary)}")
        return Finding(name, "unknown", f"{name}: not compared with {base}: {few}, and it takes at least 2.", remarks)
    sentence = (
        f"{_opening(summary, name, base, decision, scale)}: {_sizes(summary, name, values, others, scale)}"
        f"{_chances(pair, adjusted, tests, unit(summary))})."
    )
    of = "tuning" if unit(summary) == "tuning" else "seed"
    remarks += [*(_more(pair, of) if decision == "open" else []), *_skewed(pair)]
    return Finding(name, _CALLED[decision], sentence, remarks)


def _opening(summary: Mapping[str, Any], name: str, base: str, decision: Decision, scale: float) -> str:
    pair = summary["paired"][name]
    better = (pair["difference"] < 0) == summary["lower_is_better"]
    at = " at these settings" if (summary.get("tuned") or {}).get("tunings") == 1 else ""
    told_apart = f"{name} is {'better' if better else 'worse'} than {base}{at}"
    if decision == "negligible":
        if stored(pair["p_value"]) < LEVEL:
            return f"{told_apart}, but by less than {_smallest(summary, scale)}, the smallest difference that matters"
        return f"{name}: no difference from {base} as large as {_smallest(summary, scale)}, the smallest that matters"
    if decision != "open":
        return told_apart
    same = pair["difference"] == 0 == stored(pair["ci_low"]) == stored(pair["ci_high"])
    at_every = f"{name}: identical to {base} at every {unit(summary)}, as if it were not in use"
    return at_every if same else f"{name} against {base}{at}: not significant"


def _sizes(
    summary: Mapping[str, Any], name: str, values: Sequence[float], others: Sequence[float], scale: float
) -> str:
    """Both means, their difference, and its interval."""
    pair, metric = summary["paired"][name], metric_name(summary["metric"])
    x, y = map(mean_of, both_finite(list(values), list(others)))
    difference, low, high = interval(pair["difference"], pair["ci_low"], pair["ci_high"], scale)
    part = share(pair["difference"], y)
    covered = "no 95% CI yet" if low is None else f"95% CI {low} to {high}"
    return (
        f"{metric} {number(x, scale)} against {number(y, scale)}{times(scale)}, "
        f"difference {difference} ({f'{part}; ' if part else ''}{covered}"
    )


def _chances(pair: Mapping[str, Any], adjusted: float, tests: int, of: str) -> str:
    """How many pairs, the p-value that the verdict goes by, and what goes with it."""
    n, sign = int(pair["n"]), stored(pair.get("sign_p_value"))
    found = [f"n = {n}{'' if of == 'seed' else f' {of}s'}"]
    before = f" after Holm's correction for {tests} methods, {p_equals(pair['p_value'])} before it"
    found.append(p_equals(adjusted) + (before if tests > 1 else ""))
    if n < FEW and not math.isnan(sign):
        smallest = sign >= LEVEL and sign == 2 / 2**n
        found.append(f"sign test {p_equals(sign)}" + (f", the smallest possible with n = {n}" if smallest else ""))
    return "".join(f"; {each}" for each in found)


def _left_out(by_method: Mapping[str, Sequence[float]]) -> list[str]:
    missing = {who: len(own) - finite(own) for who, own in by_method.items()}
    lost = [f"{missing[who]} of {len(own)} runs of {who}" for who, own in by_method.items() if missing[who]]
    return [f"{' and '.join(lost)} did not finish with a number; those seeds are left out."] if lost else []


def _more(pair: Mapping[str, Any], of: str) -> list[str]:
    """How many seeds or tunings an open verdict still takes, by an estimate and its range."""
    if "seeds_needed" not in pair or not pair["difference"]:  # none at all, or of a version that did not say
        return []
    n = int(pair["n"])
    further = None if pair["seeds_needed"] is None else pair["seeds_needed"] - n
    if further is None or further > _WORTH:
        return [f"Detecting a difference this small would take more than {_WORTH} more {of}s."]
    fewest, most = pair.get("seeds_needed_range") or (None, None)
    end = "or more" if most is None else f"to {most - n}"
    estimate = "an estimate" if fewest is None else f"an estimate, 80% range {max(fewest - n, 1)} {end}"
    return [f"About {count(further, f'more {of}')} would detect a difference of this size ({estimate})."]


def _skewed(pair: Mapping[str, Any]) -> list[str]:
    if not pair.get("skewed"):
        return []
    return [f"The differences look skewed (skewness {stored(pair['skewness']):+.1f}): {_SKEWED}."]


def _smallest(summary: Mapping[str, Any], scale: float) -> str:
    return number(summary["stop_early"]["smallest"], scale) + times(scale)


def _headline(summary: Mapping[str, Any], findings: list[Finding], scale: float) -> str:
    bases = [name for name in summary["methods"] if name not in summary["paired"]]
    if not findings:
        return f"Nothing to compare {bases[0]} with: no other method was run."
    if len(findings) == 1:
        return findings[0].sentence
    base = "its baseline" if len(bases) > 1 else bases[0]
    by: dict[str, int] = {}
    for finding in findings:
        by[finding.decision] = by.get(finding.decision, 0) + 1
    metric, n = metric_name(summary["metric"]), min(int(pair["n"]) for pair in summary["paired"].values())
    said = [f"{by[each]} {each} than {base}" for each in ("better", "worse") if each in by]
    if "negligible" in by:
        said.append(f"{by['negligible']} within ±{_smallest(summary, scale)} of {base}")
    rest = {"not significant": "not significant", "unknown": "not compared"}
    said += [f"{by[each]} {called}" for each, called in rest.items() if each in by]
    of = f"({metric}, n = {n})"
    if set(by) == {"not significant"}:
        return f"None of {len(findings)} methods differs significantly from {base} {of}."
    return f"Of {len(findings)} methods, {', '.join(said)} {of}."


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
    how_far = f"Stopped after {n} of at most {rule['at_most']} seeds" if rule["stopped"] else f"All {n} seeds were run"
    return [
        f"{how_far}, with a look after each round. The intervals and p-values are anytime-valid: they hold however "
        "often one looks, for normal differences; for skewed ones more verdicts are wrong (13%, not 5%, for "
        "exponential ones). Student's intervals are narrower, and hold only for a number of seeds fixed in advance."
    ]


def _tuned(summary: Mapping[str, Any], scale: float) -> list[str]:
    """What the verdict of a tuned comparison is of, and what it was before."""
    own = summary.get("tuned")
    if summary.get("best"):
        return _selected(summary)
    if not own:
        return []
    spent = f"{count(int(own['trials']), 'trial')} of {count(int(own['seeds']), 'seed')} each, on validation data"
    if own["tunings"] > 1:
        fresh = count(int(own["fresh"]), "fresh seed")
        test = ", and had test rows of its own" if own.get("sets_aside") else ""
        said = [
            f"Every row was tuned {own['tunings']} times ({spent}); each tuning was followed by {fresh}{test}. The "
            "interval is over tunings: the verdict is of tuning and then training."
        ]
    else:
        test = " All runs share the test rows that were set aside before." if own.get("sets_aside") else ""
        said = [
            f"Every row was tuned once ({spent}).{test} The verdict is of the rows at these settings: another tuning "
            "may choose others, which the interval does not allow for; that over three or more tunings does."
        ]
    if own.get("before"):
        before = verdict(own["before"], scale).headline
        said.append(f"Before tuning, with the learning rate of the recipe in all rows: {before}")
    return said


def _selected(summary: Mapping[str, Any]) -> list[str]:
    """What was tried to find the best composition, and what came of it."""
    own, tuned = summary["best"], summary["tuned"]
    winner, base = str(own["winner"]), next(name for name in summary["methods"] if name not in summary["paired"])
    tried = len({row for each in own["rounds"] for row in each["screened"]})
    rounds = count(len(own["rounds"]), "round")
    seeds = count(int(tuned["seeds"]), "seed")
    found = [
        *_chosen(summary),
        f"The search took {duration(own['spent'])}: {count(int(tuned['trials']), 'trial')} of {seeds} each for {base}, "
        f"then {count(tried, 'composition')} in {rounds}, all on validation data. It ended since {own['ended']}.",
    ]
    if winner != base:
        found.append(f"{winner} was chosen after {count(int(own['trials']), 'trial')}.")
    elif any(name in each["tuned"] for each in own["rounds"] for name in summary["methods"] if name != base):
        found.append(f"What came nearest stands beside {base}.")
    test = " All runs share the test rows that were set aside before." if tuned.get("sets_aside") else ""
    return [*found, f"The verdict is of the rows at these settings, on fresh seeds.{test}"]


def _chosen(summary: Mapping[str, Any]) -> list[str]:
    """What a search for the best composition says to use."""
    own = summary.get("best")
    if not own:
        return []
    base = next(name for name in summary["methods"] if name not in summary["paired"])
    if own["winner"] == base:
        better = [name for name, decision in decisions(summary).items() if decision == "helps"]
        if better:
            return [
                f"No gain on the tuned {base} was confirmed on validation data; {better[0]}, which came nearest, is "
                "better on fresh seeds. A longer budget may confirm it."
            ]
        return [f"No gain on the tuned {base} was confirmed on validation data: use that."]
    return [f"The best composition found on validation data is {own['winner']}."]
