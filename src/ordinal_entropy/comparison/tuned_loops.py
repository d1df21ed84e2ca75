"""A training loop of one's own, tuned for every method and then compared on fresh seeds."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

from ordinal_entropy.comparison import tuning
from ordinal_entropy.comparison.calls import Calls
from ordinal_entropy.comparison.returned import TEST, VALIDATION, best_validation, points_during
from ordinal_entropy.comparison.summaries import POINTS, Failure, summary
from ordinal_entropy.comparison.tuning import Axis, Found, Settings, Tuned
from ordinal_entropy.environment import environment
from ordinal_entropy.methods import Range

TunedTrain = Callable[[Any, int, Settings], Mapping[str, Any]]  # (method, seed, settings) -> validation and test
_LOG_FROM = 10.0  # largest over smallest number of a pair from which its range is logarithmic


class Plan(NamedTuple):
    """What is tuned and then trained."""

    names: list[str]  # of the methods, that which the others are held to first
    axis: Axis
    ranges: dict[str, dict[str, Range]]  # by method
    trials: int  # of each method
    fresh: list[list[int]]  # seeds of each tuning
    tuned_on: list[list[int]]  # likewise


def planned(
    names: Sequence[str],
    seeds: int | Sequence[int],
    *,
    tune: Mapping[str, Any],
    trials: int,
    tuning_seeds: int | Sequence[int],
    tunings: int,
) -> Plan:
    """What a tuned comparison is going to do; arguments as of :func:`ordinal_entropy.compare`.

    Args:
        names: of the methods.
        seeds: fresh ones of each tuning: how many, or which.
        tune: ranges.
        trials: of each method.
        tuning_seeds: of each trial: how many, or which.
        tunings: independent ones.
    """
    axis, ranges = spaces(tune, names, trials)
    first = next((name for name in names if name == "baseline"), names[0])
    fresh, tuned_on = _seeds(seeds, tuning_seeds, tunings, trials)
    return Plan([first, *(name for name in names if name != first)], axis, ranges, trials, fresh, tuned_on)


def described(plan: Plan) -> dict[str, Any]:
    """What is searched, as the label of a folder has it.

    Example:
        >>> described(planned(["oe"], 3, tune={"lr": (1e-4, 1e-2)}, trials=6, tuning_seeds=3, tunings=1))
        {'axis': ['lr', 0.0001, 0.01], 'ranges': {'oe': {}}}
    """
    ranges = {
        row: {name: [each.low, each.high, each.log, each.whole, list(each.choices)] for name, each in own.items()}
        for row, own in plan.ranges.items()
    }
    return {"axis": [plan.axis.name, plan.axis.values[0], plan.axis.values[-1]], "ranges": ranges}


def tuned_summary(
    call: Calls,
    plan: Plan,
    *,
    lower_is_better: bool,
    metric: str,
    task: str,
    progress: Callable[[int], AbstractContextManager[Callable[[str, bool], None]]],
) -> dict[str, Any]:
    """The summary of a tuned comparison.

    Args:
        call: of a :data:`TunedTrain`.
        plan: what is tuned and trained.
        lower_is_better: of the score.
        metric: its name.
        task: its name.
        progress: of so many runs; told of each, and whether it was kept.
    """
    names, axis, ranges, trials, fresh, tuned_on = plan
    first, tunings = names[0], len(fresh)
    loop = _Loop(call, lower_is_better)
    each: list[dict[str, Tuned]] = []
    scores: list[dict[str, dict[str, list[float]]]] = []
    with progress(len(names) * (trials * len(tuned_on[0]) + len(fresh[0])) * tunings) as advance:
        loop.advance = advance
        for number, (own, seen) in enumerate(zip(fresh, tuned_on, strict=True)):
            loop.seeds = seen
            found = tuning.tuned(ranges, axis, trials, loop.trials, seed=number, lower_is_better=lower_is_better)
            each.append(found)
            scores.append(loop.fresh({name: _chosen(found[name], axis) for name in names}, own))
    shown = scores[0] if tunings == 1 else tuning.over_tunings(scores, POINTS)
    made = summary(
        task=task,
        metric=metric,
        lower_is_better=lower_is_better,
        scores=shown,
        recipe={"seeds": fresh[0] if tunings == 1 else fresh, "tuning_seeds": tuned_on},
        environment=environment(),
        baseline=first,
        failures=loop.failures,
    )
    budget = {"trials": trials, "seeds": len(tuned_on[0]), "tunings": tunings, "fresh": len(fresh[0])}
    return {**made, "tuned": {"axis": axis.name, **budget}, "tuning": tuning.described(each, [axis] * tunings)}


def spaces(tune: Mapping[str, Any], names: Sequence[str], trials: int) -> tuple[Axis, dict[str, dict[str, Range]]]:
    """The setting that all methods are tried along, and the ranges of each.

    Example:
        >>> axis, ranges = spaces({"lr": (1e-4, 1e-2), "oe": {"strength": (0.01, 10.0)}}, ["baseline", "oe"], 6)
        >>> axis.values, list(ranges["baseline"]), list(ranges["oe"])
        ([0.0001, 0.001, 0.01], [], ['strength'])
    """
    if not isinstance(tune, Mapping):
        raise TypeError(f"expected tune to be a mapping of settings to ranges, got {type(tune).__name__}")
    shared = {name: own for name, own in tune.items() if not isinstance(own, Mapping)}
    strange = [name for name, own in tune.items() if isinstance(own, Mapping) and name not in names]
    if strange:
        raise ValueError(f"expected ranges of methods that are compared, got some of {strange[0]!r}")
    if not shared:
        raise ValueError("expected a range of the learning rate, or another that all methods share, in tune, got none")
    name, along = next((name, _range(name, own)) for name, own in shared.items())
    if along.choices:
        raise ValueError(f"expected {name}, the first range of tune, to be a pair of numbers, got a list")
    ranges = {other: _range(other, own) for other, own in shared.items() if other != name}
    own_ranges = {
        method: {**ranges, **{key: _range(f"{method}.{key}", own) for key, own in tune.get(method, {}).items()}}
        for method in names
    }
    return tuning.between(name, along.low, along.high, tuning.on_grid(trials)), own_ranges


def _range(name: str, given: Any) -> Range:
    if isinstance(given, Range):
        return given.checked(name)
    if isinstance(given, list) and given:
        return Range(choices=tuple(given))
    try:
        low, high = given
        log = low > 0 and high / low >= _LOG_FROM
        return Range(low, high, log=log, limits=(0.0 if low >= 0 else -math.inf, math.inf)).checked(name)
    except TypeError:
        raise ValueError(f"expected {name} in tune to be (low, high), a list or a Range, got {given!r}") from None


def _seeds(
    seeds: int | Sequence[int], tuning_seeds: int | Sequence[int], tunings: int, trials: int
) -> tuple[list[list[int]], list[list[int]]]:
    """Of each tuning, the fresh ones and those that it has seen."""
    if tunings > 1 and not (isinstance(seeds, int) and isinstance(tuning_seeds, int)):
        raise ValueError("expected seeds and tuning_seeds to say how many, where there are several tunings, got which")
    counts = [each if isinstance(each, int) else len(each) for each in (seeds, tuning_seeds)]
    budget = tuning.Budget(trials, counts[1], tunings)
    if isinstance(tuning_seeds, int):
        budget.checked(counts[0] if isinstance(seeds, int) else 0)
    seen = [
        budget.tuning_seeds(k) if isinstance(tuning_seeds, int) else [int(seed) for seed in tuning_seeds]
        for k in range(tunings)
    ]
    fresh = [budget.fresh_seeds(k, counts[0]) if isinstance(seeds, int) else list(seeds) for k in range(tunings)]
    tuning.require_fresh([seed for own in fresh for seed in own], [seed for own in seen for seed in own])
    return fresh, seen


def _chosen(found: Tuned, axis: Axis) -> Settings:
    """The best settings; the middle of the grid where no trial ended with a number."""
    return found.trials[len(axis.values) // 2].settings if found.best is None else found.best.settings


class _Loop:
    """Calls ``train``, and notes what it raises."""

    def __init__(self, call: Calls, lower_is_better: bool) -> None:
        self.call, self.lower_is_better = call, lower_is_better
        self.seeds: list[int] = []  # of the present tuning
        self.failures: list[Failure] = []  # on fresh seeds
        self.advance: Callable[[str, bool], None] = lambda what, kept: None

    def trials(self, stage: str, asked: Mapping[str, Sequence[Settings]]) -> dict[str, list[Found]]:
        """The validation scores of settings."""
        found: dict[str, list[Found]] = {row: [] for row in asked}
        raised: list[Exception] = []
        for row, every in asked.items():
            for settings in every:
                own = []
                for seed in self.seeds:
                    own.append(self.call(row, seed, self._of_trial, points=[VALIDATION], settings=settings))
                    self.advance(f"tuning {row}", own[-1].kept)
                raised += [each.error for each in own if each.error is not None]
                found[row].append(Found([each.scores[VALIDATION] for each in own], sum(each.seconds for each in own)))
        every_one = sum(len(own) * len(self.seeds) for own in asked.values())
        if stage == "grid" and len(raised) == every_one:
            first = raised[0]
            raise RuntimeError(
                f"expected train to work, got {type(first).__name__} from every trial of the grid, at first: {first}"
            ) from first
        return found

    def fresh(self, chosen: Mapping[str, Settings], seeds: Iterable[int]) -> dict[str, dict[str, list[float]]]:
        """The test scores at chosen settings."""
        scores: dict[str, dict[str, list[float]]] = {row: {point: [] for point in POINTS} for row in chosen}
        for seed in seeds:  # all methods of a seed first: what is stopped has whole pairs
            for row, settings in chosen.items():
                own = self.call(row, seed, self._of_fresh, points=POINTS, settings=settings)
                self.failures += [failure for failure in [own.failure(row, seed)] if failure]
                for point in POINTS:
                    scores[row][point].append(own.scores[point])
                self.advance(f"{row}, seed {seed}", own.kept)
        return scores

    def _of_trial(self, returned: Any) -> dict[str, float]:
        """The validation score alone: the test score, which may be missing, is not looked at."""
        return {VALIDATION: best_validation(_part(returned, VALIDATION), lower_is_better=self.lower_is_better)}

    def _of_fresh(self, returned: Any) -> dict[str, float]:
        test = _part(returned, TEST)
        validation = returned.get(VALIDATION, 0.0)  # of one score the best is at the same place whatever it was
        return points_during(validation, test, lower_is_better=self.lower_is_better)


def _part(returned: Any, part: str) -> Any:
    if not isinstance(returned, Mapping) or part not in returned:
        raise ValueError(
            f"expected train to return {{'validation': ..., 'test': ...}} where it is tuned, got {returned!r}; "
            "settings are chosen by validation scores, never by test scores"
        )
    return returned[part]
