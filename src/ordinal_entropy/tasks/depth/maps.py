"""Depth maps: the published crops at any resolution, which pixels count, and maps of one size with another."""

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

MIN_DEPTH = 1e-3  # metres; less is no measurement
MAX_DEPTH = 10.0
HEIGHT, WIDTH = 480, 640  # what the crops below are given for


class Box(NamedTuple):
    """Rows from top to bottom and columns from left to right, the ends not included."""

    top: int
    bottom: int
    left: int
    right: int

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        return self.bottom - self.top, self.right - self.left


EIGEN = Box(45, 471, 41, 601)  # where predictions are scored
FRAME = Box(45, 472, 43, 608)  # where the sensor measures; BTS and AdaBins train inside
BLACK = Box(7, 474, 7, 632)  # outside of it the published test images are black
CROP = (416, 544)  # rows and columns that BTS and AdaBins train on


def scaled(box: Box, h: int, w: int) -> Box:
    """The box in maps of another resolution; pixels that it touches are inside.

    Args:
        box: in maps of 480 x 640.
        h: rows of the maps.
        w: columns of the maps.

    Example:
        >>> scaled(EIGEN, 480, 640) == EIGEN, scaled(EIGEN, 240, 320)
        (True, Box(top=22, bottom=236, left=20, right=301))
    """
    if h < 1 or w < 1:
        raise ValueError(f"expected maps of at least 1 x 1, got {h} x {w}")
    return Box(
        box.top * h // HEIGHT,
        math.ceil(box.bottom * h / HEIGHT),
        box.left * w // WIDTH,
        math.ceil(box.right * w / WIDTH),
    )


def scaled_size(size: tuple[int, int], h: int, w: int) -> tuple[int, int]:
    """Rows and columns of a crop in maps of another resolution, rounded.

    Args:
        size: rows and columns in maps of 480 x 640.
        h: rows of the maps.
        w: columns of the maps.

    Example:
        >>> scaled_size(CROP, 240, 320)
        (208, 272)
    """
    return max(round(size[0] * h / HEIGHT), 1), max(round(size[1] * w / WIDTH), 1)


def planes(maps: Tensor, name: str) -> Tensor:
    """``(b, h, w)`` out of ``(b, h, w)`` or ``(b, 1, h, w)``."""
    if maps.dim() == 4 and maps.shape[1] == 1:
        maps = maps[:, 0]
    if maps.dim() != 3:
        raise ValueError(f"expected {name} (b, h, w) or (b, 1, h, w), got {tuple(maps.shape)}")
    return maps


def resized(predictions: Tensor, size: tuple[int, int], *, align_corners: bool = True) -> Tensor:
    """Predictions ``(b, h, w)`` brought to another size, bilinear; the same tensor where they have it.

    Args:
        predictions: ``(b, h, w)``.
        size: rows and columns.
        align_corners: whether the middles of the corner pixels stay in the corners, as AdaBins has it, or the corners
            of the corner pixels do.

    Example:
        >>> resized(torch.tensor([[[1.0, 3.0]]]), (1, 3))
        tensor([[[1., 2., 3.]]])
    """
    if predictions.shape[1:] == torch.Size(size):
        return predictions
    if not predictions.numel():
        return predictions.new_zeros(len(predictions), *size)
    return F.interpolate(predictions[:, None], size, mode="bilinear", align_corners=align_corners)[:, 0]


def valid(targets: Tensor, *, above: float = MIN_DEPTH, below: float = MAX_DEPTH) -> Tensor:
    """Where there is a measurement: boolean, in the shape of the targets; false for NaN.

    Example:
        >>> valid(torch.tensor([0.0, 0.5, 10.0, float("nan")]))
        tensor([False,  True, False, False])
    """
    return (targets > above) & (targets < below)


def inside(mask: Tensor, box: Box) -> Tensor:
    """The mask ``(b, h, w)``, and false outside of the box, given for 480 x 640.

    Example:
        >>> inside(torch.ones(1, 48, 64, dtype=torch.bool), EIGEN).sum()
        tensor(2508)
    """
    top, bottom, left, right = scaled(box, *mask.shape[-2:])
    result = torch.zeros_like(mask)
    result[..., top:bottom, left:right] = mask[..., top:bottom, left:right]
    return result
