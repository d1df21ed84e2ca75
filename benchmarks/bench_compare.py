"""How often a comparison is wrong, and how many seeds it takes: simulated studies, without any training.

    python benchmarks/bench_compare.py                     # a minute; writes bench_compare.json
    python benchmarks/bench_compare.py --studies 2000 --out /tmp/a.json

A study is a row of paired differences. Without a true difference every verdict "better" or "worse" is wrong: of
Student's t at a fixed number of seeds, looked at after each seed, or with as many seeds added as its own verdict
advises; and of the interval that holds however often one looks (``stop_early``), for differences of several
distributions of mean 0.
"""

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
from scipy import special

from ordinal_entropy.comparison import seeds_needed
from ordinal_entropy.comparison.anytime import critical
from ordinal_entropy.comparison.pairs import LEVEL

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


def main() -> None:
    """Simulates, prints and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=100_000)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    random, size = np.random.default_rng(0), (options.studies, MOST)
    at_any_time = {n: critical(n, LEVEL) for n in range(2, 400)}
    normal = random.standard_normal(size)
    draws = {
        "normal": normal,
        "student, 3 degrees of freedom": random.standard_t(3, size),
        "exponential": random.exponential(size=size) - 1,
    }
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
    }
    print(results)
    record.write(options.out, results)


if __name__ == "__main__":
    main()
