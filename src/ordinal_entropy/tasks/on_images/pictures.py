"""Test images of a run with the maps that it predicts."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from ordinal_entropy.tasks.on_images.description import OnImages
from ordinal_entropy.tasks.on_images.evaluation import restored
from ordinal_entropy.training.checkpoints import BEST, LAST, load_images
from ordinal_entropy.training.plans import Plan, trained_in


class Pictured(NamedTuple):
    """A test image as a picture of it needs it."""

    image: NDArray[np.uint8]  # (h, w, 3)
    truth: NDArray[np.float32]  # (h', w'); NaN where there is none
    prediction: NDArray[np.float32]  # (h', w')
    counts: tuple[float, float] | None = None  # true and predicted, where that is what is scored


def pictured(task: OnImages, plan: Plan, count: int, *, device: str, folder: Path) -> list[Pictured]:
    """Some test images with their maps, predicted by the checkpoint of a run that is best on validation.

    Args:
        task: of maps.
        plan: of the run.
        count: of images, at most; the same in every run on a dataset, and the same first ones whatever the count.
        device: "cpu", "cuda", ...
        folder: of the run, or of all runs.

    Returns:
        Maps in the unit of the targets; smaller predictions are enlarged bilinearly to the size of the truth.
    """
    from ordinal_entropy.training.large.predicting import predicted
    from ordinal_entropy.training.large.saved_features import fixed_rows

    assert task.truth is not None
    if count < 1:
        raise ValueError(f"expected at least one image, got {count}")
    best = load_images(trained_in(folder, plan, LAST) / BEST)
    made, network = restored(task, plan, best)
    found = []
    for row in fixed_rows(len(made.data.test), count).split(1):  # one by one: sizes may differ
        split = made.data.test.take(row)
        (pair,) = predicted(network, made.method, split, plan.recipe.training, device=device)
        predictions, seen = pair
        truth = task.truth(seen)
        maps = F.interpolate(predictions, size=truth.shape[2:], mode="bilinear", align_corners=False)
        ours, theirs = split.scored(predictions, seen)
        frame = seen.images.shape[2:]
        own = split.extent(0) or frame  # what lies beyond is not of the image
        image, theirs_map, our_map = (
            each[0, ..., : own[0] * each.shape[2] // frame[0], : own[1] * each.shape[3] // frame[1]]
            for each in (seen.images, truth, maps)
        )
        found.append(
            Pictured(
                image.permute(1, 2, 0).to("cpu", torch.uint8).numpy(),
                theirs_map[0].float().cpu().numpy(),
                our_map[0].float().cpu().numpy(),
                (float(theirs), float(ours)) if ours.dim() == 1 else None,
            )
        )
    return found
