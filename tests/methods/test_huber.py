"""The Huber loss against a loop, its edges."""

import copy
import math
import pickle

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step
from ordinal_entropy.methods.huber import Huber

OUTPUTS = 3 * torch.randn(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
TARGETS = torch.randn(7, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * torch.tensor([1.0, 40.0])
MASK = torch.tensor([1, 0, 1, 1, 0, 1, 1]).bool()


def loop(outputs, targets, turns, weight=None, inside=None):
    """Number by number, with Python's floats."""
    total, count = 0.0, 0
    for i, (row, goal) in enumerate(zip(outputs.tolist(), targets.tolist(), strict=True)):
        if inside is None or inside[i]:
            count += 1
            for p, y, turn in zip(row, goal, turns, strict=True):
                off = abs(p - y)
                loss = off**2 / 2 / turn if off < turn else off - turn / 2
                total += loss / len(row) * (1.0 if weight is None else float(weight[i]))
    return total / max(count, 1)


def prepared(train=TARGETS, **options):
    method = Huber(**options)
    method.prepare(train)
    return method


def task_loss(method, outputs, targets, mask=None, weight=None):
    return method.task_loss(Step(Batch(None, targets, mask, weight), torch.zeros(1), outputs, None))


@pytest.mark.parametrize("delta", [0.01, 0.25, 5.0])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_loop(delta, masked, weighted):
    turns = [delta * torch.std(TARGETS[:, j], correction=0).item() for j in range(2)]
    weight = torch.arange(7.0).double() if weighted else None
    outputs, targets = OUTPUTS.clone(), TARGETS.clone()
    if masked:
        outputs[~MASK], targets[~MASK] = math.nan, math.inf
    expected = loop(OUTPUTS, TARGETS, turns, weight, MASK if masked else None)
    mask = MASK[:, None].expand(7, 2) if masked else None
    found = task_loss(prepared(delta=delta), outputs, targets, mask, None if weight is None else weight[:, None])
    assert found.item() == pytest.approx(expected, rel=1e-12)


def test_gradient():
    assert torch.autograd.gradcheck(lambda p: task_loss(prepared(), p, TARGETS, MASK), OUTPUTS.clone().requires_grad_())


def test_the_unit_of_the_targets_is_a_factor_of_the_loss():
    own, other = prepared(), prepared(1000 * TARGETS)
    assert torch.allclose(task_loss(other, 1000 * OUTPUTS, 1000 * TARGETS), 1000 * task_loss(own, OUTPUTS, TARGETS))


def test_maps_equal_rows():
    maps = [each.T.reshape(2, 1, 7).unsqueeze(0) for each in (OUTPUTS, TARGETS)]
    assert torch.allclose(task_loss(prepared(), *maps), task_loss(prepared(), OUTPUTS, TARGETS))


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_few_rows_and_an_all_false_mask(rows):
    outputs = OUTPUTS[:rows].clone().requires_grad_()
    for mask in (None, torch.zeros(rows, 2, dtype=torch.bool)):
        outputs.grad = None
        loss = task_loss(prepared(), outputs, TARGETS[:rows], mask)
        loss.backward()
        assert loss.isfinite() and outputs.grad.isfinite().all()
        assert (loss == 0) == (rows == 0 or mask is not None)


def test_targets_that_are_all_alike_turn_at_delta():
    method = prepared(torch.full((4, 1), 3.0), delta=0.5)
    assert task_loss(method, torch.tensor([[3.25]]), torch.tensor([[3.0]])).item() == pytest.approx(0.0625)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 1e-2)])
def test_lower_precisions(dtype, tolerance):
    loss = task_loss(prepared(), OUTPUTS.to(dtype), TARGETS.to(dtype))
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(task_loss(prepared(), OUTPUTS, TARGETS).item(), rel=tolerance)


def test_the_scale_is_state_and_a_fresh_method_takes_it_as_it_was():
    method = methods.create("huber", delta=0.5)
    method.prepare(TARGETS)
    fresh = methods.create("huber", delta=0.5)
    fresh.load_state_dict(method.state_dict())
    step = Step(Batch(None, TARGETS), torch.zeros(1), OUTPUTS, None)
    for twin in (fresh, copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert twin.task_loss(step) == method.task_loss(step)


def test_mistakes_are_named():
    for delta in (0.0, -1.0, math.inf, math.nan):
        with pytest.raises(ValueError, match="delta to be a positive number"):
            Huber(delta)
    with pytest.raises(ValueError, match=r"predictions with 2 numbers a row, got \(7, 1\)"):
        task_loss(prepared(), OUTPUTS[:, :1], TARGETS)
