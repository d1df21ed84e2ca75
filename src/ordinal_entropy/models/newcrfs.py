"""NeW-CRFs: a Swin encoder, and a decoder of conditional random fields within windows, written as attention.

Yuan et al., Neural Window Fully-connected CRFs for Monocular Depth Estimation, CVPR 2022. At each stride, queries and
keys come from the encoder's map, values from the result of the stride above. The features, 128 channels at stride 4,
are normalised by a LayerNorm and go into a 3x3 convolution, a sigmoid, and bilinear upsampling by 4.

Tokens are ``(n, h, w, c)``, maps ``(n, c, h, w)``. The Swin encoder is timm's, which shifts its windows before it pads
them and not after: where a map is no multiple of the window, those at its right and lower border hold other places than
in the published one.
"""

import os

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ordinal_entropy.models import backbones
from ordinal_entropy.models.backbones import Encoder
from ordinal_entropy.models.heads import ConvHead

WINDOW = 7
SHIFT = WINDOW // 2  # of every second block
STRIDES = (4, 8, 16, 32)
HEAD_WIDTH = 32  # channels of an attention head
BLOCKED = -100.0  # added to the similarity of two places that only the shift has brought together


class NeWCRFs(nn.Module):
    """An encoder, a pyramid of pooled maps, four levels of window CRFs, and a head; :func:`create` makes it.

    Its features are what goes into the head: ``capture(model, model.feature_layer)``.

    Widths follow from that of the features, ``width``: the levels at strides 4, 8, 16 and 32 have 1, 2, 4 and 8 times
    as much, the pooled maps 4 times. The published one has 128, on a Swin-L.

    Args:
        encoder: maps at strides 4, 8, 16 and 32.
        outputs: channels of the result: 1 for one number a pixel, the number of bins for classification.
        width: channels of the features, a multiple of 32.
        maximum: a single output is a sigmoid times this; None leaves it as it is, as it leaves several outputs.
        upsample: False leaves the outputs at stride 4.
    """

    feature_layer = "head"
    stride = 4  # of the features

    def __init__(
        self,
        encoder: Encoder,
        outputs: int = 1,
        *,
        width: int = 128,
        maximum: float | None = 10.0,
        upsample: bool = True,
    ):
        super().__init__()
        if encoder.strides != STRIDES:
            raise ValueError(f"expected an encoder with maps at strides {STRIDES}, got {encoder.strides}")
        if width < HEAD_WIDTH or width % HEAD_WIDTH:
            raise ValueError(f"expected width to be a multiple of {HEAD_WIDTH}, got {width}")
        self.encoder = encoder
        self.maximum = maximum if outputs == 1 else None
        self.upsample = upsample
        self.norms = nn.ModuleList([nn.LayerNorm(channels) for channels in encoder.channels])
        self.pyramid = Pyramid(encoder.channels[-1], 4 * width)
        # A level hands a quarter of its channels on, at twice the size: half of what the next one has.
        self.levels = nn.ModuleList(
            [Level(channels, width * 2**k // 2, width * 2**k) for k, channels in enumerate(encoder.channels)]
        )
        self.head = ConvHead(width, outputs, 3, padding=1)
        self.mean = encoder.mean
        self.std = encoder.std

    def forward(self, images: Tensor) -> Tensor:
        """Outputs ``(n, outputs, h, w)`` for normalised images ``(n, 3, h, w)``, any size; not in half precision.

        Left at stride 4, they are ``(n, outputs, ceil(h / 4), ceil(w / 4))``.
        """
        height, width = images.shape[-2:]
        maps = [_channel_norm(each, norm) for each, norm in zip(self.encoder(images), self.norms, strict=True)]
        values = self.pyramid(maps[-1])
        for k in (3, 2, 1, 0):
            values = self.levels[k](maps[k], values)
            if k:
                values = F.pixel_shuffle(values, 2)
        features = values[..., : -(-height // 4), : -(-width // 4)]  # what lies beyond the image was padding
        outputs: Tensor = self.head(features)
        outputs = outputs.to(torch.promote_types(outputs.dtype, torch.float32))
        if self.maximum is not None:
            outputs = self.maximum * outputs.sigmoid()
        if self.upsample:
            outputs = F.interpolate(outputs, scale_factor=4.0, mode="bilinear")[..., :height, :width]
        return outputs


class Pyramid(nn.Module):
    """A map joined with its means over 1, 2 x 2, 3 x 3 and 6 x 6 parts: from ``channels`` to ``out`` channels."""

    def __init__(self, channels: int, out: int):
        super().__init__()
        self.scales = nn.ModuleList(
            [
                nn.Sequential(
                    nn.AdaptiveAvgPool2d(parts),
                    nn.Conv2d(channels, out, 1, bias=False),
                    nn.GroupNorm(out // 2, out),
                    nn.ReLU(inplace=True),
                )
                for parts in (1, 2, 3, 6)
            ]
        )
        self.joined = nn.Sequential(
            nn.Conv2d(channels + 4 * out, out, 3, padding=1, bias=False),
            nn.BatchNorm2d(out),
            nn.ReLU(inplace=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        """The map of ``out`` channels."""
        pooled = [F.interpolate(scale(x), size=x.shape[-2:], mode="bilinear") for scale in self.scales]
        joined: Tensor = self.joined(torch.cat([x, *pooled], dim=1))
        return joined


class Level(nn.Module):
    """Two blocks of window CRFs at one stride, the second with shifted windows.

    Args:
        channels: of the encoder's map.
        value_channels: of the map from above.
        width: of the result, and inside.
    """

    def __init__(self, channels: int, value_channels: int, width: int):
        super().__init__()
        self.project_input = nn.Conv2d(channels, width, 3, padding=1)
        self.project_values = nn.Conv2d(value_channels, width, 3, padding=1)
        self.blocks = nn.ModuleList([Block(width, shift=0), Block(width, shift=SHIFT)])
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor, values: Tensor) -> Tensor:
        """The map ``(n, width, h, w)`` from ``(n, channels, h, w)`` and ``(n, value_channels, h, w)``."""
        x = self.project_input(x).permute(0, 2, 3, 1)
        values = self.project_values(values).permute(0, 2, 3, 1)
        for block in self.blocks:
            x = block(x, values)
        normed: Tensor = self.norm(x)
        return normed.permute(0, 3, 1, 2)


class Block(nn.Module):
    """Attention within windows and a perceptron, each added to its input.

    The values are the map from above as it is: neither normalised nor projected.
    """

    def __init__(self, width: int, shift: int):
        super().__init__()
        self.shift = shift
        self.attention_norm = nn.LayerNorm(width)
        self.queries_keys = nn.Linear(width, 2 * width)
        self.position_bias = nn.Parameter(torch.empty((2 * WINDOW - 1) ** 2, width // HEAD_WIDTH))
        nn.init.trunc_normal_(self.position_bias, std=0.02)
        self.register_buffer("positions", relative_positions(WINDOW), persistent=False)
        self.positions: Tensor
        self.project = nn.Linear(width, width)
        self.perceptron_norm = nn.LayerNorm(width)
        self.perceptron = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, values: Tensor) -> Tensor:
        """Tokens in the shape of ``x`` and ``values``, ``(n, h, w, width)``."""
        bias = self.position_bias[self.positions].permute(2, 0, 1)  # (heads, 49, 49)
        messages = window_attention(self.attention_norm(x), values, self.queries_keys, bias, WINDOW, self.shift)
        x = x + self.project(messages)
        changed: Tensor = x + self.perceptron(self.perceptron_norm(x))
        return changed


def window_attention(
    x: Tensor, values: Tensor, queries_keys: nn.Module, bias: Tensor, window: int, shift: int
) -> Tensor:
    """What each place gathers from its window: ``softmax(q k / sqrt(d) + bias) v`` for each head.

    Zeros are added on the right and at the bottom up to a multiple of the window, and take part like any other place.
    With a shift, the windows begin so many places further right and below; those that wrap around the border hold
    places from both sides of it, whose similarities are then lowered by 100.

    Args:
        x: ``(n, h, w, c)``, from which queries and keys come.
        values: ``(n, h, w, c)``.
        queries_keys: from ``c`` to ``2 c`` channels, the queries first.
        bias: ``(heads, window^2, window^2)``, rows for queries, columns for keys.
        window: places along a side of a window.
        shift: 0 for none.

    Returns:
        ``(n, h, w, c)``.
    """
    n, height, width, channels = x.shape
    heads, places = bias.shape[:2]
    beyond = (0, 0, 0, -width % window, 0, -height % window)
    x, values = F.pad(x, beyond), F.pad(values, beyond)
    padded_height, padded_width = x.shape[1:3]
    if shift:
        x, values = (each.roll((-shift, -shift), dims=(1, 2)) for each in (x, values))
    joined = queries_keys(windows(x, window))  # (n, m, places, 2 c), for m windows
    m = joined.shape[1]
    # Windows and heads as one dimension: the bias is the same for each of the n, and is not repeated for them.
    queries, keys = (
        joined.view(n, m, places, 2, heads, -1).permute(3, 0, 1, 4, 2, 5).reshape(2, n, m * heads, places, -1)
    )
    values = windows(values, window).view(n, m, places, heads, -1).transpose(2, 3).reshape(n, m * heads, places, -1)
    scores = bias.to(queries.dtype).expand(m, -1, -1, -1)
    if shift:
        apart = shift_mask(padded_height, padded_width, window, shift, x.device)
        scores = scores + BLOCKED * apart[:, None].to(queries.dtype)
    gathered = F.scaled_dot_product_attention(
        queries, keys, values.to(queries.dtype), attn_mask=scores.reshape(1, m * heads, places, places)
    )
    gathered = gathered.view(n, m, heads, places, -1).transpose(2, 3).reshape(n, m, places, channels)
    result = unwindowed(gathered, padded_height, padded_width, window)
    if shift:
        result = result.roll((shift, shift), dims=(1, 2))
    return result[:, :height, :width]


def windows(x: Tensor, window: int) -> Tensor:
    """Tokens ``(n, h, w, c)`` as windows ``(n, m, window^2, c)``, row by row; the sides are multiples of the window."""
    n, height, width, channels = x.shape
    x = x.view(n, height // window, window, width // window, window, channels).transpose(2, 3)
    return x.reshape(n, -1, window * window, channels)


def unwindowed(x: Tensor, height: int, width: int, window: int) -> Tensor:
    """The tokens ``(n, height, width, c)`` that :func:`windows` was given."""
    n, _, _, channels = x.shape
    x = x.view(n, height // window, width // window, window, window, channels).transpose(2, 3)
    return x.reshape(n, height, width, channels)


def relative_positions(window: int) -> Tensor:
    """For two places of a window, the number of their offset among all ``(2 window - 1)^2``: ``(window^2, window^2)``.

    Example:
        >>> relative_positions(2)
        tensor([[4, 3, 1, 0],
                [5, 4, 2, 1],
                [7, 6, 4, 3],
                [8, 7, 5, 4]])
    """
    along = torch.arange(window)
    row, column = along.repeat_interleave(window), along.repeat(window)
    down, right = (each[:, None] - each + window - 1 for each in (row, column))  # of the query, as seen by the key
    return down * (2 * window - 1) + right


def shift_mask(height: int, width: int, window: int, shift: int, device: torch.device | None = None) -> Tensor:
    """Whether two places of a window were apart before the shift: bool ``(m, window^2, window^2)``.

    Example:
        >>> shift_mask(2, 4, window=2, shift=1)[:, 0]
        tensor([[False, False,  True,  True],
                [False,  True,  True,  True]])
    """
    rows, columns = (
        (along >= len(along) - window).long() + (along >= len(along) - shift).long()
        for along in (torch.arange(height, device=device), torch.arange(width, device=device))
    )
    parts = windows((3 * rows[:, None] + columns)[None, ..., None], window)[0, ..., 0]  # (m, window^2)
    return parts[:, :, None] != parts[:, None]


def _channel_norm(x: Tensor, norm: nn.Module) -> Tensor:
    """A map ``(n, c, h, w)``, normalised over its channels."""
    normed: Tensor = norm(x.permute(0, 2, 3, 1))
    return normed.permute(0, 3, 1, 2)


def create(
    name: str = "swin_large_patch4_window7_224",
    outputs: int = 1,
    pretrained: str | os.PathLike[str] | None = None,
    *,
    width: int | None = None,
    maximum: float | None = 10.0,
    upsample: bool = True,
    drop_path: float | None = None,
    zero_last_norm: bool = True,
) -> NeWCRFs:
    """A NeW-CRFs model on any backbone of timm with maps at strides 4, 8, 16 and 32.

    Args:
        name: "swin_large_patch4_window7_224" (published), "swin_tiny_patch4_window7_224", "tf_efficientnet_lite0".
        outputs: 1 for one number a pixel; the number of bins for classification.
        pretrained: weights of the encoder, as for :func:`backbones.create`.
        width: channels of the features, a multiple of 32. None: 32 for each 160 channels of the encoder's last
            map, at least 32, at most the published 128, which every Swin has; 64 for "tf_efficientnet_lite0".
        maximum: the largest value of a single output, 10 metres for NYU; None for no sigmoid.
        upsample: False leaves the outputs at stride 4.
        drop_path: as for :func:`backbones.create_encoder`; None: 0.3 on a Swin, as published.
        zero_last_norm: likewise.

    Raises:
        ValueError: as :func:`backbones.create_encoder`, or a width that is no multiple of 32.

    Example:
        >>> model = create("resnet18", width=32)
        >>> model.feature_layer, model.head
        ('head', ConvHead(32, 1, kernel_size=(3, 3), stride=(1, 1), padding=(1, 1)))
        >>> model.eval()(torch.zeros(1, 3, 60, 81)).shape
        torch.Size([1, 1, 60, 81])
    """
    backbones.check_outputs(outputs)
    if drop_path is None and name.startswith("swin"):
        drop_path = 0.3
    encoder = backbones.create_encoder(
        name, pretrained, strides=STRIDES, drop_path=drop_path, zero_last_norm=zero_last_norm
    )
    if width is None:
        width = HEAD_WIDTH * min(4, max(1, encoder.channels[-1] // 160))
    return NeWCRFs(encoder, outputs, width=width, maximum=maximum, upsample=upsample)
