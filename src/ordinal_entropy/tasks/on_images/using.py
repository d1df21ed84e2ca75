"""A trained run on images in use: from files or pixels to numbers and maps, by its checkpoint alone."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ordinal_entropy import runs
from ordinal_entropy.capture import capture
from ordinal_entropy.files import on_all_cores, text
from ordinal_entropy.methods import Composition
from ordinal_entropy.models.heads import replace_head
from ordinal_entropy.recipes import changed
from ordinal_entropy.tasks.on_images.description import OnImages
from ordinal_entropy.tasks.using import Array, Exportable, Inputs, Predicted, Progress, Residuals
from ordinal_entropy.training.checkpoints import OfImages
from ordinal_entropy.training.plans import Plan
from ordinal_entropy.training.saved_features import saved_residuals
from ordinal_entropy.vision import images
from ordinal_entropy.vision.images import Pixels
from ordinal_entropy.vision.split import Split, Unlabelled

ENDINGS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp")  # of files that are taken out of a folder
_AT_ONCE = 64  # images that are read together


@dataclass(frozen=True)
class UsedImages:
    """See :class:`ordinal_entropy.tasks.using.Used`."""

    task: OnImages
    plan: Plan
    network: Any
    method: Composition
    facts: dict[str, Any]
    folder: Path  # of the checkpoint
    epoch: int
    at: str
    device: str

    @property
    def maps(self) -> str:
        """The unit of the maps; "" where there are none."""
        return self.task.maps

    @property
    def number(self) -> str:
        """What the one number of an image is."""
        return self.task.number

    def read(self, given: Any, id_column: str = "") -> Inputs:
        """Names of files, or pixels, in their order; no image is opened yet."""
        if id_column:
            raise ValueError(f"expected a table for an id column, got images and {id_column!r}")
        if hasattr(given, "shape"):
            pixels = _pixels(given)
            return Inputs("row", [str(row) for row in range(1, len(pixels) + 1)], list(pixels))
        found: list[Path] = []
        for each in given if isinstance(given, (list, tuple)) else [given]:
            found += _files(Path(each))
        if not found:
            raise ValueError("expected at least one image, got none")
        return Inputs("file", [str(path) for path in found], found)

    def predicted(
        self, inputs: Inputs, *, features: bool = False, progress: Progress | None = None
    ) -> Iterator[Predicted]:
        """Of images as read: their files are opened, some at a time, and resized as in training."""
        for start in range(0, len(inputs.content), _AT_ONCE):
            some = inputs.content[start : start + _AT_ONCE]
            pixels = on_all_cores(lambda each: images.read(each) if isinstance(each, Path) else each, some)
            names = inputs.names[start : start + _AT_ONCE]
            yield self._of(pixels, names, features=features)
            if progress is not None:
                progress(start + len(some), len(inputs.content))

    def _of(self, pixels: Sequence[Pixels], names: Sequence[str], *, features: bool) -> Predicted:
        from ordinal_entropy.tasks.on_images.training import threads_of
        from ordinal_entropy.training.large.batches import predicted

        settings = self.plan.recipe.training
        if features:  # of the image, and not of its mirror image
            settings = replace(settings, flip=False)
        if self.task.unlabelled is None:
            split: Split = _of_one_size(pixels, self._size(128, 128))
        else:
            split = self.task.unlabelled(self.plan.recipe, pixels, names)
        size = max(settings.batch_size // settings.accumulate, 1)
        numbers = np.zeros(len(pixels))
        maps: list[Any] = [None] * len(pixels)
        shown, rows = list(maps), list(maps)
        with threads_of(self.plan.recipe, self.device), capture(self.network, self.network.feature_layer) as tap:
            found = predicted(self.network, self.method, split, settings, device=self.device)
            for batch, (predictions, seen) in zip(split.batches(size), found, strict=True):
                for place, row in enumerate(batch.tolist()):
                    if features:
                        rows[row] = _own(tap.features[place], split.extent(row), seen.images).cpu().numpy()
                    if not self.maps:
                        numbers[row] = float(predictions[place])
                        continue
                    whole = self._map(predictions[place], seen.images)
                    own = _own(whole[0], split.extent(row), seen.images)
                    maps[row] = own.float().cpu().numpy()
                    numbers[row] = float(own.double().sum() if self.task.counted else own.double().mean())
                    image = _own(seen.images[place], split.extent(row), seen.images)
                    shown[row] = image.permute(1, 2, 0).to("cpu", torch.uint8).numpy()
        return Predicted(numbers, rows if features else [], maps if self.maps else [], shown if self.maps else [])

    def _size(self, *otherwise: int) -> tuple[int, ...]:
        """Height and width of all images; any others where they may differ."""
        return otherwise if self.task.size is None else self.task.size(self.plan.recipe)

    def _map(self, prediction: Tensor, shown: Tensor) -> Tensor:
        """One that is no density is enlarged to the size of the image."""
        if self.task.counted:
            return prediction
        return F.interpolate(prediction[None], size=shown.shape[2:], mode="bilinear", align_corners=False)[0]

    def residuals(self, calibrate: Path | None = None) -> Residuals:
        """Of test images whose predictions the run has saved, else of the test images of a dataset."""
        if calibrate is None and not self.maps:
            saved = saved_residuals(self.folder, "test", self.epoch)
            if saved is not None:
                return Residuals(saved.double().numpy(), f"{len(saved):,} test images of the run")
        recipe = self.plan.recipe
        if calibrate is not None:
            recipe = changed(recipe, {"data.path": str(calibrate), "data.generated": 0})
        from ordinal_entropy.tasks.on_images.training import threads_of
        from ordinal_entropy.training.large.batches import predicted

        try:
            made = self.task.prepare(self.plan._replace(recipe=recipe), self.task.read(recipe), self.facts)
        except (OSError, ValueError) as error:
            if calibrate is not None:
                raise
            raise ValueError(
                f"expected the dataset of the run, or other images with targets to calibrate on, got neither: {error}"
            ) from error
        found = []
        with threads_of(recipe, self.device):
            for predictions, seen in predicted(
                self.network, self.method, made.data.test, recipe.training, device=self.device
            ):
                ours, truth = made.data.test.scored(predictions, seen)
                found.append((ours.double() - truth.double()).abs().flatten().cpu())
        values = torch.cat(found).numpy()
        return Residuals(values, f"{len(values):,} test images of {calibrate or 'the dataset of the run'}")

    def exportable(self) -> Exportable:
        """From normalised images ``(n, 3, h, w)``; what is done to them before is written beside it."""
        recipe, network = self.plan.recipe, self.network
        height, width = self._size(128, 128)
        fixed, stretched = self.task.size is not None, "to height x width whatever the proportions, bilinear"
        how = "red, green, blue; resized as said; (byte / 255 - mean) / std of each channel; (n, 3, height, width)"
        described = {
            "kind": "images",
            "height": height if fixed else None,
            "width": width if fixed else None,
            "resize": stretched if self.task.resize is None else self.task.resize(recipe),
            "mean": [float(each) for each in network.mean],
            "std": [float(each) for each in network.std],
            "gives": self.task.gives,
            "how": how,
        }
        module = Pictures(
            network, self.method, flip=recipe.training.flip, enlarge=bool(self.maps) and not self.task.counted
        )
        dtype = next(network.parameters()).dtype
        module.cpu().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
        return Exportable(module.eval(), torch.zeros(2, 3, height, width, dtype=dtype), described)


class Pictures(nn.Module):
    """From normalised images to predictions ``(n, 1)`` or maps ``(n, 1, h, w)`` in the unit of the targets.

    Args:
        network: as trained.
        method: that decodes what it gives.
        flip: maps are the mean of those of an image and of its mirror image.
        enlarge: maps have the size of the images.
    """

    def __init__(self, network: nn.Module, method: Composition, *, flip: bool, enlarge: bool) -> None:
        super().__init__()
        self.network, self.method, self.flip, self.enlarge = network, method, flip, enlarge
        self.requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        """Predictions."""
        found: Tensor = self.method.decode(self.network(images))
        if self.flip and found.dim() == 4:
            found = (found + self.method.decode(self.network(images.flip(-1))).flip(-1)) / 2
        if self.enlarge:
            found = F.interpolate(found, size=images.shape[2:], mode="bilinear", align_corners=False)
        return found


def restored(task: OnImages, plan: Plan, checkpoint: OfImages) -> tuple[Composition, Any]:
    """The method and the network of a run as in a checkpoint: no image is read."""
    from ordinal_entropy.training.large.optimization import in_precision, lay_out

    with checkpoint.reading():
        runs.require_form(checkpoint.facts, {"mean": [float], "std": [float], **task.facts}, "facts")
        if not len(checkpoint.facts["mean"]) == len(checkpoint.facts["std"]) == 3:
            raise ValueError("expected a mean and a standard deviation of three channels")
    method, make_network = task.build(plan, checkpoint.facts, new=False)
    in_precision(method, plan.recipe.training)
    checkpoint.restore_method(method)
    with torch.random.fork_rng(devices=[]):
        network: Any = make_network()
        replace_head(network, network.feature_layer, method)
    network.mean, network.std = checkpoint.facts["mean"], checkpoint.facts["std"]
    lay_out(network, plan.recipe.training)
    with checkpoint.reading():
        network.load_state_dict(checkpoint.weights)
    return method, network


def _of_one_size(pixels: Sequence[Pixels], size: tuple[int, ...]) -> Unlabelled:
    """Images to be predicted, brought to one height and width as those that were trained on."""
    height, width = size
    held = np.stack([images.resized(image, (height, width)) for image in pixels])
    return Unlabelled(torch.from_numpy(held).permute(0, 3, 1, 2))


def _own(values: Tensor, extent: tuple[int, int] | None, shown: Tensor) -> Tensor:
    """Of ``(..., h, w)`` in the frame of the images ``(b, 3, H, W)`` that were shown, what lies inside the image."""
    if extent is None or values.dim() < 2:
        return values
    (height, width), (high, wide) = extent, shown.shape[2:]
    return values[..., : height * values.shape[-2] // high, : width * values.shape[-1] // wide]


def _files(path: Path) -> list[Path]:
    """An image itself, those in a folder and below it by name, or those that a .csv lists in its column ``path``."""
    if path.is_dir():
        inside = sorted(each for each in path.rglob("*") if each.suffix.lower() in ENDINGS and each.is_file())
        if not inside:
            raise ValueError(f"expected images ({', '.join(ENDINGS)}) in {path}, got none")
        return inside
    if path.suffix.lower() != ".csv":
        return [path]
    import csv

    rows = csv.DictReader(text(path).splitlines())
    if "path" not in (rows.fieldnames or ()):
        raise ValueError(f"expected a column path in {path}, got {', '.join(rows.fieldnames or ()) or 'nothing'}")
    return [path.parent / os.fspath(row["path"]) for row in rows]


def _pixels(given: Any) -> Array:
    """Bytes ``(n, h, w, 3)`` of an array or a tensor; colours of a tensor come first, and floats are from 0 to 1."""
    first = isinstance(given, Tensor)
    pixels = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if pixels.ndim == 3:
        pixels = pixels[None]
    if pixels.ndim != 4 or pixels.shape[1 if first else 3] != 3 or 0 in pixels.shape:
        wanted = "(n, 3, h, w)" if first else "(n, h, w, 3)"
        raise ValueError(f"expected images {wanted}, got {tuple(given.shape)}")
    if pixels.dtype != np.uint8:
        if pixels.dtype.kind != "f" or not (pixels.min() >= 0 and pixels.max() <= 1):
            raise ValueError(f"expected images in bytes, or floats from 0 to 1, got {pixels.dtype} in another range")
        pixels = np.rint(pixels * 255).astype(np.uint8)
    return np.ascontiguousarray(pixels.transpose(0, 2, 3, 1) if first else pixels)
