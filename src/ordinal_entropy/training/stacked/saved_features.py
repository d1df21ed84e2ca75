"""What a run of a stack keeps of its features: files as the runs on images have them, a folder for each run."""

from pathlib import Path

import torch
from torch import Tensor

from ordinal_entropy import runs
from ordinal_entropy.vision.features import kept_file


def write(folder: Path, part: str, step: int, features: Tensor, targets: Tensor, predictions: Tensor) -> None:
    """Writes the features of a run after a step: a file that is there whole or not at all.

    Args:
        folder: of the run.
        part: "train" or "test".
        step: each takes all rows, so it is an epoch too.
        features: ``(n, d)``, any device; in single precision in the file, like all.
        targets: ``(n, 1)``.
        predictions: ``(n, 1)``, in the unit of the targets.
    """
    from safetensors.torch import save

    content = {"features": features, "targets": targets, "predictions": predictions}
    with runs.replacing(kept_file(folder, part, step)) as file:
        file.write(save({name: value.to("cpu", torch.float32).contiguous() for name, value in content.items()}))
