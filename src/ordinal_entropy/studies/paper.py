"""The numbers of Zhang et al., "Improving deep regression with ordinal entropy", ICLR 2023.

Operators: mean and standard deviation of the test error over ten runs, each at the step that is best on the test rows.
Ages, crowds and depths: single numbers.
"""

from typing import NamedTuple


class Score(NamedTuple):
    """Mean and standard deviation over runs; a number from the text has no standard deviation."""

    mean: float
    std: float | None = None


class Cost(NamedTuple):
    """Of one run or epoch on the authors' GPU."""

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

# Table 7, cost against M on depth by method and M: seconds of an epoch. The paper prints 3526 for 3536.
TABLE7 = {
    ("baseline", 0): Cost(1836, 12363),
    ("ld", 100): Cost(1877, 12379),
    ("ld", 1000): Cost(1999, 12395),
    ("ld", 3536): Cost(2342, 12405),
    ("oe", 3536): Cost(2344, 12405),
}

# Table 3, ShanghaiTech by part: mean absolute error of counts and root of the mean squared one.
TABLE3 = {
    "A": {
        "baseline": {"mae": 68.2, "rmse": 115.0},
        "ld": {"mae": 66.9, "rmse": 107.5},
        "oe": {"mae": 65.6, "rmse": 105.0},
    },
    "B": {
        "baseline": {"mae": 10.6, "rmse": 16.0},
        "ld": {"mae": 9.1, "rmse": 14.7},
        "oe": {"mae": 9.1, "rmse": 14.5},
    },
}


def _of_depth(*numbers: float) -> dict[str, float]:
    """Share off by less than a factor of 1.25, error relative to the depth, root mean square, logarithmic error."""
    return dict(zip(("delta1", "rel", "rms", "log10"), numbers, strict=True))


# Table 1, NYU-Depth-v2 with a ResNet-50, by the names of the methods here.
TABLE1_DEPTH = {
    "baseline": _of_depth(0.793, 0.148, 0.502, 0.064),
    "ld-unweighted": _of_depth(0.795, 0.147, 0.505, 0.063),
    "ld": _of_depth(0.808, 0.144, 0.483, 0.061),
    "oe": _of_depth(0.811, 0.143, 0.478, 0.060),
    "ld-cosine": _of_depth(0.806, 0.147, 0.488, 0.061),
    "ld-no-norm": _of_depth(0.790, 0.153, 0.510, 0.064),
    "ld-squared": _of_depth(0.800, 0.149, 0.498, 0.063),
    "ld-sqrt": _of_depth(0.799, 0.147, 0.496, 0.062),
}

# Table 2, NYU-Depth-v2, by model and method; and what it cites.
TABLE2 = {
    "decoder": {name: TABLE1_DEPTH[name] for name in ("baseline", "ld", "oe")},
    "newcrfs": {
        "baseline": _of_depth(0.922, 0.095, 0.334, 0.041),
        "oe": _of_depth(0.932, 0.089, 0.321, 0.039),
    },
}
TABLE2_CITED = {
    "Laina et al., cited": _of_depth(0.811, 0.127, 0.573, 0.055),
    "DORN, cited": _of_depth(0.828, 0.115, 0.509, 0.051),
    "BTS, cited": _of_depth(0.885, 0.110, 0.392, 0.047),
    "AdaBins, cited": _of_depth(0.903, 0.103, 0.364, 0.044),
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
