"""Axes, ticks and looks of figures."""

import pytest

from ordinal_entropy.results.figures import scaled, style


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        ([1.0, 10.0], ()),
        ([0.0, 100.0], ()),
        ([-1.0, 50.0], ()),
        ([], ()),
        ([1.0, 30.0], (1, 2, 5, 10, 20, 50, 100, 200, 500)),
        ([0.5, 900.0], (0.1, 1, 10, 100, 1000)),
    ],
)
def test_an_axis_is_logarithmic_where_numbers_are_far_apart(values, ticks):
    axis = scaled("MSE", values)
    assert axis.ticks == pytest.approx(ticks) and axis.log is bool(ticks) and axis.title == "MSE"


def test_ticks_reach_to_the_ends_of_bands():
    assert scaled("MSE", [1.0, 30.0], ends=[-5.0, 40_000.0]).ticks[-1] >= 40_000
    assert not scaled("MSE", [1.0, 2.0], ends=[40_000.0]).log


def test_series_differ_by_more_than_their_colour():
    looks = [style(place) for place in range(14)]
    assert len({(own.colour, own.marker) for own in looks}) == 14
    for first in (looks[:7], looks[7:]):
        assert len({own.colour for own in first}) == len({own.marker for own in first}) == 7
