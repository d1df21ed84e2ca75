"""Crowds as a network sees them: crops with their cells to train on, whole images to count in, of any size.

The pixels of all images lie one behind the other in one tensor, and so do the cells of all density maps: images of any
size are held on a device without frames around them. What a batch shows is gathered from there by places that are
computed on the device, so that no step waits for it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ordinal_entropy.tasks import spread_rows
from ordinal_entropy.tasks.crowd.density import CELL
from ordinal_entropy.tasks.crowd.metrics import counts
from ordinal_entropy.vision.split import Device, Picked, Seen, Split

_CELLS = 2**20  # that a method is prepared with, at most
FEATURES = 24  # cells of an image whose features are saved, at most


@dataclass(frozen=True, eq=False)
class Sheets:
    """Maps of any size in one tensor, the rows of the first before those of the second; :func:`sheets` makes it."""

    values: Tensor  # (all places, c)
    sizes: tuple[tuple[int, int], ...]  # height and width of each map, for the host
    table: Tensor  # (n, 3) where each map begins, its height and its width, for the device

    def to(self, device: Device) -> "Sheets":
        """The same on a device."""
        return replace(self, values=self.values.to(device), table=self.table.to(device))

    def take(self, rows: Sequence[int]) -> "Sheets":
        """The maps at the given places."""
        begins = self.table[:, 0].tolist()
        maps = []
        for row in rows:
            height, width = self.sizes[row]
            maps.append(self.values[begins[row] : begins[row] + height * width].view(height, width, -1))
        return sheets(maps)

    def cut(
        self, which: Tensor, top: Tensor, left: Tensor, mirrored: Tensor, frame: tuple[int, int]
    ) -> tuple[Tensor, Tensor]:
        """Frames cut out of maps, some of them mirrored left to right; nothing waits for a GPU.

        Args:
            which: the maps, ``(b,)``.
            top: the first row of each frame, ``(b,)``.
            left: the first column, ``(b,)``.
            mirrored: 1 for a frame that is mirrored, with all that is in it, else 0, ``(b,)``.
            frame: height and width, the same for all.

        Returns:
            Values ``(b, h, w, c)``, and ``(b, h, w, 1)`` whether a place is inside its map; beyond its edge a map goes
            on as in a mirror.

        Example:
            >>> found = sheets([torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])])
            >>> values, inside = found.cut(*torch.tensor([[0], [1], [0], [0]]), frame=(1, 3))
            >>> values.flatten(), inside.flatten()
            (tensor([3., 4., 4.]), tensor([ True,  True, False]))
        """
        height, width = frame
        begin, high, wide = self.table[which].T[..., None, None]  # (b, 1, 1) each
        down = torch.arange(height, device=which.device)[:, None]
        right = torch.arange(width, device=which.device)
        rows = top[:, None, None] + down  # (b, h, 1)
        columns = left[:, None, None] + torch.where(mirrored[:, None, None] > 0, width - 1 - right, right)  # (b, 1, w)
        inside = (rows < high) & (columns < wide)  # (b, h, w)
        rows, columns = (
            torch.where(at < size, at, 2 * size - 1 - at).clamp(min=0) for at, size in ((rows, high), (columns, wide))
        )
        places = begin + rows * wide + columns
        values = self.values.index_select(0, places.flatten()).view(*places.shape, -1)
        return values, inside[..., None]


def sheets(maps: Sequence[Tensor]) -> Sheets:
    """Maps ``(h, w, c)`` of any sizes, one at least, as one tensor.

    Example:
        >>> found = sheets([torch.zeros(2, 3, 1), torch.ones(1, 4, 1)])
        >>> found.values.shape, found.table.tolist()
        (torch.Size([10, 1]), [[0, 2, 3], [6, 1, 4]])
    """
    sizes = tuple((each.shape[0], each.shape[1]) for each in maps)
    lengths = torch.tensor([height * width for height, width in sizes])
    table = torch.cat([(lengths.cumsum(0) - lengths)[:, None], torch.tensor(sizes)], dim=1)
    return Sheets(torch.cat([each.flatten(0, 1) for each in maps]), sizes, table.to(maps[0].device))


@dataclass(frozen=True, eq=False)
class Crowds(Split):
    """Images with the number of heads in each cell of 8 x 8 pixels; what lies beyond an image has no target: NaN.

    A row is an image; with ``repeats`` an epoch has that many rows for each, every one cropped in its own way.
    """

    maps = True

    images: Sheets  # bytes, of three channels
    cells: Sheets  # float32, of one channel; ceil(side / 8) of them
    people: Tensor  # (n,) float64, annotated heads
    crop: int = 0  # side of the crops to train on in pixels, a multiple of 8; 0: whole images
    mirror: bool = False  # whether one in two is mirrored in training
    repeats: int = 1  # rows for each image
    above: float = -torch.inf  # the mask has the cells with more heads than this
    frame: int = 1  # whole images are shown in frames of multiples of so many cells: few sizes, for those who plan each

    @property
    def uniform(self) -> bool:  # type: ignore[override]
        """Crops have one size, whole images have not."""
        return self.crop > 0

    def __len__(self) -> int:
        return len(self.people) * self.repeats

    def to(self, device: Device) -> "Crowds":
        """The same on a device."""
        return replace(self, images=self.images.to(device), cells=self.cells.to(device), people=self.people.to(device))

    def take(self, rows: Tensor) -> "Crowds":
        """The images of the given rows, each once."""
        which = (rows % len(self.people)).unique().tolist()
        return replace(
            self, images=self.images.take(which), cells=self.cells.take(which), people=self.people[which], repeats=1
        )

    def draws(self, generator: torch.Generator) -> Tensor:
        """``(rows, 3)``: the first cell of a crop, down and to the right, and 1 for those that are mirrored."""
        count = len(self)
        chance = torch.rand(count, 2, generator=generator, dtype=torch.float32)
        mirrored = torch.randint(0, 2, (count, 1), generator=generator)
        sizes = torch.tensor(self.cells.sizes).repeat(self.repeats, 1)
        free = (sizes - self.crop // CELL).clamp(min=0) if self.crop else torch.zeros_like(sizes)
        corner = (chance * (free + 1)).long().minimum(free)
        return torch.cat([corner, mirrored * self.mirror], dim=1)

    @property
    def augmented(self) -> bool:  # type: ignore[override]
        """Whole images are shown as they are, unless they are mirrored."""
        return self.crop > 0 or self.mirror

    def target_rows(self) -> Tensor:
        """The heads in all cells, or in a million of them, evenly spaced."""
        values = self.cells.values
        return values[spread_rows(len(values), _CELLS).to(values.device)].cpu()

    def batches(self, size: int) -> Sequence[Tensor]:
        """Every image once, those of one frame together: so many, or as many pixels as so many crops have."""
        groups: dict[tuple[int, int], list[int]] = {}
        for row, cells in enumerate(self.cells.sizes):
            groups.setdefault(self._framed(cells), []).append(row)
        found: list[Tensor] = []
        for (height, width), rows in groups.items():
            most = size * self.crop**2 // (height * width * CELL**2) if self.crop else size
            found += torch.tensor(rows).split(max(min(most, size), 1))
        return found

    def seen(self, picked: Picked, draws: Tensor | None) -> Seen:
        """Crops by the draws, or whole images, in frames of full cells; beyond its edge an image goes on mirrored."""
        which = picked.rows % len(self.people)
        if draws is not None and self.crop:
            height = width = self.crop // CELL
        else:
            sizes = [self.cells.sizes[number % len(self.people)] for number in picked.numbers]
            height, width = (max(sides) for sides in zip(*map(self._framed, sizes), strict=True))
        top, left, mirrored = (which.new_zeros(len(which), 3) if draws is None else draws).unbind(1)
        cells, inside = self.cells.cut(which, top, left, mirrored, (height, width))
        pixels, _ = self.images.cut(which, CELL * top, CELL * left, mirrored, (CELL * height, CELL * width))
        targets = torch.where(inside, cells, torch.nan).permute(0, 3, 1, 2)
        truth = self.people[which] if draws is None else targets.nansum((1, 2, 3), dtype=torch.float64)
        return Seen(
            pixels.permute(0, 3, 1, 2),
            targets,
            mask=targets > self.above,
            truth=truth,
        )

    def extent(self, row: int) -> tuple[int, int]:
        """That of its cells."""
        height, width = self.cells.sizes[row]
        return CELL * height, CELL * width

    def _framed(self, cells: tuple[int, int]) -> tuple[int, int]:
        """The size of the frame for an image, in cells."""
        height, width = (-(-side // self.frame) * self.frame for side in cells)
        return height, width

    def scored(self, predictions: Tensor, seen: Seen) -> tuple[Tensor, Tensor]:
        """Counts ``(b,)``: the sum over the cells of each image, and how many there are."""
        outside = seen.targets.isnan()
        truth = counts(torch.where(outside, 0, seen.targets)) if seen.truth is None else seen.truth
        return counts(torch.where(outside, 0, predictions)), truth

    def feature_rows(self, features: Tensor, seen: Seen) -> tuple[Tensor, Tensor]:
        """Of each image those at some cells of the mask, evenly spaced among them."""
        assert seen.mask is not None
        found = []
        for maps, targets, mask in zip(features, seen.targets, seen.mask, strict=True):
            places = mask.flatten().nonzero()[:, 0]
            chosen = torch.linspace(0, len(places) - 1, min(len(places), FEATURES), device=places.device).round().long()
            places = places[chosen]
            found.append((maps.flatten(1)[:, places].T, targets.flatten()[places, None]))
        rows, values = (torch.cat(each) for each in zip(*found, strict=True))
        return rows, values
