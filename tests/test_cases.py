"""Covering arrays."""

from itertools import combinations, product

import pytest

from cases import covering, every_pair, every_value


@pytest.mark.parametrize("sizes", [(2, 2), (3, 1, 2), (4, 3, 3, 2), (2,) * 6, (5, 2, 2)], ids=str)
def test_any_two_values_of_two_options_meet(sizes):
    cases = covering(sizes, 2)
    for (a, m), (b, n) in combinations(enumerate(sizes), 2):
        assert {(case[a], case[b]) for case in cases} == set(product(range(m), range(n)))
    assert len(cases) == len(set(cases)) <= 2 * max(m * n for m, n in combinations(sizes, 2))


@pytest.mark.parametrize(("sizes", "few"), [((2, 2, 2), 4), ((3, 3, 3, 3), 11), ((4, 3, 3, 2), 12)], ids=str)
def test_few_cases_do(sizes, few):
    assert len(covering(sizes, 2)) <= few


def test_every_value_is_there():
    cases = covering((4, 3, 2), 1)
    assert len(cases) == 4
    assert [{case[k] for case in cases} for k in range(3)] == [{0, 1, 2, 3}, {0, 1, 2}, {0, 1}]


@pytest.mark.parametrize(("parametrised", "fast"), [(every_value, 3), (every_pair, 6)])
def test_the_other_cases_are_slow(parametrised, fast):
    names, cases = parametrised(x="ab", y=[1, 2, 3]).args
    assert names == ["x", "y"]
    assert {case.values for case in cases} == set(product("ab", [1, 2, 3]))
    assert sum(not case.marks for case in cases) == fast
