"""Did it help? Scores of several methods over the same seeds, compared pair by pair, with a verdict in words."""

import importlib.util
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from ordinal_entropy.environment import environment as present_environment
from ordinal_entropy.runs import write_json

_POINTS = ("last", "best_validation", "best_test")  # of a run, at which it is scored
_LEVEL = 0.05


class Paired(NamedTuple):
    """Mean of the differences, method minus baseline, with its 95% interval and two-sided p-value."""

    difference: float
    ci_low: float
    ci_high: float
    p_value: float
    n: int


class Spread(NamedTuple):
    """Standard deviation of the method over that of the baseline, with a two-sided p-value for "they are equal"."""

    ratio: float
    p_value: float
    n: int


def paired(values: Sequence[float], baseline: Sequence[float]) -> Paired:
    """Student's t on the differences of pairs: runs of one seed, on the same data, differ by the method alone.

    Args:
        values: scores of a method, one a seed.
        baseline: scores of the baseline for the same seeds, in the same order.

    Returns:
        The comparison. Differences that are all equal have an interval of width 0 and a p-value of 0, or of 1 where
        all are 0.

    Example:
        >>> paired([1.0, 2.0, 3.0], [2.0, 3.5, 3.5])
        Paired(difference=-1.0, ci_low=-2.2420..., ci_high=0.2420..., p_value=0.0741..., n=3)
    """
    x, y = _pairs(values, baseline, at_least=2)
    n = len(x)
    mean, deviation = _mean_and_deviation([a - b for a, b in zip(x, y, strict=True)], scale=max(map(abs, x + y)))
    if deviation == 0:
        return Paired(mean, mean, mean, 0.0 if mean else 1.0, n)
    error = deviation / math.sqrt(n)
    distribution, quantile = _student()
    half = error * float(quantile(n - 1, 0.975))
    return Paired(mean, mean - half, mean + half, float(2 * distribution(n - 1, -abs(mean) / error)), n)


