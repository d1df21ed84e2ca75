"""Small pictures of images whose features are saved; of maps, one image in its features on a grid of places."""

from typing import BinaryIO

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ordinal_entropy.vision.split import Seen

SIDE = 48  # pixels of a picture on a sheet
COLUMNS = 32  # of a sheet
LONGEST = 320  # pixels of the longer side of a picture by itself


GRID = (30, 40)  # places down and across an image, at most: the authors' for one of 480 x 640


def middles(there: int, count: int) -> list[int]:
    """Where the middles of so many equal parts of a side lie.

    Example:
        >>> middles(8, 4), middles(2, 4)
        ([1, 3, 5, 7], [0, 0, 1, 1])
    """
    return [(2 * part + 1) * there // (2 * count) for part in range(count)]


def nearest(maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Maps ``(b, c, h, w)`` at another size, each place with the nearest that the regularizer would take for it.

    Example:
        >>> nearest(torch.arange(6).reshape(1, 1, 1, 6), (1, 3))
        tensor([[[[0, 2, 4]]]])
    """
    down, across = (
        torch.arange(count, device=maps.device) * whole // count
        for count, whole in zip(size, maps.shape[2:], strict=True)
    )
    return maps[:, :, down][..., across]


def portrait(features: Tensor, predictions: Tensor, seen: Seen, row: int) -> dict[str, Tensor]:
    """One image of a batch in its features: those on a grid of up to 30 x 40 places, where there is a target.

    Args:
        features: maps ``(b, d, h, w)``.
        predictions: ``(b, t, ...)``, maps of any size.
        seen: the batch; its targets are maps ``(b, t, ...)`` of any size.
        row: of the image in the batch.

    Returns:
        "features" ``(n, d)``, "targets" and "predictions" ``(n, t)``, and "places" ``(n, 2)``: row and column in pixels
        of the image.
    """
    height, width = features.shape[2:]
    down, across = (
        torch.tensor(middles(side, min(side, most)), device=features.device)
        for side, most in zip((height, width), GRID, strict=True)
    )

    def on_grid(maps: Tensor) -> Tensor:
        return nearest(maps[row : row + 1], (height, width))[0][:, down][..., across].flatten(1).T  # (n, c)

    pixels = [
        places * whole // side
        for places, whole, side in zip((down, across), seen.images.shape[2:], (height, width), strict=True)
    ]
    content = {
        "features": on_grid(features),
        "targets": on_grid(seen.targets),
        "predictions": on_grid(predictions),
        "places": torch.cartesian_prod(*pixels).int(),
    }
    if seen.mask is None:
        return content
    there = on_grid(seen.mask).all(1)
    return {name: values[there] for name, values in content.items()}


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


def beside(image: NDArray[np.uint8], values: NDArray[np.float32], file: BinaryIO) -> None:
    """Writes an image and its map as a PNG side by side, the map in greys from 0, or its smallest, to its largest.

    Args:
        image: bytes ``(h, w, 3)``.
        values: finite numbers ``(h', w')``; each becomes a rectangle of the size of the image.
        file: to write to.
    """
    from PIL import Image

    low, high = min(float(values.min()), 0.0), float(values.max())
    grey = np.rint(255 * (values - low) / (high - low if high > low else 1)).clip(0, 255).astype(np.uint8)
    larger = Image.fromarray(grey).resize((image.shape[1], image.shape[0]), Image.Resampling.NEAREST)
    both = np.concatenate([image, np.repeat(np.array(larger)[..., None], 3, axis=2)], axis=1)
    Image.fromarray(both).save(file, "PNG")


def _resized(images: Tensor, size: tuple[int, int]) -> Tensor:
    found = F.interpolate(images.float(), size=size, mode="bilinear", align_corners=False, antialias=True)
    return found.round().clamp(0, 255).to(torch.uint8)
