"""A training loop of one's own, tuned for every method and then compared on fresh seeds."""

import math
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from ordinal_entropy.comparison import tuning
from ordinal_entropy.comparison.summaries import POINTS, Failure, summary
from ordinal_entropy.comparison.tuning import Axis, Found, Settings, Tuned
from ordinal_entropy.environment import environment
from ordinal_entropy.methods import Range

TunedTrain = Callable[[str, int, Settings], Mapping[str, float]]  # (method, seed, settings) -> validation and test
_LOG_FROM = 10.0  # largest over smallest number of a pair from which its range is logarithmic


def tuned_summary(
    train: Any,
    names: Sequence[str],
    seeds: int | Sequence[int],
    *,
    tune: Mapping[str, Any],
    trials: int,
    tuning_seeds: int | Sequence[int],
    tunings: int,
    lower_is_better: bool,
    metric: str,
    task: str,
    progress: Callable[[int], AbstractContextManager[Callable[[str], None]]],
) -> dict[str, Any]:
    """The summary of a tuned comparison; arguments as of :func:`ordinal_entropy.compare`.

    Args:
        train: a :data:`TunedTrain`.
        names: of the methods.
        seeds: fresh ones of each tuning: how many, or which.
        tune: ranges.
        trials: of each method.
        tuning_seeds: of each trial: how many, or which.
        tunings: independent ones.
        lower_is_better: of the score.
        metric: its name.
        task: its name.
        progress: of so many runs; told of each.
    """
    axis, ranges = spaces(tune, names, trials)
    first = next((name for name in names if name == "baseline"), names[0])
    names = [first, *(name for name in names if name != first)]
    fresh, tuned_on = _seeds(seeds, tuning_seeds, tunings, trials)
    loop = _Loop(train, names)
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

    def __init__(self, train: TunedTrain, names: Sequence[str]) -> None:
        self.train, self.names = train, names
        self.seeds: list[int] = []  # of the present tuning
        self.failures: list[Failure] = []  # on fresh seeds
        self.advance: Callable[[str], None] = lambda what: None

    def trials(self, stage: str, asked: Mapping[str, Sequence[Settings]]) -> dict[str, list[Found]]:
        """The validation scores of settings."""
        found: dict[str, list[Found]] = {row: [] for row in asked}
        raised: list[Exception] = []
        for row, every in asked.items():
            for settings in every:
                start, scores = time.perf_counter(), []
                for seed in self.seeds:
                    score, error = self._called(row, seed, settings, "validation")
                    raised += [] if error is None else [error]
                    scores.append(score)
                    self.advance(f"tuning {row}")
                found[row].append(Found(scores, time.perf_counter() - start))
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
                score, error = self._called(row, seed, settings, "test")
                if error is not None:
                    self.failures.append(Failure(row, seed, type(error).__name__, " ".join(str(error).split())))
                for own in scores[row].values():
                    own.append(score)
                self.advance(f"{row}, seed {seed}")
        return scores

    def _called(self, row: str, seed: int, settings: Settings, part: str) -> tuple[float, Exception | None]:
        try:
            found = self.train(row, seed, dict(settings))
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # what it held, on a GPU say, is free for the next run
            return math.nan, error
        if not isinstance(found, Mapping) or part not in found:
            raise ValueError(
                f"expected train to return {{'validation': ..., 'test': ...}} where it is tuned, got {found!r}; "
                "settings are chosen by validation scores, never by test scores"
            )
        return float(found[part]), None