def spread(values: Sequence[float], baseline: Sequence[float]) -> Spread:
    """Do the scores of a method vary less from seed to seed? The Pitman-Morgan test, which allows for the pairing.

    Two variances are equal where sums and differences of the pairs are uncorrelated.

    Args:
        values: scores of a method, one a seed.
        baseline: scores of the baseline for the same seeds, in the same order.

    Returns:
        The ratio (infinite for a baseline that does not vary; NaN where neither does) and the p-value.

    Example:
        >>> spread([1.0, 2.0, 3.0, 4.0], [0.0, 5.0, 3.0, 9.0])
        Spread(ratio=0.3419..., p_value=0.0720..., n=4)
    """
    x, y = _pairs(values, baseline, at_least=3)
    n, scale = len(x), max(map(abs, x + y))
    (_, of_x), (_, of_y) = _mean_and_deviation(x, scale), _mean_and_deviation(y, scale)
    ratio = of_x / of_y if of_y else (math.inf if of_x else math.nan)
    sums = [a + b for a, b in zip(x, y, strict=True)]
    differences = [a - b for a, b in zip(x, y, strict=True)]
    (sum_mean, sum_deviation), (mean, deviation) = (_mean_and_deviation(d, scale) for d in (sums, differences))
    if sum_deviation == 0 or deviation == 0:
        return Spread(ratio, 1.0, n)
    products = math.fsum((s - sum_mean) * (d - mean) for s, d in zip(sums, differences, strict=True))
    r = products / ((n - 1) * sum_deviation * deviation)
    t = abs(r) * math.sqrt((n - 2) / (1 - r * r)) if abs(r) < 1 else math.inf
    return Spread(ratio, float(2 * _student()[0](n - 2, -t)), n)


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's adjustment: the smallest times m, the next times m - 1, ..., never falling; NaN counts as a test.

    Example:
        >>> holm({"ld": 0.01, "oe": 0.03})
        {'ld': 0.02, 'oe': 0.03}
    """
    adjusted, largest = dict(p_values), 0.0
    for rank, name in enumerate(
        sorted((k for k, p in p_values.items() if not math.isnan(p)), key=p_values.__getitem__)
    ):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[name]))
        adjusted[name] = largest
    return adjusted


def summary(
    *,
    task: str,
    metric: str,
    lower_is_better: bool,
    scores: Mapping[str, Mapping[str, Sequence[float]]],
    recipe: Mapping[str, Any],
    environment: Mapping[str, Any],
    baseline: str = "baseline",
) -> dict[str, Any]:
    """Everything that a comparison found, as it is written to ``summary.json``.

    Args:
        task: its name.
        metric: name of the score.
        lower_is_better: of the metric.
        scores: for each method ``{"last": [...], "best_validation": [...], "best_test": [...]}``, one score a seed in
            the same order everywhere; NaN or infinite for a run that diverged.
        recipe: what determined the runs but method and seed.
        environment: what they ran on.
        baseline: the method that the others are compared with.

    Returns:
        ``{"task", "metric", "lower_is_better", "methods": {name: {"values", "mean", "std", "n", "at"}}, "paired":
        {name: {"difference", "ci_low", "ci_high", "p_value", "n"}}, "spread": {name: {"ratio", "p_value", "n"}},
        "recipe", "environment"}``. "values" are the scores at the best validation point, and all that is compared;
        "std" is that of a sample (n - 1); "n" counts the runs that ended with a number. "paired" and "spread" hold
        every method but the baseline, over the seeds at which both ended with a number; what so few seeds do not
        determine is NaN.
    """
    if baseline not in scores:
        raise ValueError(f"expected scores of the baseline {baseline!r}, got those of {', '.join(scores) or 'none'}")
    at = {}
    for name, points in scores.items():
        if set(points) != set(_POINTS):
            raise ValueError(f"expected scores of {name!r} at {', '.join(_POINTS)}, got {', '.join(points) or 'none'}")
        at[name] = {point: [_number(value) for value in points[point]] for point in _POINTS}
    n = len(at[baseline]["best_validation"])
    for name, numbers in at.items():
        for point, values in numbers.items():
            if len(values) != n:
                raise ValueError(f"expected {n} scores of {name!r} at {point}, one a seed, got {len(values)}")
    base = at[baseline]["best_validation"]
    methods, differences, spreads = {}, {}, {}
    for name, numbers in at.items():
        values = numbers["best_validation"]
        finite = [value for value in values if math.isfinite(value)]
        methods[name] = {
            "values": values,
            "mean": _mean(finite) if finite else math.nan,
            "std": _deviation(finite) if len(finite) > 1 else math.nan,
            "n": len(finite),
            "at": numbers,
        }
        if name != baseline:
            x, y = _both_finite(values, base)
            differences[name] = _paired_if_possible(x, y)._asdict()
            spreads[name] = _spread_if_possible(x, y)._asdict()
    return {
        "task": task,
        "metric": metric,
        "lower_is_better": lower_is_better,
        "methods": methods,
        "paired": differences,
        "spread": spreads,
        "recipe": dict(recipe),
        "environment": dict(environment),
    }


def verdict(summary: Mapping[str, Any]) -> list[str]:
    """One sentence a method: better, worse, or no difference that so many seeds could show.

    A method is called better or worse where p < 0.05; with several methods, after Holm's adjustment for their number.

    Args:
        summary: from :func:`summary`, or read back from ``summary.json``.

    Example:
        >>> scores = {"baseline": [2.0, 3.5, 3.5], "oe": [1.0, 2.0, 2.5]}
        >>> at = {name: dict.fromkeys(("last", "best_validation", "best_test"), v) for name, v in scores.items()}
        >>> print(*verdict(summary(task="t", metric="MSE", lower_is_better=True, scores=at, recipe={}, environment={})))
        oe is better than baseline: MSE 1.83 against 3 (-38.9%), difference -1.17, 95% interval -1.88 to -0.45,
        p = 0.020, 3 seeds.
    """
    methods, pairs = summary["methods"], summary["paired"]
    baseline = next(name for name in methods if name not in pairs)
    if not pairs:
        return [f"Nothing to compare {baseline} with: no other method was run."]
    adjusted = holm({name: _number(pair["p_value"]) for name, pair in pairs.items()})
    base = [_number(value) for value in methods[baseline]["values"]]
    sentences = []
    for name, pair in pairs.items():
        values = [_number(value) for value in methods[name]["values"]]
        n, p, difference = int(pair["n"]), adjusted[name], _number(pair["difference"])
        x, y = _both_finite(values, base)
        if math.isnan(p):
            sentence = f"{name} against {baseline}: {n} {_seeds(n)} cannot show a difference, it takes at least 2"
        else:
            if p >= _LEVEL:
                opening = f"{name}: no difference from {baseline} that {n} seeds could show"
            else:
                better = (difference < 0) == summary["lower_is_better"]
                opening = f"{name} is {'better' if better else 'worse'} than {baseline}"
            center = _mean(y)
            change = f" ({difference / abs(center):+.1%})" if center else ""
            sentence = (
                f"{opening}: {summary['metric']} {_mean(x):.3g} against {center:.3g}{change}, "
                f"difference {difference:.3g}, 95% interval {pair['ci_low']:.3g} to {pair['ci_high']:.3g}, "
                f"{_p_value(pair['p_value'])}"
            )
            if len(pairs) > 1:
                sentence += f" ({_p_value(p)} after Holm's adjustment for {len(pairs)} methods)"
            sentence += f", {n} seeds"
        lost = [
            f"{len(v) - m} of {len(v)} runs of {who}"
            for who, v, m in ((name, values, _finite(values)), (baseline, base, _finite(base)))
            if m < len(v)
        ]
        if lost:
            sentence += f"; {' and '.join(lost)} did not finish with a number, and those seeds are left out"
        sentences.append(sentence + ".")
    return sentences


@dataclass(frozen=True)
class Comparison:
    """What :func:`compare` found; prints as a table and the verdict."""

    summary: dict[str, Any]

    @property
    def verdict(self) -> list[str]:
        """One sentence a method: see :func:`ordinal_entropy.comparison.verdict`."""
        return verdict(self.summary)

    def write(self, folder: str | Path) -> Path:
        """Writes ``summary.json`` into the folder, atomically, and returns its path."""
        path = Path(folder) / "summary.json"
        write_json(path, self.summary)
        return path

    def __str__(self) -> str:
        pairs = self.summary["paired"]
        lines = [["method", "mean", "std", "n", "difference", "95% interval", "p"]]
        for name, method in self.summary["methods"].items():
            line = [name, f"{_number(method['mean']):.3g}", f"{_number(method['std']):.3g}", str(method["n"])]
            if name in pairs:
                pair = {key: _number(value) for key, value in pairs[name].items()}
                interval = f"{pair['ci_low']:.3g} to {pair['ci_high']:.3g}"
                line += [f"{pair['difference']:+.3g}", interval, f"{pair['p_value']:.2g}"]
            lines.append(line + [""] * (7 - len(line)))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        table = [
            "  ".join(
                [line[0].ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(line[1:], widths[1:], strict=True))]
            )
            for line in lines
        ]
        return "\n".join([*(line.rstrip() for line in table), "", *self.verdict])


def compare(
    train: Callable[[str, int], float | Mapping[str, float]],
    methods: Sequence[str] = ("baseline", "oe"),
    seeds: int | Sequence[int] = 10,
    *,
    lower_is_better: bool = True,
    metric: str = "score",
    task: str = "custom",
) -> Comparison:
    """Trains every method at every seed and compares them pair by pair.

    A seed stands for all that is random in a run: initialisation, order of the data, split. Use it for all of these
    and for every method alike, so that runs of one seed differ by the method alone. Needs SciPy's distributions, which
    the extra ``train`` brings.

    Args:
        train: called with a method's name and a seed; returns the score, or the scores ``{"last": ...,
            "best_validation": ..., "best_test": ...}`` of which that at the best validation point is compared. NaN
            for a run that diverged.
        methods: names, which ``train`` understands. The others are compared with "baseline", or with the first where
            that is not among them.
        seeds: how many (0, 1, ...), or which.
        lower_is_better: of the score.
        metric: name of the score.
        task: name of the task.

    Returns:
        The comparison: ``print`` it, ``write`` it, or read its ``summary`` and ``verdict``.

    Example:
        >>> losses = {"baseline": [3.0, 3.2, 2.9], "oe": [2.0, 2.3, 2.0]}
        >>> print(compare(lambda method, seed: losses[method][seed], seeds=3, metric="MSE"))
        method    mean    std  n  difference    95% interval        p
        baseline  3.03  0.153  3
        oe         2.1  0.173  3      -0.933  -1.08 to -0.79  0.0013
        <BLANKLINE>
        oe is better than baseline: MSE 2.1 against 3.03 (-30.8%), difference -0.933, 95% interval -1.08 to -0.79,
        p = 0.001, 3 seeds.
    """
    _student()  # a missing SciPy is found before the first run, not after the last
    names = [methods] if isinstance(methods, str) else list(methods)
    numbers = list(range(seeds)) if isinstance(seeds, int) else [int(seed) for seed in seeds]
    if not names or not numbers:
        raise ValueError(f"expected at least one method and one seed, got {len(names)} and {len(numbers)}")
    for what, given in (("methods", names), ("seeds", numbers)):
        if len(set(given)) < len(given):
            raise ValueError(f"expected {what} that are all different, got {given}")
    scores: dict[str, dict[str, list[float]]] = {name: {point: [] for point in _POINTS} for name in names}
    with _progress(len(names) * len(numbers)) as advance:
        for seed in numbers:  # all methods of a seed first: what is stopped early has whole pairs
            for name in names:
                score = train(name, seed)
                points = score if isinstance(score, Mapping) else dict.fromkeys(_POINTS, score)
                if set(points) != set(_POINTS):
                    raise ValueError(
                        f"expected train to return a number or {', '.join(_POINTS)}, got {', '.join(points) or 'none'}"
                    )
                for point in _POINTS:
                    scores[name][point].append(float(points[point]))
                advance(f"{name}, seed {seed}")
    return Comparison(
        summary(
            task=task,
            metric=metric,
            lower_is_better=lower_is_better,
            scores=scores,
            recipe={"seeds": numbers},
            environment=present_environment(),
            baseline="baseline" if "baseline" in names else names[0],
        )
    )


def _student() -> tuple[Callable[[float, float], float], Callable[[float, float], float]]:
    """Student's distribution function and its inverse, each of (degrees of freedom, argument)."""
    try:
        from scipy import special
    except ImportError as error:
        raise ImportError("a comparison needs SciPy: pip install 'ordinal-entropy[train]'") from error
    return special.stdtr, special.stdtrit


