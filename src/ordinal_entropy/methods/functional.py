"""The mathematics of the methods as pure functions on tensors."""

from ordinal_entropy.methods.c_mixup import distance_quantile, mixing_probabilities
from ordinal_entropy.methods.conr import conr
from ordinal_entropy.methods.hl_gauss import hl_gauss
from ordinal_entropy.methods.lds import density_weights
from ordinal_entropy.methods.rank_n_contrast import rank_n_contrast

__all__ = ["conr", "density_weights", "distance_quantile", "hl_gauss", "mixing_probabilities", "rank_n_contrast"]
