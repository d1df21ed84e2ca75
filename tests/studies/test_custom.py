"""A study of one's own: its rows, what its folder is for, and the command that does it again."""

import pytest

pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

from ordinal_entropy import tasks
from ordinal_entropy.studies.custom import CustomStudy


def study(settings=(), **options):
    recipe = tasks.recipe("linear", "quick", settings)
    return CustomStudy("linear", "quick", settings, recipe, **{"methods": ["oe", "baseline"], "seeds": 5, **options})


def test_the_baseline_is_the_first_row_and_methods_with_a_strength_have_one_for_each():
    asked = study(methods=["oe", "huber", "baseline"], strengths="0.1, 1")
    rows = ["baseline", "oe strength=0.1", "oe strength=1", "huber"]
    assert [variant.name for variant in asked.variants] == rows
    assert [variant.name for variant in study(methods=["oe", "ld"]).variants] == ["oe", "ld"]


def test_the_command_does_it_again():
    asked = study(["steps=40"], strengths="0.1,1", stop_early=True, smallest=1e-3)
    again = "compare linear --methods baseline,oe --seeds 5 --strengths 0.1,1 --preset quick --set=steps=40"
    assert " ".join(asked.command("cpu")) == f"{again} --stop-early --smallest 0.001 --device cpu"


def test_a_folder_is_for_what_was_asked_and_nothing_else():
    plain = study().label()
    assert plain["methods"] == ["baseline", "oe"] and plain["seeds"] == 5 and plain["steps"] == 3000
    assert "strengths" not in plain and "stop_early" not in plain
    assert study(strengths="0.1, 1").label() == {**plain, "strengths": "0.1,1"}
    assert study(stop_early=True).label() == {**plain, "stop_early": {"at_most": 5, "smallest": None}}


@pytest.mark.parametrize(
    ("settings", "options", "sentence"),
    [
        ([], {"methods": ["oe"]}, "expected two or more --methods, got oe"),
        ([], {"methods": ["oe", "oe"]}, "expected different methods"),
        ([], {"seeds": 1}, "expected at least 2 seeds"),
        ([], {"strengths": "1,inf"}, "two or more different numbers of at least 0, as in 0.1,1,10, got '1,inf'"),
        (["strength=3"], {"strengths": "1,2"}, "--strengths or --set strength=..., got both"),
        ([], {"smallest": 0.1}, "expected --stop-early beside --smallest"),
    ],
)
def test_what_cannot_be_compared_is_a_sentence(settings, options, sentence):
    with pytest.raises(ValueError, match=r".") as raised:
        study(settings, **options)
    assert sentence in str(raised.value)
