import pytest
import torch

from ordinal_entropy.vision.augment import normalized, random_crops, random_flips


@pytest.fixture
def images():
    return torch.randint(1, 256, (6, 3, 9, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def windows(image, padding):
    """Every crop there can be."""
    _, h, w = image.shape
    padded = torch.zeros(3, h + 2 * padding, w + 2 * padding, dtype=image.dtype)
    padded[:, padding : padding + h, padding : padding + w] = image
    places = range(2 * padding + 1)
    return [padded[:, top : top + h, left : left + w] for top in places for left in places]


def test_a_crop_is_one_of_all_there_can_be(images):
    cropped = random_crops(images, 2, torch.Generator().manual_seed(1))
    assert cropped.shape == images.shape and cropped.dtype == torch.uint8
    assert cropped.is_contiguous(memory_format=torch.channels_last)
    for image, crop in zip(images, cropped, strict=True):
        assert sum(torch.equal(crop, window) for window in windows(image, 2)) == 1


def test_every_crop_comes(images):
    generator = torch.Generator().manual_seed(2)
    seen = {tuple(random_crops(images[:1], 1, generator).flatten().tolist()) for _ in range(300)}
    assert seen == {tuple(window.flatten().tolist()) for window in windows(images[0], 1)}


def test_without_padding_nothing_moves(images):
    assert torch.equal(random_crops(images, 0), images)


def test_flips(images):
    flipped = random_flips(images.repeat(50, 1, 1, 1), torch.Generator().manual_seed(3))
    same = (flipped == images.repeat(50, 1, 1, 1)).flatten(1).all(1)
    mirrored = (flipped == images.repeat(50, 1, 1, 1).flip(3)).flatten(1).all(1)
    assert (same ^ mirrored).all()
    assert 100 < int(mirrored.sum()) < 200


def test_a_generator_says_it_all(images):
    for way in (lambda x, g: random_crops(x, 3, g), random_flips):
        first, second = (way(images, torch.Generator().manual_seed(4)) for _ in range(2))
        assert torch.equal(first, second)


def test_normalized(images):
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    found = normalized(images, mean, std)
    assert found.dtype == torch.float32
    for channel in range(3):
        expected = (images[:, channel].double() / 255 - mean[channel]) / std[channel]
        torch.testing.assert_close(found[:, channel].double(), expected, rtol=1e-5, atol=1e-6)
