"""A split of a dataset as a network sees it: the one thing in which the training on images differs between tasks."""

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy.vision.sets import Images

Device = str | torch.device


class Seen(NamedTuple):
    """A batch: what the network is shown, and what it should say."""

    images: Tensor  # (b, 3, h, w), bytes or floats from 0 to 255
    targets: Tensor  # (b, 1), or maps (b, 1, h', w')
    mask: Tensor | None = None  # boolean, in the shape of the targets: those that count; None: all do
    weights: Tensor | None = None  # (b,), of the images in the task loss
    truth: Tensor | None = None  # what predictions are scored against, where that is not the targets


class Picked:
    """Rows of a batch, and what was read of them if the split is not held in memory.

    No tuple: Lightning would look at each number of one.
    """

    def __init__(self, rows: Tensor, numbers: Sequence[int] = (), raw: Sequence[Tensor] = ()) -> None:
        self.rows = rows  # (b,), on the device
        self.numbers = numbers  # the same for the host; only of a split that is held
        self.raw = raw  # as `Split.read` gives it, stacked; only of a split that is not


class Shown(Protocol):
    """How the images of a split are shown in training: what methods may ask for."""

    @property
    def uniform(self) -> bool:
        """Batches of as many rows have the same shapes."""
        ...

    @property
    def augmented(self) -> bool:
        """Other draws show an image in another way."""
        ...

    @property
    def maps(self) -> bool:
        """Targets are maps."""
        ...


class Split(ABC):
    """Images with their targets. What a task has to say of its own is in a class like :class:`Labelled`."""

    held: bool = True  # in memory; if not, `read` gives one image after the other, in other processes
    uniform: bool = True  # batches of as many rows to train on have the same shapes
    augmented: bool = True  # other draws show an image in another way
    maps: bool = False  # targets are maps

    @abstractmethod
    def __len__(self) -> int:
        """How many images there are."""

    @abstractmethod
    def to(self, device: Device) -> "Split":
        """The same with everything that is held on a device."""

    @abstractmethod
    def take(self, rows: Tensor) -> "Split":
        """The images at the given places ``(m,)`` alone, held in memory."""

    def extent(self, row: int) -> tuple[int, int] | None:
        """Height and width of an image in pixels, from the first one on, where it is shown in a frame; None: all."""
        return None

    @abstractmethod
    def draws(self, generator: torch.Generator) -> Tensor:
        """Random numbers ``(n, ...)`` of an epoch, a row for each image: all that its augmentation is made of."""

    @abstractmethod
    def seen(self, picked: Picked, draws: Tensor | None) -> Seen:
        """A batch to train on, by the draws of its rows ``(b, ...)``, or with None one to predict. Waits for no GPU."""

    def read(self, index: int) -> Sequence[Tensor]:
        """Tensors of one image, of the same shape for all."""
        raise NotImplementedError(f"{type(self).__name__} holds its images")

    def batches(self, size: int) -> Sequence[Tensor]:
        """Rows of all images in turn, about so many at a time; each batch can be stacked."""
        rows: tuple[Tensor, ...] = torch.arange(len(self)).split(size)
        return rows

    def scored(self, predictions: Tensor, seen: Seen) -> tuple[Tensor, Tensor]:
        """What the metric is given of a batch: predictions and truth, of shapes that can be joined with others."""
        return predictions, seen.targets if seen.truth is None else seen.truth

    @abstractmethod
    def target_rows(self) -> Tensor:
        """Targets ``(m, 1)`` of all images, or of a fair sample of the places of maps, on the CPU."""

    def feature_rows(self, features: Tensor, seen: Seen) -> tuple[Tensor, Tensor]:
        """Features ``(n, d)`` and targets ``(n, 1)`` that are saved of a batch. May wait for a GPU."""
        return features, seen.targets


class Data(NamedTuple):
    """What a run sees."""

    train: Split
    validation: Split
    test: Split

    def to(self, device: Device) -> "Data":
        """The same on a device."""
        return Data(*(split.to(device) for split in self))


@dataclass(frozen=True, eq=False)
class Labelled(Split):
    """Images with a number each; to train on they are moved by some pixels, and half of them mirrored."""

    images: Images
    targets: Tensor  # (n, 1)
    weights: Tensor | None = None  # (n,), in the task loss
    padding: int = 0  # pixels that an image is moved by, at most

    @property
    def held(self) -> bool:  # type: ignore[override]
        """Whether the pixels are in memory."""
        return self.images.pixels is not None

    def __len__(self) -> int:
        return len(self.images)

    def to(self, device: Device) -> "Labelled":
        """The same on a device."""
        weights = None if self.weights is None else self.weights.to(device)
        return replace(self, images=self.images.to(device), targets=self.targets.to(device), weights=weights)

    def take(self, rows: Tensor) -> "Labelled":
        """Those at the given places."""
        own = rows.to(self.targets.device)
        weights = None if self.weights is None else self.weights[own]
        return replace(self, images=self.images.take(rows).held(), targets=self.targets[own], weights=weights)

    def read(self, index: int) -> Sequence[Tensor]:
        """The pixels."""
        return (self.images[index][0],)

    def draws(self, generator: torch.Generator) -> Tensor:
        """Of ``augment.moved``."""
        return random_moves(len(self), self.padding, generator)

    def target_rows(self) -> Tensor:
        """All of them."""
        return self.targets.cpu()

    def seen(self, picked: Picked, draws: Tensor | None) -> Seen:
        """Images as they are, or moved."""
        images = picked.raw[0] if picked.raw else self.images.batch(picked.rows)
        if draws is not None:
            images = moved(images, draws, self.padding)
        weights = None if self.weights is None else self.weights[picked.rows]
        return Seen(images, self.targets[picked.rows], weights=weights)


@dataclass(frozen=True, eq=False)
class Unlabelled(Split):
    """Images of one size to be predicted, and nothing else: there are no targets, hence zeros in their place."""

    augmented = False

    pixels: Tensor  # bytes (n, 3, h, w)

    def __len__(self) -> int:
        return len(self.pixels)

    def to(self, device: Device) -> "Unlabelled":
        """The same on a device."""
        return replace(self, pixels=self.pixels.to(device))

    def take(self, rows: Tensor) -> "Unlabelled":
        """Those at the given places."""
        return replace(self, pixels=self.pixels[rows.to(self.pixels.device)])

    def draws(self, generator: torch.Generator) -> Tensor:
        """None: they are shown as they are."""
        return torch.zeros(len(self), 0)

    def target_rows(self) -> Tensor:
        """Zeros."""
        return torch.zeros(len(self), 1)

    def seen(self, picked: Picked, draws: Tensor | None) -> Seen:
        """Images as they are."""
        return Seen(self.pixels[picked.rows], torch.zeros(len(picked.rows), 1, device=self.pixels.device))


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
