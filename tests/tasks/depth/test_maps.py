"""Crops at any resolution, the pixels that count, and sizes."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ordinal_entropy.tasks.depth.maps import (
    BLACK,
    CROP,
    EIGEN,
    FRAME,
    Box,
    inside,
    planes,
    resized,
    scaled,
    scaled_size,
    valid,
)


def test_published_crops_at_their_own_and_at_half_resolution():
    for box in (EIGEN, FRAME, BLACK):
        assert scaled(box, 480, 640) == box
    assert scaled(EIGEN, 240, 320) == Box(22, 236, 20, 301)
    assert scaled(FRAME, 240, 320) == Box(22, 236, 21, 304)
    assert FRAME.size == (427, 565)
    assert [scaled_size(CROP, h, w) for h, w in ((480, 640), (240, 320), (120, 160))] == [
        (416, 544),
        (208, 272),
        (104, 136),
    ]


@given(st.integers(1, 2000), st.integers(1, 2000))
def test_a_box_stays_inside_whatever_the_resolution(h, w):
    for box in (EIGEN, FRAME, BLACK):
        top, bottom, left, right = scaled(box, h, w)
        assert 0 <= top < bottom <= h and 0 <= left < right <= w
        assert abs(top * 480 - box.top * h) < 480 and abs(right * 640 - box.right * w) < 640


def test_inside_is_the_box_and_what_was_true():
    mask = torch.rand(2, 240, 320, generator=torch.Generator().manual_seed(0)) < 0.5
    before, result = mask.clone(), inside(mask, EIGEN)
    assert torch.equal(mask, before)
    assert torch.equal(result[:, 22:236, 20:301], mask[:, 22:236, 20:301])
    assert result.sum() == mask[:, 22:236, 20:301].sum()


def test_limits_are_not_valid():
    depths = torch.tensor([-1.0, 0.0, 1e-3, 1.1e-3, 9.999, 10.0, 11.0, math.nan, math.inf])
    assert valid(depths).tolist() == [False, False, False, True, True, False, False, False, False]


def test_resized_keeps_corners_or_not():
    maps = torch.tensor([[[0.0, 4.0]]])
    assert resized(maps, (1, 4)).flatten().tolist() == pytest.approx([0, 4 / 3, 8 / 3, 4])
    assert resized(maps, (1, 4), align_corners=False).flatten().tolist() == pytest.approx([0, 1, 3, 4])
    assert resized(maps, (1, 2)) is maps
    assert resized(torch.zeros(0, 2, 2), (4, 4)).shape == (0, 4, 4)


def test_shapes_are_checked():
    assert planes(torch.zeros(2, 1, 3, 4), "targets").shape == planes(torch.zeros(2, 3, 4), "targets").shape
    for shape in ((3, 4), (2, 3, 4, 5), (1, 2, 1, 3, 4)):
        with pytest.raises(ValueError, match=r"expected targets \(b, h, w\) or \(b, 1, h, w\), got"):
            planes(torch.zeros(shape), "targets")
    with pytest.raises(ValueError, match="expected maps of at least 1 x 1, got 0 x 5"):
        scaled(EIGEN, 0, 5)
