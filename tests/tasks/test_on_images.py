"""What the tasks on images have in common."""

import pickle

import pytest

from ordinal_entropy.tasks.age.recipe import AGE
from ordinal_entropy.tasks.crowd.recipe import CROWD
from ordinal_entropy.tasks.depth.recipe import DEPTH


@pytest.mark.parametrize("task", [AGE, CROWD, DEPTH], ids=lambda task: task.training.name)
def test_a_task_travels_to_the_processes_of_runs_side_by_side(task):
    there = pickle.loads(pickle.dumps(task.training))
    assert there.name == task.training.name
    for function in ("read", "data_key", "train_group"):
        (ours,), (theirs,) = (getattr(each, function).args for each in (task.training, there))
        assert ours == theirs
