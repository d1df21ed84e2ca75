"""What a tuned comparison searches of each method: options that there are, at values that it takes."""

import pytest

from ordinal_entropy import methods
from ordinal_entropy.methods import Range


@pytest.mark.parametrize("name", [name for name in methods.names() if methods.tunable(name)])
def test_every_end_of_a_range_is_taken_and_the_default_lies_inside(name):
    defaults = methods.option_defaults(name)
    for key, own in methods.tunable(name).items():
        option = key.removeprefix(f"{name}.")
        if own.choices:
            ends = list(own.choices)
            assert defaults[option] in own.choices
        else:
            further = [own.widened(up=False).widened(up=False).low, own.widened(up=True).widened(up=True).high]
            ends = [own.low, own.high, *further]
            assert 0.0 <= own.share(defaults[option]) <= 1.0
            assert ends == [min(max(each, own.limits[0]), own.limits[1]) for each in ends]
        for value in ends:
            methods.create(name, {name: {option: int(value) if own.whole else value}})


def test_every_term_has_a_strength_and_nothing_else_has():
    for fixed, held, other in ((False, "balance", "strength"), (True, "strength", "balance")):
        found = methods.tunable("lds+oe+ld", fixed=fixed)
        assert found.keys() >= {f"oe.{held}", f"ld.{held}"}
        assert not {f"lds.{held}", f"oe.{other}", f"ld.{other}", "oe.anneal"} & found.keys()
    assert methods.tunable("koleo") == {"koleo.balance": Range(1e-2, 1.0, log=True)}
    assert methods.tunable("koleo", fixed=True) == {"koleo.strength": Range(1e-3, 1e2, log=True)}
    assert methods.tunable("baseline") == {}


def test_a_range_goes_from_a_number_to_a_larger_one():
    for wrong in (Range(1.0, 1.0), Range(0.0, 1.0, log=True), Range(1.0, float("inf"))):
        with pytest.raises(ValueError, match="expected sigma"):
            wrong.checked("sigma")


@pytest.mark.parametrize("own", [Range(1e-3, 1e2, log=True), Range(-1.0, 3.0)])
def test_a_place_in_a_range_is_found_again(own):
    assert [own.share(own.at(share)) for share in (0.0, 0.3, 1.0)] == pytest.approx([0.0, 0.3, 1.0], abs=1e-5)
    assert own.share(own.widened(up=True).high) == pytest.approx(1.5, abs=1e-5)
    assert own.share(own.widened(up=False).low) == pytest.approx(-0.5, abs=1e-5)
