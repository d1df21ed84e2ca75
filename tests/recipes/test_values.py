"""Values of keys, read from text and from files."""

from dataclasses import dataclass
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordinal_entropy.recipes import Setting, described, flat, override, written


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
        ("cakes=none", "cakes", ()),
    ],
)
def test_values_are_read_as_the_type_of_their_field(setting, key, value):
    found = getattr(override(Baking(), [setting]), key)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
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
        ("weights=", "expected weights=VALUE,VALUE,..., or none, got weights="),
        ("cakes=pear", "got 'pear'; there are plum, apple"),
        (Setting("trays", None), "expected one value of trays, got nothing"),
        (Setting("trays", ["1", "2"]), "expected one value of trays, got 1, 2"),
        (Setting("weights", ["1", "x"]), "expected weights to be a number, got 'x'"),
    ],
)
def test_a_value_of_another_type_is_a_sentence(setting, sentence):
    with pytest.raises(ValueError) as error:
        override(Baking(), [setting])
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [("rest", None, None), ("weights", None, ()), ("weights", [], ()), ("weights", ["1", "2"], (1.0, 2.0)),
     ("name", "a, b", "a, b"), ("cakes", ["apple"], ("apple",))],
)  # fmt: skip
def test_a_file_may_have_nothing_or_a_list(key, value, expected):
    assert getattr(override(Baking(), [Setting(key, value)]), key) == expected


@pytest.mark.parametrize("recipe", [Baking(), Baking(rest=None, weights=(), cakes=(), convection=True, degrees=1e-5)])
def test_what_is_written_is_read_back(recipe):
    settings = [f"{key}={written(value)}" for key, value in flat(described(recipe)).items()]
    assert override(Baking(), settings) == recipe


@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.lists(st.floats(-1, 1), min_size=1))
def test_what_python_writes_is_read_back(whole, number, several):
    settings = [f"trays={whole}", f"degrees={number!r}", f"weights={','.join(map(repr, several))}"]
    assert override(Baking(), settings) == Baking(whole, number, weights=tuple(several))
