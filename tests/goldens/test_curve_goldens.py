"""Short runs in double precision give the scores that are recorded, for every task and method."""

import pytest

from goldens import curves, store


def cases():
    return [
        pytest.param(name, methods, id=f"{name}-{methods[0] if len(methods) == 1 else 'all'}", marks=marks)
        for name, methods, fast in curves.parts()
        for marks in [() if fast else pytest.mark.slow]
    ]


@pytest.mark.parametrize(("name", "methods"), cases())
def test_scores_are_those_recorded(name, methods, tmp_path):
    recorded = curves.recorded(name)
    found = curves.computed(name, methods, tmp_path)
    store.require_close(
        found, {method: recorded[method] for method in methods}, store.tolerance(curves.COURSES[name].task), name
    )


def test_all_methods_of_all_tasks_are_recorded():
    """A new method brings goldens of its own."""
    for name, course in curves.COURSES.items():
        there = store.read(f"curves/{name}")
        assert tuple(there["scores"]) == course.methods
        assert tuple(there["settings"]) == course.settings
