"""Small pictures: where each image is on a sheet, and how large one by itself; places on maps, against loops."""

import io

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from ordinal_entropy.vision import portraits
from ordinal_entropy.vision.portraits import GRID, middles, nearest, portrait
from ordinal_entropy.vision.split import Seen


def read(write, content):
    file = io.BytesIO()
    write(content, file)
    return np.array(Image.open(file))


def test_a_sheet_has_one_square_after_the_other():
    shades = torch.arange(40) * 6
    images = shades[:, None, None, None].expand(-1, 3, 20, 30)
    sheet = read(portraits.write_sheet, portraits.squares(images))
    side, columns = portraits.SIDE, portraits.COLUMNS
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
    picture = read(portraits.write_picture, image)
    assert picture.shape == (*expected, 3)
    assert (picture == [200, 0, 0]).all()


@pytest.mark.parametrize(("there", "to"), [((6, 8), (3, 4)), ((7, 9), (3, 4)), ((5, 5), (5, 5)), ((2, 3), (5, 4))])
def test_nearest_is_what_the_regularizer_takes(there, to):
    maps = torch.randn(2, 3, *there)
    torch.testing.assert_close(nearest(maps, to), F.interpolate(maps, size=to, mode="nearest"), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("size", "count"), [((240, 320), 1200), ((36, 48), 1200), ((24, 32), 24 * 32), ((60, 20), 600)]
)
def test_a_portrait_has_at_most_thirty_by_forty_places(size, count):
    seen = Seen(torch.zeros(1, 3, *(2 * side for side in size)), torch.zeros(1, 1, *size))
    content = portrait(torch.zeros(1, 2, *size), torch.zeros(1, 1, *size), seen, 0)
    assert {len(values) for values in content.values()} == {count}
    places = content["places"]
    assert places.min() >= 0 and (places < torch.tensor(size) * 2).all() and len(places.unique(dim=0)) == count
    spaces = [places[:, axis].unique().diff() for axis in range(2)]
    assert all(space.max() - space.min() <= 2 for space in spaces)  # even, but for rounding


@pytest.mark.parametrize("masked", [True, False])
def test_a_portrait_is_what_a_loop_finds(masked):
    """Features at stride 2, predictions at stride 2 or whole, targets whole, of the second image of a batch."""
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(2, 5, 36, 46, generator=generator)
    targets = torch.rand(2, 1, 71, 92, generator=generator)
    mask = torch.rand(2, 1, 71, 92, generator=generator) > 0.3 if masked else None
    for predictions in (torch.randn(2, 1, 36, 46, generator=generator), torch.randn(2, 1, 71, 92, generator=generator)):
        found = portrait(features, predictions, Seen(torch.zeros(2, 3, 71, 92), targets, mask), 1)
        rows = []
        for i in middles(36, GRID[0]):
            for j in middles(46, GRID[1]):
                y, x = i * 71 // 36, j * 92 // 46
                if mask is None or mask[1, 0, y, x]:
                    k, m = i * predictions.shape[2] // 36, j * predictions.shape[3] // 46
                    rows.append((features[1, :, i, j], targets[1, :, y, x], predictions[1, :, k, m], (y, x)))
        for name, expected in zip(
            ("features", "targets", "predictions", "places"), zip(*rows, strict=True), strict=True
        ):
            stacked = torch.tensor(expected) if name == "places" else torch.stack(expected)
            assert found[name].tolist() == stacked.tolist()
