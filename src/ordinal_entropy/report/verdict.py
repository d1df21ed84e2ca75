"""What a comparison found, in words: the short form, the rest by ``comparison.verdict``."""

import math
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from ordinal_entropy import comparison
from ordinal_entropy.report.text import count, metric_name, number, p_equals, times

_LEVEL = 0.05


class Finding(NamedTuple):
    """Of one method against what it is held to."""

    method: str
    outcome: Literal["better", "worse", "negligible", "no difference", "unknown"]
    sentence: str


class Verdict(NamedTuple):
    """Of a whole comparison."""

    headline: str
    findings: list[Finding]  # better, worse, then the others; each in the order of the summary
    in_full: list[str]


def verdict(summary: Mapping[str, Any], scale: float = 1.0) -> Verdict:
    """One headline, a short sentence a method, and the long ones.

    A method is called better or worse where p < 0.05, with several methods after Holm's adjustment for their number;
    negligible where it is known to differ by less than the smallest difference that matters, if one was named.

    Example:
        >>> methods = {"baseline": {"values": [9.5, 9.7, 9.6]}, "oe": {"values": [9.2, 9.3, 9.3]}}
        >>> pair = {"difference": -0.33, "ci_low": -0.48, "ci_high": -0.19, "p_value": 0.01, "n": 3}
        >>> found = verdict({"metric": "mae", "lower_is_better": True, "methods": methods, "paired": {"oe": pair}})
        >>> found.headline
        'oe lowers MAE by 0.33 (0.19 to 0.48), n = 3 paired seeds; p = 0.010.'
    """
    findings: list[Finding] = []
    in_full = comparison.verdict(summary) if summary["paired"] and unit(summary) == "seed" else []  # words are of seeds
    p_values = comparison.adjusted(summary)
    for part in comparison.parts(summary):
        base = next(name for name in part["methods"] if name not in part["paired"])
        findings += [_finding(part, name, base, p_values[name], scale) for name in part["paired"]]
    order = ("better", "worse", "negligible", "no difference", "unknown")
    findings.sort(key=lambda finding: order.index(finding.outcome))
    return Verdict(_headline(summary, findings, scale), findings, in_full)


def unit(summary: Mapping[str, Any]) -> str:
    """What is paired: runs of a seed, or measurements of a round.

    Example:
        >>> unit({}), unit({"memory_mb": {}})
        ('seed', 'round')
    """
    return "round" if "memory_mb" in summary else "seed"


def _finding(summary: Mapping[str, Any], name: str, base: str, p: float, scale: float) -> Finding:
    pair, several = summary["paired"][name], len(summary["paired"]) > 1
    metric, n = metric_name(summary["metric"]), int(pair["n"])
    if math.isnan(p):
        return Finding(
            name,
            "unknown",
            f"{name} against {base}: {count(n, f'paired {unit(summary)}')} cannot show a difference, it takes 2.",
        )
    difference, low, high = pair["difference"], pair["ci_low"], pair["ci_high"]
    chance = (
        f"{p_equals(p)} after Holm's adjustment ({p_equals(pair['p_value'])} unadjusted)" if several else p_equals(p)
    )
    chance += "; the differences look skewed" if pair.get("skewed") else ""
    sizes = f"{number(difference, scale, sign=True)} ({number(low, scale)} to {number(high, scale)}){times(scale)}"
    if comparison.outcomes(summary)[name] == "negligible":
        shown = f"no difference from {base} as large as {_smallest(summary, scale)}, the smallest that matters"
        return Finding(name, "negligible", f"{name}: {shown}: {metric} {sizes}, n = {n} paired seeds; {chance}.")
    if p >= _LEVEL or difference == 0:
        shown = f"no difference from {base} that {n} paired {unit(summary)}s could show"
        return Finding(name, "no difference", f"{name}: {shown}: {metric} {sizes}; {chance}.")
    ends = (low, high) if difference > 0 else (-high, -low)
    sizes = f"{number(abs(difference), scale)} ({number(ends[0], scale)} to {number(ends[1], scale)}){times(scale)}"
    verb = "lowers" if difference < 0 else "raises"
    outcome: Literal["better", "worse"] = "better" if (difference < 0) == summary["lower_is_better"] else "worse"
    sentence = f"{name} {verb} {metric} by {sizes}, n = {n} paired {unit(summary)}s; {chance}."
    return Finding(name, outcome, sentence)


def _smallest(summary: Mapping[str, Any], scale: float) -> str:
    return number(summary["stop_early"]["smallest"], scale) + times(scale)


def _headline(summary: Mapping[str, Any], findings: list[Finding], scale: float) -> str:
    bases = [name for name in summary["methods"] if name not in summary["paired"]]
    if not findings:
        return f"Nothing to compare {bases[0]} with: no other method was run."
    if len(findings) == 1:
        return findings[0].sentence
    by = {outcome: sum(finding.outcome == outcome for finding in findings) for outcome in ("better", "worse")}
    base = "their baseline" if len(bases) > 1 else bases[0]
    if all(finding.outcome == "unknown" for finding in findings):
        return f"{len(findings)} methods against {base}, too few {unit(summary)}s to show a difference: it takes 2."
    metric, n = metric_name(summary["metric"]), min(int(pair["n"]) for pair in summary["paired"].values())
    small = sum(finding.outcome == "negligible" for finding in findings)
    if small == len(findings):
        return f"None of {small} methods differs from {base} by {metric} as much as {_smallest(summary, scale)}."
    rest = len(findings) - sum(by.values()) - small
    if rest == len(findings):
        return f"None of {rest} methods differs from {base} by {metric} as {n} paired {unit(summary)}s could show."
    said = " and ".join(
        f"{found or 'none'} {'are' if found > 1 else 'is'} {what}{f' than {base}' if what == 'better' else ''}"
        for what, found in by.items()
    )
    differ = "differs" if small == 1 else "differ"
    matters = f"; {small} {differ} by less than {_smallest(summary, scale)}, which does not matter" if small else ""
    shown = f"; for the other {rest}, {n} paired {unit(summary)}s show no difference" if rest else ""
    return f"Of {len(findings)} methods, {said} by {metric}{matters}{shown}."
