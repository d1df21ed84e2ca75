"""CSRNet: sizes and counts as published, what the front ends are, that the outputs are what they say."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import ordinal_entropy as oe
from ordinal_entropy.environment import import_torchvision
from ordinal_entropy.models import backbones, csrnet

import_torchvision()

import timm  # noqa: E402


def images(n=2, height=64, width=64):
    return torch.rand(n, 3, height, width, generator=torch.Generator().manual_seed(0))


def count(module):
    return sum(each.numel() for each in module.parameters())


def convolution(channels, width, size=3):
    return channels * width * size * size + width


def alive(model):
    """The model with all norms at 1, and a back end whose outputs are not lost in rounding."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
    for module in model.back:
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    return model


@pytest.fixture(scope="module")
def small():
    torch.manual_seed(0)
    return alive(csrnet.create("test_resnet")).eval()


@pytest.mark.parametrize(("name", "channels"), [("vgg16", 512), ("resnet50", 1024)])
def test_parameters_are_those_of_the_published_layers(name, channels):
    with torch.device("meta"):
        model = csrnet.create(name)
    widths = [channels, 512, 512, 512, 256, 128, 64]
    assert count(model.back) == sum(map(convolution, widths, widths[1:]))
    assert count(model.head) == 65
    assert model.front.channels == (channels,)
    vgg = [3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512]
    if name == "vgg16":
        assert count(model.front) == sum(map(convolution, vgg, vgg[1:]))
        assert count(model) == 16_263_489
    else:
        assert count(model) == 19_530_817


def test_the_back_end_is_dilated_and_drawn_from_a_narrow_normal():
    model = csrnet.create("test_efficientnet")
    convolutions = [module for module in model.back if isinstance(module, nn.Conv2d)]
    assert [each.out_channels for each in convolutions] == [512, 512, 512, 256, 128, 64]
    assert all(each.dilation == (2, 2) and each.padding == (2, 2) for each in convolutions)
    assert sum(isinstance(module, nn.ReLU) for module in model.back) == 6
    for each in [*convolutions, model.head]:
        assert float(each.weight.detach().std()) == pytest.approx(0.01, rel=0.35 if each is model.head else 0.02)
        assert not each.bias.any()


def test_the_back_end_may_be_another():
    model = csrnet.create("test_resnet", widths=(16, 8), batch_norm=True)
    assert [module.out_channels for module in model.back if isinstance(module, nn.Conv2d)] == [16, 8]
    assert model.head.in_channels == 8 and model(images(1, 24, 40)).shape == (1, 1, 3, 5)
    for widths in ((), (16, 0)):
        with pytest.raises(ValueError, match="expected widths of one convolution or more, all at least 1, got"):
            csrnet.create("test_resnet", widths=widths)


def test_vgg_is_cut_after_conv4_3_and_takes_the_usual_file(tmp_path):
    """Files from elsewhere name the classifier differently; it is not needed."""
    torch.manual_seed(0)
    with torch.device("meta"):
        names = timm.create_model("vgg16", num_classes=0).state_dict()
    weights = {key: torch.randn(value.shape) * 0.02 for key, value in names.items() if key.startswith("features.")}
    torch.save(
        {**weights, "classifier.0.weight": torch.zeros(4, 4), "classifier.0.bias": torch.zeros(4)}, tmp_path / "v"
    )
    model = csrnet.create("vgg16", pretrained=tmp_path / "v").eval()
    assert model.mean == tuple(timm.get_pretrained_cfg("vgg16").mean)

    x = images(1, 40, 32)
    convolutions = iter([0, 2, "pool", 5, 7, "pool", 10, 12, 14, "pool", 17, 19, 21])
    expected = x
    for layer in convolutions:
        if layer == "pool":
            expected = F.max_pool2d(expected, 2)
        else:
            weight, bias = weights[f"features.{layer}.weight"], weights[f"features.{layer}.bias"]
            expected = F.conv2d(expected, weight, bias, padding=1).relu()
    with torch.no_grad():
        torch.testing.assert_close(model.front(x)[-1], expected)
    assert expected.shape == (1, 512, 5, 4)


def test_a_resnet_goes_to_layer3_which_keeps_its_stride(tmp_path):
    torch.manual_seed(0)
    whole = timm.create_model("resnet50", num_classes=10)
    whole(images(2))  # moves the running statistics
    for module in whole.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
    torch.save(whole.state_dict(), tmp_path / "resnet50.pth")
    front = csrnet.create("resnet50", pretrained=tmp_path / "resnet50.pth").front.eval()

    whole.eval()
    whole.layer3[0].conv2.stride = whole.layer3[0].downsample[0].stride = (1, 1)
    with torch.no_grad():
        x = whole.maxpool(whole.act1(whole.bn1(whole.conv1(images()))))
        expected = whole.layer3(whole.layer2(whole.layer1(x)))
        (found,) = front(images())
    assert found.shape == (2, 1024, 8, 8)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("reach", "channels"), [(8, 40), (16, 112), (32, 320)])
@pytest.mark.parametrize("dilated", [False, True])
def test_other_backbones_may_reach_further_at_stride_8(reach, channels, dilated):
    front = csrnet.create("tf_efficientnet_lite0", reach=reach, dilated=dilated).front
    assert front.channels == (channels,)
    assert any(max(m.dilation) > 1 for m in front.modules() if isinstance(m, nn.Conv2d)) == (dilated and reach > 8)
    with torch.no_grad():
        assert front(images(2, 40, 56))[-1].shape == (2, channels, 5, 7)


@pytest.mark.parametrize(("height", "width"), [(64, 64), (61, 83), (8, 8), (9, 17)])
@pytest.mark.parametrize("outputs", [1, 7])
def test_any_size(height, width, outputs):
    model = csrnet.create("test_resnet", outputs).eval()
    with torch.no_grad(), oe.capture(model, model.feature_layer) as tap:
        result = model(images(2, height, width))
    assert result.shape == (2, outputs, -(-height // 8), -(-width // 8))
    assert tap.features.shape == (2, 64, *result.shape[2:])
    torch.testing.assert_close(result, F.conv2d(tap.features, model.head.weight, model.head.bias))


def test_padding_is_of_zeros_below_and_beside(small):
    x = images(1, 61, 83)
    with torch.no_grad():
        assert torch.equal(small(x), small(F.pad(x, (0, 5, 0, 3))))


@pytest.mark.parametrize("batch_norm", [False, True])
def test_gradients_reach_every_parameter(batch_norm):
    torch.manual_seed(0)
    model = alive(csrnet.create("test_resnet", batch_norm=batch_norm))
    (model(images(2, 48, 48)) - 1).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_what_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected reach to be 8, 16, 32 or None, got 4"):
        csrnet.create("test_resnet", reach=4)
    with pytest.raises(ValueError, match="expected outputs to be a whole number of at least 1, got 0"):
        csrnet.create("test_resnet", 0)
    with pytest.raises(ValueError, match="expected a backbone that takes output_stride=8, got 'vgg16'"):
        csrnet.create("vgg16", reach=16)
    with pytest.raises(ValueError, match="expected a front end of stride 8, got 16"):
        csrnet.CSRNet(backbones.create_encoder("test_resnet", strides=(16,)))
    torch.save(timm.create_model("test_resnet").state_dict(), tmp_path / "weights.pth")
    with pytest.raises(
        ValueError, match=r"expected weights of EfficientNet in .*weights.pth, got no conv_stem.weight, "
    ):
        csrnet.create("test_efficientnet", pretrained=tmp_path / "weights.pth")
