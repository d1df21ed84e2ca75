"""What the paper says of the entropies during training, and whether it held."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import Any, NamedTuple

ESTIMATORS = ("E1", "E2", "E3")
PARTS = ("test", "train")

Curves = Mapping[str, Sequence[float]]  # an entropy at each time, by variant


class Claim(NamedTuple):
    """What the paper says of the entropies during training."""

    text: str
    needs: tuple[str, ...]  # names of variants
    holds: Callable[[Curves], bool]
    since: Callable[[Curves], int] | None = None  # if it holds: the time from which on, counted from 1


def claims_about(part: str, names: Sequence[str]) -> list[Claim]:
    """Those of the paper on test or training features that some variants allow to look at.

    Example:
        >>> [claim.text for claim in claims_about("test", ["baseline", "ld"])]
        ['baseline falls', 'ld is the highest in the end']
    """
    found = [
        Claim(f"{name} is always above baseline", (name, "baseline"), partial(_always_above, name))
        for name in names
        if name.startswith("classification")
    ]
    if part == "train":  # Figure A has the others for test images alone
        return found
    found.append(Claim("baseline falls", ("baseline",), _falls))
    if "ld" in names:
        others = tuple(name for name in names if name not in ("ld", "ld-unweighted"))
        found.append(Claim("ld is the highest in the end", ("ld", *others), partial(_highest, "ld", others)))
    if "oe" in names:
        found.append(Claim("oe overtakes baseline", ("oe", "baseline"), partial(_ends_above, "oe"), since=_since))
    return found


def judged(content: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every claim, for each part and estimator: of the mean over the runs, and in how many seeds it holds.

    Args:
        content: of entropies.json.
    """
    found = []
    for part in PARTS:
        for claim in claims_about(part, list(dict.fromkeys(run["variant"] for run in content["runs"]))):
            for estimator in ESTIMATORS:
                each = curves_of(content, part, estimator)
                means = {name: _mean(each[name]) for name in claim.needs}
                seeds = [{name: each[name][k] for name in claim.needs} for k in range(len(each["baseline"]))]
                held = _held(claim, means)
                found.append(
                    {
                        "part": part,
                        "claim": claim.text,
                        "estimator": estimator,
                        "held": held,
                        "since": claim.since(means) if held and claim.since is not None else None,
                        "seeds": sum(_held(claim, own) is True for own in seeds),
                        "of": len(seeds),
                    }
                )
    return found


def curves_of(content: Mapping[str, Any], part: str, estimator: str) -> dict[str, list[list[float]]]:
    """Of each variant in entropies.json those of its runs; NaN for what is no number."""
    found: dict[str, list[list[float]]] = {}
    for run in content["runs"]:
        own = [math.nan if value is None else value for value in run[part][estimator]]
        found.setdefault(run["variant"], []).append(own)
    return found


def _always_above(name: str, curves: Curves) -> bool:
    return all(own > base for own, base in zip(curves[name], curves["baseline"], strict=True))


def _falls(curves: Curves) -> bool:
    return curves["baseline"][-1] < curves["baseline"][0]


def _highest(name: str, others: Sequence[str], curves: Curves) -> bool:
    return all(curves[name][-1] > curves[other][-1] for other in others)


def _ends_above(name: str, curves: Curves) -> bool:
    return curves[name][-1] > curves["baseline"][-1]


def _since(curves: Curves) -> int:
    """The epoch, from 1 on, from which on ``oe`` stays above ``baseline``."""
    epoch = len(curves["oe"])
    while epoch > 1 and curves["oe"][epoch - 2] > curves["baseline"][epoch - 2]:
        epoch -= 1
    return epoch


def _held(claim: Claim, curves: Curves) -> bool | None:
    """None where a number is missing."""
    whole = all(math.isfinite(value) for own in curves.values() for value in own)
    return claim.holds(curves) if whole else None


def _mean(each: Sequence[Sequence[float]]) -> list[float]:
    """At each time over the runs that have a number everywhere."""
    whole = [own for own in each if all(map(math.isfinite, own))]
    return [fmean(values) for values in zip(*whole, strict=True)] if whole else [math.nan] * len(each[0])
