"""The mathematics of the methods as pure functions on tensors."""

from ordinal_entropy.methods.ada import anchored
from ordinal_entropy.methods.balanced_mse import balanced_mse, balanced_mse_gai
from ordinal_entropy.methods.c_mixup import distance_quantile, mixing_probabilities
from ordinal_entropy.methods.conr import conr
from ordinal_entropy.methods.coral import coral
from ordinal_entropy.methods.corn import corn
from ordinal_entropy.methods.dist_loss import dist_loss, distribution_of
from ordinal_entropy.methods.dldl import dldl
from ordinal_entropy.methods.focal_r import focal_r
from ordinal_entropy.methods.gar import gar
from ordinal_entropy.methods.hl_gauss import hl_gauss
from ordinal_entropy.methods.koleo import koleo
from ordinal_entropy.methods.lds import density_weights
from ordinal_entropy.methods.mean_variance import mean_variance
from ordinal_entropy.methods.mixture import fit_mixture
from ordinal_entropy.methods.or_cnn import or_cnn
from ordinal_entropy.methods.ph_reg import ph_reg, topology_and_dimension
from ordinal_entropy.methods.quantile import pinball
from ordinal_entropy.methods.rank_n_contrast import rank_n_contrast
from ordinal_entropy.methods.ranksim import ranks, ranksim
from ordinal_entropy.methods.rot_reg import rot_reg, sinkhorn_plan
from ordinal_entropy.methods.sord import sord
from ordinal_entropy.methods.spanning_tree import minimum_spanning_tree
from ordinal_entropy.methods.srl import center_contrast, envelope, homogeneity
from ordinal_entropy.methods.uniformity import uniformity
from ordinal_entropy.methods.vicreg import vicreg

__all__ = [
    "anchored",
    "balanced_mse",
    "balanced_mse_gai",
    "center_contrast",
    "conr",
    "coral",
    "corn",
    "density_weights",
    "dist_loss",
    "distance_quantile",
    "distribution_of",
    "dldl",
    "envelope",
    "fit_mixture",
    "focal_r",
    "gar",
    "hl_gauss",
    "homogeneity",
    "koleo",
    "mean_variance",
    "minimum_spanning_tree",
    "mixing_probabilities",
    "or_cnn",
    "ph_reg",
    "pinball",
    "rank_n_contrast",
    "ranks",
    "ranksim",
    "rot_reg",
    "sinkhorn_plan",
    "sord",
    "topology_and_dimension",
    "uniformity",
    "vicreg",
]
