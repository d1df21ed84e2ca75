"""Tuning with one budget for every row: a common grid of learning rates, then a search of what is the row's own.

Nothing here knows of tasks. What is asked for goes to a function that trains, a stage at a time; what it finds decides
what is asked for next. Every decision follows from the scores and a seed, so that a tuning that is repeated with the
scores of finished trials asks for the same trials again.
"""

import itertools
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ordinal_entropy.methods import Range

if TYPE_CHECKING:
    import optuna

LEAST_TRIALS = 6  # three on the grid, three of the search
TRIALS = 16
SEEDS = 3  # that every trial is trained with
FIRST_SEED = 1000  # of the first tuning; each further one has those from the next thousand on
FACTOR = 100.0  # from the smallest to the largest value of the grid
_ROUND = 4  # trials of a row that are asked for at once
_WIDENED = 2  # times, at most, that the grid, and the range of an option, becomes longer
_EDGE = 0.05  # of a range: a choice that lies so near to its end is one at the edge

Settings = dict[str, Any]


class Found(NamedTuple):
    """What a trial found."""

    scores: list[float]  # on validation data, one a tuning seed; NaN of a run that failed
    seconds: float = 0.0

    @property
    def mean(self) -> float:
        """Over the seeds; NaN where any of them has no number: such a trial has failed."""
        return sum(self.scores) / len(self.scores) if all(map(math.isfinite, self.scores)) else math.nan


class Trial(NamedTuple):
    """Settings of a row that were tried."""

    settings: Settings
    found: Found
    on_grid: bool = False  # all but the learning rate are at their defaults


# (stage, settings to be tried by row) -> what each found, in the same order
Evaluate = Callable[[str, Mapping[str, Sequence[Settings]]], Mapping[str, Sequence[Found]]]


class Budget(NamedTuple):
    """What every row of a tuned comparison has to spend."""

    trials: int = TRIALS
    seeds: int = SEEDS  # that every trial is trained with
    tunings: int = 1  # independent ones: with several, the comparison is over these

    def checked(self, fresh: int) -> "Budget":
        """The same, if anything can be found with it, and no fresh seed is one that a tuning has seen."""
        on_grid(self.trials)
        if self.seeds < 1 or self.tunings < 1:
            raise ValueError(f"expected at least one seed of a trial and one tuning, got {self.seeds}, {self.tunings}")
        if self.tunings == 2:
            raise ValueError("expected one tuning, or at least 3 for an interval over them, got 2")
        if self.seeds > FIRST_SEED:
            raise ValueError(f"expected at most {FIRST_SEED:,} seeds of a trial, got {self.seeds:,}")
        require_fresh(range(fresh * self.tunings), [seed for k in range(self.tunings) for seed in self.tuning_seeds(k)])
        return self

    def tuning_seeds(self, tuning: int) -> list[int]:
        """Those of the trials of one tuning.

        Example:
            >>> Budget(seeds=2).tuning_seeds(0), Budget(seeds=2).tuning_seeds(1)
            ([1000, 1001], [2000, 2001])
        """
        return [FIRST_SEED * (tuning + 1) + k for k in range(self.seeds)]

    def fresh_seeds(self, tuning: int, count: int) -> list[int]:
        """Those that the chosen settings of one tuning are trained with.

        Example:
            >>> Budget().fresh_seeds(0, 3), Budget().fresh_seeds(1, 3)
            ([0, 1, 2], [3, 4, 5])
        """
        return [tuning * count + k for k in range(count)]


def require_fresh(fresh: Sequence[int], tuning: Sequence[int]) -> None:
    """A ValueError where a seed that the verdict is of was tuned on."""
    both = sorted({*fresh} & {*tuning})
    if both:
        raise ValueError(
            f"expected fresh seeds that no trial was trained with, got {both[0]} among both: {min(fresh)} to "
            f"{max(fresh)} are fresh, {min(tuning)} to {max(tuning)} of tuning"
        )


class Axis(NamedTuple):
    """The setting that all rows are tried along, usually the learning rate."""

    name: str
    values: list[float]  # rising, by one factor
    own: float | None = None  # the one among them that was there before, if any

    @property
    def step(self) -> float:
        """The factor between neighbours."""
        return float((self.values[-1] / self.values[0]) ** (1 / (len(self.values) - 1)))


