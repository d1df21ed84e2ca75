"""A plain encoder-decoder: the maps of a backbone, upsampled and joined step by step up to stride 2, then a 1x1 head.

The paper's ResNet-50 for depth: for an image of 416 x 544 the 128 features a pixel lie on a map of 208 x 272.
"""

import os

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ordinal_entropy.models import backbones
from ordinal_entropy.models.backbones import Encoder
from ordinal_entropy.models.heads import ConvHead


class Decoder(nn.Module):
    """An encoder, a decoder to stride 2, and a 1x1 convolution; :func:`create` makes it.

    Its features are what goes into the head: ``capture(model, model.feature_layer)``.

    A level of the decoder at stride ``s`` has ``max(1, s / 4)`` times the width of the last one: 512, 256, 128, 128.

    Args:
        encoder: maps at strides 2 to 32, or at some of them: where there is none, nothing is joined.
        outputs: channels of the result: 1 for one number a pixel, the number of bins for classification.
        width: channels of the features.
        upsample: False leaves the outputs at stride 2.
    """

    feature_layer = "head"
    stride = 2  # of the features

    def __init__(self, encoder: Encoder, outputs: int = 1, *, width: int = 128, upsample: bool = True):
        super().__init__()
        if encoder.strides[-1] <= self.stride:
            raise ValueError(f"expected an encoder with a map past stride {self.stride}, got {encoder.strides}")
        self.encoder = encoder
        self.upsample = upsample
        found = dict(zip(encoder.strides, encoder.channels, strict=True))
        stride = encoder.strides[-1]
        channels = found[stride]
        self.levels = nn.ModuleDict()  # by stride
        while stride > self.stride:
            stride //= 2
            out = width * max(1, stride // 4)
            self.levels[str(stride)] = _Level(channels, found.get(stride, 0), out)
            channels = out
        self.head = ConvHead(width, outputs, 1)
        self.mean = encoder.mean
        self.std = encoder.std

    def forward(self, images: Tensor) -> Tensor:
        """Outputs ``(n, outputs, h, w)`` for normalised images ``(n, 3, h, w)``, any size; not in half precision.

        Left at stride 2, they are ``(n, outputs, ceil(h / 2), ceil(w / 2))``.
        """
        height, width = images.shape[-2:]
        maps = dict(zip(self.encoder.strides, self.encoder(images), strict=True))
        x = maps[self.encoder.strides[-1]]
        for stride, level in self.levels.items():
            x = level(x, maps.get(int(stride)))
        x = x[..., : -(-height // 2), : -(-width // 2)]  # what lies beyond the image was padding
        outputs: Tensor = self.head(x)
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        if self.upsample:
            outputs = F.interpolate(outputs, scale_factor=2.0, mode="bilinear")[..., :height, :width]
        return outputs


class _Level(nn.Module):
    """Upsampling by two, joined with the encoder's map of that size, and two convolutions."""

    def __init__(self, channels: int, skip: int, out: int):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(channels + skip, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.LeakyReLU(inplace=True),
            nn.Conv2d(out, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.LeakyReLU(inplace=True),
        )

    def forward(self, x: Tensor, skip: Tensor | None) -> Tensor:
        x = F.interpolate(x, scale_factor=2.0, mode="bilinear")
        if skip is not None:
            x = torch.cat([x, skip], dim=1)
        joined: Tensor = self.convolutions(x)
        return joined


def create(
    name: str = "resnet50",
    outputs: int = 1,
    pretrained: str | os.PathLike[str] | None = None,
    *,
    width: int = 128,
    upsample: bool = True,
    drop_path: float | None = None,
    zero_last_norm: bool = True,
) -> Decoder:
    """An encoder-decoder on any backbone of timm with maps.

    Args:
        name: as timm has it: "resnet50", "convnext_tiny", "tf_efficientnet_lite0".
        outputs: 1 for one number a pixel; the number of bins for classification.
        pretrained: weights of the encoder, as for :func:`backbones.create`.
        width: channels of the features; the wider levels before them follow.
        upsample: False leaves the outputs at stride 2.
        drop_path: as for :func:`backbones.create_encoder`.
        zero_last_norm: likewise.

    Raises:
        ValueError: as :func:`backbones.create_encoder`.

    Example:
        >>> model = create("resnet18", width=16)
        >>> model.feature_layer, model.head
        ('head', ConvHead(16, 1, kernel_size=(1, 1), stride=(1, 1)))
        >>> model(torch.zeros(2, 3, 60, 81)).shape
        torch.Size([2, 1, 60, 81])
    """
    backbones.check_outputs(outputs)
    if isinstance(width, bool) or not isinstance(width, int) or width < 1:
        raise ValueError(f"expected width to be a whole number of at least 1, got {width!r}")
    strides = (2, 4, 8, 16, 32)
    encoder = backbones.create_encoder(
        name, pretrained, strides=strides, every=False, drop_path=drop_path, zero_last_norm=zero_last_norm
    )
    return Decoder(encoder, outputs, width=width, upsample=upsample)
