"""Features that runs save: their files, and how they are spread on the unit sphere, where the regularizer acts."""

import math
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy import estimators, runs

_BIN_ROWS = 25

# For some hundred rows in some thousand dimensions, the same rows in every run: means over all pairs and directions are
# steady there. A single age has a handful of rows, too few for the distances of third neighbours, hence bins of ages.
# Dimensions outnumber rows, so nats tell runs apart and are no absolute entropies.
SCORES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "entropy": lambda z, y: estimators.mean_nn_entropy(z, normalize=True),
    "conditional_entropy": lambda z, y: estimators.conditional_entropy(z, y, bins=len(z) // _BIN_ROWS),
    "diversity": estimators.diversity_entropy,
    "ordinality": estimators.ordinality,
    "effective_rank": lambda z, y: estimators.effective_rank(z),
}


# The three of the paper's Figure A, of features as they are. MeanNN as an entropy, half of Eq. 1 as printed, so that
# differences are nats; pairs of equal rows count with a distance of 1e-9 of the spread.
ENTROPIES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "E1": lambda z, y: estimators.mean_nn_entropy(z, scale="entropy"),
    "E2": lambda z, y: estimators.mean_nn_entropy(z, normalize=True, scale="entropy"),
    "E3": estimators.diversity_entropy,
}


def feature_scores(features: Tensor, targets: Tensor) -> dict[str, float]:
    """Entropies, ordinality and effective rank of L2-normalised features, by the names in ``SCORES``.

    Args:
        features: ``(n, d)``, any floating type.
        targets: ``(n, 1)``.

    Returns:
        Numbers; NaN for all where a feature is not finite. Nothing for fewer than 50 rows, which are two bins.

    Example:
        >>> import torch
        >>> ages = torch.arange(60.0)[:, None]
        >>> scores = feature_scores(torch.cat([ages.cos(), ages.sin()], dim=1), ages)
        >>> round(scores["effective_rank"], 2)
        2.0
    """
    if len(features) < 2 * _BIN_ROWS:
        return {}
    if not features.isfinite().all():
        return dict.fromkeys(SCORES, math.nan)
    z = F.normalize(features.double(), dim=1)
    return {name: float(score(z, targets)) for name, score in SCORES.items()}


def saved_scores(folder: Path, part: str, epoch: int, device: str = "cpu") -> dict[str, float]:
    """:func:`feature_scores` of the "train" or "test" images after an epoch, from 1 on, if the run folder has them."""
    path = feature_file(folder, part, epoch)
    return feature_scores(*_features_and_targets(path, device)) if path.exists() else {}


def entropies(features: Tensor, targets: Tensor) -> dict[str, float]:
    """The paper's three estimates, by the names in ``ENTROPIES``.

    Args:
        features: ``(n, d)``, any floating type.
        targets: ``(n, 1)``.

    Returns:
        Numbers; NaN for all where a feature is not finite or there are fewer than two rows, ``-inf`` where all rows are
        the same.

    Example:
        >>> import torch
        >>> found = entropies(torch.tensor([[3.0, 0.0], [0.0, 4.0]]), torch.tensor([[1.0], [3.0]]))
        >>> {name: round(value, 3) for name, value in found.items()}  # 2 log 5, 2 log sqrt 2, 2 sqrt 2
        {'E1': 3.219, 'E2': 0.693, 'E3': 2.828}
    """
    if len(features) < 2 or not features.isfinite().all():
        return dict.fromkeys(ENTROPIES, math.nan)
    z = features.double()
    return {name: float(entropy(z, targets)) for name, entropy in ENTROPIES.items()}


def saved_entropies(folder: Path, part: str, epoch: int, device: str = "cpu") -> dict[str, float]:
    """:func:`entropies` of the "train" or "test" images after an epoch, from 1 on; a ValueError if there are none."""
    path = feature_file(folder, part, epoch)
    if not path.exists():
        raise ValueError(f"expected saved features in {path}, got none")
    return entropies(*_features_and_targets(path, device))


def saved_residuals(folder: Path, part: str, epoch: int) -> Tensor | None:
    """Absolute errors ``(n,)`` of the predictions that a run saved after an epoch; None where it has saved none."""
    path = feature_file(folder, part, epoch)
    if not path.exists():
        return None
    from safetensors.torch import load_file

    with runs.reading(path, "remove it, and intervals need other rows to calibrate on"):
        content = load_file(path)
        if content["predictions"].shape != content["targets"].shape:
            raise ValueError("expected predictions and targets of one shape")
        return (content["predictions"].double() - content["targets"].double()).abs().flatten()


def feature_file(folder: Path, part: str, epoch: int) -> Path:
    """Of the features of a run folder: "train", "test", or "image" for those of one test image."""
    return folder / "features" / f"{part}-{epoch:04d}.safetensors"


def _features_and_targets(path: Path, device: str = "cpu") -> tuple[Tensor, Tensor]:
    from safetensors.torch import load_file

    with runs.reading(path, "remove it, and the figures and entropies of this epoch do without"):
        content = load_file(path, device=device)
        n = len(content["features"])
        if content["features"].shape != (n, content["features"].shape[-1]) or content["targets"].shape != (n, 1):
            raise ValueError("expected features (n, d) and targets (n, 1)")
        return content["features"], content["targets"]


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
    with runs.replacing(feature_file(folder, part, step)) as file:
        file.write(save({name: value.to("cpu", torch.float32).contiguous() for name, value in content.items()}))
