"""Representation regularizers for deep regression.

The public names are the ones imported here; everything else may change.
"""

from ordinal_entropy import estimators, functional, kernels, methods
from ordinal_entropy.capture import capture
from ordinal_entropy.comparison import Comparison, compare
from ordinal_entropy.diagnosis import Diagnosis, diagnose, diagnose_change
from ordinal_entropy.losses import OrdinalEntropy, Terms
from ordinal_entropy.trained import TrainedRun, load

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "Diagnosis",
    "OrdinalEntropy",
    "Terms",
    "TrainedRun",
    "capture",
    "compare",
    "diagnose",
    "diagnose_change",
    "estimators",
    "functional",
    "kernels",
    "load",
    "methods",
]
