"""Images with their depths as a network sees them: held on the device, or read batch by batch."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ordinal_entropy.files import Problem, on_all_cores
from ordinal_entropy.tasks import spread_rows
from ordinal_entropy.tasks.depth import data
from ordinal_entropy.tasks.depth.augment import ANGLE, augmented, random_draws
from ordinal_entropy.tasks.depth.data import Record
from ordinal_entropy.tasks.depth.maps import CROP, valid
from ordinal_entropy.vision.images import Pixels, resized
from ordinal_entropy.vision.portraits import middles
from ordinal_entropy.vision.split import Device, Picked, Seen, Split

PLACES = (4, 6)  # rows and columns of the places in an image whose features are saved
_PREPARED, _GRID = 128, (24, 32)  # images that a method is prepared with, at most, and places of each
BYTES = 5  # of a pixel that is held: three colours, and a depth of 16 bits
_FARTHEST = 2**15 - 1  # millimetres in 16 bits; what is farther than 10 m is no depth anyway
_MILLI = 1000

Millimetres = NDArray[np.int16]  # (h, w)


@dataclass(frozen=True, eq=False)
class Views(Split):
    """Pairs of an image and its depth, all of one size.

    To train on, they are turned, cropped, mirrored and recoloured as in ``augment.augmented``; to predict, they are
    shown whole. Targets are metres ``(b, 1, h, w)``, the mask is true where there is a depth.
    """

    maps = True

    records: tuple[Record, ...]
    size: tuple[int, int]  # rows and columns
    pixels: Tensor | None = None  # bytes (n, 3, h, w), the channels last in memory; None: read when asked for
    millimetres: Tensor | None = None  # int16 (n, h, w), likewise; 0 where there is no depth
    frame: str = "crop"  # as `augmented` takes it
    crop: tuple[int, int] | None = CROP  # likewise, there called `size`
    angle: float = ANGLE  # degrees that an image is turned by, at most

    @property
    def held(self) -> bool:  # type: ignore[override]
        """Whether pixels and depths are in memory."""
        return self.pixels is not None

    def __len__(self) -> int:
        return len(self.records)

    def to(self, device: Device) -> "Views":
        """The same on a device."""
        if self.pixels is None or self.millimetres is None:
            return self
        return replace(self, pixels=self.pixels.to(device), millimetres=self.millimetres.to(device))

    def take(self, rows: Tensor) -> "Views":
        """Those at the given places, held in memory."""
        some = self.part(rows)
        if some.held:
            return some
        pixels, millimetres = _empty(len(some), self.size)

        def fill(place: int) -> None:
            pixels[place], millimetres[place] = _resized(*data.read(some.records[place]), self.size)

        with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes outside the interpreter's lock
            list(pool.map(fill, range(len(some))))
        return replace(some, pixels=_channels_first(pixels), millimetres=torch.from_numpy(millimetres))

    def part(self, rows: Tensor) -> "Views":
        """Those at the given places, held as these are or read when asked for."""
        some = replace(self, records=tuple(self.records[row] for row in rows.tolist()))
        if self.pixels is None or self.millimetres is None:
            return some
        pixels, millimetres = _at(self.pixels, self.millimetres, rows)
        return replace(some, pixels=pixels, millimetres=millimetres)

    def read(self, index: int) -> Sequence[Tensor]:
        """Bytes ``(3, h, w)`` and millimetres ``(h, w)``."""
        image, depth = _resized(*data.read(self.records[index]), self.size)
        return torch.from_numpy(image).permute(2, 0, 1), torch.from_numpy(depth)

    def target_rows(self) -> Tensor:
        """The depths at 24 x 32 places of each of some images, evenly spaced, where there is one."""
        some = self.take(spread_rows(len(self), _PREPARED))
        assert some.millimetres is not None
        rows, columns = (middles(side, min(side, most)) for side, most in zip(self.size, _GRID, strict=True))
        depths = some.millimetres[:, rows][..., columns].cpu().float() / _MILLI
        return depths[valid(depths)][:, None]

    def mean_map(self) -> Tensor:
        """The mean depth of each pixel ``(h, w)`` in float64; of all pixels, where none of the images has one."""
        total, count = torch.zeros(self.size, dtype=torch.float64), torch.zeros(self.size)
        for rows in self.batches(_PREPARED):
            some = self.take(rows)
            assert some.millimetres is not None
            depths = some.millimetres.cpu().double() / _MILLI
            there = valid(depths)
            total += torch.where(there, depths, 0).sum(0)
            count += there.sum(0)
        return torch.where(count > 0, total / count.clamp(min=1), total.sum() / count.sum())

    def draws(self, generator: torch.Generator) -> Tensor:
        """Of ``augment.augmented``."""
        return random_draws(len(self), generator, angle=self.angle)

    def seen(self, picked: Picked, draws: Tensor | None) -> Seen:
        """Images and depths as they are, or augmented."""
        if self.pixels is None or self.millimetres is None:
            images, millimetres = picked.raw
        else:
            images, millimetres = _at(self.pixels, self.millimetres, picked.rows)
        depths = (millimetres.float() / _MILLI)[:, None]  # (b, 1, h, w)
        if draws is not None:
            images, depths = augmented(images, depths, draws, frame=self.frame, size=self.crop)
        return Seen(images, depths, valid(depths))

    def feature_rows(self, features: Tensor, seen: Seen) -> tuple[Tensor, Tensor]:
        """Features and depths at 4 x 6 places of each image, the same in all, where there is a depth."""
        height, width = features.shape[2:]
        rows, columns = (middles(each, count) for each, count in zip((height, width), PLACES, strict=True))
        own = features[:, :, rows][..., columns]  # (b, c, 4, 6)
        down, across = (
            [place * whole // part for place in places]  # the nearest, as the regularizer takes it
            for places, part, whole in zip((rows, columns), (height, width), seen.targets.shape[2:], strict=True)
        )
        depths = seen.targets[:, :, down][..., across]  # (b, 1, 4, 6)
        there = valid(depths)[:, 0]  # (b, 4, 6)
        return own.permute(0, 2, 3, 1)[there], depths.permute(0, 2, 3, 1)[there]


def load(
    records: Sequence[Record],
    folder: Path,
    size: tuple[int, int],
    *,
    hold: bool,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Views, list[int], list[Problem]]:
    """Reads every pair once, on all cores.

    Args:
        records: of pairs below the folder.
        folder: what the problems name files relative to.
        size: rows and columns; others are brought to it, whatever their proportions: bilinear images, depths by the
            nearest.
        hold: whether to keep pixels and depths; if not, the pairs are only found to be ones.
        progress: is told how many are read, and how many there are.

    Returns:
        The pairs that can be used, their places in ``records``, and the others with the reason: one that cannot be
        read, a depth of another size than its image, or without a pixel between 0.001 and 10 m.
    """
    pixels, millimetres = _empty(len(records) if hold else 0, size)

    def fill(place: int) -> Problem | None:
        found = data.usable(records[place], folder)
        if isinstance(found, Problem):
            return found
        if hold:
            pixels[place], millimetres[place] = _resized(*found, size)
        return None

    faults = on_all_cores(fill, range(len(records)), progress)
    kept = [place for place, wrong in enumerate(faults) if wrong is None]
    problems = [wrong for wrong in faults if wrong is not None]
    views = Views(tuple(records[place] for place in kept), size)
    if hold:
        if problems:
            pixels, millimetres = pixels[kept], millimetres[kept]
        views = replace(views, pixels=_channels_first(pixels), millimetres=torch.from_numpy(millimetres))
    return views, kept, problems


def _empty(count: int, size: tuple[int, int]) -> tuple[Pixels, Millimetres]:
    return np.empty((count, *size, 3), np.uint8), np.empty((count, *size), np.int16)


def _channels_first(pixels: Pixels) -> Tensor:
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


def _at(pixels: Tensor, millimetres: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Both at some rows; the channels stay last in memory."""
    rows = rows.to(pixels.device)
    return pixels.permute(0, 2, 3, 1).index_select(0, rows).permute(0, 3, 1, 2), millimetres.index_select(0, rows)


def _resized(image: Pixels, depth: NDArray[np.float32], size: tuple[int, int]) -> tuple[Pixels, Millimetres]:
    """An image ``(h, w, 3)`` and its depth in metres, both brought to a size, the depth in millimetres."""
    millimetres = np.rint(np.minimum(depth * np.float32(_MILLI), _FARTHEST)).astype(np.int16)
    if depth.shape == size:
        return image, millimetres
    rows, columns = (middles(there, count) for there, count in zip(depth.shape, size, strict=True))
    return resized(image, size), millimetres[np.ix_(rows, columns)]
