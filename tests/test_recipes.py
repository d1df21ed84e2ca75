"""Keys and values of recipes, read from text."""

import math
from dataclasses import FrozenInstanceError, dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordinal_entropy.recipes import described, explained, lookup, override, pairs, restored


@dataclass(frozen=True)
class Baking:
    trays: int = 2  # in the oven
    degrees: float = 180.0  # Celsius
    mode: Literal["fan", "grill"] = "fan"
    rest: int | None = 10  # minutes; none: not at all
    convection: bool = False
    name: str = ""
    weights: tuple[float, ...] = (0.5, 1.0)
    cakes: tuple[Literal["plum", "apple"], ...] = ("plum",)


@pytest.mark.parametrize(
    ("setting", "key", "value"),
    [
        ("trays=3", "trays", 3),
        ("trays=1_000", "trays", 1000),
        ("trays=5e4", "trays", 50_000),
        ("trays=123456789012345678901", "trays", 123456789012345678901),  # beyond what a float holds
        (" trays = 3 ", "trays", 3),
        ("degrees=1e2", "degrees", 100.0),
        ("degrees=7", "degrees", 7.0),
        ("mode=grill", "mode", "grill"),
        ("rest=none", "rest", None),
        ("rest=all", "rest", None),
        ("rest=5", "rest", 5),
        ("convection=Yes", "convection", True),
        ("convection=0", "convection", False),
        ("name=a=b", "name", "a=b"),
        ("name=", "name", ""),
        ("weights=1", "weights", (1.0,)),
        ("weights=1e-5, 0.1,", "weights", (1e-5, 0.1)),
        ("cakes=apple,plum", "cakes", ("apple", "plum")),
    ],
)
def test_values_are_read_as_the_type_of_their_field(setting, key, value):
    found = getattr(override(Baking(), [setting]), key)
    assert found == value
    assert type(found) is type(value)


def test_the_recipe_given_stays_as_it_is_and_the_last_setting_wins():
    recipe = Baking()
    assert override(recipe, ["trays=3", "trays=4"]) == Baking(trays=4)
    assert recipe == Baking()
    assert override(recipe, []) == recipe
    with pytest.raises(FrozenInstanceError):
        recipe.trays = 3


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("tray=3", "expected a key like 'trays', got 'tray'; there are trays, degrees"),
        ("zzz=3", "expected the name of a key, got 'zzz'; there are trays"),
        ("trays", "expected a setting key=value, got 'trays'"),
        ("=3", "expected a setting key=value, got '=3'"),
        ("trays=many", "expected trays to be a whole number, got 'many'"),
        ("trays=2.5", "expected trays to be a whole number, got '2.5'"),
        ("trays=inf", "expected trays to be a whole number, got 'inf'"),
        ("trays=nan", "expected trays to be a whole number, got 'nan'"),
        ("trays=", "expected trays to be a whole number, got ''"),
        ("degrees=hot", "expected degrees to be a number, got 'hot'"),
        ("degrees=nan", "expected degrees to be a finite number, got 'nan'"),
        ("mode=gril", "expected a value of mode like 'grill', got 'gril'; there are fan, grill"),
        ("convection=maybe", "expected convection to be true or false, got 'maybe'"),
        ("weights=1,x", "expected weights to be a number, got 'x'"),
        ("weights=", "expected weights=VALUE,VALUE,..., got weights="),
        ("cakes=pear", "got 'pear'; there are plum, apple"),
    ],
)
def test_a_mistake_is_a_sentence(setting, sentence):
    with pytest.raises(ValueError) as error:
        override(Baking(), [setting])
    assert sentence in str(error.value)


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.lists(st.floats(-1, 1), min_size=1))
def test_what_python_writes_is_read_back(whole, number, several):
    settings = [f"trays={whole}", f"degrees={number!r}", f"weights={','.join(map(repr, several))}"]
    assert override(Baking(), settings) == Baking(whole, number, weights=tuple(several))


def test_dashes_in_keys_are_underscores():
    assert pairs(["learning-rate=1-2"]) == [("learning_rate", "1-2")]


def test_a_recipe_comes_back_from_json():
    recipe = Baking(weights=(1.0, 2.0), rest=None)
    assert restored(Baking(), described(recipe)) == recipe
    with pytest.raises(ValueError, match="got oven, which this version does not have: a newer version"):
        restored(Baking(), {**described(recipe), "oven": 1})


def test_a_recipe_that_was_written_before_a_key_existed_has_its_default():
    older = {key: value for key, value in described(Baking(degrees=200.0)).items() if key != "convection"}
    assert restored(Baking(convection=True), older) == Baking(degrees=200.0)
    assert restored(Baking(trays=7), {}) == Baking()


@pytest.mark.parametrize(
    ("key", "value"),
    [("trays", "2"), ("trays", 2.5), ("trays", True), ("degrees", None), ("degrees", math.inf), ("mode", "steam"),
     ("rest", "10"), ("convection", 0), ("name", 3), ("weights", 0.5), ("weights", ["x"]), ("cakes", ["pear"]),
     ("trays", {}), ("mode", [])],
)  # fmt: skip
def test_a_value_of_another_type_is_told(key, value):
    with pytest.raises(ValueError, match=f"expected {key} of the type"):
        restored(Baking(), {**described(Baking()), key: value})


def test_every_key_comes_with_its_comment():
    assert explained(Baking(trays=5))[:3] == [
        ("trays", 5, "in the oven"),
        ("degrees", 180.0, "Celsius"),
        ("mode", "fan", ""),
    ]


def test_lookup_names_the_near_ones():
    with pytest.raises(ValueError, match="expected a preset like 'quick', got 'quik'; there are paper, quick"):
        lookup("preset", "quik", {"paper": 1, "quick": 2})
