"""How often a comparison is wrong, and how many seeds it takes: simulated studies, without any training.

    python benchmarks/bench_compare.py                     # some minutes; writes bench_compare.json
    python benchmarks/bench_compare.py --studies 2000 --out /tmp/a.json

A study is a row of paired differences. Without a true difference every verdict "better" or "worse" is wrong: of
Student's t at a fixed number of seeds, looked at after each seed, or with as many seeds added as its own verdict
advises; and of the interval that holds however often one looks (``stop_early``), for differences of several
distributions of mean 0. Also: how often Student's interval and others hold for skewed differences, and how often the
verdict warns of these; how often equal spreads are told apart; and what the estimate of the seeds needed is worth.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from ordinal_entropy.comparison import looks_skewed, seeds_needed, seeds_needed_range
from ordinal_entropy.comparison.anytime import critical
from ordinal_entropy.comparison.statistics import LEVEL

import record

MOST = 50  # seeds of a study that may stop early
ADVISED = 200  # more seeds than these are not advised


def student(x: np.ndarray, n: int) -> np.ndarray:
    """Student's t of the first n differences of each study."""
    return x[:, :n].mean(1) / (x[:, :n].std(1, ddof=1) / math.sqrt(n))


def stops(x: np.ndarray, bounds: dict[int, float]) -> np.ndarray:
    """After how many seeds each study stops; 0: never."""
    when = np.zeros(len(x), dtype=int)
    for n, bound in bounds.items():
        when = np.where((when == 0) & (np.abs(student(x, n)) > bound), n, when)
    return when


def fixed(n: int) -> float:
    """What Student's t must exceed at n seeds."""
    return float(special.stdtrit(n - 1, 1 - LEVEL / 2))


def advised(x: np.ndarray, begin: int) -> float:
    """Share of studies that are wrong after adding as many seeds as the verdict of the first ones asks for."""
    wrong = 0
    for row in x:
        n = begin
        if abs(student(row[None], begin)[0]) <= fixed(begin):
            need = seeds_needed(float(row[:begin].mean()), float(row[:begin].std(ddof=1)))
            if need is None or not begin < need <= begin + ADVISED:
                continue
            n = need
        wrong += int(abs(student(row[None], n)[0]) > fixed(n))
    return wrong / len(x)


def drawn(random: np.random.Generator, law: str, size: tuple[int, ...]) -> np.ndarray:
    """Numbers of mean 0."""
    if law == "exponential":
        return random.exponential(size=size) - 1
    if law == "lognormal":
        return random.lognormal(0, 1, size) - math.exp(0.5)
    if law == "laplace":
        return random.laplace(size=size)
    return random.standard_t(3, size) if law == "student, 3 degrees of freedom" else random.standard_normal(size)


LAWS = ("normal", "student, 3 degrees of freedom", "laplace", "exponential", "lognormal")


def skewness(x: np.ndarray) -> np.ndarray:
    """Of each study."""
    offset = x - x.mean(1, keepdims=True)
    return (offset**3).mean(1) / (offset**2).mean(1) ** 1.5


