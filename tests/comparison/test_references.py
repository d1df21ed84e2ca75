"""What scores without a network say of those of methods."""

import json
import math

import pytest

pytest.importorskip("scipy", reason="a comparison needs SciPy")

from ordinal_entropy import comparison
from ordinal_entropy.comparison import references
from saved_folders import summary_of

SCORES = {"baseline": [50.0, 52.0], "oe": [60.0, 62.0]}


def with_references(scores, known, **further):
    content = summary_of(scores, **further)
    return json.loads(json.dumps(content | references.described(known, "the training median")))


def test_methods_worse_than_the_constant_are_said_to_be_so():
    summary = with_references(SCORES, {"constant": [55.0, 57.0]})
    sentence = "oe is worse than predicting the training median (MAE 56.00): it has learned nothing that helps."
    assert references.sentences(summary) == [sentence]
    verdict = comparison.verdict(summary)
    assert verdict.references == [sentence] and verdict.sentences[1] == sentence
    both = references.sentences(with_references(SCORES, {"constant": [40.0, 40.0]}))
    assert [each.split()[0] for each in both] == ["baseline", "oe"]
    assert references.sentences(with_references(SCORES, {"constant": [70.0, 70.0]})) == []


def test_scores_are_shown_in_the_scale_of_the_summary():
    summary = with_references({"baseline": [2e-3, 2e-3], "oe": [4e-3, 4e-3]}, {"constant": [3e-3], "ridge": [1e-3]})
    said = references.sentences(summary, 1e-3)
    assert "(MAE 3.00 x 1e-3)" in said[0] and said[1] == "ridge has a lower MAE than both: 1.00 x 1e-3."


@pytest.mark.parametrize(
    ("scores", "known", "said"),
    [
        (SCORES, {"ridge": [49.0], "trees": [45.0]}, "trees has a lower MAE than both: 45.00."),
        (SCORES, {"ridge": [55.0], "trees": [58.0]}, None),
        ({**SCORES, "ld": [40.0, 41.0]}, {"ridge": [45.0]}, "ridge has a lower MAE than baseline: 45.00."),
        ({**SCORES, "ld": [50.0, 50.0]}, {"ridge": [45.0]}, "ridge has a lower MAE than all 3 rows: 45.00."),
        ({"baseline": [50.0]}, {"ridge": [45.0]}, "ridge has a lower MAE than baseline: 45.00."),
        ({**SCORES, "ridge": [45.0, 45.0]}, {"ridge": [45.0]}, None),  # a row, which has a sentence of its own
    ],
)
def test_the_strongest_reference_is_named_where_it_beats_the_baseline(scores, known, said):
    assert references.sentences(with_references(scores, known)) == ([] if said is None else [said])


def test_higher_scores_may_be_the_better_ones():
    summary = with_references(SCORES, {"constant": [55.0], "ridge": [70.0]}, lower_is_better=False)
    worse, better = references.sentences(summary)
    assert (
        worse.startswith("baseline is worse than predicting") and better == "ridge has a higher MAE than both: 70.00."
    )


def test_runs_without_a_number_are_worse_than_nothing():
    assert references.sentences(with_references({"baseline": [50.0], "oe": [math.nan]}, {"constant": [55.0]})) == []
    assert references.sentences(with_references(SCORES, {"constant": [math.nan]})) == []


def test_of_several_baselines_the_first_and_what_is_held_to_it():
    summary = with_references({**SCORES, "deep": [90.0, 91.0], "oe deep": [80.0, 82.0]}, {"constant": [70.0]})
    del summary["paired"]["deep"]
    summary["held_to"] = {"oe deep": "deep"}
    assert references.sentences(summary) == []


def test_a_row_that_is_the_constant_is_not_worse_than_itself():
    summary = with_references({**SCORES, "constant": [55.0, 55.0 + 1e-9]}, {"constant": [55.0]})
    assert [each.split()[0] for each in references.sentences(summary)] == ["oe"]
    assert references.beside(summary) == {}


@pytest.mark.parametrize(
    "found", [None, [], "constant", 3, {}, {"constant": None}, {"constant": "low"}, {"ridge": [1.0]}]
)
def test_summaries_without_and_damaged_ones_say_nothing(found):
    summary = with_references(SCORES, {"constant": [1.0]}) | {"references": found}
    assert references.sentences(summary) == [] and references.beside(summary) == {}
    older = summary_of(SCORES)
    assert comparison.verdict(older).references == [] and "references" not in older
