"""What the studies are tested with: a folder of their own, and training on images that takes no time."""

import pytest

from ordinal_entropy.tasks import Task
from ordinal_entropy.training.plans import Outcome


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """An empty folder to be in, where the cache is as well, and lines of 120 letters."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("ORDINAL_ENTROPY_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def trained_by(monkeypatch):
    """Puts a function (plans, folder) -> outcomes in place of the training of a task, which needs no data then.

    Given the module of the task's recipe and the function, it returns a list that the runs a study asks for come into.
    """

    def put(recipe, outcomes):
        asked = []

        def train(task, plans, *, device, folder, progress, jobs, go_on):
            asked.extend(plans)
            return outcomes(plans, folder)

        ((name, task),) = recipe.TASKS.items()
        monkeypatch.setitem(recipe.TASKS, name, task._replace(check=lambda recipe: None, references=lambda *given: {}))
        monkeypatch.setattr(Task, "train", train)
        return asked

    return put


@pytest.fixture
def scored_by(trained_by):
    """The same with a function (plan, gain) -> scores of one run by name, the task's metric among them.

    The gain is the strength of the recipe, and 0 for the baseline. A run has one epoch.
    """

    def put(recipe, scores):
        ((_, task),) = recipe.TASKS.items()

        def outcome(plan):
            own = scores(plan, (plan.method != "baseline") * plan.recipe.method.strength)
            score = own[task.metric]
            details = dict.fromkeys(("last", "best_validation"), own)
            return Outcome([1], [score], [score], [score], score, score, score, details)

        return trained_by(recipe, lambda plans, folder: [outcome(plan) for plan in plans])

    return put
