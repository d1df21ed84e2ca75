"""The mathematics of the methods as pure functions on tensors."""

from ordinal_entropy.methods.ada import anchored
from ordinal_entropy.methods.balanced_mse import balanced_mse, balanced_mse_gai
from ordinal_entropy.methods.c_mixup import distance_quantile, mixing_probabilities
from ordinal_entropy.methods.dist_loss import dist_loss, distribution_of
from ordinal_entropy.methods.focal_r import focal_r
from ordinal_entropy.methods.gar import gar
from ordinal_entropy.methods.hl_gauss import hl_gauss
from ordinal_entropy.methods.lds import density_weights
from ordinal_entropy.methods.mixture import fit_mixture
from ordinal_entropy.methods.quantile import pinball
from ordinal_entropy.methods.rank_n_contrast import rank_n_contrast

__all__ = [
    "anchored",
    "balanced_mse",
    "balanced_mse_gai",
    "density_weights",
    "dist_loss",
    "distance_quantile",
    "distribution_of",
    "fit_mixture",
    "focal_r",
    "gar",
    "hl_gauss",
    "mixing_probabilities",
    "pinball",
    "rank_n_contrast",
]
