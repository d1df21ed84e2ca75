"""Random rotations, crops, flips and colours of images and their depths, a batch at once, on whatever device it is on.

What is drawn and what is done are apart: draws come from a generator of the CPU, so they are the same for every device,
and nothing here waits for a GPU.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy.tasks.depth.maps import CROP, FRAME, planes, scaled, scaled_size

ANGLE = 2.5  # degrees
_GAMMA, _BRIGHTNESS, _COLOUR = (0.9, 1.1), (0.75, 1.25), (0.9, 1.1)


def random_draws(count: int, generator: torch.Generator | None = None, *, angle: float = ANGLE) -> Tensor:
    """Draws for so many images: what :func:`augmented` takes.

    Args:
        count: of images.
        generator: of the CPU, for the draws.
        angle: degrees that an image is turned by in both directions, at most.

    Returns:
        float32 ``(count, 9)``: the angle in radians; where the crop lies from top and from left, 0 to 1; 1 for those
        that are mirrored, one in two; gamma 0.9 to 1.1, brightness 0.75 to 1.25, and a factor of 0.9 to 1.1 for red,
        green and blue, which are 1 in one image of two.

    Example:
        >>> draws = random_draws(1000, torch.Generator().manual_seed(0))
        >>> draws.shape, bool((draws[:, 4] == 1).float().mean() > 0.45)
        (torch.Size([1000, 9]), True)
    """
    single = torch.float32  # in every precision of a run the same draws
    uniform = torch.rand(count, 10, generator=generator, dtype=single)
    lows = torch.tensor([-math.radians(angle), 0, 0, 0, *(low for low, _ in _ranges())], dtype=single)
    highs = torch.tensor([math.radians(angle), 1, 1, 1, *(high for _, high in _ranges())], dtype=single)
    draws = lows + uniform[:, :9] * (highs - lows)
    draws[:, 3] = (uniform[:, 3] < 0.5).float()
    draws[:, 4:] = torch.where(uniform[:, 9:] < 0.5, draws[:, 4:], 1)
    return draws


def augmented(
    images: Tensor,
    depths: Tensor,
    draws: Tensor,
    *,
    frame: str = "crop",
    size: tuple[int, int] | None = CROP,
) -> tuple[Tensor, Tensor]:
    """Images and depths turned, cropped and mirrored together, and the images in other colours.

    First the frame in which the sensor measures is cut out, then each image is turned about the middle, a crop is cut
    out at random, mirrored or not, and gamma, brightness and colours are changed. Images are sampled bilinearly, depths
    take the nearest. The depth of what comes from outside is 0, which is no depth; an image is black there.

    Args:
        images: ``(b, 3, h, w)``, bytes or floats from 0 to 255.
        depths: metres, ``(b, 1, h, w)`` or ``(b, h, w)``.
        draws: ``(b, 9)`` of :func:`random_draws`, on the device of the images; its precision is that of the results.
        frame: "crop" cuts out the frame, as BTS and AdaBins do; "mask" keeps the whole image and leaves out the depths
            outside of the frame, as NeW-CRFs do; "none": everything is kept.
        size: rows and columns of the crop in images of 480 x 640, scaled to these; None: no crop.

    Returns:
        Images ``(b, 3, h', w')`` from 0 to 255, and depths ``(b, 1, h', w')``.

    Example:
        >>> images, depths = torch.zeros(2, 3, 240, 320, dtype=torch.uint8), torch.ones(2, 240, 320)
        >>> images, depths = augmented(images, depths, random_draws(2))
        >>> images.shape, depths.shape
        (torch.Size([2, 3, 208, 272]), torch.Size([2, 1, 208, 272]))
    """
    if frame not in ("crop", "mask", "none"):
        raise ValueError(f"expected frame to be one of 'crop', 'mask', 'none', got {frame!r}")
    maps = planes(depths, "depths")[:, None].to(draws.dtype)  # (b, 1, h, w)
    if images.dim() != 4 or images.shape[1] != 3 or maps.shape != (len(images), 1, *images.shape[2:]):
        raise ValueError(
            f"expected images (b, 3, h, w) and depths of their size, got {tuple(images.shape)}, {tuple(depths.shape)}"
        )
    if draws.shape != (len(images), 9):
        raise ValueError(f"expected draws ({len(images)}, 9), got {tuple(draws.shape)}")
    h, w = images.shape[2:]
    top, bottom, left, right = scaled(FRAME, h, w)
    if frame == "crop":
        images, maps = images[..., top:bottom, left:right], maps[..., top:bottom, left:right]
    elif frame == "mask":
        maps = F.pad(maps[..., top:bottom, left:right], (left, w - right, top, h - bottom))
    there = (images.shape[2], images.shape[3])
    wanted = there if size is None else scaled_size(size, h, w)
    if wanted[0] > there[0] or wanted[1] > there[1]:
        raise ValueError(
            f"expected a crop within {there[0]} x {there[1]} pixels, got one of {wanted[0]} x {wanted[1]}: "
            f"size {size} of 480 x 640 in images of {h} x {w}"
        )
    grid = _sources(draws, there, wanted)
    images = F.grid_sample(images.to(draws.dtype), grid, mode="bilinear", padding_mode="zeros", align_corners=False)
    maps = F.grid_sample(maps, grid, mode="nearest", padding_mode="zeros", align_corners=False)
    return recoloured(images, draws[:, 4:]), maps


def recoloured(images: Tensor, draws: Tensor) -> Tensor:
    """Images with another gamma, brightness and colours.

    Args:
        images: ``(b, 3, h, w)``, floats from 0 to 255.
        draws: ``(b, 5)``: gamma, brightness, and a factor for red, green and blue.

    Returns:
        ``(b, 3, h, w)`` from 0 to 255.

    Example:
        >>> recoloured(torch.full((1, 3, 1, 1), 51.0), torch.tensor([[2.0, 1.0, 0.5, 1.0, 100.0]])).flatten()
        tensor([  5.1000,  10.2000, 255.0000])
    """
    gamma, brightness, colours = draws[:, :1, None, None], draws[:, 1:2, None, None], draws[:, 2:, None, None]
    shares = (images / 255).clamp(0, 1)  # sampling may leave the range by a rounding
    return 255 * (shares**gamma * (brightness * colours)).clamp(0, 1)


def _ranges() -> tuple[tuple[float, float], ...]:
    return (_GAMMA, _BRIGHTNESS, _COLOUR, _COLOUR, _COLOUR)


def _sources(draws: Tensor, there: tuple[int, int], wanted: tuple[int, int]) -> Tensor:
    """Where each pixel of the results comes from, ``(b, h', w', 2)`` as ``grid_sample`` has it: x, y from -1 to 1."""
    (h, w), (rows, columns) = there, wanted
    angle, down, across, mirrored = draws[:, :4, None, None].unbind(1)  # (b, 1, 1) each
    i = torch.arange(rows, device=draws.device, dtype=draws.dtype)[:, None]  # (h', 1)
    j = torch.arange(columns, device=draws.device, dtype=draws.dtype)  # (w',)
    y = (down * (h - rows + 1)).floor().clamp(max=h - rows) + i - (h - 1) / 2  # (b, h', 1), from the middle
    x = (across * (w - columns + 1)).floor().clamp(max=w - columns) - (w - 1) / 2
    x = x + torch.where(mirrored > 0, columns - 1 - j, j)  # (b, 1, w')
    cosine, sine = angle.cos(), angle.sin()
    across_there, down_there = cosine * x - sine * y, sine * x + cosine * y  # (b, h', w') pixels from the middle
    return torch.stack([2 * across_there / w, 2 * down_there / h], -1)
