"""Keys of recipes: their names, changes of them, and recipes as JSON has them."""

import math
from dataclasses import FrozenInstanceError, dataclass
from typing import Literal

import pytest

from ordinal_entropy.recipes import (
    changed,
    completed,
    described,
    explained,
    flat,
    full_name,
    leaves,
    lookup,
    override,
    parse_settings,
    restored,
)


@dataclass(frozen=True)
class Oven:
    path: str = ""  # where it stands
    degrees: float = 180.0  # Celsius
    fan: bool = False

    def __post_init__(self):
        if self.degrees < 0:
            raise ValueError(f"expected degrees from 0 on, got {self.degrees}")


@dataclass(frozen=True)
class GasOven(Oven):
    flame: Literal["low", "high"] = "low"  # of gas


@dataclass(frozen=True)
class Cake:
    name: str = "plum"
    rest: int | None = 10  # minutes; none: not at all
    degrees: float = 20.0  # when it is served
    weights: tuple[float, ...] = (0.5, 1.0)
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Baking:
    oven: GasOven = GasOven(fan=True)
    method: Cake = Cake()
    trays: int = 2  # in the oven

    def __post_init__(self):
        if self.trays > 1 and self.oven.degrees > 250:
            raise ValueError("expected one tray in so hot an oven")


NAMES = [
    "oven.path", "oven.degrees", "oven.fan", "oven.flame", "method.name", "method.rest", "method.degrees",
    "method.weights", "method.options", "trays",
]  # fmt: skip
OLD = {"oven": "kitchen", "fan": False, "method": "apple", "method_options": ["oe.strength=5"], "trays": 1}


@pytest.mark.parametrize(
    ("name", "full"),
    [(name, name) for name in NAMES]
    + [("oven", "oven.path"), ("path", "oven.path"), ("method", "method.name"), ("fan", "oven.fan"),
       ("flame", "oven.flame"), ("weights", "method.weights")],
)  # fmt: skip
def test_a_key_is_reached_by_its_full_name_and_by_unique_short_ones(name, full):
    assert list(leaves(Baking())) == NAMES
    assert full_name(NAMES, name) == full


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("degrees", "expected one of oven.degrees, method.degrees, got 'degrees', which stands for each of them"),
        ("tray", "expected a key like 'trays', got 'tray'; there are oven (path, degrees, fan, flame), method (name, "),
        ("oven.flam", "expected a key like 'oven.flame', got 'oven.flam'"),
        ("method.flame", "expected a key like 'oven.flame', got 'method.flame'"),
        ("oven.degree", "expected a key like 'oven.degrees'"),
        ("dishes.flame", "expected a key like 'oven.flame', got 'dishes.flame'"),
        ("zzz", "expected the name of a key, got 'zzz'; there are oven"),
        ("", "expected the name of a key, got ''"),
        ("trays.path", "got 'trays.path'"),
    ],
)
def test_an_unknown_name_names_the_near_ones(name, sentence):
    with pytest.raises(ValueError) as error:
        full_name(NAMES, name)
    assert sentence in str(error.value)


def test_a_group_without_a_path_or_a_name_is_no_key():
    with pytest.raises(ValueError, match=r"expected baking\.KEY, got 'baking', a group of keys: trays, rest"):
        full_name(["baking.trays", "baking.rest"], "baking")


def test_the_recipe_given_stays_as_it_is_and_the_last_setting_wins():
    recipe = Baking()
    assert override(recipe, ["trays=3", "trays=4"]) == Baking(trays=4)
    assert (
        override(recipe, ["oven.fan=no", "fan=yes"]).oven.fan
        and not override(recipe, ["fan=yes", "oven.fan=no"]).oven.fan
    )
    assert recipe == Baking()
    assert override(recipe, []) == recipe
    with pytest.raises(FrozenInstanceError):
        recipe.trays = 3


def test_several_keys_are_checked_once_all_are_changed():
    assert changed(Baking(), {"oven.degrees": 300.0, "trays": 1}).oven.degrees == 300
    assert override(Baking(), ["oven.degrees=300", "trays=1"]) == override(Baking(), ["trays=1", "oven.degrees=300"])
    with pytest.raises(ValueError, match="one tray"):
        override(Baking(), ["oven.degrees=300"])
    with pytest.raises(ValueError, match=r"degrees from 0 on, got -1\.0"):
        changed(Baking(), {"oven.degrees": -1.0})


def test_changes_keep_the_defaults_of_the_recipe():
    assert changed(Baking(), {"flame": "high"}).oven == GasOven(fan=True, flame="high")
    assert changed(Baking(), {}) == Baking()


