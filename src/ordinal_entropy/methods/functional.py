"""The mathematics of the methods as pure functions on tensors."""

from ordinal_entropy.methods.c_mixup import distance_quantile, mixing_probabilities
from ordinal_entropy.methods.hl_gauss import hl_gauss
from ordinal_entropy.methods.lds import density_weights
from ordinal_entropy.methods.ph_reg import ph_reg, topology_and_dimension
from ordinal_entropy.methods.rank_n_contrast import rank_n_contrast
from ordinal_entropy.methods.rot_reg import rot_reg, sinkhorn_plan
from ordinal_entropy.methods.spanning_tree import minimum_spanning_tree

__all__ = [
    "density_weights",
    "distance_quantile",
    "hl_gauss",
    "minimum_spanning_tree",
    "mixing_probabilities",
    "ph_reg",
    "rank_n_contrast",
    "rot_reg",
    "sinkhorn_plan",
    "topology_and_dimension",
]
