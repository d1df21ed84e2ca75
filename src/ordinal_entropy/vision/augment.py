"""Random crops and flips of a whole batch at once, on whatever device it is on."""

import torch
import torch.nn.functional as F
from torch import Tensor


def random_crops(images: Tensor, padding: int, generator: torch.Generator | None = None) -> Tensor:
    """Images moved by up to ``padding`` pixels in both directions, each by itself; what comes in from outside is 0.

    Args:
        images: ``(b, c, h, w)``.
        padding: pixels.
        generator: for the draws, on the device of the images.

    Returns:
        ``(b, c, h, w)``, the channels last in memory.

    Example:
        >>> random_crops(torch.ones(2, 3, 8, 8, dtype=torch.uint8), padding=1).shape
        torch.Size([2, 3, 8, 8])
    """
    b, _, h, w = images.shape
    device = images.device
    padded = F.pad(images, (padding, padding, padding, padding))
    top, left = torch.randint(0, 2 * padding + 1, (2, b), generator=generator, device=device)
    rows = top[:, None] + torch.arange(h, device=device)  # (b, h)
    columns = left[:, None] + torch.arange(w, device=device)  # (b, w)
    which = torch.arange(b, device=device)[:, None, None]
    return padded.permute(0, 2, 3, 1)[which, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)


def random_flips(images: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Images ``(b, c, h, w)``, half of them mirrored left to right, each with a draw of its own."""
    mirrored = torch.rand(len(images), generator=generator, device=images.device) < 0.5
    return torch.where(mirrored[:, None, None, None], images.flip(3), images)


def normalized(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """Bytes ``(b, c, h, w)`` as float32, between 0 and 1 and then less the mean over the standard deviation.

    Example:
        >>> normalized(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8), (0.5,) * 3, (0.5,) * 3).flatten()
        tensor([1., 1., 1.])
    """
    shape = (1, -1, 1, 1)
    center, scale = (images.new_tensor(numbers, dtype=torch.float32).view(shape) for numbers in (mean, std))
    return (images.float() / 255 - center) / scale
