"""Scores of short runs in double precision: every task with every method, and some further settings."""

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from goldens import adapter, backbone, store

ROWS = Path("operator-rows")  # of the operators whose generated rows follow from a machine's LAPACK
SEED = 0
FAST = {  # methods of tasks on images, a second or so each
    "age": ("oe-balanced", "classification"),
    "crowd": ("baseline",),
    "depth": ("oe-balanced",),
}

OPERATOR = ("dtype=float64", "steps=100", "evaluate_every=20", "rows=100", "parts=1", "validation_rows=200")
FROM_FILES = ("dtype=float64", "steps=100", "evaluate_every=20", "rows=100", "parts=1")
TABLE = ("dtype=float64", "epochs=25", "generated=400", "hidden=32", "feature_rows=0")  # four steps an epoch
IMAGES = ("precision=float64", "feature_rows=0")
# Rates at which a difference of 1e-16 grows to 1e-12 at most: what is not a number of the method is left out.
FACES = (
    *IMAGES,
    *("generated=200", "image_size=32", "padding=2", f"backbone={backbone.NAME}"),
    *("batch_size=8", "epochs=4", "milestones=3", "learning_rate=0.01"),
)
CROWDS = (
    *IMAGES,
    *("generated=12", "max_side=96", "crop=64", f"front={backbone.NAME}", "widths=8"),
    *("batch_size=2", "repeats=5", "epochs=4", "learning_rate=0.003", "bins=1000", "decode=center"),
)
ROOMS = (
    *IMAGES,
    *("generated=40", "height=32", "width=48", f"backbone={backbone.NAME}", "channels=4"),
    *("batch_size=4", "epochs=6", "learning_rate=0.002"),
)


class Course(NamedTuple):
    """Runs of one task that are trained in one call."""

    task: str
    settings: tuple[str, ...]
    methods: tuple[str, ...]
    preset: str = "quick"
    together: bool = True  # as one stack; else each method is a test of its own


ALL = tuple(adapter.method_names())
COURSES = {
    "linear": Course("linear", (*OPERATOR, "test_rows=200"), ALL),
    "nonlinear": Course("nonlinear", FROM_FILES, ALL),
    "nonlinear-paths": Course("nonlinear-paths", FROM_FILES, ALL),
    "tabular": Course("tabular", TABLE, ALL),
    "age": Course("age", FACES, ALL, together=False),
    "crowd": Course("crowd", CROWDS, ALL, together=False),
    "depth": Course("depth", ROOMS, ALL, together=False),
}
SOME = ("baseline", "oe", "oe-balanced")
FURTHER = {  # keys of a recipe that the courses above leave at their defaults
    "linear-all-rows": Course(
        "linear",
        (*OPERATOR, "test_rows=200", "samples=none", "rescale=max", "strength=0.1", "initial=default"),
        ("baseline", "ld", "lt", "oe", "oe-balanced"),
    ),
    "tabular-bins": Course(
        "tabular",
        (*TABLE, "bin_width=0.2", "embedding=periodic", "scaling=quantile", "rescale=authors", "tightness_weight=0.5"),
        (*SOME, "lt"),
    ),
    "age-weighted": Course(
        "age",
        (*FACES, "loss=huber", "reweight=sqrt-inverse", "optimizer=sgd", "rescale=max", "train_rows=100"),
        SOME,
        together=False,
    ),
    "crowd-sums": Course(
        "crowd",
        (*CROWDS, "loss=sum-mse", "kernel=fixed", "grouping=0", "flip=true", "schedule=poly", "accumulate=1"),
        SOME,
        together=False,
    ),
    "depth-newcrfs": Course(
        "depth",
        ("precision=float64", "feature_rows=0", "generated=40", "batch_size=8", "epochs=2", "height=32", "width=48"),
        SOME,
        preset="quick-newcrfs",
        together=False,
    ),
    "depth-silog": Course(
        "depth", (*ROOMS, "loss=silog", "silog_form=adabins", "grouping=0.5", "flip=true"), SOME, together=False
    ),
    "age-quick": Course(
        "age",
        ("precision=float64", "generated=400", "image_size=40", "batch_size=16", "epochs=5", "feature_rows=0"),
        SOME,
        together=False,
    ),
}
COURSES |= FURTHER


def parts():
    """Of each course the methods that are trained in one call, and whether the fast tier has them."""
    found = []
    for name, course in COURSES.items():
        if course.together:
            found.append((name, course.methods, True))
        else:
            found += [(name, (method,), method in FAST.get(name, ())) for method in course.methods]
    return found


def computed(name, methods, folder):
    """Scores of a course's runs with these methods, by method."""
    course = COURSES[name]
    if course.task in ("age", "crowd", "depth"):
        backbone.register()
    settings = [*course.settings]
    if course.task.startswith("nonlinear"):
        settings.append(f"data={unpacked(course.task, folder)}")
    runs = [(method, SEED) for method in methods]
    found = adapter.train(course.task, course.preset, settings, runs, Path(folder) / "runs")
    return dict(zip(methods, found, strict=True))


def unpacked(task, folder):
    """The committed rows of an operator, as a folder in the public layout."""
    there = store.read_arrays(ROWS / task)
    place = Path(folder) / task
    place.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        names = f"X_{part}0", f"X_{part}1", f"y_{part}"
        np.savez(place / f"{part}_sde.npz", **{name: there[name].astype(np.float64) for name in names})
    return place


def record_rows():
    """Rows of the operators, of few digits: they compress."""
    for task in ("nonlinear", "nonlinear-paths"):
        arrays = {}
        for part, rows in zip(("train", "test"), adapter.operator_rows(task, train=100, test=100), strict=True):
            for name, array in zip((f"X_{part}0", f"X_{part}1", f"y_{part}"), rows, strict=True):
                arrays[name] = (np.round(array * 512) / 512).astype(np.float32)
        store.write_arrays(ROWS / task, arrays)


def record():
    for name, course in COURSES.items():
        scores = {}
        for own, methods, _ in parts():
            if own == name:
                with tempfile.TemporaryDirectory() as folder:
                    scores |= computed(name, methods, folder)
        store.write(f"curves/{name}", {"settings": list(course.settings), "scores": scores})


def recorded(name):
    """The scores by method."""
    return store.read(f"curves/{name}")["scores"]
