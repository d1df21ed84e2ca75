"""The last layer of every network keeps its precision where the rest is in bfloat16."""

import pytest
import torch

from ordinal_entropy import capture
from ordinal_entropy.models import backbones, csrnet, decoder, newcrfs
from ordinal_entropy.models.heads import ConvHead, LinearHead

NETWORKS = {
    "pooled": lambda: backbones.create("test_resnet", 1, image_size=32),
    "decoder": lambda: decoder.create("test_resnet", 1, width=8),
    "csrnet": lambda: csrnet.create("resnet18", 1),
    "newcrfs": lambda: newcrfs.create("swin_tiny_patch4_window7_224", 1, width=32),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_predictions_are_not_rounded_to_half_precision(name):
    torch.manual_seed(0)
    network = NETWORKS[name]().eval()
    images = torch.randn(2, 3, 64, 64)
    with torch.no_grad(), capture(network, network.feature_layer) as tap:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            outputs = network(images)
        assert tap.features.dtype == torch.bfloat16
        assert outputs.dtype == torch.float32
        assert not torch.equal(outputs, outputs.bfloat16().float())


@pytest.mark.parametrize(("head", "plain"), [(LinearHead, torch.nn.Linear), (ConvHead, torch.nn.Conv2d)])
def test_without_autocast_nothing_changes(head, plain):
    sizes = (3, 2) if head is LinearHead else (3, 2, 1)
    torch.manual_seed(1)
    own = head(*sizes).double()
    torch.manual_seed(1)
    other = plain(*sizes).double()
    features = torch.randn(*((4, 3) if head is LinearHead else (4, 3, 5, 5)), dtype=torch.float64)
    assert torch.equal(own(features), other(features)) and own(features).dtype == torch.float64
