"""What holds for the recipe of every task and preset: names, files, folders, options of the command line."""

import dataclasses
import inspect
import re
from collections import Counter

import pytest

from ordinal_entropy import studies, tasks
from ordinal_entropy.balance import FRACTION
from ordinal_entropy.recipes import (
    described,
    explained,
    flat,
    full_name,
    leaves,
    override,
    restored,
    written,
)
from ordinal_entropy.tasks.operators.recipe import jobs_of
from ordinal_entropy.tasks.operators.train import method_of as of_job
from ordinal_entropy.training.plans import Plan

EVERY = [(name, preset) for name in tasks.names() for preset in tasks.load(name).presets]
GROUPS = ["data", "model", "training", "method"]


@pytest.fixture(params=EVERY, ids="-".join)
def case(request):
    task, preset = request.param
    return task, preset, tasks.recipe(task, preset)


def test_every_key_is_reached_by_its_full_and_by_its_short_name(case):
    _, _, recipe = case
    values, short = leaves(recipe), list(flat(described(recipe)))
    assert [field.name for field in dataclasses.fields(recipe)] == GROUPS
    assert len(set(short)) == len(values) and not any("." in name for name in short)
    for full, name in zip(values, short, strict=True):
        assert full_name(values, full) == full_name(values, name) == full
        assert name in (full.rpartition(".")[2], full.partition(".")[0])
        same = f"={written(described_value(values[full]))}"
        assert override(recipe, [full + same]) == override(recipe, [name + same]) == recipe


def described_value(value):
    return list(value) if isinstance(value, tuple) else value


def test_what_is_described_is_restored(case):
    task, preset, recipe = case
    content = described(recipe)
    assert list(content) == GROUPS
    assert restored(recipe, content) == restored(recipe, flat(content)) == recipe
    before = {"method_options": ["oe.strength=5"], **{k: v for k, v in flat(content).items() if k != "options"}}
    assert restored(recipe, before).method.options == ("oe.strength=5",)
    assert tasks.arguments(task, content) == tasks.arguments(task, flat(content)) == ["--preset", preset]


def test_options_make_any_recipe_again(case):
    task, preset, recipe = case
    other = {}
    for full, value in leaves(recipe).items():
        if full not in tasks.load(task).fixed and isinstance(value, float) and full != "model.start":
            other[full] = value * 0.5
    settings = [*(f"{key}={value}" for key, value in other.items()), "method.oe.strength=5", "data=some, where"]
    changed = tasks.recipe(task, preset, settings)
    options = tasks.arguments(task, described(changed))
    again = [option.removeprefix("--set=") for option in options[2:]]
    assert tasks.recipe(task, options[1], again) == changed and "method.oe.strength=5" in again


def test_every_key_has_a_comment(case):
    assert [key for key, _, comment in explained(case[2]) if not comment] == []


def test_every_key_of_several_tasks_is_written_once():
    """With its type and its comment; tasks that use a word for another thing have it for themselves."""
    kinds = {kind for name, preset in EVERY for group in vars(tasks.recipe(name, preset)).values()
             for kind in type(group).__mro__ if dataclasses.is_dataclass(kind)}  # fmt: skip
    count = Counter(
        key
        for kind in kinds
        for key in re.findall(r"^    (\w+): [^#\n]*?  # ", inspect.getsource(kind), flags=re.MULTILINE)
    )
    assert {key for key, times in count.items() if times > 1} == {"loss", "crop", "grouping"}
    assert len(count) > 80


@pytest.mark.parametrize(
    ("task", "setting", "sentence"),
    [
        ("age", "epoch=3", "expected a key like 'epochs', got 'epoch'; there are data (path, generated, skip_bad, "),
        ("age", "training.epoch=3", "expected a key like 'training.epochs', got 'training.epoch'; there are data (pa"),
        ("age", "model.epochs=3", "expected a key like 'training.epochs', got 'model.epochs'"),
        ("age", "learning-rat=3", "expected a key like 'learning_rate', got 'learning_rat'"),
        ("age", "training=3", "expected training.KEY, got 'training', a group of keys: learning_rate, weight_decay"),
        ("age", "model=resnet18", "expected model.KEY, got 'model', a group of keys: pretrained, backbone"),
        ("age", "training.epochs=3.5", "expected training.epochs to be a whole number, got '3.5'"),
        ("age", "epochs=0", "expected epochs to be at least 1, got 0"),
        ("age", "method.oe.strenght=3", "expected an option of oe like 'strength', got 'strenght'"),
        ("age", "method.strenght=3", "expected a key like 'method.strength'"),
        ("age", "method.oa.strength=3", "expected the name of a method, got 'oa'; there are baseline"),
        ("depth", "model=newcrf", "expected a value of model like 'newcrfs', got 'newcrf'; there are decoder, newcrfs"),
        ("depth", "grouping=-1", "expected grouping to be unique, none or a bin width in metres, got '-1'"),
        (
            "linear",
            "operator=nonlinear",
            "data.operator comes with the name of the task, got it as a setting of linear",
        ),
        ("linear", "samples=1001", "expected samples from 2 to rows=1000, or none for all, got 1001"),
        ("crowd", "crop=16", "expected crop to be 0, or a multiple of 8 and at least 8 x stride = 32, got 16"),
        ("tabular", "task=age", "expected settings of the task tabular, got those of age"),
    ],
)
def test_a_mistake_is_a_sentence(task, setting, sentence):
    with pytest.raises(ValueError) as error:
        tasks.recipe(task, "paper", [setting])
    assert sentence in str(error.value)


