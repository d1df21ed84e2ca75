"""Small pictures: where each image is on a sheet, and how large one by itself."""

import io

import numpy as np
import pytest
import torch
from PIL import Image

from ordinal_entropy.vision import thumbnails


def read(write, content):
    file = io.BytesIO()
    write(content, file)
    return np.array(Image.open(file))


def test_a_sheet_has_one_square_after_the_other():
    shades = torch.arange(40) * 6
    images = shades[:, None, None, None].expand(-1, 3, 20, 30)
    sheet = read(thumbnails.write_sheet, thumbnails.squares(images))
    side, columns = thumbnails.SIDE, thumbnails.COLUMNS
    assert sheet.shape == (2 * side, columns * side, 3)
    for row, shade in enumerate(shades.tolist()):
        down, across = divmod(row, columns)
        middle = sheet[side * down + 4 : side * (down + 1) - 4, side * across + 4 : side * (across + 1) - 4]
        assert np.abs(middle.astype(int) - shade).max() <= 3
    assert sheet[side:, 8 * side + 4 :].max() <= 3  # beyond the last


@pytest.mark.parametrize("size, expected", [((480, 640), (240, 320)), ((100, 20), (100, 20)), ((1000, 1), (320, 1))])
def test_a_picture_keeps_its_proportions(size, expected):
    image = torch.zeros(3, *size)
    image[0] = 200.4
    picture = read(thumbnails.write_picture, image)
    assert picture.shape == (*expected, 3)
    assert (picture == [200, 0, 0]).all()
