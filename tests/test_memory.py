"""Rows of earlier batches as partners: the loss of the joined batch, and a gradient that stands for all of it."""

import pytest
import torch

from ordinal_entropy import OrdinalEntropy, functional
from ordinal_entropy.memory import Memory
from processes import run

OPTIONS = [{}, {"grouping": "none", "distance": "cosine"}, {"grouping": 2.0, "rescale": "authors"}]


def batch(rows, seed, width=5):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(rows, width, dtype=torch.float64, generator=generator).requires_grad_()
    return features, torch.randint(6, (rows, 1), generator=generator).double()


def joined(batches):
    """Of the newest batch first."""
    features = torch.cat([x.detach() for x, _ in reversed(batches)]).requires_grad_()
    return features, torch.cat([y for _, y in reversed(batches)])


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("sizes", [(3, 3, 3), (2, 5, 1), (1, 1, 1)])
def test_value_and_gradient_are_those_of_the_joined_batch(options, sizes):
    reg = OrdinalEntropy(2.0, 0.5, memory=100, **options)
    batches = []
    for seed, size in enumerate(sizes):
        batches.append(batch(size, seed))
        loss = reg(*batches[-1])
        whole, targets = joined(batches)
        expected = functional.ordinal_entropy(whole, targets, diversity_weight=2.0, tightness_weight=0.5, **options)
        torch.testing.assert_close(loss, expected)
        (found,) = torch.autograd.grad(loss, batches[-1][0])
        (gradient,) = torch.autograd.grad(expected, whole)
        torch.testing.assert_close(found, len(whole) / size * gradient[:size])


def test_halves_that_remember_each_other_have_the_gradient_of_the_whole():
    first, second = batch(4, 0), batch(4, 1)
    whole, targets = joined([second, first])
    (expected,) = torch.autograd.grad(functional.ordinal_entropy(whole, targets), whole)
    found = []
    for new, old in ((first, second), (second, first)):
        reg = OrdinalEntropy(memory=4)
        reg(*old)
        found.append(torch.autograd.grad(reg(*new), new[0])[0])
    torch.testing.assert_close(torch.cat(found) / 2, expected)


def test_the_oldest_are_forgotten():
    reg, batches = OrdinalEntropy(memory=5), [batch(3, seed) for seed in range(4)]
    for each in batches[:3]:
        reg(*each)
    whole, targets = joined(batches)
    kept = slice(0, 8)  # the new batch, and the last five before it
    torch.testing.assert_close(reg(*batches[3]), functional.ordinal_entropy(whole[kept], targets[kept]))


def test_a_batch_larger_than_the_memory():
    reg, (x, y), new = OrdinalEntropy(memory=2), batch(6, 0), batch(3, 1)
    torch.testing.assert_close(reg(x, y), functional.ordinal_entropy(x, y))
    both = torch.cat([new[0], x[:2]]), torch.cat([new[1], y[:2]])
    torch.testing.assert_close(reg(*new), functional.ordinal_entropy(*both))


def test_rows_outside_the_mask_are_no_partners():
    reg, (x, y), new = OrdinalEntropy(memory=6), batch(6, 0), batch(3, 1)
    mask = torch.arange(6) % 2 == 0
    reg(x, y, mask)
    both = torch.cat([new[0], x[mask]]), torch.cat([new[1], y[mask]])
    loss = reg(*new)
    torch.testing.assert_close(loss, functional.ordinal_entropy(*both))
    assert torch.autograd.grad(loss, new[0])[0].isfinite().all()
    nobody = reg(*batch(3, 2), torch.zeros(3, dtype=torch.bool))
    assert nobody.isfinite()


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_rows_that_are_not_finite_are_not_remembered(wrong):
    reg, first, new = OrdinalEntropy(memory=5), batch(4, 0), batch(3, 1)
    reg(*first)
    x, y = batch(3, 2)
    spoiled = x.detach().clone()
    spoiled[1, 2] = wrong
    reg(spoiled, y)
    assert all(each.isfinite().all() for each in reg.memory.buffers())
    assert reg.memory.amount.sum() == 5
    sound = torch.tensor([True, False, True])  # the older rows keep their places
    both = torch.cat([new[0], x[sound], first[0][:3]]), torch.cat([new[1], y[sound], first[1][:3]])
    loss = reg(*new)
    torch.testing.assert_close(loss, functional.ordinal_entropy(*both))
    assert torch.autograd.grad(loss, new[0])[0].isfinite().all()


