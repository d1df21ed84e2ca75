"""Mean test scores over ten seeds, in the single precision that runs have, where training is chaotic."""

import tempfile
from pathlib import Path

import numpy as np
from scipy import stats

from goldens import adapter, curves, store

NAME = "seeds"
SEEDS = range(10)
FEWER = ("baseline", "oe")  # of tasks on images, whose runs train one after the other

COURSES = {  # the preset quick, on fewer and smaller images
    "linear": curves.Course("linear", ("steps=1000", "test_rows=1000", "rows=200"), curves.ALL),
    "tabular": curves.Course("tabular", ("epochs=40", "feature_rows=0"), curves.ALL),
    "age": curves.Course(
        "age",
        ("generated=600", "image_size=32", "padding=2", "batch_size=32", "epochs=6", "milestones=4", "feature_rows=0"),
        FEWER,
    ),
    "crowd": curves.Course(
        "crowd",
        (
            "generated=24",
            "max_side=128",
            "crop=64",
            "widths=16",
            "repeats=4",
            "batch_size=8",
            "epochs=4",
            "feature_rows=0",
        ),
        FEWER,
    ),
    "depth": curves.Course(
        "depth",
        ("generated=80", "height=32", "width=48", "channels=8", "batch_size=8", "epochs=4", "feature_rows=0"),
        FEWER,
    ),
}


def computed(task, folder):
    """By method, the test scores of ten seeds at the best validation point."""
    course = COURSES[task]
    runs = [(method, seed) for method in course.methods for seed in SEEDS]
    found = adapter.train(course.task, course.preset, course.settings, runs, Path(folder) / "runs")
    scores = {method: [] for method in course.methods}
    for (method, _), own in zip(runs, found, strict=True):
        scores[method].append(own["best_validation"])
    return scores


def interval(values):
    """The mean, and the limits of its 95% interval by Student's distribution."""
    mean, error = np.mean(values), stats.sem(values)
    reach = stats.t.ppf(0.975, len(values) - 1) * error
    return {"mean": float(mean), "low": float(mean - reach), "high": float(mean + reach)}


def record():
    for task, course in COURSES.items():
        with tempfile.TemporaryDirectory() as folder:
            scores = computed(task, folder)
        found = {method: {**interval(values), "values": values} for method, values in scores.items()}
        store.write(f"{NAME}/{task}", {"settings": list(course.settings), "scores": found})
