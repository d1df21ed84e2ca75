"""CSRNet: a front end cut at stride 8, a back end of dilated convolutions, a density map at stride 8.

Li et al., CSRNet: Dilated Convolutional Neural Networks for Understanding the Highly Congested Scenes, CVPR 2018. The
published one has conv1_1 to conv4_3 of VGG-16 in front. With a ResNet-50 it is conv1 to layer3, layer3 at stride 1.
"""

import os
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from ordinal_entropy.models import backbones
from ordinal_entropy.models.backbones import Encoder
from ordinal_entropy.models.heads import ConvHead

WIDTHS = (512, 512, 512, 256, 128, 64)  # of the back end, as published
DILATION = 2


class CSRNet(nn.Module):
    """A front end, some dilated convolutions, and a 1x1 convolution; :func:`create` makes it.

    Its features are the channels that go into the head, 64: ``capture(model, model.feature_layer)``.

    Args:
        front: an encoder; its last map, at stride 8, is used.
        outputs: channels of the result: 1 for a density, the number of bins for classification.
        batch_norm: True puts a BatchNorm behind each convolution of the back end, as the published one does not.
        widths: channels of each convolution of the back end.
    """

    feature_layer = "head"
    stride = 8  # of features and outputs
    least_images = 1  # to train on: a map has enough places for its norms

    def __init__(self, front: Encoder, outputs: int = 1, *, batch_norm: bool = False, widths: Sequence[int] = WIDTHS):
        super().__init__()
        if not widths or min(widths) < 1:
            raise ValueError(f"expected widths of one convolution or more, all at least 1, got {tuple(widths)}")
        if front.strides[-1] != self.stride:
            raise ValueError(f"expected a front end of stride {self.stride}, got {front.strides[-1]}")
        self.front = front
        self.back = nn.Sequential()
        channels = front.channels[-1]
        for width in widths:
            self.back.append(nn.Conv2d(channels, width, 3, padding=DILATION, dilation=DILATION, bias=not batch_norm))
            if batch_norm:
                self.back.append(nn.BatchNorm2d(width))
            self.back.append(nn.ReLU(inplace=True))
            channels = width
        self.head = ConvHead(channels, outputs, 1)
        self.mean = front.mean
        self.std = front.std
        for module in [*self.back, self.head]:
            if isinstance(module, nn.Conv2d):
                nn.init.normal_(module.weight, std=0.01)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Outputs ``(n, outputs, ceil(h / 8), ceil(w / 8))`` for normalised images ``(n, 3, h, w)``.

        They are never in half precision, so that they can be summed up to a count. Images whose sides are no multiples
        of 8 are padded with zeros, on the right and at the bottom.
        """
        outputs: Tensor = self.head(self.back(self.front(images)[-1]))
        return outputs.to(torch.promote_types(outputs.dtype, torch.float32))


def create(
    name: str = "vgg16",
    outputs: int = 1,
    pretrained: str | os.PathLike[str] | None = None,
    *,
    reach: int | None = None,
    dilated: bool = False,
    batch_norm: bool = False,
    widths: Sequence[int] = WIDTHS,
) -> CSRNet:
    """A CSRNet on any backbone of timm with maps; the weights of its back end are drawn from N(0, 0.01), biases are 0.

    Args:
        name: "vgg16" (published), "vgg16_bn", "resnet50", or any other with a map at stride 8.
        outputs: 1 for a density; the number of bins for classification.
        pretrained: weights of the front end, as for :func:`backbones.create`; None leaves it as timm draws it.
        reach: the front end goes up to the layers that are at this stride in the whole backbone: 8, 16 or 32. Those
            past 8 run at stride 8 here. None: 16 for a ResNet, 8 for all others.
        dilated: whether those layers are dilated, so that their weights see what they saw in the whole backbone.
            False only takes the stride away.
        batch_norm: see :class:`CSRNet`.
        widths: likewise.

    Raises:
        ValueError: as :func:`backbones.create_encoder`.

    Example:
        >>> model = create("resnet18")
        >>> model.front.channels, model.head
        ((256,), ConvHead(64, 1, kernel_size=(1, 1), stride=(1, 1)))
        >>> model(torch.zeros(1, 3, 64, 100)).shape
        torch.Size([1, 1, 8, 13])
    """
    backbones.check_outputs(outputs)
    if reach not in (None, 8, 16, 32):
        raise ValueError(f"expected reach to be 8, 16, 32 or None, got {reach!r}")
    if reach is None:
        reach = 16 if backbones.is_resnet(name) else 8
    past = CSRNet.stride if reach > CSRNet.stride else None
    front = backbones.create_encoder(name, pretrained, strides=(reach,), output_stride=past)
    if past is not None and not dilated:
        _undilate(front)
    return CSRNet(front, outputs, batch_norm=batch_norm, widths=widths)


def _undilate(front: Encoder) -> None:
    """Makes plain convolutions of the dilated ones, with the same size of their maps."""
    for module in front.modules():
        if isinstance(module, nn.Conv2d) and max(module.dilation) > 1:
            module.dilation = (1, 1)
            if module.padding != (0, 0):  # which is how timm marks those that pad by themselves
                module.padding = (module.kernel_size[0] // 2, module.kernel_size[1] // 2)
