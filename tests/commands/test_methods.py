"""The command ``methods``, and what is said of methods that are no more."""

import pytest

from command_line import call, words
from ordinal_entropy import runs, tasks
from ordinal_entropy.recipes import described

BALANCED = "gradient-balanced at 0.1 of the task loss's gradient unless given"


def test_it_says_that_terms_are_balanced():
    assert f"strength of a term: {BALANCED}." in words(call("methods").stdout)
    said = words(call("methods", "huber+oe").stdout)
    assert said.count(f"strength: {BALANCED}") == 1
    assert "method.oe.strength none" in said and "method.oe.balance 0.1" in said and "method.oe.anneal 0.0" in said


@pytest.mark.parametrize("command", ["methods", "evaluate"])
def test_a_name_of_before_is_refused_in_one_sentence(command, tmp_path):
    told = "oe-balanced"
    if command == "evaluate":
        recipe = {"task": "tabular", **described(tasks.recipe("tabular", "quick"))}
        told = runs.create(tmp_path / "run", recipe, "oe-balanced", 0).path
    said = call(command, told, status=2).stderr
    assert "expected a method like 'oe' or" in words(said) and "got 'oe-balanced'; there are" in words(said)
    assert "Traceback" not in said