def test_options_of_parts_stand_beside_keys_of_the_group():
    found = override(
        Baking(), ["method.oe.strength=5", "method.rest=3", "method.hl-gauss.sigma=2", "method.oe.strength=6"]
    )
    assert found.method.options == ("hl-gauss.sigma=2", "oe.strength=6") and found.method.rest == 3
    assert override(found, ["method.oe.strength=7"]).method.options == ("hl-gauss.sigma=2", "oe.strength=7")
    with pytest.raises(ValueError, match=r"expected a key like 'method\.rest'"):
        override(Baking(), ["method.res=3"])


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("tray=3", "expected a key like 'trays', got 'tray'; there are oven"),
        ("trays", "expected a setting key=value, got 'trays'"),
        ("=3", "expected a setting key=value, got '=3'"),
        ("oven.degrees=hot", "expected oven.degrees to be a number, got 'hot'"),
    ],
)
def test_a_mistake_is_a_sentence(setting, sentence):
    with pytest.raises(ValueError) as error:
        override(Baking(), [setting])
    assert sentence in str(error.value)


def test_dashes_in_keys_are_underscores():
    assert parse_settings(["training.learning-rate=1-2", "method.hl-gauss.sigma=1"]) == [
        ("training.learning_rate", "1-2", ""),
        ("method.hl-gauss.sigma", "1", ""),
    ]


def test_a_recipe_comes_back_from_json():
    recipe = changed(Baking(), {"weights": (1.0, 2.0), "rest": None, "flame": "high", "fan": False})
    content = described(recipe)
    assert content["oven"] == {"path": "", "degrees": 180.0, "fan": False, "flame": "high"}
    assert restored(Baking(), content) == restored(Baking(), flat(content)) == recipe
    for other in ({**content, "steam": 1}, {**content, "oven": {"steam": 1}}):
        with pytest.raises(ValueError, match=r"got .*, which this version does not have: a newer version"):
            restored(Baking(), other)


def test_a_recipe_that_was_written_without_groups_is_read():
    old = restored(Baking(trays=7), OLD)
    assert (old.oven.path, old.oven.fan, old.method.name, old.method.options, old.trays) == (
        "kitchen", False, "apple", ("oe.strength=5",), 1,
    )  # fmt: skip
    assert flat(described(old)).items() >= {"oven": "kitchen", "fan": False, "options": ["oe.strength=5"]}.items()
    assert flat(OLD)["options"] == ["oe.strength=5"]


def test_a_recipe_that_was_written_before_a_key_existed_has_its_default():
    older = described(changed(Baking(), {"oven.degrees": 200.0}))
    del older["oven"]["fan"]
    assert restored(changed(Baking(), {"fan": False}), older) == changed(Baking(), {"oven.degrees": 200.0})
    assert restored(Baking(trays=7), {}) == Baking()
    assert completed(Baking(trays=7), {"task": "x"}) == {**completed(Baking(), {}), "task": "x"}


@pytest.mark.parametrize(
    ("key", "value"),
    [("trays", "2"), ("trays", 2.5), ("trays", True), ("oven.degrees", None), ("oven.degrees", math.inf),
     ("flame", "steam"), ("rest", "10"), ("fan", 0), ("oven", 3), ("weights", 0.5), ("weights", ["x"]), ("trays", {}),
     ("flame", [])],
)  # fmt: skip
def test_a_value_of_another_type_is_told(key, value):
    with pytest.raises(ValueError, match=f"expected {full_name(NAMES, key)} of the type that Baking has"):
        restored(Baking(), {**flat(described(Baking())), key: value})
    with pytest.raises(ValueError, match=f"expected {full_name(NAMES, key)} of the type that Baking has"):
        changed(Baking(), {key: value})


def test_a_key_in_place_of_a_group_is_told():
    with pytest.raises(ValueError, match=r"got method\.rest\.minutes, which this version does not have"):
        restored(Baking(), {"method": {"rest": {"minutes": 3}}})


def test_every_key_comes_with_its_comment():
    assert explained(changed(Baking(), {"trays": 5}))[:5] == [
        ("oven.path", "", "where it stands"),
        ("oven.degrees", 180.0, "Celsius"),
        ("oven.fan", True, ""),
        ("oven.flame", "low", "of gas"),
        ("method.name", "plum", ""),
    ]
    assert explained(Baking(trays=5))[-1] == ("trays", 5, "in the oven")


def test_lookup_names_the_near_ones():
    with pytest.raises(ValueError, match="expected a preset like 'quick', got 'quik'; there are paper, quick"):
        lookup("preset", "quik", {"paper": 1, "quick": 2})
