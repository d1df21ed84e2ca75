"""What the dense models have in common: features by capture, sizes, precision, state; their own files test the rest."""

import pytest
import torch
from torch import nn

import ordinal_entropy as oe
from ordinal_entropy.environment import import_torchvision
from ordinal_entropy.models import csrnet, decoder, newcrfs

import_torchvision()

MAKERS = {
    "csrnet": lambda: csrnet.create("test_resnet"),
    "decoder": lambda: decoder.create("test_resnet", width=16),
    "newcrfs": lambda: newcrfs.create("test_convnext", width=32),
}


def images(n=2, height=64, width=64):
    return torch.rand(n, 3, height, width, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=MAKERS)
def maker(request):
    return MAKERS[request.param]


@pytest.fixture
def model(maker):
    """One whose signal neither vanishes nor is normalised away."""
    torch.manual_seed(0)
    made = maker()
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            module.running_mean.normal_(std=0.1)
        elif isinstance(made, csrnet.CSRNet) and isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight)
    return made.eval()


def test_images_do_not_know_of_each_other(model):
    x = images(2, 40, 48)
    with torch.no_grad():
        torch.testing.assert_close(model(x), torch.cat([model(x[:1]), model(x[1:])]))


def test_gradients_reach_every_parameter(model):
    model.train()(images(2, 64, 64)).sub(1).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_the_state_moves_to_another_model(model, maker):
    torch.manual_seed(1)
    other = maker().eval()
    other.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(other(images()), model(images()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_channels_last(model, dtype):
    """Outputs are never in half precision, so that they can be summed and scored."""
    x = images(2, 48, 40)
    with torch.no_grad(), oe.capture(model, model.feature_layer) as tap:
        expected = model(x)
        with torch.autocast("cpu", dtype):
            result = model(x.to(memory_format=torch.channels_last))
    assert result.dtype == torch.float32
    assert tap.features.shape[2:] == (-(-48 // model.stride), -(-40 // model.stride))
    torch.testing.assert_close(result, expected, rtol=0.05, atol=0.05 * float(expected.abs().max()))


@pytest.mark.parametrize("maker", [pytest.param("newcrfs", marks=pytest.mark.slow), "csrnet", "decoder"], indirect=True)
def test_it_compiles_as_one_graph(model):
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(model, backend="eager", fullgraph=True)
        torch.testing.assert_close(compiled(images(1, 40, 41)), model(images(1, 40, 41)))