def intervals(random: np.random.Generator, studies: int) -> dict[str, Any]:
    """How often 95% intervals of the mean difference hold, and how often the verdict warns that they may not."""
    found: dict[str, Any] = {}
    for law in LAWS:
        for n in (5, 6, 8, 10, 20):
            x = drawn(random, law, (studies, n))
            t, skewed = student(x, n), skewness(x)
            warned = np.array([looks_skewed(value, n) for value in skewed])
            wrong = np.abs(t) > fixed(n)
            ratio = t / math.sqrt(n) * math.sqrt((n - 1) / n)  # mean over standard deviation, with n
            hall = ratio + skewed * ratio**2 / 3 + skewed**2 * ratio**3 / 27 + skewed / (6 * n)
            johnson = t + skewed * ((n - 1) / n) ** 1.5 / (6 * math.sqrt(n))
            found.setdefault(law, {})[str(n)] = {
                "student": round(1 - float(wrong.mean()), 4),
                "hall": round(1 - float((math.sqrt(n) * np.abs(hall) > fixed(n)).mean()), 4),
                "johnson": round(1 - float((np.abs(johnson) > fixed(n)).mean()), 4),
                "bootstrap_t": round(1 - bootstrap(random, x[: max(1, studies // 50)]), 4),
                "warned": round(float(warned.mean()), 4),
                "wrong_without_warning": round(float((wrong & ~warned).mean()), 4),
            }
    return found


def bootstrap(random: np.random.Generator, x: np.ndarray, resamples: int = 500) -> float:
    """Share of studies whose equal-tailed bootstrap-t interval misses the mean."""
    n, wrong = x.shape[1], 0
    for row in x:
        again = row[random.integers(0, n, (resamples, n))]
        error = again.std(1, ddof=1) / math.sqrt(n)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = (again.mean(1) - row.mean()) / error
        low, high = np.nanquantile(t, [LEVEL / 2, 1 - LEVEL / 2])
        wrong += not low <= student(row[None], n)[0] <= high
    return wrong / len(x)


def spreads(random: np.random.Generator, studies: int) -> dict[str, Any]:
    """How often a spread is told apart from an equal one, and from one three times as large, by two tests."""
    found: dict[str, Any] = {}
    for law in LAWS:
        for common in (0.0, 0.6):  # the variance that both runs of a seed have in common
            for n in (5, 6, 10, 20):
                parts = drawn(random, law, (studies, n, 3))
                x, y = np.moveaxis(math.sqrt(common) * parts[..., :1] + math.sqrt(1 - common) * parts[..., 1:], 2, 0)
                found.setdefault(law, {}).setdefault(f"{common:g} in common", {})[str(n)] = {
                    name: [round(float((test(k * x, y) < LEVEL).mean()), 4) for k in (1, 3)]
                    for name, test in (("levene_for_pairs", levene), ("pitman_morgan", pitman_morgan))
                }
    return found


def levene(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """p-values of ``comparison.spread``, of all studies at once."""
    far = [np.abs(column - np.median(column, axis=1, keepdims=True)) for column in (x, y)]
    n = x.shape[1]
    return 2 * special.stdtr(n - 1, -np.abs(student(far[0] - far[1], n)))


def pitman_morgan(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """p-values of the test of variances that it takes the place of: are sums and differences correlated?"""
    n = x.shape[1]
    sums, own = ((column - column.mean(1, keepdims=True)) for column in (x + y, x - y))
    r = (sums * own).sum(1) / np.sqrt((sums**2).sum(1) * (own**2).sum(1))
    return 2 * special.stdtr(n - 2, -np.abs(r) * np.sqrt((n - 2) / (1 - r**2)))


def estimates(random: np.random.Generator, studies: int) -> dict[str, Any]:
    """Of pilots that end open: the power of a new comparison with as many seeds as they ask for, and their ranges."""
    found: dict[str, Any] = {}
    for pilot in (5, 10):
        for effect in (0.2, 0.3, 0.5, 0.8):
            needed, shown, held, asked = seeds_needed(effect, 1.0), 0.0, 0, []
            rows = random.standard_normal((studies, pilot)) + effect
            rows = rows[np.abs(student(rows, pilot)) <= fixed(pilot)]
            for row in rows:
                mean, deviation = float(row.mean()), float(row.std(ddof=1))
                n = seeds_needed(mean, deviation)
                fewest, most = seeds_needed_range(mean, deviation, pilot)
                held += fewest <= needed and (most is None or needed <= most)
                if n is not None and n <= pilot + ADVISED:  # more are not advised
                    asked.append(n)
                    shown += 1 - float(special.nctdtr(n - 1, math.sqrt(n) * effect, fixed(n)))
            found[f"{pilot} seeds, effect {effect:g}"] = {
                "needed": needed,
                "asked_for_median": float(np.median(asked)),
                "not_worth_it": round(1 - len(asked) / len(rows), 4),
                "power_of_those": round(shown / len(asked), 4),
                "range_holds": round(held / len(rows), 4),
            }
    return found


def main() -> None:
    """Simulates, prints and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    random, size = np.random.default_rng(0), (options.studies, MOST)
    at_any_time = {n: critical(n, LEVEL) for n in range(2, 400)}
    normal = random.standard_normal(size)
    draws = {"normal": normal, **{law: drawn(random, law, size) for law in LAWS[1:]}}
    wrong: dict[str, Any] = {
        "student_at_10_seeds": {name: float((np.abs(student(x, 10)) > fixed(10)).mean()) for name, x in draws.items()},
        "student_after_each_of_3_to_20": float((stops(normal, {n: fixed(n) for n in range(3, 21)}) > 0).mean()),
        "student_at_10_and_as_many_more_as_advised": advised(
            random.standard_normal((options.studies // 5, 10 + ADVISED)), 10
        ),
        "stop_early_within_50": {
            name: float((stops(x, {n: at_any_time[n] for n in range(2, MOST + 1)}) > 0).mean())
            for name, x in draws.items()
        },
    }
    seeds = {}
    for effect, most in ((0.5, 399), (1.0, 150), (2.0, 50), (3.0, 50)):
        when = stops(
            random.standard_normal((options.studies // 10, most)) + effect, {n: at_any_time[n] for n in range(2, most)}
        )
        seeds[f"{effect:g}"] = {
            "stop_early_mean": float(np.where(when == 0, most, when).mean()),
            "t_test_of_80_percent": seeds_needed(effect, 1.0),
        }
    width = {n: at_any_time[n] / fixed(n) for n in (4, 10, 20, 50)}
    results = {
        "studies": options.studies,
        "false_verdicts": wrong,
        "seeds_by_standard_deviations": seeds,
        "width_over_students": {str(n): round(value, 3) for n, value in width.items()},
        "intervals_hold": intervals(random, options.studies),
        "spreads_told_apart": spreads(random, options.studies // 5),
        "seeds_needed_after_an_open_pilot": estimates(random, options.studies // 50),
    }
    print(results)
    record.write(options.out, results)


if __name__ == "__main__":
    main()
