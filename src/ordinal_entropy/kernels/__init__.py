"""Means over all pairs of points: a readable kernel, fast ones, and the one rule that chooses between them."""

from ordinal_entropy.kernels.choice import NAMES, describe, use
from ordinal_entropy.kernels.pairs import pair_mean

__all__ = ["NAMES", "describe", "pair_mean", "use"]