def _number(value: float | None) -> float:
    """NaN for what is not finite, and for JSON's null."""
    return float(value) if value is not None and math.isfinite(value) else math.nan


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def _deviation(values: Sequence[float]) -> float:
    """Of a sample: n - 1."""
    mean = _mean(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _finite(values: Iterable[float]) -> int:
    return sum(map(math.isfinite, values))


def _both_finite(values: Sequence[float], baseline: Sequence[float]) -> tuple[list[float], list[float]]:
    pairs = [(a, b) for a, b in zip(values, baseline, strict=True) if math.isfinite(a) and math.isfinite(b)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def _pairs(values: Sequence[float], baseline: Sequence[float], at_least: int) -> tuple[list[float], list[float]]:
    x, y = [float(value) for value in values], [float(value) for value in baseline]
    if len(x) != len(y):
        raise ValueError(f"expected as many values as the baseline has, {len(y)}, got {len(x)}")
    wrong = len(x) + len(y) - _finite(x) - _finite(y)
    if wrong:
        raise ValueError(f"expected finite scores, got {wrong} that are NaN or infinite")
    if len(x) < at_least:
        raise ValueError(f"expected at least {at_least} pairs of scores, got {len(x)}")
    return x, y


def _mean_and_deviation(values: list[float], scale: float) -> tuple[float, float]:
    """Mean and standard deviation of a sample, 0 where they are no more than the rounding of numbers so large."""
    rounding = 4 * sys.float_info.epsilon * scale
    mean, deviation = _mean(values), _deviation(values)
    return mean if abs(mean) > rounding else 0.0, deviation if deviation > rounding else 0.0


def _paired_if_possible(x: list[float], y: list[float]) -> Paired:
    if len(x) >= 2:
        return paired(x, y)
    return Paired(x[0] - y[0] if x else math.nan, math.nan, math.nan, math.nan, len(x))


def _spread_if_possible(x: list[float], y: list[float]) -> Spread:
    return spread(x, y) if len(x) >= 3 else Spread(math.nan, math.nan, len(x))


def _p_value(p: float) -> str:
    return "p < 0.001" if p < 0.001 else f"p = {p:.3f}"


def _seeds(n: int) -> str:
    return "seed" if n == 1 else "seeds"


@contextmanager
def _progress(total: int) -> Iterator[Callable[[str], None]]:
    """A bar with the time left on a terminal where rich is installed; elsewhere nothing."""
    if not sys.stderr.isatty() or importlib.util.find_spec("rich") is None:
        yield lambda what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as progress:
        bar = progress.add_task("", total=total)
        yield lambda what: progress.update(bar, advance=1, description=what)
