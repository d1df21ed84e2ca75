"""A training loop, called for every method and seed."""

import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordinal_entropy.comparison import text, tuned_loops
from ordinal_entropy.comparison.calls import Calls, kept_in, labelled
from ordinal_entropy.comparison.returned import points_of
from ordinal_entropy.comparison.statistics import number, special_functions
from ordinal_entropy.comparison.summaries import POINTS, Failure, StopEarly, adjusted, settled, summary
from ordinal_entropy.comparison.tuning import SEEDS, TRIALS
from ordinal_entropy.comparison.verdicts import FEW, verdict
from ordinal_entropy.environment import environment as present_environment
from ordinal_entropy.methods import Method
from ordinal_entropy.runs import write_json


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare` found; prints as a table and the verdict."""

    summary: dict[str, Any]

    @property
    def verdict(self) -> list[str]:
        """A paragraph for each method: see :func:`ordinal_entropy.comparison.verdict`."""
        return verdict(self.summary).sentences

    def write(self, folder: str | Path) -> Path:
        """Writes ``summary.json`` into the folder, atomically, and returns its path."""
        path = Path(folder) / "summary.json"
        write_json(path, self.summary)
        return path

    def __str__(self) -> str:
        pairs, called = self.summary["paired"], {each.method: each.decision for each in verdict(self.summary).findings}
        signs = any(pair["n"] < FEW and number(pair.get("sign_p_value")) >= 0 for pair in pairs.values())
        several, p_values = len(pairs) > 1, adjusted(self.summary)
        tests = [*(["p after Holm", "raw p"] if several else ["p"]), *(["sign test"] if signs else [])]
        headings = ["method", "mean ± std", "n", "difference", "95% CI", *tests, "verdict"]
        lines = [headings if pairs else headings[:3]]
        for name, method in self.summary["methods"].items():
            line = [name, text.mean_and_std(method["values"]), str(method["n"])]
            if name in pairs:
                pair = pairs[name]
                difference, low, high = text.interval(pair["difference"], pair["ci_low"], pair["ci_high"])
                line += [difference, text.NONE if low is None else f"{low} to {high}", text.probability(p_values[name])]
                line += [text.probability(pair["p_value"])] if several else []
                line += [text.probability(pair.get("sign_p_value"))] if signs else []
                line += [called[name]]
            lines.append(line + [""] * (len(lines[0]) - len(line)))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(
                [line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))]
            )
            for line in lines
        ]
        return "\n".join([*(line.rstrip() for line in table), "", *self.verdict])


def compare(
    train: Callable[[Any, int], Any] | tuned_loops.TunedTrain,
    methods: str | Method | Iterable[str | Method] | Mapping[str, Any] = ("baseline", "oe"),
    seeds: int | Sequence[int] = 10,
    *,
    lower_is_better: bool = True,
    metric: str = "score",
    task: str = "custom",
    stop_early: bool = False,
    smallest: float | None = None,
    tune: Mapping[str, Any] | None = None,
    trials: int | None = None,
    tuning_seeds: int | Sequence[int] | None = None,
    tunings: int | None = None,
    out: str | os.PathLike[str] | None = None,
) -> Comparison:
    """Trains every method at every seed and compares them pair by pair.

    A seed stands for all that is random in a run: initialisation, order of the data, split. Use it for all of these
    and for every method alike, so that runs of one seed differ by the method alone. Needs SciPy's distributions, which
    the extra ``train`` brings.

    Args:
        train: called with a method and a seed; returns the score, or the scores ``{"last": ..., "best_validation":
            ..., "best_test": ...}`` of which that at the best validation point is compared, or ``{"validation": [...],
            "test": [...]}``, the scores during training, of which these three are taken. NaN for a run that diverged.
            A run that raises an exception is noted and left out, and the others continue; where the first run of every
            method does, that is a RuntimeError.
        methods: names, which ``train`` understands; or objects of :func:`ordinal_entropy.methods.create`, whose labels
            are their names, and of which ``train`` gets a copy for each run; or a mapping of labels to anything, which
            ``train`` gets. The others are compared with "baseline", or with the first where that is not among them.
        seeds: how many (0, 1, ...), or which.
        lower_is_better: of the score.
        metric: name of the score.
        task: name of the task.
        stop_early: judge after every seed and stop once no verdict is open; ``seeds`` are then the most. Intervals and
            p-values are those of :func:`ordinal_entropy.comparison.paired_anytime`, which allow for it.
        smallest: where one may stop early, the smallest difference that matters, in the unit of the score: a method
            that is known to differ by less is settled too.
        tune: tunes every method on validation data first, each with the same number of trials: ranges of settings by
            their names, ``(low, high)``, a list of values, or a :class:`ordinal_entropy.methods.Range`. The first one,
            usually the learning rate, is also tried on a grid that all methods share. A mapping under the name of a
            method has ranges of that method alone. ``train`` is then called with a third argument, a dictionary of
            settings, and returns ``{"validation": ..., "test": ...}``; while tuning, only the first of the two is
            looked at. A seed must then not decide which rows are test rows. Needs Optuna, the extra ``tune``.
        trials: of each method; 16 unless given.
        tuning_seeds: that each trial is trained with: how many (3 unless given), or which; none of ``seeds``.
        tunings: independent ones, 1 unless given. The verdict is then of the methods at the settings that were chosen
            once; with 3 or more, each with fresh seeds of its own, of tuning and then training.
        out: a folder that keeps the result of every call of ``train`` as it ends. A call whose result is there is not
            repeated, so that the same comparison resumes, and methods and seeds may be added; runs that failed are
            tried again. ``summary.json`` is written there at the end. A folder of another task, score or ``tune``, or
            one that another process is at work in, is an error.

    Returns:
        The comparison: ``print`` it, ``write`` it, or read its ``summary`` and ``verdict``.

    Example:
        >>> losses = {"baseline": [3.0, 3.2, 2.9], "oe": [2.0, 2.3, 2.0]}
        >>> print(compare(lambda method, seed: losses[method][seed], seeds=3, metric="MSE"))
        method     mean ± std  n  difference          95% CI       p  sign test  verdict
        baseline  3.03 ± 0.15  3
        oe        2.10 ± 0.17  3       -0.93  -1.08 to -0.79  0.0013       0.25   better
        <BLANKLINE>
        oe is better than baseline: MSE 2.10 against 3.03, difference -0.93 (-30.8%; 95% CI -1.08 to -0.79; n = 3;
        p = 0.001; sign test p = 0.250, the smallest possible with n = 3).
        >>> found = compare(lambda method, seed: seed - (method == "oe") * (seed % 3 + 1), seeds=50, stop_early=True)
        >>> found.summary["paired"]["oe"]["n"], found.summary["paired"]["oe"]["verdict"]
        (6, 'helps')

        Interrupted comparisons resume where there is a folder:

        >>> import tempfile
        >>> def train(method, seed):
        ...     print("training", method, seed)
        ...     return losses[method][seed]
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = compare(train, ["baseline"], 2, out=folder)
        ...     found = compare(train, ["baseline", "oe"], 2, out=folder)
        training baseline 0
        training baseline 1
        training oe 0
        training oe 1
    """
    special_functions()  # a missing SciPy is found before the first run, not after the last
    if not callable(train):
        raise TypeError(f"expected train to be a function of a method and a seed, got {type(train).__name__}")
    if not isinstance(seeds, int | Iterable):
        raise TypeError(f"expected seeds to say how many or which, got {seeds!r}")
    if tune is None and (trials, tuning_seeds, tunings) != (None, None, None):
        raise ValueError("expected tune, the ranges of settings, beside trials, tuning_seeds or tunings, got none")
    given = labelled(methods)
    names = list(given)
    numbers = list(range(seeds)) if isinstance(seeds, int) else [int(seed) for seed in seeds]
    if not names or not numbers:
        raise ValueError(f"expected at least one method and one seed, got {len(names)} and {len(numbers)}")
    if len(set(numbers)) < len(numbers):
        raise ValueError(f"expected seeds that are all different, got {numbers}")
    if smallest is not None and not stop_early:
        raise ValueError(
            f"expected stop_early=True beside smallest, which is a reason to stop, got smallest={smallest}"
        )
    if stop_early and len(names) < 2:
        raise ValueError(f"expected two or more methods where one may stop early, got {names[0]} alone")
    label: dict[str, Any] = {"study": "oe.compare", "task": task, "metric": metric, "lower_is_better": lower_is_better}
    label |= {"stop_early": stop_early, "axis": None, "ranges": {}}
    if tune is not None:
        if stop_early:
            raise ValueError("expected tune or stop_early, got both")
        several, again = SEEDS if tuning_seeds is None else tuning_seeds, 1 if tunings is None else tunings
        plan = tuned_loops.planned(
            names,
            seeds if isinstance(seeds, int) else numbers,
            tune=tune,
            trials=TRIALS if trials is None else trials,
            tuning_seeds=several if isinstance(several, int) else list(several),
            tunings=again,
        )
        with kept_in(out, label | tuned_loops.described(plan)) as folder:
            return _written(
                tuned_loops.tuned_summary(
                    Calls(train, given, folder),
                    plan,
                    lower_is_better=lower_is_better,
                    metric=metric,
                    task=task,
                    progress=_progress,
                ),
                folder,
            )
    rule = StopEarly(len(numbers), smallest).checked() if stop_early else None
    scores: dict[str, dict[str, list[float]]] = {name: {point: [] for point in POINTS} for name in names}
    failures: list[Failure] = []

    def found(so_far: int) -> dict[str, Any]:
        return summary(
            task=task,
            metric=metric,
            lower_is_better=lower_is_better,
            scores=scores,
            recipe={"seeds": numbers[:so_far]},
            environment=environment,
            baseline="baseline" if "baseline" in names else names[0],
            failures=failures,
            stop_early=rule,
        )

    def scored(returned: Any) -> dict[str, float]:
        return points_of(returned, lower_is_better=lower_is_better)

    environment = present_environment()
    with kept_in(out, label) as folder, _progress(len(names) * len(numbers)) as advance:
        called = Calls(train, given, folder)
        for done, seed in enumerate(numbers, start=1):  # all methods of a seed first: what is stopped has whole pairs
            raised: Exception | None = None
            for name in names:
                own = called(name, seed, scored, points=POINTS)
                raised = raised or own.error
                failures += [failure for failure in [own.failure(name, seed)] if failure]
                for point in POINTS:
                    scores[name][point].append(own.scores[point])
                advance(f"{name}, seed {seed}", own.kept)
            if done == 1 and len(failures) == len(names):
                raise RuntimeError(
                    f"expected train to work, got {failures[0].type} from every method at the first seed, {seed}: "
                    f"{failures[0].message}"
                ) from raised
            if rule is not None and settled(found(done)):
                break
        return _written(found(done), folder)


def _written(made: dict[str, Any], folder: Path | None) -> Comparison:
    result = Comparison(made)
    if folder is not None:
        result.write(folder)
    return result


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str, bool], None]]:
    """A bar with the time left on a terminal where rich is installed; elsewhere nothing.

    What it yields is told of every run, and whether that was kept: such a run is none of those that take time.
    """
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield lambda what, kept: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=total)
        left = [total]

        def advance(what: str, kept: bool) -> None:
            left[0] -= kept
            progress.update(bar, advance=not kept, total=left[0], description=what)

        yield advance
