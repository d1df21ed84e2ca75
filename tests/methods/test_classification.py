"""Classification on uniform bins: the loss against a loop, the way back from logits to numbers."""

import math

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods.classification import bin_index, bin_value

LOGITS = torch.randn(2, 6, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.rand(2, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 3 - 1


def cross_entropy(logits, targets, low, high, bins):
    """One row after the other, with Python's floats."""
    total = 0.0
    for row, target in zip(logits.tolist(), targets.tolist(), strict=True):
        k = min(range(bins), key=lambda k: abs(low + (k + 0.5) * (high - low) / bins - target))
        total += math.log(sum(math.exp(value) for value in row)) - row[k]
    return total / len(logits)


@pytest.mark.parametrize("shape", ["(n, bins)", "(b, n, bins)", "(b, bins, h, w)"])
@pytest.mark.parametrize("own_dimension", [False, True])
def test_loss_equals_a_loop_in_every_layout(shape, own_dimension):
    method = methods.create("classification", bins=4, low=-1.0, high=2.0)
    expected = cross_entropy(LOGITS.flatten(0, 1), TARGETS.flatten(), -1.0, 2.0, 4)
    logits, targets, along = {
        "(n, bins)": (LOGITS.flatten(0, 1), TARGETS.flatten(), -1),
        "(b, n, bins)": (LOGITS, TARGETS, -1),
        "(b, bins, h, w)": (LOGITS.transpose(1, 2).reshape(2, 4, 2, 3), TARGETS.view(2, 2, 3), 1),
    }[shape]
    targets = targets.unsqueeze(along) if own_dimension else targets
    assert method(torch.zeros(1), targets, None, logits).item() == pytest.approx(expected, rel=1e-12)
    decoded = method.decode(logits)
    assert decoded.shape == (targets if own_dimension else targets.unsqueeze(along)).shape
    centers = [-0.625, 0.125, 0.875, 1.625]
    assert decoded.flatten().tolist() == [centers[row.index(max(row))] for row in LOGITS.flatten(0, 1).tolist()]


def test_each_group_may_have_a_range_of_its_own():
    low, high = torch.tensor([-1.0, 0.0]), torch.tensor([2.0, 1.0])
    method = methods.create("classification", bins=4, low=low, high=high)
    apart = [methods.create("classification", bins=4, low=float(low[i]), high=float(high[i])) for i in range(2)]
    losses = [one(torch.zeros(1), TARGETS[i], None, LOGITS[i]) for i, one in enumerate(apart)]
    assert method(torch.zeros(1), TARGETS, None, LOGITS).item() == pytest.approx(sum(losses).item() / 2, rel=1e-12)
    decoded = torch.stack([one.decode(LOGITS[i]) for i, one in enumerate(apart)])
    assert torch.equal(method.decode(LOGITS), decoded)
    maps = LOGITS.transpose(1, 2).reshape(2, 4, 2, 3)
    assert torch.equal(method.decode(maps).flatten(), decoded.flatten())
    assert method.state_dict() == {}


def test_gradient():
    method = methods.create("classification", bins=4, low=-1.0, high=2.0)
    mask = TARGETS > 0
    assert torch.autograd.gradcheck(
        lambda logits: method(torch.zeros(1), TARGETS, mask, logits), LOGITS.clone().requires_grad_()
    )


def test_an_all_false_mask_is_a_zero_with_zero_gradient():
    logits = LOGITS.clone().requires_grad_()
    loss = methods.create("classification", bins=4, low=-1.0, high=2.0)(
        torch.zeros(1), TARGETS, torch.zeros(2, 6, dtype=torch.bool), logits
    )
    loss.backward()
    assert loss == 0 and (logits.grad == 0).all()


@pytest.mark.parametrize("bins", [2, 10, 256])
def test_decoding_the_true_bin_is_off_by_half_a_bin_at_most(bins):
    targets = torch.linspace(-0.3, 1.7, 1001, dtype=torch.float64)
    logits = torch.nn.functional.one_hot(bin_index(targets, -0.3, 1.7, bins), bins).double()
    center = methods.create("classification", bins=bins, low=-0.3, high=1.7).decode(logits)[:, 0]
    left = methods.create("classification", bins=bins, low=-0.3, high=1.7, decode="left").decode(logits)[:, 0]
    width = 2.0 / bins
    assert (center - targets).abs().max() <= width / 2 + 1e-12
    assert ((targets - left) >= -1e-12).all() and ((targets - left) <= width + 1e-12).all()
    assert torch.allclose(center - left, torch.tensor(width / 2, dtype=torch.float64))


def test_left_edges_are_multiples_of_the_width_as_in_the_authors_depth_files():
    index = torch.arange(256)
    assert torch.equal(bin_value(index, 0.0, 10.0, 256, "left"), index * (10 / 256))
    assert torch.equal(bin_index(bin_value(index, 0.0, 10.0, 256), 0.0, 10.0, 256), index)


def test_targets_beyond_the_range_fall_into_the_outermost_bins():
    far = torch.tensor([-1e30, -0.1, 0.0, 1.0, 1.1, 1e30, math.inf, -math.inf])
    assert bin_index(far, 0.0, 1.0, 5).tolist() == [0, 0, 0, 4, 4, 4, 4, 0]
    assert 0 <= bin_index(torch.tensor(math.nan), 0.0, 1.0, 5) < 5


def test_a_diverged_model_does_not_decode_to_a_number():
    logits = torch.tensor([[0.0, 1.0], [math.nan, 1.0], [0.0, math.inf]])
    decoded = methods.create("classification", bins=2, low=0.0, high=1.0).decode(logits)
    assert decoded.isnan().flatten().tolist() == [False, True, False]


def test_half_precision_outputs_decode_to_float32():
    logits = torch.nn.functional.one_hot(torch.arange(1000), 1000).half()
    decoded = methods.create("classification", bins=1000, low=0.0, high=1.0).decode(logits)
    assert decoded.dtype == torch.float32
    assert torch.allclose(decoded[:, 0], (torch.arange(1000) + 0.5) / 1000)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="bins to be a whole number of at least 2, got 1"):
        methods.create("classification", bins=1, low=0.0, high=1.0)
    with pytest.raises(ValueError, match=r"finite low < high, got low=1\.0, high=1\.0"):
        methods.create("classification", bins=2, low=1.0, high=1.0)
    with pytest.raises(ValueError, match="finite low < high"):
        methods.create("classification", bins=2, low=0.0, high=math.nan)
    with pytest.raises(ValueError, match=r"numbers or \(b,\)"):
        methods.create("classification", bins=2, low=torch.zeros(2, 1), high=torch.ones(2, 1))
    with pytest.raises(ValueError, match="decode to be one of"):
        methods.create("classification", bins=2, low=0.0, high=1.0, decode="right")
    method = methods.create("classification", bins=2, low=0.0, high=1.0)
    with pytest.raises(ValueError, match="predictions with 2 numbers a row, got None"):
        method(torch.zeros(3, 1), torch.zeros(3))
    with pytest.raises(ValueError, match=r"2 (logits|numbers) a row, got \(3, 4\)"):
        method(torch.zeros(3, 1), torch.zeros(3), None, torch.zeros(3, 4))
    with pytest.raises(ValueError, match=r"2 (logits|numbers) a row, got \(3, 4\)"):
        method.decode(torch.zeros(3, 4))
    with pytest.raises(ValueError, match=r"got \(2,\)"):
        method.decode(torch.zeros(2))
    with pytest.raises(ValueError, match=r"one number a row, got \(3, 2\)"):
        method(torch.zeros(3, 1), torch.zeros(3, 2), None, torch.zeros(3, 2))
    with pytest.raises(ValueError, match="got t=2"):
        method.outputs(2)