def test_the_keys_of_a_study_come_before_those_of_its_recipe():
    study = studies.resolve("fig4b-linear", ["method=oe", "method.samples=20", "training.steps=7", "task=linear"])
    recipe = study.recipe
    assert study.keys.method == "oe" and recipe.method.samples == 20 and recipe.training.steps == 7
    for setting, sentence in (
        ("method.strength=3", "fig4b-linear sets strength itself; the keys it takes: seeds, method, strengths, data, "),
        ("strenghts=3", "expected a key like 'strengths' or 'strength', got 'strenghts'; there are seeds, method, str"),
        ("strengths=none", "expected strengths=VALUE,VALUE,..., got none"),
        ("task=age", "expected settings of the task linear, got those of age"),
    ):
        with pytest.raises(ValueError) as error:
            studies.resolve("fig4b-linear", [setting])
        assert sentence in str(error.value)


# --- strengths --------------------------------------------------------------------------------------------------------

PUBLISHED = {"linear": 1e-3, "nonlinear": 1e-3, "nonlinear-paths": 1e-3, "age": 1.0, "crowd": 10.0, "depth": 1.0}
OF_THE_PAPER = ("paper", "newcrfs", "resnet50")  # presets


def test_strengths_are_the_published_ones_in_its_presets_and_balanced_in_all_others(case):
    task, preset, recipe = case
    assert recipe.method.strength == (PUBLISHED[task] if preset in OF_THE_PAPER else None)
    assert recipe.method.balance == FRACTION


def method_for(task, method, *settings, preset="quick"):
    recipe = tasks.recipe(task, preset, settings)
    if task in ("linear", "nonlinear"):
        (job,) = jobs_of(recipe, [method], [0])
        return of_job(job)
    return tasks.method_of(Plan(method, 0, recipe))


@pytest.mark.parametrize("task", ["linear", "tabular"])
def test_an_option_of_a_part_wins_over_a_key_and_a_key_over_the_default(task):
    def found(*settings, method="oe+ld"):
        made = method_for(task, method, *settings)
        balances = {name: own.fraction for name, own in made.balances.items()}
        assert made.strengths.keys() | balances.keys() == set(method.split("+"))
        return made.strengths, balances

    assert found() == ({}, {"oe": FRACTION, "ld": FRACTION})
    assert found("balance=0.3") == ({}, {"oe": 0.3, "ld": 0.3})
    assert found("strength=2") == found("strength=2", "balance=0.3") == ({"oe": 2.0, "ld": 2.0}, {})
    assert found("strength=2", "strength=none") == found()
    assert found("strength=2", "method.ld.strength=none") == ({"oe": 2.0}, {"ld": FRACTION})
    assert found("strength=2", "method.ld.balance=0.2") == ({"oe": 2.0}, {"ld": 0.2})
    assert found("method.oe.strength=3", "balance=0.3") == ({"oe": 3.0}, {"ld": 0.3})
    alone = {"method": "rnc+oe"}
    assert found("method.rnc.stages=2", "balance=0.3", **alone) == ({"rnc": 1.0, "oe": 1.0}, {})
    assert method_for(task, "oe", "method.oe.anneal=0.5").anneals == {"oe": 0.5}
    with pytest.raises(ValueError, match="fixed strengths beside 'rnc'"):
        found("method.rnc.stages=2", "method.oe.balance=0.3", **alone)


def test_a_recipe_of_before_keeps_its_strength(case):
    recipe = case[2]
    old = restored(recipe, {**flat(described(recipe)), "strength": 0.7})
    assert old.method.strength == 0.7
    assert restored(recipe, {**described(recipe)}) == recipe


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("strength=x", "expected strength to be a number, got 'x'"),
        ("strength=-1", "expected strength to be a number from 0 on, got -1"),
        ("balance=none", "expected balance to be a number, got 'none'"),
        ("method.oe.balance=none", "expected a number for method.oe.balance, got 'none'"),
        ("method.oe.anneal=x", "expected a number for method.oe.anneal, got 'x'"),
        ("method.oe.aneal=1", "expected an option of oe like 'anneal', got 'aneal'"),
    ],
)
def test_wrong_strengths_are_told(setting, sentence):
    with pytest.raises(ValueError, match=sentence):
        tasks.recipe("tabular", "quick", [setting])
