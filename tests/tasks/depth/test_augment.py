"""Images and depths that move together: against slices, against a loop, and what the draws are."""

import math

import pytest
import torch

from ordinal_entropy.tasks.depth.augment import augmented, random_draws, recoloured
from ordinal_entropy.tasks.depth.maps import FRAME, scaled


def batch(b=3, h=48, w=64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randint(0, 256, (b, 3, h, w), generator=generator, dtype=torch.uint8)
    return images, 0.5 + 9 * torch.rand(b, 1, h, w, generator=generator)


def still(b=3, angle=0.0, top=0.0, left=0.0, mirrored=0.0):
    draws = torch.ones(b, 9)
    draws[:, :4] = torch.tensor([angle, top, left, mirrored])
    return draws


def test_without_draws_it_is_the_frame():
    images, depths = batch(h=480, w=640, b=1)
    found, maps = augmented(images, depths, still(1), size=None)
    assert found.shape == (1, 3, 427, 565) and found.dtype == maps.dtype == torch.float32
    assert torch.allclose(found, images[..., 45:472, 43:608].float(), atol=0.02)
    assert torch.equal(maps, depths[..., 45:472, 43:608])


@pytest.mark.parametrize("mirrored", [0.0, 1.0])
def test_a_crop_is_a_slice_mirrored_or_not(mirrored):
    images, depths = batch(h=240, w=320)
    draws = still(top=0.5, left=1.0, mirrored=mirrored)
    draws[1, 1:3] = 0
    draws[2, 1:3] = torch.tensor([0.999999, 0.26])
    found, maps = augmented(images, depths[:, 0], draws)
    top, bottom, left, right = scaled(FRAME, 240, 320)  # 214 x 283 pixels, of which 208 x 272 are taken
    corners = [(top + 3, right - 272), (top, left), (bottom - 208, left + 3)]
    for k, (i, j) in enumerate(corners):
        expected, depth = images[k, :, i : i + 208, j : j + 272], depths[k, :, i : i + 208, j : j + 272]
        if mirrored:
            expected, depth = expected.flip(-1), depth.flip(-1)
        assert torch.allclose(found[k], expected.float(), atol=0.02), k
        assert torch.equal(maps[k], depth), k


def by_loop(plane, angle, nearest):
    """One plane turned about its middle, pixel by pixel, with zeros around."""
    h, w = plane.shape
    values, result = plane.tolist(), torch.zeros(h, w)

    def at(i, j):
        return values[i][j] if 0 <= i < h and 0 <= j < w else 0.0

    for i in range(h):
        for j in range(w):
            x, y = j - (w - 1) / 2, i - (h - 1) / 2
            u = math.cos(angle) * x - math.sin(angle) * y + (w - 1) / 2
            v = math.sin(angle) * x + math.cos(angle) * y + (h - 1) / 2
            if nearest:
                result[i, j] = at(round(v), round(u))
                continue
            top, left = math.floor(v), math.floor(u)
            for di in (0, 1):
                for dj in (0, 1):
                    share = (1 - abs(v - top - di)) * (1 - abs(u - left - dj))
                    result[i, j] += share * at(top + di, left + dj)
    return result


@pytest.mark.parametrize("angle", [math.radians(2.5), -0.06, 0.3])
def test_a_turn_is_bilinear_in_colour_and_nearest_in_depth(angle):
    images, depths = batch(b=1, h=20, w=26)
    found, maps = augmented(images, depths, still(1, angle), frame="none", size=None)
    for channel in range(3):
        assert torch.allclose(found[0, channel], by_loop(images[0, channel].float(), angle, False), atol=0.05)
    expected = by_loop(depths[0, 0], angle, True)
    assert (maps[0, 0] == expected).float().mean() > 0.995  # some lie in the middle of two
    assert (maps == 0).any()  # from outside
    assert set(maps.flatten().tolist()) <= {0.0, *depths.flatten().tolist()}


def test_images_and_depths_move_together():
    """A depth that is a channel of the image stays so, wherever the depth is one."""
    rows, columns = torch.meshgrid(torch.arange(96.0), torch.arange(128.0), indexing="ij")
    images = torch.stack([rows, columns, torch.full_like(rows, 200)]).expand(16, 3, 96, 128)
    depths = 1 + (rows + columns).expand(16, 96, 128) / 100
    draws = random_draws(16, torch.Generator().manual_seed(0))
    draws[:, 4:] = 1
    found, maps = augmented(images, depths, draws)
    inside = (maps[:, 0] > 0) & (found[:, 2] > 199.9)
    assert inside.float().mean() > 0.95
    assert (100 * (maps[:, 0] - 1) - found[:, 0] - found[:, 1])[inside].abs().max() < 1.05  # nearest is so far away


def test_the_frame_as_a_mask_keeps_the_image():
    images, depths = batch(h=480, w=640, b=1)
    found, maps = augmented(images, depths, still(1), frame="mask", size=None)
    assert torch.allclose(found, images.float(), atol=0.02)
    assert torch.equal(maps[..., 45:472, 43:608], depths[..., 45:472, 43:608])
    assert (maps > 0).sum() == 427 * 565
    assert torch.equal(depths, batch(h=480, w=640, b=1)[1])  # what came in is as it was


def test_colours_by_hand():
    images = torch.full((2, 3, 2, 2), 127.5)
    draws = torch.tensor([[1.1, 1.25, 0.9, 1.0, 1.1], [1.0, 1.0, 1.0, 1.0, 1.0]])
    found = recoloured(images, draws)
    expected = [255 * min(0.5**1.1 * 1.25 * c, 1) for c in (0.9, 1.0, 1.1)]
    assert found[0, :, 0, 0].tolist() == pytest.approx(expected, rel=1e-5)
    assert torch.allclose(found[1], images[1])
    bright = recoloured(torch.full((1, 3, 1, 1), 255.0), torch.tensor([[0.9, 1.25, 1.1, 1.1, 1.1]]))
    assert (bright == 255).all()


def test_draws_are_in_their_ranges_and_half_of_the_time():
    draws = random_draws(20_000, torch.Generator().manual_seed(0))
    low, high = draws.amin(0).tolist(), draws.amax(0).tolist()
    limits = [(-math.radians(2.5), math.radians(2.5)), (0, 1), (0, 1), (0, 1), (0.9, 1.1), (0.75, 1.25)]
    limits += 3 * [(0.9, 1.1)]
    for k, (least, most) in enumerate(limits):
        assert least - 1e-6 <= low[k] < least + 0.01 and most - 0.01 < high[k] <= most + 1e-6, k
    changed = (draws[:, 4:] != 1).any(1)
    assert changed.float().mean() == pytest.approx(0.5, abs=0.02)
    assert draws[:, 3].mean() == pytest.approx(0.5, abs=0.02)
    assert set(draws[:, 3].tolist()) == {0.0, 1.0}
    both = torch.corrcoef(torch.stack([draws[:, 3], changed.float()]))[0, 1]
    assert abs(both) < 0.03  # one says nothing of the other
    assert torch.equal(random_draws(5, torch.Generator().manual_seed(0), angle=0)[:, 0], torch.zeros(5))


def test_the_same_generator_gives_the_same_and_another_another():
    first, second, third = (random_draws(8, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, second) and not torch.equal(first, third)
    assert random_draws(0).shape == (0, 9)
    images, depths = batch(0)
    assert augmented(images, depths, random_draws(0))[0].shape == (0, 3, 42, 54)


def test_a_crop_may_not_be_larger_than_the_frame_on_any_resolution():
    for h in range(24, 481, 8):
        images, depths = batch(1, h, h * 4 // 3)
        found, maps = augmented(images, depths, random_draws(1, torch.Generator().manual_seed(h)))
        assert found.shape[2:] == maps.shape[2:] == (round(416 * h / 480), round(544 * (h * 4 // 3) / 640))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"images": torch.zeros(3, 4, 48, 64)},
            r"images \(b, 3, h, w\) and depths of their size, got \(3, 4, 48, 64\)",
        ),
        ({"depths": torch.zeros(3, 1, 24, 32)}, r"got \(3, 3, 48, 64\), \(3, 1, 24, 32\)"),
        ({"draws": torch.zeros(2, 9)}, r"expected draws \(3, 9\), got \(2, 9\)"),
        ({"frame": "cut"}, "expected frame to be one of 'crop', 'mask', 'none', got 'cut'"),
        ({"size": (480, 640)}, r"expected a crop within 44 x 57 pixels, got one of 48 x 64: size \(480, 640\)"),
    ],
)
def test_what_comes_in_is_checked(change, message):
    images, depths = batch()
    given = {"images": images, "depths": depths, "draws": still()} | change
    with pytest.raises(ValueError, match=message):
        augmented(**given)
