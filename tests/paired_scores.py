"""Scores of two methods over the same seeds, and summaries of given ones."""

import numpy as np

from ordinal_entropy.comparison import summary


def scores(n, seed=0):
    """Two columns with a common part, as runs of one seed have."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=n)
    return (common + rng.normal(size=n) + 3).tolist(), (common + 2 * rng.normal(size=n) + 3.5).tolist()


def at(values):
    return {"last": values, "best_validation": values, "best_test": values}


def summed(columns, **options):
    options = {"task": "t", "metric": "MSE", "lower_is_better": True, "recipe": {}, "environment": {}, **options}
    return summary(scores={name: at(values) for name, values in columns.items()}, **options)
