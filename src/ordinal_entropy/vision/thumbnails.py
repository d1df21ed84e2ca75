"""Small pictures of the images whose features are kept, for the page of a run."""

from typing import BinaryIO

import torch
import torch.nn.functional as F
from torch import Tensor

SIDE = 48  # pixels of a picture on a sheet
COLUMNS = 32  # of a sheet
LONGEST = 320  # pixels of the longer side of a picture by itself


def squares(images: Tensor) -> Tensor:
    """Images ``(b, 3, h, w)`` from 0 to 255 as bytes ``(b, 3, SIDE, SIDE)``."""
    return _resized(images, (SIDE, SIDE))


def write_sheet(pictures: Tensor, file: BinaryIO) -> None:
    """Writes bytes ``(n, 3, SIDE, SIDE)`` as one JPEG, ``COLUMNS`` in a row."""
    from PIL import Image

    rows = -(-len(pictures) // COLUMNS)
    sheet = pictures.new_zeros(rows * COLUMNS, 3, SIDE, SIDE)
    sheet[: len(pictures)] = pictures
    pixels = sheet.view(rows, COLUMNS, 3, SIDE, SIDE).permute(0, 3, 1, 4, 2).reshape(rows * SIDE, COLUMNS * SIDE, 3)
    Image.fromarray(pixels.contiguous().numpy()).save(file, "JPEG", quality=80)


def write_picture(image: Tensor, file: BinaryIO) -> None:
    """Writes an image ``(3, h, w)`` from 0 to 255 as a PNG, its longer side ``LONGEST`` pixels at most."""
    from PIL import Image

    height, width = image.shape[1:]
    factor = min(LONGEST / max(height, width), 1)
    small = _resized(image[None], (max(round(height * factor), 1), max(round(width * factor), 1)))[0]
    Image.fromarray(small.permute(1, 2, 0).contiguous().numpy()).save(file, "PNG")


def _resized(images: Tensor, size: tuple[int, int]) -> Tensor:
    found = F.interpolate(images.float(), size=size, mode="bilinear", align_corners=False, antialias=True)
    return found.round().clamp(0, 255).to(torch.uint8)