def test_rows_that_the_memory_has_no_numbers_for_are_not_remembered():
    reg = OrdinalEntropy(memory=4)
    reg(torch.randn(2, 3), torch.rand(2))  # of float32
    reg(torch.full((2, 3), 1e300, dtype=torch.float64), torch.rand(2))
    assert reg.memory.features.isfinite().all() and reg.memory.amount.sum() == 2


def test_one_overflow_costs_one_step():
    """Under a loss scale: the scale is halved once, and every later step is made."""
    torch.manual_seed(0)
    body, head = torch.nn.Linear(3, 4), torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD([*body.parameters(), *head.parameters()], lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    reg, made = OrdinalEntropy(memory=64, balance=0.1), []
    for step in range(8):
        x, y = torch.randn(4, 3), torch.randint(3, (4, 1)).float()
        features = body(x) * (float("inf") if step == 2 else 1)
        task = (head(features) - y).square().mean()
        optimizer.zero_grad()
        scaler.scale(task + reg(features, y, task_loss=task)).backward()
        before = body.weight.clone()
        scaler.step(optimizer)
        scaler.update()
        made.append(not torch.equal(before, body.weight))
    assert made == [True, True, False, True, True, True, True, True]
    assert scaler.get_scale() == 2.0**9


def test_maps_and_points_are_rows():
    reg = OrdinalEntropy(memory=50)
    maps = torch.randn(2, 5, 3, 3, dtype=torch.float64, requires_grad=True)
    depths = torch.rand(2, 3, 3, dtype=torch.float64)
    reg(maps, depths)
    points, values = batch(4, 0)
    rows = maps.permute(0, 2, 3, 1).reshape(-1, 5), depths.reshape(-1, 1)
    both = torch.cat([points, rows[0]]), torch.cat([values, rows[1]])
    torch.testing.assert_close(reg(points, values), functional.ordinal_entropy(*both))


def test_a_single_row_has_a_gradient():
    reg = OrdinalEntropy(memory=8)
    for seed in range(5):
        x, y = batch(1, seed)
        (gradient,) = torch.autograd.grad(reg(x, y), x)
        assert gradient.isfinite().all() and bool(gradient.any()) == (seed > 0)


def test_only_training_uses_and_changes_it():
    reg, first, second = OrdinalEntropy(memory=8), batch(3, 0), batch(3, 1)
    reg(*first)
    before = reg.memory.features.clone()
    reg.terms(*second)
    reg.eval()
    torch.testing.assert_close(reg(*second), functional.ordinal_entropy(*second))
    assert torch.equal(reg.memory.features, before)
    reg.train()
    reg.memory.forget()
    torch.testing.assert_close(reg(*second), functional.ordinal_entropy(*second))


def test_with_a_balance_the_rows_are_kept_once():
    reg, (x, y) = OrdinalEntropy(memory=8, balance=0.1), batch(3, 0)
    reg(x, y, task_loss=x.square().mean())
    assert reg.memory.amount.sum() == 3


def test_it_is_saved_only_if_asked():
    assert OrdinalEntropy(memory=8).state_dict() == {}
    reg, first, second = OrdinalEntropy(memory=Memory(8, saved=True)), batch(3, 0), batch(3, 1)
    reg(*first)
    again = OrdinalEntropy(memory=Memory(8, saved=True))
    again.load_state_dict(reg.state_dict())
    assert again(*second) == reg(*second)
    plain = OrdinalEntropy(memory=8)
    plain.load_state_dict({})
    torch.testing.assert_close(plain(*second), functional.ordinal_entropy(*second))


def ranks_share_it(rank, world):
    reg = OrdinalEntropy(memory=4, gather=True)
    answers = []
    for step in range(3):
        x, y = batch(4, step)
        own = slice(2 * rank, 2 * rank + 2)
        answers.append(reg(x[own], y[own]).detach())
    return torch.stack(answers)


@pytest.mark.slow
def test_ranks_share_it():
    reg = OrdinalEntropy(memory=4)
    expected = torch.stack([reg(*batch(4, step)).detach() for step in range(3)])
    for found in run(ranks_share_it, 2):
        torch.testing.assert_close(found, expected)


def test_mistakes_are_told():
    for wrong in (0, -1, True, 2.5):
        with pytest.raises(ValueError, match="expected memory to be a whole number of rows"):
            OrdinalEntropy(memory=wrong)
    with pytest.raises(ValueError, match="expected per='batch' with a memory"):
        OrdinalEntropy(memory=8, per="image")
    reg = OrdinalEntropy(memory=8)
    reg(*batch(3, 0))
    with pytest.raises(ValueError, match="expected features of 5 numbers a row, as those remembered, got 7"):
        reg(*batch(3, 0, width=7))
