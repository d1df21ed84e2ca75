"""Terms between a GPU and its host: on a device without values they run forward and back, so they wait for none."""

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step

NAMES = ("conr", "ranksim", "srl", "vicreg", "koleo", "uniformity")


@pytest.mark.slow  # the first call loads what torch knows of such devices
@pytest.mark.parametrize("name", NAMES)
def test_a_term_runs_on_a_device_without_values(name):
    (part,) = methods.create(name).parts.values()
    part.prepare(torch.arange(5.0)[:, None], None, 4)
    part.to("meta")
    features = torch.randn(9, 4, device="meta", requires_grad=True)
    targets = torch.zeros(9, 1, device="meta")
    for mask in (None, targets == 0):
        step = Step(Batch(None, targets, mask, targets), features, targets, None)
        part.observe(features.detach(), targets)
        loss = part.term(step)
        loss.backward()
        assert loss.device.type == "meta" and features.grad.shape == (9, 4)
    (other,) = methods.create("srl").parts.values()
    with pytest.raises(RuntimeError, match="item"):
        other.prepare(targets, None, 4)  # which may look at values, once
