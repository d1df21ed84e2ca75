"""What the tasks say of their training."""

import pickle

import pytest

pytest.importorskip("scipy", reason="the splines of operators are SciPy's")

from ordinal_entropy import tasks


@pytest.mark.parametrize("name", tasks.names())
def test_a_task_travels_to_the_processes_of_runs_side_by_side(name):
    training = tasks.load(name).training
    there = pickle.loads(pickle.dumps(training))
    assert there.name == name and there.metric == training.metric
    for ours, theirs in zip(training[2:], there[2:], strict=True):
        if hasattr(ours, "args"):  # of a task on images, which is told what it is of
            assert (ours.func, ours.args) == (theirs.func, theirs.args)
        else:
            assert ours == theirs
