"""Random crops and flips of a whole batch at once, on whatever device it is on; nothing here waits for a GPU."""

import functools
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor


def random_moves(count: int, padding: int, generator: torch.Generator | None = None) -> Tensor:
    """Draws of so many crops and flips: what :func:`moved` takes.

    Args:
        count: of images.
        padding: pixels that an image is moved by in both directions, at most.
        generator: of the CPU, for the draws.

    Returns:
        ``(count, 3)`` whole numbers: rows and columns in 0..2 padding, of which ``padding`` leaves the image where it
        is, and 1 for those that are mirrored, one in two.

    Example:
        >>> random_moves(500, padding=8).amax(0)
        tensor([16, 16,  1], dtype=torch.int32)
    """
    places = torch.randint(0, 2 * padding + 1, (count, 2), generator=generator, dtype=torch.int32)
    return torch.cat([places, torch.randint(0, 2, (count, 1), generator=generator, dtype=torch.int32)], 1)


def moved(images: Tensor, moves: Tensor, padding: int) -> Tensor:
    """Images cut out of themselves in a frame of zeros, some of them mirrored left to right, each in its own way.

    Args:
        images: ``(b, c, h, w)``.
        moves: ``(b, 3)`` of :func:`random_moves`, on the device of the images.
        padding: pixels of the frame, those that the moves were drawn for.

    Returns:
        ``(b, c, h, w)``, the channels last in memory.

    Example:
        >>> moved(torch.tensor([[[[1, 2, 3]]]]), torch.tensor([[1, 0, 1]]), padding=1)
        tensor([[[[2, 1, 0]]]])
    """
    b, c, h, w = images.shape
    framed = F.pad(images, (padding, padding, padding, padding)).permute(0, 2, 3, 1)  # (b, h + 2p, w + 2p, c)
    which, down, right = (torch.arange(n, dtype=moves.dtype, device=moves.device) for n in (b, h, w))
    top, left, mirrored = moves[:, :, None].unbind(1)  # (b, 1) each
    columns = left + torch.where(mirrored > 0, w - 1 - right, right)  # (b, w)
    rows = which[:, None] * framed.shape[1] + top + down  # (b, h), of all images
    places = rows[:, :, None] * framed.shape[2] + columns[:, None]  # (b, h, w)
    return framed.reshape(-1, c).index_select(0, places.flatten()).view(b, h, w, c).permute(0, 3, 1, 2)


def normalized(
    images: Tensor, mean: Sequence[float], std: Sequence[float], *, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Bytes ``(b, c, h, w)`` as floats, between 0 and 1 and then less the mean over the standard deviation.

    Example:
        >>> normalized(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8), (0.5,) * 3, (0.5,) * 3).flatten()
        tensor([1., 1., 1.])
    """
    center, scale = (_bytes(tuple(numbers), images.device, dtype) for numbers in (mean, std))
    return images.to(dtype).sub_(center).div_(scale)


@functools.lru_cache(maxsize=32)
def _bytes(numbers: tuple[float, ...], device: torch.device, dtype: torch.dtype) -> float | Tensor:
    """One number, or ``(c, 1, 1)``, in 0..255; kept, for a copy from the host waits for the device."""
    if len(set(numbers)) == 1:
        return 255 * numbers[0]
    with torch.inference_mode(False):
        values = 255 * torch.tensor(numbers, dtype=torch.float64)
        return values.to(dtype).view(-1, 1, 1).to(device)
