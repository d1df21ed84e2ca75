"""Forward selection within a budget of time: from the tuned baseline on, one part of a method at a time.

A round screens every part that can join the best composition so far, searches the settings of the most promising ones,
and confirms the best of these on seeds that no choice was made by. It ends the selection where none of them gains.

Nothing here knows of tasks. What is asked for goes to a function that trains; what it finds, and the seconds it spent,
decide what is asked for next, so that a selection that is repeated with these asks for the same again.
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import Any, NamedTuple

from ordinal_entropy.comparison import tuning
from ordinal_entropy.comparison.text import duration, number
from ordinal_entropy.comparison.tuning import FIRST_SEED, LEAST_TRIALS, Axis, Found, Settings, Trial, Tuned
from ordinal_entropy.methods import Range

LEAST_FRESH = 3  # seeds that winner and baseline are compared over
MOST_FRESH = 10
_FINAL = 2.5  # runs of the baseline that one fresh seed costs: its own, and one of a winner that is slower
_SLOWER = 1.5  # what a run of an unknown row costs, over the best one's so far
_BASELINE = ((16, 3), (12, 3), (8, 3), (8, 2), (6, 2), (6, 1))  # trials and seeds of each, the first that fits
_FOR_BASELINE = 0.25  # of the budget
_SCREENING_SEEDS = 2  # at most
_FOR_SCREENING = 0.35  # of the time left
_AT_ONCE = 8  # rows that are screened together, before the time left is looked at again
_TUNED = ((6, 8), (6, 6), (4, 6), (3, 6), (3, 4), (2, 4), (1, 4))  # rows and trials of each, the first that fits
_PASSED_OVER = 2  # times as many rows are looked at for so many that fit: slow ones are passed over
_FOR_TUNING = 0.6  # of the time left
_FINALISTS = 2
_CONFIRMING = {8: 2.365, 5: 2.776, 3: 4.303}  # seeds, the first that fits -> Student's t of a 95% interval
_CONFIRMING_SEEDS = 100  # apart: those of round k begin at FIRST_SEED + 100 k
_NEAR = math.sqrt(10.0)  # a row's learning rate is searched within this factor of the best one's so far

# (stage, settings to be tried by row, seeds) -> what each found, in the same order, and the seconds that went by
Train = Callable[[str, Mapping[str, Sequence[Settings]], Sequence[int]], tuple[Mapping[str, Sequence[Found]], float]]


class Space(NamedTuple):
    """What is searched."""

    parts: Sequence[str]  # that may join, the most promising first
    learning_rate: float  # that the grid is laid around
    ranges: Callable[[str], Mapping[str, Range]]  # of a row: further settings, those of a part by PART.OPTION
    join: Callable[[str, str], str | None]  # (row, part): the row with the part; None where they do not join
    base: str = "baseline"
    axis: str = "learning_rate"


@dataclass
class Composed:
    """A composition at the settings that are best for it so far."""

    row: str
    settings: Settings
    found: Found  # of the tuning seeds
    trials: int  # that led to it


@dataclass
class Round:
    """What one round tried."""

    best: str  # the row that it started from
    best_screened: float = math.nan  # its mean validation score on the seeds of the screening
    screened: dict[str, float] = field(default_factory=dict)  # that of each row at the settings of the best one
    left_out: int = 0  # rows that the budget was too short for
    tuned: dict[str, dict[str, Any]] = field(
        default_factory=dict
    )  # by row: "validation", "chosen", "trials" up to here
    confirmed: dict[str, dict[str, float]] = field(default_factory=dict)  # by row: "difference", "error" and "n"
    added: str | None = None  # the row that the next one starts from


@dataclass
class Selected:
    """What a forward selection found."""

    winner: Composed  # the baseline, where no part gains
    baseline: Composed
    rounds: list[Round]
    tuned: Tuned  # all trials of the baseline
    axis: Axis
    fresh: int  # seeds to compare the two over
    ended: str  # why there is no further round


def smallest(seconds: float, fresh: int = LEAST_FRESH) -> float:
    """The smallest budget, in seconds, where a run of the baseline takes so many.

    Example:
        >>> smallest(2.0)  # 6 trials, then 3 fresh seeds
        27.0
    """
    return seconds * (LEAST_TRIALS + _FINAL * fresh)


def forward(
    space: Space,
    train: Train,
    budget: float,
    *,
    run_seconds: float,
    fresh: int | None = None,
    lower_is_better: bool = True,
    tell: Callable[[str], None] = lambda text: None,
) -> Selected:
    """Tunes the baseline, then adds the part that gains most, as long as one does and there is time.

    Args:
        space: what is searched.
        train: trains what is asked for, of all rows together.
        budget: seconds, those of the fresh runs of winner and baseline included.
        run_seconds: about what a run of the baseline takes.
        fresh: seeds that these will be compared over; as many as a quarter of the budget allows, 3 to 10.
        lower_is_better: of the score.
        tell: is told what each stage found.

    Raises:
        ValueError: the budget is too small, or no trial of the baseline has a score.
    """
    least = smallest(run_seconds, fresh or LEAST_FRESH)
    if budget < least:
        raise ValueError(
            f"expected a budget of at least {duration(least)}, since a run takes about {duration(run_seconds)}, got "
            f"{duration(budget)}"
        )
    if fresh is None:
        fresh = min(max(int(0.25 * budget / (_FINAL * run_seconds)), LEAST_FRESH), MOST_FRESH)
    return _Selection(space, train, budget, run_seconds, fresh, lower_is_better, tell).selected()


class _Selection:
    """One forward selection, and what it has spent."""

    def __init__(
        self,
        space: Space,
        train: Train,
        budget: float,
        run_seconds: float,
        fresh: int,
        lower_is_better: bool,
        tell: Callable[[str], None],
    ) -> None:
        self.space, self.train, self.budget, self.fresh, self.tell = space, train, budget, fresh, tell
        self.sign = 1.0 if lower_is_better else -1.0
        self.spent = 0.0
        self.prices = {space.base: run_seconds}  # seconds of a run, by row
        trials, seeds = next(
            (each for each in _BASELINE if each[0] * each[1] * run_seconds <= _FOR_BASELINE * budget), _BASELINE[-1]
        )
        self.trials, self.seeds = trials, [FIRST_SEED + k for k in range(seeds)]
        self.axis = tuning.around(space.axis, space.learning_rate, tuning.on_grid(trials))

    @property
    def left(self) -> float:
        """Seconds for the selection; what the fresh runs will take is put aside."""
        return self.budget - self.spent - self.fresh * _FINAL * self.prices[self.space.base]

    def price(self, row: str, best: str) -> float:
        """Seconds of a run, as it took before, or as one of something else is expected to take."""
        return self.prices.get(row, _SLOWER * self.prices[best])

    def asked(
        self, stage: str, asked: Mapping[str, Sequence[Settings]], seeds: Sequence[int]
    ) -> dict[str, list[Found]]:
        """What settings found; what they cost is noted."""
        found, seconds = self.train(stage, asked, seeds)
        self.spent += seconds
        total = sum(each.seconds for own in found.values() for each in own)
        for row, own in found.items():
            part = sum(each.seconds for each in own) / total if total else len(own) / sum(map(len, found.values()))
            self.prices[row] = seconds * part / (len(own) * len(seeds))
        return {row: list(own) for row, own in found.items()}

    def selected(self) -> Selected:
        """The whole of it."""
        base = self.space.base
        baseline = tuning.tuned(
            {base: self.space.ranges(base)},
            self.axis,
            self.trials,
            lambda stage, asked: self.asked(f"{base}-{stage}", asked, self.seeds),
            lower_is_better=self.sign > 0,
        )[base]
        if baseline.best is None:
            raise ValueError(f"expected a validation score of at least one trial of {base}, got none")
        best = Composed(base, baseline.best.settings, baseline.best.found, len(baseline.trials))
        self.tell(f"{base}, tuned: validation score {number(best.found.mean)}, {self._time()}")
        parts, rounds, ended = list(self.space.parts), list[Round](), ""
        for place in itertools.count(1):
            own, best, ended = self._round(place, best, parts, baseline)
            if own.screened:
                rounds.append(own)
            if own.added is None:
                break
            order = {
                row: k for k, row in enumerate(sorted(own.screened, key=lambda row: self._rank(own.screened[row])))
            }
            parts.sort(key=lambda part: order.get(self.space.join(own.best, part) or "", len(order)))
        self.tell(f"no further round: {ended}")
        held_to = self._evenly(baseline, best)
        return Selected(best if best.row != base else held_to, held_to, rounds, baseline, self.axis, self.fresh, ended)

    def _round(self, place: int, best: Composed, parts: Sequence[str], baseline: Tuned) -> tuple[Round, Composed, str]:
        """One round: what it tried, the best composition after it, and why there is no other if it added nothing."""
        own, base = Round(best.row), self.space.base
        rows = {joined: part for part in parts if (joined := self.space.join(best.row, part)) is not None}
        if not rows:
            return own, best, "no further part can join"
        self._screen(place, own, best, list(rows))
        promising = [row for row in self._ranked(own.screened) if math.isfinite(own.screened[row])]
        if not promising:
            return own, best, "every run failed" if own.screened else "the budget is spent"
        known = baseline if best.row == base else Tuned([Trial(best.settings, best.found)], self.sign > 0)
        found, best = self._tune(place, own, best, promising, rows, known)
        finalists = [each for each in found if self._rank(each.found.mean) < self._rank(best.found.mean)][:_FINALISTS]
        if not own.tuned:  # for want of time: as they were screened
            finalists = [Composed(row, best.settings, best.found, best.trials) for row in promising[:_FINALISTS]]
        if not finalists:
            return own, best, f"nothing that was tried gains on {best.row} on validation data"
        gaining = self._confirm(place, own, best, finalists)
        if gaining is None:
            why = (
                "the budget is spent" if not own.confirmed else f"no gain on {best.row} was confirmed on further seeds"
            )
            return own, best, why
        own.added = gaining.row
        return own, gaining, ""

    def _screen(self, place: int, own: Round, best: Composed, rows: Sequence[str]) -> None:
        """Every row at the settings of the best one."""
        end, price = self.spent + _FOR_SCREENING * self.left, self.price("", best.row)
        seeds = self.seeds[:_SCREENING_SEEDS]
        if len(rows) * len(seeds) * price > end - self.spent:
            seeds = seeds[:1]
        own.best_screened = fmean(best.found.scores[: len(seeds)])
        for turn, start in enumerate(range(0, len(rows), _AT_ONCE), 1):
            some = rows[start : start + max(min(int((end - self.spent) / (len(seeds) * price)), _AT_ONCE), 0)]
            if not some:
                break
            more = f" and {len(rows) - start - len(some)} more" if len(rows) > start + len(some) else ""
            self.tell(f"round {place}: screening {', '.join(some)}{more}, {self._time()}")
            found = self.asked(f"round-{place}-screening-{turn}", {row: [best.settings] for row in some}, seeds)
            own.screened |= {row: found[row][0].mean for row in some}
        own.left_out = len(rows) - len(own.screened)

    def _tune(
        self,
        place: int,
        own: Round,
        best: Composed,
        promising: Sequence[str],
        parts: Mapping[str, str],
        known: Tuned,
    ) -> tuple[list[Composed], Composed]:
        """The settings of the most promising rows, and as many trials for the best one; the rows, best first."""
        rows, trials = self._affordable(best, promising)
        if not rows:
            return [], best
        self.tell(f"round {place}: tuning {', '.join(rows)}, {self._time()}")
        axis = self.space.axis
        rate = float(best.settings[axis])
        near = Axis(axis, [rate / _NEAR, rate, rate * _NEAR])
        fixed = {row: {key: value for key, value in best.settings.items() if key != axis} for row in rows}
        fixed[best.row] = {}

        def evaluate(stage: str, asked: Mapping[str, Sequence[Settings]]) -> dict[str, list[Found]]:
            whole = {row: [{**fixed[row], **each} for each in every] for row, every in asked.items()}
            return self.asked(f"round-{place}-{stage}", whole, self.seeds)

        first = evaluate("first", {row: [{axis: rate}] for row in rows})
        found = {row: Tuned([Trial({axis: rate}, first[row][0])], self.sign > 0) for row in rows}
        ranges = {row: _of_part(self.space.ranges(row), parts[row]) for row in rows}
        before = len(known.trials)
        tuning.searched(
            {**found, best.row: known},
            {**ranges, best.row: self.space.ranges(best.row)},
            near,
            {**dict.fromkeys(rows, trials), best.row: before + trials},
            evaluate,
            seed=place,
        )
        composed = []
        for row, each in found.items():
            own.tuned[row] = {"validation": math.nan, "chosen": {}, "trials": best.trials + trials}
            if each.best is not None:
                settings = {**fixed[row], **each.best.settings}
                composed.append(Composed(row, settings, each.best.found, best.trials + trials))
                own.tuned[row] |= {"validation": each.best.found.mean, "chosen": settings}
        assert known.best is not None
        best = Composed(best.row, known.best.settings, known.best.found, best.trials + trials)
        own.tuned[best.row] = {"validation": best.found.mean, "chosen": best.settings, "trials": best.trials}
        return sorted(composed, key=lambda each: self._rank(each.found.mean)), best

    def _affordable(self, best: Composed, promising: Sequence[str]) -> tuple[list[str], int]:
        """Which rows are tuned, and with how many trials each; slow ones that leave no time for others are not."""
        room = _FOR_TUNING * self.left
        for count, trials in _TUNED:
            rows: list[str] = []
            cost = trials * len(self.seeds) * self.price(best.row, best.row)
            for row in promising[: _PASSED_OVER * count]:
                own = trials * len(self.seeds) * self.price(row, best.row)
                if len(rows) < count and cost + own <= room:
                    rows.append(row)
                    cost += own
            if rows and len(rows) == min(count, len(promising)):
                return rows, trials
        return [], 0

    def _confirm(self, place: int, own: Round, best: Composed, finalists: Sequence[Composed]) -> Composed | None:
        """The finalist that gains most on seeds of its own, of those whose 95% interval is clear of 0."""
        plans = ((some, count) for count in _CONFIRMING for some in range(len(finalists), 0, -1))

        def cost(some: int, count: int) -> float:
            return count * sum(self.price(each.row, best.row) for each in (*finalists[:some], best))

        some, count = next((each for each in plans if cost(*each) <= self.left), (0, 0))
        if not count:
            return None
        finalists = finalists[:some]
        seeds = [FIRST_SEED + _CONFIRMING_SEEDS * place + k for k in range(count)]
        self.tell(f"round {place}: confirming {', '.join(each.row for each in finalists)}, {self._time()}")
        asked = {each.row: [each.settings] for each in (best, *finalists)}
        found = {row: each[0].scores for row, each in self.asked(f"round-{place}-confirming", asked, seeds).items()}
        gaining: list[tuple[float, Composed]] = []
        for each in finalists:
            pairs = zip(found[each.row], found[best.row], strict=True)
            differences = [x - y for x, y in pairs if math.isfinite(x) and math.isfinite(y)]
            if len(differences) < count:  # one that fails at a seed is none to be chosen
                own.confirmed[each.row] = {"difference": math.nan, "error": math.nan, "n": len(differences)}
                continue
            mean, error = fmean(differences), stdev(differences) / math.sqrt(count)
            own.confirmed[each.row] = {"difference": mean, "error": error, "n": count}
            if self.sign * mean < -_CONFIRMING[count] * error:
                gaining.append((self.sign * mean, each))
        return min(gaining, key=lambda each: each[0])[1] if gaining else None

    def _evenly(self, baseline: Tuned, winner: Composed) -> Composed:
        """The baseline after as many trials as led to the winner, as far as there is time."""
        base, more = self.space.base, winner.trials - len(baseline.trials)
        price = len(self.seeds) * self.prices[base]
        more = min(more, int(self.left / price)) if price > 0 else more
        if more > 0:
            self.tell(f"{base}: {more} more trials, as many as led to {winner.row}, {self._time()}")
            assert baseline.best is not None
            rate = float(baseline.best.settings[self.space.axis])
            tuning.searched(
                {base: baseline},
                {base: self.space.ranges(base)},
                Axis(self.space.axis, [rate / _NEAR, rate, rate * _NEAR]),
                len(baseline.trials) + more,
                lambda stage, asked: self.asked(f"{base}-again-{stage}", asked, self.seeds),
                seed=-1,
            )
        best = baseline.best
        assert best is not None
        return Composed(base, best.settings, best.found, len(baseline.trials))

    def _ranked(self, scores: Mapping[str, float]) -> list[str]:
        """Rows, the best first."""
        return sorted(scores, key=lambda row: self._rank(scores[row]))

    def _rank(self, score: float) -> float:
        """Smaller is better; what is no number comes last."""
        return self.sign * score if math.isfinite(score) else math.inf

    def _time(self) -> str:
        return f"{duration(self.spent)} of {duration(self.budget)} spent"


def _of_part(ranges: Mapping[str, Range], part: str) -> dict[str, Range]:
    return {name: own for name, own in ranges.items() if name.startswith(f"{part}.")}