def around(name: str, center: float, count: int, factor: float = FACTOR) -> Axis:
    """Values around one, which is among them; of an even number there is one more above it than below.

    Example:
        >>> around("learning_rate", 1e-3, 3)
        Axis(name='learning_rate', values=[0.0001, 0.001, 0.01], own=0.001)
        >>> len(around("learning_rate", 1e-3, 8).values)
        8
    """
    step = factor ** (1 / (count - 1))
    places = range(-((count - 1) // 2), count // 2 + 1)
    return Axis(name, [_short(center * step**k) if k else center for k in places], center)


def between(name: str, low: float, high: float, count: int) -> Axis:
    """Values from one to another.

    Example:
        >>> between("learning_rate", 1e-4, 1e-2, 3).values
        [0.0001, 0.001, 0.01]
    """
    Range(low, high, log=True).checked(name)
    step = (high / low) ** (1 / (count - 1))
    return Axis(name, [_short(low * step**k) for k in range(count)])


def on_grid(trials: int) -> int:
    """How many of so many trials lie on the grid: half of them; a ValueError where these are too few.

    Example:
        >>> on_grid(16), on_grid(7)
        (8, 3)
    """
    if trials < LEAST_TRIALS:
        raise ValueError(
            f"expected at least {LEAST_TRIALS} trials of each row, three learning rates and three of what is its own, "
            f"got {trials}"
        )
    return trials // 2


@dataclass
class Tuned:
    """What the tuning of one row tried, and what it chose."""

    trials: list[Trial]
    lower_is_better: bool
    at_edge: list[str] = field(default_factory=list)  # settings whose choice lies at the edge of where was looked

    @property
    def best(self) -> Trial | None:
        """The trial of the best mean score; None where none has a number."""
        ended = [trial for trial in self.trials if math.isfinite(trial.found.mean)]
        sign = 1 if self.lower_is_better else -1
        return min(ended, key=lambda trial: sign * trial.found.mean, default=None)

    def curve(self, name: str) -> list[list[float]]:
        """The mean score against the setting of the grid, all others at their defaults; values rise."""
        return sorted([trial.settings[name], trial.found.mean] for trial in self.trials if trial.on_grid)

    def untuned(self, axis: Axis) -> Found | None:
        """What was found at the settings that were there before; None where there were none."""
        own = [trial.found for trial in self.trials if trial.on_grid and trial.settings[axis.name] == axis.own]
        return own[0] if own else None

    def described(self, axis: Axis) -> dict[str, Any]:
        """As in ``summary.json``."""
        best, untuned = self.best, self.untuned(axis)
        return {
            "trials": len(self.trials),
            "failed": sum(math.isnan(trial.found.mean) for trial in self.trials),
            "chosen": {} if best is None else best.settings,
            "validation": math.nan if best is None else best.found.mean,
            "untuned": None if untuned is None else untuned.mean,
            "seconds": round(sum(trial.found.seconds for trial in self.trials), 1),
            "curve": self.curve(axis.name),
            "at_edge": self.at_edge,
        }


def tuned(
    rows: Mapping[str, Mapping[str, Range]],
    axis: Axis,
    trials: int,
    evaluate: Evaluate,
    *,
    seed: int = 0,
    lower_is_better: bool = True,
) -> dict[str, Tuned]:
    """Tunes every row with the same number of trials.

    The first trials are the values of the axis, the same for all rows, with everything else at its default. Where the
    best of a row is the first or the last one, the row takes up to two more beyond it, out of its own trials. The
    others are a search by Optuna's TPE sampler, in rounds: of the axis near the best value, and of the ranges of the
    row. A range becomes longer, up to twice, where the best trial so far lies at its edge.

    Args:
        rows: the settings of each row that are searched, with their ranges.
        axis: that all rows are tried along.
        trials: of each row.
        evaluate: trains what is asked for, of all rows together.
        seed: of the search.
        lower_is_better: of the score.

    Returns:
        What was found, by row.

    Example:
        >>> def evaluate(stage, asked):
        ...     return {row: [Found([(each["rate"] - 3.0) ** 2]) for each in own] for row, own in asked.items()}
        >>> found = tuned({"baseline": {}}, around("rate", 1.0, 5), 10, evaluate)["baseline"]
        >>> len(found.trials), [rate for rate, _ in found.curve("rate")]
        (10, [0.1, 0.316228, 1.0, 3.16228, 10.0])
        >>> abs(found.best.settings["rate"] - 3.0) < 0.2
        True
    """
    on_grid(trials)
    require_optuna()
    found = {row: Tuned([], lower_is_better) for row in rows}
    curves = {row: list(axis.values) for row in rows}
    _take(found, evaluate, "grid", {row: [{axis.name: value} for value in axis.values] for row in rows}, on_grid=True)
    for time in range(1, _WIDENED + 1):
        further = {row: _beyond(found[row], axis, curves[row]) for row in rows}
        asked = {row: [{axis.name: value}] for row, value in further.items() if value is not None}
        if not asked:
            break
        for row, own in asked.items():
            curves[row] = sorted([*curves[row], own[0][axis.name]])
        _take(found, evaluate, f"wider-{time}", asked, on_grid=True)
    ranges = searched(found, rows, axis, trials, evaluate, seed=seed)
    for row in rows:
        found[row].at_edge = _at_edge(found[row], axis, curves[row], ranges[row])
    return found


def searched(
    found: Mapping[str, Tuned],
    rows: Mapping[str, Mapping[str, Range]],
    axis: Axis,
    trials: int | Mapping[str, int],
    evaluate: Evaluate,
    *,
    seed: int = 0,
    stage: str = "search",
) -> dict[str, dict[str, Range]]:
    """Searches on from what was found, by Optuna's TPE sampler, until every row has had so many trials.

    Args:
        found: of each row; the new trials are added.
        rows: the settings of each that are searched, with their ranges.
        axis: a further one, within a step of the best value so far.
        trials: of each row, those that it has had included; one number, or by row.
        evaluate: trains what is asked for, of all rows together.
        seed: of the search.
        stage: front of the names of its rounds.

    Returns:
        The ranges of each row, some of them longer than before.
    """
    require_optuna()
    with _quiet():
        searches = {row: _Search(found[row], axis, ranges, seed, row) for row, ranges in rows.items()}
        most = trials if isinstance(trials, Mapping) else dict.fromkeys(rows, trials)
        for number in itertools.count(1):
            left = {row: min(_ROUND, most[row] - len(found[row].trials)) for row in rows}
            asked = {row: searches[row].ask(count) for row, count in left.items() if count > 0}
            if not asked:
                break
            for row, new in _take(found, evaluate, f"{stage}-{number}", asked, on_grid=False).items():
                searches[row].tell(new)
    return {row: own.ranges for row, own in searches.items()}


def _take(
    found: Mapping[str, Tuned],
    evaluate: Evaluate,
    stage: str,
    asked: Mapping[str, Sequence[Settings]],
    *,
    on_grid: bool,
) -> dict[str, list[Trial]]:
    """Has settings tried, and adds the trials to what was found."""
    scores = evaluate(stage, asked)
    new = {
        row: [Trial(dict(each), Found(*own), on_grid) for each, own in zip(asked[row], scores[row], strict=True)]
        for row in asked
    }
    for row, own in new.items():
        found[row].trials += own
    return new


class _Search:
    """The search of one row: ranges that widen, and Optuna, which is asked and told."""

    def __init__(self, found: Tuned, axis: Axis, ranges: Mapping[str, Range], seed: int, row: str) -> None:
        import optuna

        self.found, self.ranges, self.times = found, dict(ranges), dict.fromkeys(ranges, 0)
        best, known = found.best, [trial for trial in found.trials if math.isfinite(trial.found.mean)]
        center = axis.values[len(axis.values) // 2] if best is None else best.settings[axis.name]
        self.axis, self.near = axis.name, Range(_short(center / axis.step), _short(center * axis.step), log=True)
        own = zlib.crc32(f"{seed} {row}".encode())  # whatever other rows there are
        near = [trial for trial in known if self.near.low <= trial.settings[axis.name] <= self.near.high]
        sampler = optuna.samplers.TPESampler(seed=own, n_startup_trials=len(near) + _ROUND)
        self.study = optuna.create_study(sampler=sampler, direction="minimize" if found.lower_is_better else "maximize")
        for trial in near:
            self.study.add_trial(_tried({axis.name: self.near, **self.ranges}, trial))
        self.waiting: list[optuna.trial.Trial] = []

    def ask(self, count: int) -> list[Settings]:
        """So many settings to be tried."""
        self.waiting = [self.study.ask() for _ in range(count)]
        every = {self.axis: self.near, **self.ranges}
        return [{name: _suggested(trial, name, own) for name, own in every.items()} for trial in self.waiting]

    def tell(self, new: Sequence[Trial]) -> None:
        """What those found, in the same order; ranges become longer where the best lies at an edge."""
        worst = math.inf if self.found.lower_is_better else -math.inf
        for waiting, trial in zip(self.waiting, new, strict=True):
            mean = trial.found.mean
            self.study.tell(waiting, mean if math.isfinite(mean) else worst)
        best = self.found.best
        for name, own in self.ranges.items():
            if best is None or name not in best.settings or self.times[name] == _WIDENED:
                continue
            edge = _edge(own, best.settings[name])
            if edge:
                self.ranges[name] = own.widened(up=edge > 0)
                self.times[name] += 1


def _suggested(trial: "optuna.trial.Trial", name: str, own: Range) -> Any:
    """The next value of a setting; six digits, so that it is the same once it was written."""
    if own.choices:
        return own.choices[int(trial.suggest_int(name, 0, len(own.choices) - 1))]
    if own.whole:
        return int(trial.suggest_int(name, math.ceil(own.low), math.floor(own.high), log=own.log))
    return _short(trial.suggest_float(name, own.low, own.high, log=own.log))


def _tried(every: Mapping[str, Range], trial: Trial) -> "optuna.trial.FrozenTrial":
    """A trial of before as Optuna knows it, with those of its settings that lie where the search looks."""
    import optuna
    from optuna.distributions import FloatDistribution, IntDistribution

    params: dict[str, Any] = {}
    kinds: dict[str, optuna.distributions.BaseDistribution] = {}
    for name, own in every.items():
        value = trial.settings.get(name)
        if own.choices:
            if value in own.choices:
                params[name], kinds[name] = own.choices.index(value), IntDistribution(0, len(own.choices) - 1)
        elif value is None or not own.low <= value <= own.high:
            continue
        elif own.whole:
            params[name], kinds[name] = value, IntDistribution(math.ceil(own.low), math.floor(own.high), log=own.log)
        else:
            params[name], kinds[name] = value, FloatDistribution(own.low, own.high, log=own.log)
    return optuna.trial.create_trial(params=params, distributions=kinds, value=trial.found.mean)


def _beyond(found: Tuned, axis: Axis, values: Sequence[float]) -> float | None:
    """The next value of the axis beyond an end at which the best one lies."""
    best = found.best
    if best is None:
        return None
    at = best.settings[axis.name]
    return _short(at * axis.step) if at == values[-1] else _short(at / axis.step) if at == values[0] else None


def _edge(own: Range, value: float) -> int:
    """-1 or 1 at one of the edges that the range may be widened beyond, else 0."""
    if own.choices:
        return 0
    share = own.share(value)
    if share < _EDGE and own.low > own.limits[0]:
        return -1
    return int(share > 1 - _EDGE and own.high < own.limits[1])


def _at_edge(found: Tuned, axis: Axis, values: Sequence[float], ranges: Mapping[str, Range]) -> list[str]:
    best = found.best
    if best is None:
        return []
    beyond = [axis.name] if not values[0] < best.settings[axis.name] < values[-1] else []
    return [
        *beyond,
        *(name for name, own in ranges.items() if name in best.settings and _edge(own, best.settings[name])),
    ]


def _short(value: float) -> float:
    return float(f"{value:.6g}")


def over_tunings(
    tunings: Sequence[Mapping[str, Mapping[str, Sequence[float]]]], points: Sequence[str]
) -> dict[str, dict[str, list[float]]]:
    """One score a tuning: the mean over those of its seeds at which every row ended with a number.

    Args:
        tunings: of each, the scores by row and then by point, one a seed.
        points: at which runs are scored.

    Example:
        >>> first = {"baseline": {"last": [1.0, 3.0]}, "oe": {"last": [0.5, 0.5]}}
        >>> second = {"baseline": {"last": [2.0, 9.0]}, "oe": {"last": [1.0, float("nan")]}}
        >>> over_tunings([first, second], ["last"])
        {'baseline': {'last': [2.0, 2.0]}, 'oe': {'last': [0.5, 1.0]}}
    """
    found: dict[str, dict[str, list[float]]] = {row: {point: [] for point in points} for row in tunings[0]}
    for each in tunings:
        for point in points:
            columns = zip(*(own[point] for own in each.values()), strict=True)
            whole = [column for column in columns if all(map(math.isfinite, column))]
            for place, row in enumerate(each):
                own = [column[place] for column in whole]
                found[row][point].append(sum(own) / len(own) if own else math.nan)
    return found


def described(tunings: Sequence[Mapping[str, Tuned]], axes: Sequence[Axis]) -> dict[str, Any]:
    """The key "tuning" of ``summary.json``: of every row what the first tuning found; of several, all in "tunings"."""
    each = [{row: own.described(axis) for row, own in rows.items()} for rows, axis in zip(tunings, axes, strict=True)]
    more = {row: {"tunings": [own[row] for own in each]} if len(each) > 1 else {} for row in each[0]}
    return {row: {**own, **more[row]} for row, own in each[0].items()}


def require_optuna() -> None:
    """An ImportError says how to get it."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise ImportError("a tuned comparison needs Optuna: pip install 'ordinal-entropy[tune]'") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without a line for every study and trial."""
    import optuna

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        yield
    finally:
        optuna.logging.set_verbosity(before)
