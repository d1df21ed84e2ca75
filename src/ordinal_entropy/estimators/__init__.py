"""Entropies, mutual information, ordinality and rank of features ``(n, d)``: are they collapsed?

Every function takes tensors, computes in float64 whatever came in, holds memory linear in the number of
rows (times a fixed block), and returns a scalar tensor. Entropies are in nats and may be negative.
"""

from ordinal_entropy.estimators.conditional import conditional_entropy
from ordinal_entropy.estimators.diversity import diversity_entropy
from ordinal_entropy.estimators.knn import knn_entropy
from ordinal_entropy.estimators.ksg import mutual_information
from ordinal_entropy.estimators.mean_nn import mean_nn_entropy
from ordinal_entropy.estimators.order import ordinality
from ordinal_entropy.estimators.rank import effective_rank

__all__ = [
    "conditional_entropy",
    "diversity_entropy",
    "effective_rank",
    "knn_entropy",
    "mean_nn_entropy",
    "mutual_information",
    "ordinality",
]
