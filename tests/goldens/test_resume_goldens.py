"""Runs that were stopped and resumed end with the scores that are recorded, which are those of an undisturbed run."""

import pytest

from goldens import curves, resume, store

FAST = ("linear", "tabular", "age")


@pytest.mark.parametrize(
    "task", [pytest.param(task, marks=() if task in FAST else pytest.mark.slow) for task in resume.STOPPED]
)
def test_a_resumed_run_gives_what_is_recorded(task, tmp_path):
    recorded = store.read(resume.NAME)[task]
    store.require_close(resume.computed(task, tmp_path), recorded, store.tolerance(task), task)


@pytest.mark.parametrize("task", resume.STOPPED)
def test_what_is_recorded_is_what_an_undisturbed_run_gives(task):
    straight = curves.recorded(task)
    for method, scores in store.read(resume.NAME)[task].items():
        store.require_close(scores, straight[method], store.SAME_MACHINE, f"{task}, {method}")
