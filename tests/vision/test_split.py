import pytest
import torch

from ordinal_entropy.vision.split import moved, normalized, random_moves


@pytest.fixture
def images():
    return torch.randint(1, 256, (6, 3, 9, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def windows(image, padding):
    """Every crop there can be, by its place."""
    _, h, w = image.shape
    padded = torch.zeros(3, h + 2 * padding, w + 2 * padding, dtype=image.dtype)
    padded[:, padding : padding + h, padding : padding + w] = image
    places = range(2 * padding + 1)
    return {(top, left): padded[:, top : top + h, left : left + w] for top in places for left in places}


@pytest.mark.parametrize("channels_last", [False, True])
def test_each_image_is_moved_and_mirrored_as_its_numbers_say(images, channels_last):
    if channels_last:
        images = images.contiguous(memory_format=torch.channels_last)
    moves = random_moves(6, 2, torch.Generator().manual_seed(1))
    found = moved(images, moves, 2)
    assert found.shape == images.shape and found.dtype == torch.uint8
    assert found.is_contiguous(memory_format=torch.channels_last)
    for image, (top, left, mirrored), result in zip(images, moves.tolist(), found, strict=True):
        window = windows(image, 2)[top, left]
        assert torch.equal(result, window.flip(2) if mirrored else window)
    assert {0, 1} == set(moves[:, 2].tolist())


def test_every_crop_and_both_sides_come():
    moves = random_moves(600, 1, torch.Generator().manual_seed(2))
    assert len({tuple(move) for move in moves.tolist()}) == 3 * 3 * 2
    assert moves.amin(0).tolist() == [0, 0, 0] and moves.amax(0).tolist() == [2, 2, 1]
    assert 250 < int(moves[:, 2].sum()) < 350


def test_without_padding_images_are_only_mirrored(images):
    moves = random_moves(6, 0, torch.Generator().manual_seed(3))
    expected = torch.where(moves[:, 2, None, None, None] > 0, images.flip(3), images)
    assert torch.equal(moved(images, moves, 0), expected)


def test_a_generator_says_it_all():
    first, second = (random_moves(9, 3, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("first", [torch.inference_mode, torch.enable_grad])
def test_normalized(images, first):
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    images = images.contiguous(memory_format=torch.channels_last)
    with first():
        normalized(images, mean, std)  # what is kept of it serves everywhere
    found = normalized(images, mean, std)
    assert found.dtype == torch.float32 and found.is_contiguous(memory_format=torch.channels_last)
    for channel in range(3):
        expected = (images[:, channel].double() / 255 - mean[channel]) / std[channel]
        torch.testing.assert_close(found[:, channel].double(), expected, rtol=1e-5, atol=1e-6)
    weight = torch.ones(3, 3, 1, 1, requires_grad=True)
    torch.nn.functional.conv2d(found, weight).sum().backward()
    assert weight.grad is not None
