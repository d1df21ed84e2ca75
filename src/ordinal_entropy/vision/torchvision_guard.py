"""Imports torchvision beside a torch that it was not built for.

timm imports torchvision, torchmetrics does where it is installed, and Lightning imports torchmetrics. The torchvision
wheel on PyPI is built for the CUDA torch: beside a CPU-only torch its compiled operators do not load, and the import
stops with "operator torchvision::nms does not exist". The operators are for object detection, so declaring the missing
ones is enough for the import to go through; calling one still fails. To be removed when torchvision asks whether its
compiled part was loaded before it registers shape rules for them.
"""

import importlib
import sys

import torch

_MISSING = "operator torchvision::nms does not exist"
_OPERATORS = ("nms", "qnms")  # those that torchvision registers shape rules for without asking
_declared: list[str] = []  # those that were missing here
_SCHEMA = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


def import_torchvision() -> None:
    """Imports torchvision; if it fails for want of its compiled operators, declares them and imports it again.

    Call it before timm, torchmetrics or Lightning is imported. Where torchvision imports as it is, that is all.

    Raises:
        ModuleNotFoundError: torchvision is not installed.
        RuntimeError: it cannot be imported for another reason.

    Example:
        >>> import_torchvision()
        >>> import torchvision
    """
    try:
        importlib.import_module("torchvision")
    except ModuleNotFoundError as error:
        if error.name != "torchvision":
            raise
        sentence = "the tasks on images need torchvision, which is not installed: pip install 'ordinal-entropy[train]'"
        raise ModuleNotFoundError(sentence, name=error.name) from None
    except RuntimeError as error:
        if _MISSING not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]  # half imported
        for operator in _OPERATORS:
            if not hasattr(torch.ops.torchvision, operator):
                torch.library.define(f"torchvision::{operator}", _SCHEMA)
                _declared.append(operator)
        importlib.import_module("torchvision")


def torchvision_problem() -> str | None:
    """Why a plain ``import torchvision`` fails although it is installed, in one line; None where it does not.

    Where :func:`import_torchvision` can do without what is missing, that is said too.

    Example:
        >>> problem = torchvision_problem()
        >>> problem is None or "operator" in problem
        True
    """
    try:
        import_torchvision()
    except Exception as error:  # whatever an import may raise
        if isinstance(error, ModuleNotFoundError) and error.name == "torchvision":
            return None
        return " ".join(f"{type(error).__name__}: {error}".split())
    if not _declared:
        return None
    return f"{_MISSING}: it is built for another torch; the tasks on images do without its compiled operators"
