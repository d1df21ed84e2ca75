"""Sets of images: in memory, on the device even, where they fit; else read from their files batch by batch."""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from ordinal_entropy.files import Problem, on_all_cores, shown
from ordinal_entropy.vision import images
from ordinal_entropy.vision.images import ImageError, Pixels

Index = TypeVar("Index", Tensor, list[int])  # of a batch


@dataclass(frozen=True, eq=False)
class Images:
    """Files of images, and their pixels where these are held."""

    paths: tuple[Path, ...]
    size: int  # side in pixels
    pixels: Tensor | None = None  # bytes (n, 3, size, size), the channels last in memory; None: read when asked for

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        """Bytes ``(3, size, size)`` and the index; what a DataLoader asks for."""
        if self.pixels is not None:
            return self.pixels[index], int(index)
        return torch.from_numpy(_resized(self.paths[index], self.size)).permute(2, 0, 1), int(index)

    def take(self, rows: Tensor) -> "Images":
        """Those at the given places, ``(m,)`` whole numbers."""
        paths = tuple(self.paths[row] for row in rows.tolist())
        pixels = None if self.pixels is None else _channels_last(self.pixels, rows)
        return Images(paths, self.size, pixels)

    def batch(self, rows: Tensor) -> Tensor:
        """Bytes ``(m, 3, size, size)`` of the images at the given places."""
        if self.pixels is not None:
            return _channels_last(self.pixels, rows)
        with ThreadPoolExecutor(os.cpu_count()) as pool:  # Pillow decodes outside the interpreter's lock
            return torch.stack(list(pool.map(lambda row: self[row][0], rows.tolist())))

    def held(self) -> "Images":
        """The same with the pixels in memory."""
        return self if self.pixels is not None else replace(self, pixels=self.batch(torch.arange(len(self))))

    def to(self, device: str | torch.device) -> "Images":
        """The same with the pixels, if they are held, on a device."""
        return self if self.pixels is None else replace(self, pixels=self.pixels.to(device))


def load(
    paths: Sequence[Path],
    folder: Path,
    size: int,
    *,
    hold: bool,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Images, list[int], list[Problem]]:
    """Reads every image once, on all cores.

    Args:
        paths: files below the folder.
        folder: what the problems name files relative to.
        size: side in pixels; other images are resized, whatever their proportions.
        hold: whether to keep the pixels; if not, the files are only found to be images.
        progress: is told how many are read, and how many there are.

    Returns:
        The images that can be read, their places in ``paths``, and the others with the reason.
    """
    if not hold:
        problems = images.unreadable(paths, folder, progress=progress)
        bad = {problem.file for problem in problems}
        kept = [place for place, path in enumerate(paths) if _named(path, folder) not in bad]
        return Images(tuple(paths[place] for place in kept), size), kept, problems

    pixels = np.empty((len(paths), size, size, 3), dtype=np.uint8)

    def fill(place: int) -> str | None:
        try:
            pixels[place] = _resized(paths[place], size)
        except ImageError as error:
            return error.reason
        return None

    faults = on_all_cores(fill, range(len(paths)), progress)
    kept = [place for place, wrong in enumerate(faults) if wrong is None]
    problems = [Problem(_named(paths[place], folder), wrong) for place, wrong in enumerate(faults) if wrong is not None]
    held = torch.from_numpy(pixels if not problems else pixels[kept]).permute(0, 3, 1, 2)
    return Images(tuple(paths[place] for place in kept), size, held), kept, problems


def mixed(*numbers: int) -> int:
    """A seed that depends on all the numbers and on their order.

    Example:
        >>> mixed(0, 1) == mixed(0, 1), mixed(0, 1) == mixed(1, 0)
        (True, False)
    """
    return int(np.random.SeedSequence(numbers).generate_state(1, np.uint64)[0] >> np.uint64(1))


def training_steps(
    count: int, batch_size: int, *, parts: int = 1, seed: int = 0, epoch: int = 0, least: int = 2
) -> list[list[Tensor]]:
    """The rows of one epoch, step by step, each step's in so many parts; they depend on the arguments only.

    Args:
        count: of rows.
        batch_size: rows of a step. The last step has what is left, and is dropped if a part would have too few.
        parts: of a step, for ranks and for gradients that are accumulated.
        seed: of the run.
        epoch: every one has another order.
        least: rows of a part; no BatchNorm can be trained on one.

    Example:
        >>> [[part.tolist() for part in step] for step in training_steps(7, 4, parts=2)]
        [[[0, 1], [4, 5]]]
    """
    order = torch.randperm(count, generator=torch.Generator().manual_seed(mixed(seed, epoch)))
    steps = list(order.split(batch_size))
    if len(steps[-1]) < least * parts:
        steps.pop()
    return [list(step.tensor_split(parts)) for step in steps]


class Batches(Generic[Index]):
    """An iterable of the rows of each batch, made anew whenever it is begun: what is made may depend on the epoch.

    Args:
        make: gives the rows of each batch.
        length: how many batches it gives.
    """

    def __init__(self, make: Callable[[], Sequence[Index]], length: int) -> None:
        self.make: Callable[[], Sequence[Index]] = make
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Index]:
        return iter(self.make())


def _channels_last(pixels: Tensor, rows: Tensor) -> Tensor:
    return pixels.permute(0, 2, 3, 1).index_select(0, rows.to(pixels.device)).permute(0, 3, 1, 2)


def _resized(path: Path, size: int) -> Pixels:
    """``(size, size, 3)``."""
    return images.resized(images.read(path), (size, size))


def _named(path: Path, folder: Path) -> str:
    return shown(path.relative_to(folder).as_posix())
