"""How the features that a run kept are spread on the unit sphere, where the regularizer acts."""

import math
from collections.abc import Callable
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from ordinal_entropy import estimators

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


def kept_scores(folder: Path, part: str, epoch: int) -> dict[str, float]:
    """:func:`feature_scores` of the "train" or "test" images after an epoch, from 1 on, if the run folder has them."""
    from safetensors.torch import load_file

    path = folder / "features" / f"{part}-{epoch:04d}.safetensors"
    return feature_scores(**load_file(path)) if path.exists() else {}
