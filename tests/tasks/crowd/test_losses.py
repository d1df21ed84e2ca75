"""Losses of density maps against loops over their cells."""

import math

import pytest
import torch

from ordinal_entropy.tasks.crowd.losses import NAMES, task_loss


def some_maps(dtype=torch.float64):
    draw = torch.Generator().manual_seed(0)
    predictions = torch.randn(2, 1, 3, 4, generator=draw, dtype=dtype).requires_grad_()
    targets = torch.rand(2, 1, 3, 4, generator=draw, dtype=dtype)
    targets[0, 0, 2] = targets[1, 0, :, 3] = torch.nan
    return predictions, targets


@pytest.mark.parametrize("loss", NAMES)
def test_a_loss_is_that_of_a_loop(loss):
    predictions, targets = some_maps()
    total, cells = 0.0, 0
    for predicted, target in zip(predictions.flatten().tolist(), targets.flatten().tolist(), strict=True):
        if not math.isnan(target):
            cells += 1
            total += (predicted - target) ** 2
    expected = total / 2 if loss == "sum-mse" else 9 * total / cells  # two images; 3**2
    assert task_loss(predictions, targets, loss=loss, scale=3.0).item() == pytest.approx(expected)


@pytest.mark.parametrize("loss", NAMES)
def test_what_has_no_target_has_no_gradient(loss):
    predictions, targets = some_maps()
    task_loss(predictions, targets, loss=loss).backward()
    assert torch.equal(predictions.grad != 0, ~targets.isnan())
    assert torch.autograd.gradcheck(lambda x: task_loss(x, targets, loss=loss), predictions)


@pytest.mark.parametrize("loss", NAMES)
def test_edges(loss):
    predictions, targets = some_maps(torch.float32)
    half = task_loss(predictions.bfloat16(), targets, loss=loss)
    assert half.dtype == torch.float32
    torch.testing.assert_close(half, task_loss(predictions.bfloat16().float(), targets, loss=loss))
    nothing = task_loss(predictions, torch.full_like(targets, torch.nan), loss=loss)
    nothing.backward()
    assert nothing.item() == 0 and not predictions.grad.any()
    assert task_loss(predictions[:0], targets[:0], loss=loss).item() == 0
    with pytest.raises(ValueError, match=r"expected predictions \(2, 1, 3, 4\) as the targets, got \(2, 1, 3, 3\)"):
        task_loss(predictions[..., :3], targets, loss=loss)


@pytest.mark.parametrize("loss", NAMES)
def test_weights_and_masks_of_cells(loss):
    predictions, targets = some_maps()
    mask = torch.rand(targets.shape, generator=torch.Generator().manual_seed(1)) < 0.6
    weight = torch.rand(targets.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    inside = mask & ~targets.isnan()
    squares = (predictions - targets)[inside].square() * weight[inside]
    expected = squares.sum() / (2 if loss == "sum-mse" else inside.sum())
    torch.testing.assert_close(task_loss(predictions, targets, mask, weight, loss=loss), expected)
    ones = task_loss(predictions, targets, None, torch.ones_like(targets), loss=loss)
    assert torch.equal(ones, task_loss(predictions, targets, loss=loss))
    with pytest.raises(ValueError, match=r"expected weights \(2, 1, 3, 4\) as the targets, got \(2,\)"):
        task_loss(predictions, targets, None, torch.ones(2), loss=loss)


def test_unknown_losses_are_refused():
    with pytest.raises(ValueError, match="expected a loss like 'mse'"):
        task_loss(*some_maps(), loss="msee")
