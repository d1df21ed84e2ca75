"""The benchmark's losses and weights: by hand and by loops."""

import math

import pytest
import torch

from ordinal_entropy.tasks.age.losses import LOSSES, WEIGHTS, sample_weights, task_loss


def one_loss(error, loss):
    error = abs(error)
    if loss == "l1":
        return error
    if loss == "mse":
        return error**2
    return 0.5 * error**2 if error < 1 else error - 0.5


def rows(n, seed=0):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(90, (n,), generator=generator).double()
    weights = torch.rand(n, generator=generator, dtype=torch.float64)
    return targets + 2 * torch.randn(n, generator=generator, dtype=torch.float64), targets, weights


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("weighted", [False, True])
def test_loop(loss, weighted):
    predictions, targets, weights = rows(60)
    weights = weights if weighted else torch.ones_like(weights)
    each = [
        w * one_loss(p - y, loss)
        for p, y, w in zip(*(x.tolist() for x in (predictions, targets, weights)), strict=True)
    ]
    found = task_loss(predictions, targets, weights=weights if weighted else None, loss=loss)
    assert found.item() == pytest.approx(sum(each) / 60, rel=1e-12)
    for shape in [(60, 1), (60,)]:
        assert task_loss(predictions.view(shape), targets[:, None], None, weights.view(shape), loss=loss) == found


@pytest.mark.parametrize(("loss", "value"), [("l1", 1.25), ("mse", 2.125), ("huber", 0.8125)])
def test_by_hand(loss, value):
    found = task_loss(torch.tensor([[3.0], [0.5]]), torch.tensor([[1.0], [1.0]]), loss=loss)
    assert found.item() == value


@pytest.mark.parametrize("loss", LOSSES)
def test_gradients(loss):
    predictions, targets, weights = rows(8)
    torch.autograd.gradcheck(
        lambda x: task_loss(x, targets, weights > 0.3, weights, loss=loss), (predictions[:, None].requires_grad_(),)
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("loss", LOSSES)
def test_half_precision_is_computed_in_float32(dtype, loss):
    predictions = torch.tensor([300.0, 0.0], dtype=dtype)  # its square is beyond float16
    found = task_loss(predictions, torch.tensor([0, 0]), loss=loss)
    assert found.dtype == torch.float32
    assert found == task_loss(predictions.float(), torch.zeros(2), loss=loss)
    assert found.isfinite()


def test_no_rows_are_a_zero_in_the_graph():
    predictions = torch.zeros(0, 1, requires_grad=True)
    loss = task_loss(predictions, torch.zeros(0), None, torch.zeros(0))
    loss.backward()
    assert loss.item() == 0
    assert predictions.grad.shape == (0, 1)


@pytest.mark.parametrize("loss", LOSSES)
def test_a_mask_leaves_rows_out_and_weights_of_1_are_none(loss):
    predictions, targets, weights = rows(8)
    mask = torch.arange(8) < 5
    found = task_loss(predictions, targets[:, None], mask[:, None], weights, loss=loss)
    torch.testing.assert_close(found, task_loss(predictions[:5], targets[:5], None, weights[:5], loss=loss))
    ones = task_loss(predictions, targets, None, torch.ones(8), loss=loss)
    assert torch.equal(ones, task_loss(predictions, targets, loss=loss))


def test_shapes_and_names_are_checked():
    with pytest.raises(ValueError, match=r"expected targets with n=3 rows, got \(2, 1\)"):
        task_loss(torch.zeros(3), torch.zeros(2, 1))
    with pytest.raises(ValueError, match=r"expected weights with n=3 rows, got \(2,\)"):
        task_loss(torch.zeros(3), torch.zeros(3), None, torch.ones(2))
    with pytest.raises(ValueError, match=r"expected weights \(n,\) or \(n, 1\), got \(\)"):
        task_loss(torch.zeros(3), torch.zeros(3), None, torch.tensor(1.0))
    with pytest.raises(ValueError, match=r"expected a loss like 'huber', got 'hubber'; there are l1, mse, huber"):
        task_loss(torch.zeros(3), torch.zeros(3), loss="hubber")
    with pytest.raises(
        ValueError, match=r"expected a weighting like 'inverse'.*, got 'invers'; there are none, inverse"
    ):
        sample_weights(torch.zeros(3), "invers")


def weights_by_loop(ages, weighting):
    weights = []
    for age in ages:
        count = sum(int(other) == int(age) for other in ages)
        if weighting == "none":
            weights.append(1.0)
        elif weighting == "inverse":
            weights.append(1 / min(max(count, 5), 1000))
        else:
            weights.append(1 / math.sqrt(count))
    mean = sum(weights) / len(weights)
    return [weight / mean for weight in weights]


@pytest.mark.parametrize("weighting", WEIGHTS)
def test_weights_by_loop(weighting):
    generator = torch.Generator().manual_seed(0)
    ages = (30 + 9 * torch.randn(400, generator=generator)).clamp(0, 100).floor()
    weights = sample_weights(ages[:, None], weighting)
    assert weights.shape == (400,)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights, torch.tensor(weights_by_loop(ages.tolist(), weighting)))
    assert weights.double().mean().item() == pytest.approx(1, abs=1e-6)


def test_inverse_weights_by_hand():
    ages = torch.cat([torch.full((2000,), 30.0), torch.full((10,), 60.0), torch.full((2,), 90.0)])
    weights = sample_weights(ages, "inverse").double()
    assert weights[-1] / weights[2000] == pytest.approx(10 / 5, rel=1e-6)  # 2 count as 5
    assert weights[2000] / weights[0] == pytest.approx(1000 / 10, rel=1e-6)  # 2000 count as 1000
    mean = (2000 / 1000 + 10 / 10 + 2 / 5) / 2012
    assert weights[0].item() == pytest.approx(1 / 1000 / mean, rel=1e-6)
    root = sample_weights(ages, "sqrt-inverse").double()
    assert root[-1] / root[0] == pytest.approx(math.sqrt(2000 / 2), rel=1e-6)  # nothing is clipped


def test_no_samples():
    assert sample_weights(torch.zeros(0), "inverse").shape == (0,)
