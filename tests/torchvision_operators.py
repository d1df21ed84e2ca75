"""Lets timm and transformers be imported in the tests beside a CPU-only torch.

Both import torchvision, and the torchvision wheel on PyPI is built for the CUDA torch: beside a CPU-only
torch its compiled operators do not load, and the import stops with "operator torchvision::nms does not
exist". The models in the tests use none of these operators, so declaring the missing ones is enough for the
import to go through; calling one still fails. Where torchvision imports as it is, nothing is touched.
"""

import importlib
import sys

import torch


def import_torchvision() -> None:
    """Imports torchvision, declaring the operators that are missing if that is why it fails."""
    try:
        importlib.import_module("torchvision")
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
        for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
            del sys.modules[name]
        # torchvision registers shape rules for these two without asking whether its compiled part was loaded.
        for operator in ("nms", "qnms"):
            torch.library.define(
                f"torchvision::{operator}", "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            )
        importlib.import_module("torchvision")
