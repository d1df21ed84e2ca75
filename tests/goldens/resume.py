"""Trainings that are stopped on the way and resumed, in double precision."""

import tempfile
from pathlib import Path

from goldens import adapter, backbone, curves, store

NAME = "resumed"
METHODS = ("baseline", "oe-balanced")  # the strengths that set themselves are a state to be kept
STOPPED = {"linear": 40, "tabular": 9, "age": 2, "crowd": 2, "depth": 2}  # at that step or epoch


def computed(task, folder):
    """Scores of the runs by method, after a stop."""
    backbone.register()
    course, runs = curves.COURSES[task], [(method, curves.SEED) for method in METHODS]
    found = adapter.resumed(task, course.preset, course.settings, runs, Path(folder) / "runs", stop_at=STOPPED[task])
    return dict(zip(METHODS, found, strict=True))


def record():
    found = {}
    for task in STOPPED:
        with tempfile.TemporaryDirectory() as folder:
            found[task] = computed(task, folder)
    store.write(NAME, found)
