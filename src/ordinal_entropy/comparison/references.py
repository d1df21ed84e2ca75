"""Scores that take no network, beside those of the methods: as a summary has them, and what they say in sentences."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ordinal_entropy.comparison.statistics import mean_of
from ordinal_entropy.comparison.statistics import number as stored
from ordinal_entropy.comparison.summaries import parts
from ordinal_entropy.comparison.text import metric_name, number, times

CONSTANT = "constant"  # the reference that sees no input


def described(values: Mapping[str, Sequence[float]], constant: str) -> dict[str, Any]:
    """As in ``summary.json``: "references", their mean scores; "reference_values", one score a seed; "constant".

    Args:
        values: by name, one test score a seed.
        constant: what the reference of that name predicts, as in "predicting the training mean".

    Example:
        >>> described({"constant": [2.0, 4.0]}, "the training mean")
        {'references': {'constant': 3.0}, 'reference_values': {'constant': [2.0, 4.0]}, 'constant': 'the training mean'}
    """
    if not values:
        return {}
    means = {name: _mean(own) for name, own in values.items()}
    return {"references": means, "reference_values": dict(values), "constant": constant}


def joined(summaries: Sequence[Mapping[str, Any]], *, means: bool = False) -> dict[str, Any]:
    """The same of several summaries of one task: all their seeds, or of each the mean over its seeds.

    Example:
        >>> several = [described({"constant": own}, "the training mean") for own in ([2.0, 4.0], [6.0])]
        >>> joined(several)["reference_values"], joined(several, means=True)["reference_values"]
        ({'constant': [2.0, 4.0, 6.0]}, {'constant': [3.0, 6.0]})
    """
    values: dict[str, list[float]] = {}
    for each in summaries:
        for name, own in (each.get("reference_values") or {}).items():
            values.setdefault(name, []).extend([_mean(own)] if means else own)
    return described(values, str(summaries[0].get("constant", "")))


def called(name: str) -> str:
    """Of a reference, as a row of a table.

    Example:
        >>> called("constant")
        'constant, reference'
    """
    return f"{name}, reference"


def beside(summary: Mapping[str, Any]) -> dict[str, float]:
    """The references that are no rows of the comparison; none of an older summary.

    Example:
        >>> rows = {"baseline": {"values": [2.5]}, "ridge": {"values": [2.0]}}
        >>> beside({"methods": rows, "references": {"constant": 3.0, "ridge": 2.0}}), beside({"methods": rows})
        ({'constant': 3.0}, {})
    """
    rows = {_method(summary, name) for name in summary["methods"]}
    return {name: score for name, score in _known(summary).items() if name not in rows}


def sentences(summary: Mapping[str, Any], scale: float = 1.0) -> list[str]:
    """Which methods are worse than the constant, and which other reference is better than the baseline.

    Of variants with several baselines only those of the first: the references are those of its recipe.

    Args:
        summary: from :func:`ordinal_entropy.comparison.summary`, with or without references.
        scale: numbers are multiples of it.

    Example:
        >>> rows = {"baseline": {"values": [2.5, 2.7]}, "oe": {"values": [3.5, 3.7]}}
        >>> content = {"metric": "mae", "lower_is_better": True, "methods": rows, "paired": {"oe": {}}}
        >>> for each in sentences(content | described({"constant": [3, 3], "ridge": [2, 2]}, "the training median")):
        ...     print(each)
        oe is worse than predicting the training median (MAE 3.00): it has learned nothing that helps.
        ridge has a lower MAE than both: 2.00.
    """
    known, first = _known(summary), parts(summary)[0]
    sign, metric = 1 if summary["lower_is_better"] else -1, metric_name(summary["metric"])
    scores = {name: _mean(own["values"]) for name, own in first["methods"].items()}
    found = []
    if CONSTANT in known:
        constant = (
            f"{summary.get('constant') or 'a constant'} ({metric} {number(known[CONSTANT], scale)}{times(scale)})"
        )
        found += [
            f"{name} is worse than predicting {constant}: it has learned nothing that helps."
            for name, score in scores.items()
            if sign * score > sign * known[CONSTANT] and _method(summary, name) != CONSTANT
        ]
    others = {name: score for name, score in beside(summary).items() if name != CONSTANT}
    base = next(name for name in first["methods"] if name not in first["paired"])
    if others:
        best = min(others, key=lambda name: sign * others[name])
        beaten = [name for name, score in scores.items() if sign * others[best] < sign * score]
        if base in beaten:
            every = {1: base, 2: "both"}.get(len(scores), f"all {len(scores)} rows")
            whom = every if len(beaten) == len(scores) else base
            better = "lower" if sign > 0 else "higher"
            found.append(f"{best} has a {better} {metric} than {whom}: {number(others[best], scale)}{times(scale)}.")
    return found


def of_run(method: str, result: Mapping[str, Any]) -> dict[str, Any]:
    """The ``result.json`` of one run in the form of a summary: what :func:`beside` and :func:`sentences` take.

    Example:
        >>> result = {"metric": "mae", "lower_is_better": True, "best_validation": 4.0}
        >>> sentences(of_run("oe", result | described({"constant": [3.0]}, "the training median")))
        ['oe is worse than predicting the training median (MAE 3.00): it has learned nothing that helps.']
    """
    return {**result, "methods": {method: {"values": [result.get("best_validation")]}}, "paired": {}}


def _known(content: Mapping[str, Any]) -> dict[str, float]:
    """Those that are numbers."""
    found = content.get("references")
    kept = found.items() if isinstance(found, Mapping) else []
    return {name: score for name, score in kept if isinstance(score, int | float) and math.isfinite(score)}


def _method(summary: Mapping[str, Any], row: str) -> str:
    return str(((summary.get("variants") or {}).get(row) or {}).get("method", row))


def _mean(values: Sequence[float | None]) -> float:
    """Of those that are numbers; NaN without any."""
    finite = [value for value in map(stored, values) if math.isfinite(value)]
    return mean_of(finite) if finite else math.nan
