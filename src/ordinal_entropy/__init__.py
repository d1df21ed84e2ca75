"""Representation regularizers for deep regression.

The public names are the ones imported here; everything else may change.
"""

from typing import TYPE_CHECKING, Any

from ordinal_entropy import estimators, functional, kernels, methods
from ordinal_entropy.capture import capture
from ordinal_entropy.comparison import Comparison, compare
from ordinal_entropy.diagnosis import Diagnosis, diagnose, diagnose_change
from ordinal_entropy.losses import OrdinalEntropy, Terms
from ordinal_entropy.trained import TrainedRun, load

if TYPE_CHECKING:
    from ordinal_entropy.studies.best import best

__version__ = "0.1.0"
__all__ = [
    "Comparison",
    "Diagnosis",
    "OrdinalEntropy",
    "Terms",
    "TrainedRun",
    "best",
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

_LATER = {"best": "ordinal_entropy.studies.best"}  # imported when it is first asked for, with what it needs


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LATER[name]), name)
