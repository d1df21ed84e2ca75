"""Files written beside the training, for a GPU does not wait for a disk; among them features after every epoch."""

import copy
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from ordinal_entropy import runs
from ordinal_entropy.training.large.batches import on_device
from ordinal_entropy.vision.portraits import nearest, portrait, squares, write_picture, write_sheet
from ordinal_entropy.vision.split import Split

_UNWRITTEN = 5  # files that wait to be written, at most: those of an epoch


class Files:
    """Files that are written while the training goes on, one after the other.

    What goes wrong with one is raised at a later one, or at the end.
    """

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._unwritten: deque[Future[None]] = deque()

    def write(self, path: Path, write: Callable[[BinaryIO], None]) -> None:
        """Has a file written that a stop at any moment leaves whole, the old one or the new.

        Args:
            path: of the file.
            write: is given a file to write to, in another thread: nothing that it uses may change any more.
        """

        def replace_file() -> None:
            with runs.replacing(path) as file:
                write(file)

        if self._pool is None:
            self._pool = ThreadPoolExecutor(1)
        while len(self._unwritten) >= _UNWRITTEN:
            self._unwritten.popleft().result()
        self._unwritten.append(self._pool.submit(replace_file))

    def close(self) -> None:
        """Waits until all are written."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
        while self._unwritten:
            self._unwritten.popleft().result()


def on_host(content: Any) -> Any:
    """A copy that nothing changes any more, its tensors in the memory of the host."""
    if isinstance(content, Tensor):
        return content.detach().to("cpu", copy=True)
    if isinstance(content, Mapping):
        return {key: on_host(value) for key, value in content.items()}
    if isinstance(content, (list, tuple)):
        return type(content)(map(on_host, content))
    return copy.deepcopy(content)


class SavedFeatures:
    """Writes features ``(n, d)`` of some training and test images after every epoch, with targets and predictions.

    Of maps also those of one test image, with a picture of it; of others a sheet of all test images.

    Args:
        folder: of the files.
        files: what writes them.
        train: the training images, and
        test: the test images, of which some are drawn, the same in every run.
        most: images of each, at most.
        size: images of a batch.
        device: where they are held.
    """

    def __init__(
        self, folder: Path, files: Files, *, train: Split, test: Split, most: int, size: int, device: torch.device
    ) -> None:
        self.folder, self.files, self.size, self.device = folder, files, size, device
        self.splits: dict[str, Split] = {}
        for part, split in (("train", train), ("test", test)):
            rows = fixed_rows(len(split), most)
            self.splits[part] = split.take(rows).to(device)
        self.row = int(fixed_rows(len(test), 1))  # of the test image that is saved by itself, and
        self.place = rows.tolist().index(self.row)  # its place among those that are saved

    @torch.no_grad()
    def save(self, epoch: int, run: Callable[[Tensor], tuple[Tensor, Tensor]]) -> None:
        """Has those of an epoch written, from 1 on.

        Args:
            epoch: epochs done.
            run: from images to predictions and features, ``(n, d)`` or maps.
        """
        for part, split in self.splits.items():
            for name, content in self._of(split, part, run, pictured=part == "test" and epoch == 1).items():
                self._write(f"{name}-{epoch:04d}.safetensors", partial(write_features, on_host(content)))

    def _of(
        self, split: Split, part: str, run: Callable[[Tensor], tuple[Tensor, Tensor]], *, pictured: bool
    ) -> dict[str, dict[str, Tensor]]:
        found, images, sheet = [], {}, []
        for picked in on_device(list(split.batches(self.size)), self.device):
            seen = split.seen(picked, None)
            predictions, features = run(seen.images)
            if features.dim() == 4:
                if part == "test" and self.place in picked.numbers:
                    at = picked.numbers.index(self.place)
                    images["image"] = portrait(features, predictions, seen, at)
                    images["image"]["row"] = torch.tensor([self.row])
                    if pictured:
                        self._write("image.png", partial(write_picture, on_host(seen.images[at])))
                predictions = nearest(predictions, (features.shape[2], features.shape[3]))
            elif pictured:
                sheet.append(on_host(squares(seen.images)))
            rows, targets = split.feature_rows(features, seen)
            own = split.feature_rows(predictions, seen)[0]
            found.append({"features": rows, "targets": targets, "predictions": own})
        if sheet:
            self._write("test.jpg", partial(write_sheet, torch.cat(sheet)))
        return {part: {name: torch.cat([each[name] for each in found]) for name in found[0]}, **images}

    def _write(self, name: str, write: Callable[[BinaryIO], None]) -> None:
        self.files.write(self.folder / name, write)


def fixed_rows(count: int, most: int) -> Tensor:
    """The rows whose features are saved: the same in every epoch and run; in ascending order.

    Example:
        >>> fixed_rows(3, most=512)
        tensor([0, 1, 2])
    """
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))[:most].sort().values


def write_features(content: Mapping[str, Tensor], file: BinaryIO) -> None:
    """Features in half precision, all other numbers with a fraction in single."""
    from safetensors.torch import save

    most = torch.finfo(torch.float16).max
    found = {name: value.float() if value.is_floating_point() else value for name, value in content.items()}
    found["features"] = found["features"].clamp(-most, most).half()
    file.write(save({name: value.contiguous() for name, value in found.items()}))
