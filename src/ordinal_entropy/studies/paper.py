"""The numbers of Zhang et al., "Improving deep regression with ordinal entropy", ICLR 2023.

Operators: mean and standard deviation of the test error over ten runs, each at the step that is best on the test rows.
Ages: single numbers.
"""

from typing import NamedTuple


class Score(NamedTuple):
    """Mean and standard deviation over runs; a number from the text has no standard deviation."""

    mean: float
    std: float | None = None


class Cost(NamedTuple):
    """Of one run on the authors' GPU."""

    seconds: float
    megabytes: float


# Table 1, by the names of the methods here; classification is not in it.
TABLE1 = {
    "linear": {
        "baseline": Score(3.0e-3, 0.93e-3),
        "ld-unweighted": Score(2.2e-3, 0.42e-3),
        "ld": Score(1.6e-3, 0.34e-3),
        "ld-cosine": Score(1.7e-3, 0.33e-3),
        "ld-no-norm": Score(5.3e-3, 1.10e-3),
        "ld-squared": Score(2.0e-3, 0.60e-3),
        "ld-sqrt": Score(1.8e-3, 0.50e-3),
    },
    "nonlinear": {
        "baseline": Score(2.5e-2, 2.0e-2),
        "ld-unweighted": Score(0.8e-2, 0.3e-2),
        "ld": Score(0.5e-2, 0.3e-2),
        "ld-cosine": Score(0.6e-2, 0.5e-2),
        "ld-no-norm": Score(15.5e-2, 0.4e-2),
        "ld-squared": Score(0.4e-2, 0.2e-2),
        "ld-sqrt": Score(0.5e-2, 0.2e-2),
    },
}

# Figure 4a, error against M on `linear`: the text gives one point; the others would have to be read off the picture.
FIG4A = {2: Score(2.7e-3)}

# Table 6, cost against M on `linear`; 0 is the baseline. Its time is that of one run of 50,000 steps, as we read it.
TABLE6 = {
    0: Cost(155, 2163),
    2: Cost(291, 2163),
    10: Cost(296, 2163),
    100: Cost(327, 2163),
    1000: Cost(1033, 2205),
}


def _by_shot(*numbers: float) -> dict[str, float]:
    """Mean absolute error over all, many, median and few shots, then the geometric mean."""
    names = [f"{score}{end}" for score in ("mae", "gm") for end in ("", "_many", "_median", "_few")]
    return dict(zip(names, numbers, strict=True))


# Table 4, AgeDB-DIR, by the names of the methods here.
TABLE4 = {
    "baseline": _by_shot(7.77, 6.62, 9.55, 13.67, 5.05, 4.23, 7.01, 10.75),
    "ld": _by_shot(7.60, 6.79, 8.55, 12.70, 4.76, 4.15, 5.95, 9.60),
    "oe": _by_shot(7.46, 6.73, 8.18, 12.38, 4.72, 4.21, 5.36, 9.70),
}

# Table 5, AgeDB-DIR, by the weight of the tightness.
TABLE5 = {
    0.0: TABLE4["ld"],
    0.1: _by_shot(7.50, 6.53, 8.64, 13.50, 4.71, 4.04, 5.92, 10.62),
    1.0: TABLE4["oe"],
    10.0: _by_shot(7.49, 6.70, 8.27, 12.86, 4.79, 4.23, 5.61, 10.21),
}
