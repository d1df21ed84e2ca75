"""What a stack refuses, and which runs it computes together; its numbers are tested with the tasks."""

from dataclasses import replace

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.training.stacked.members import Member, Rows, joined, kind_of, order_of
from ordinal_entropy.training.stacked.network import Shape
from ordinal_entropy.training.stacked.stack import Stack

SHAPE = Shape(0, 3, hidden=4, dtype=torch.float64)


def rows(count, n=20, batch_size=None):
    generator = torch.Generator().manual_seed(0)
    inputs, targets = (torch.randn(count, n, k, generator=generator, dtype=torch.float64) for k in (3, 1))
    return Rows(inputs, targets.round(), range(count), [n] * count, range(count), epochs=6, batch_size=batch_size)


def member(name, seed=0, samples=None, **options):
    return Member(seed, methods.create(name, **options), 1e-2, 0.1, samples)


def stack_of(members, **given):
    own = rows(len(members), **given)
    return Stack(members, SHAPE, own, device=torch.device("cpu"))


def test_what_is_computed_together():
    targets = torch.tensor([[0.0], [1.0], [1.0]])
    rank = lambda own, y=targets: kind_of(own, y).rank  # noqa: E731
    assert rank(member("baseline")) == 0
    assert {rank(member(name)) for name in ("ld", "oe", "lt")} == {1}
    assert rank(member("oe", strength=1.0)) == rank(member("oe", strength=1.0, anneal=1.0)) == 1
    assert rank(member("lt"), torch.tensor([[0.0], [1.0]])) == 0  # nothing to pull
    heads = ("classification", "ce", "hl-gauss", "mean-variance", "or-cnn", "corn", "quantile")
    assert {rank(member(name)) for name in (*heads, "huber", "gar")} == {2}
    alone = ("huber+oe", "balanced-mse", "lds", "mixup", "coral", "rnc", "classification+ld")
    assert {rank(member(name)) for name in alone} == {3}
    assert rank(member("oe", max_samples=2)) == rank(member("oe", memory=8)) == 3  # draws, or remembers
    assert kind_of(member("ld", strength=0.1), targets) == kind_of(member("ld", strength=2.0), targets)
    assert kind_of(member("ld", samples=2), targets) != kind_of(member("ld", samples=3), targets)


def test_kinds_lie_side_by_side_and_those_of_one_output_come_first():
    names = ["classification", "huber", "oe", "baseline", "oe", "baseline"]
    members = [member(name, seed) for seed, name in enumerate(names)]
    order = order_of(members, rows(6))
    assert [names[k] for k in order] == ["baseline", "baseline", "oe", "oe", "huber", "classification"]
    assert order == [3, 5, 2, 4, 1, 0]
    with pytest.raises(ValueError, match="expected the members of a stack in the order of order_of"):
        stack_of(members)


def test_rows_are_drawn_where_every_step_takes_all():
    with pytest.raises(ValueError, match="expected steps of all rows where rows are drawn for regularizers"):
        stack_of([member("ld", samples=5)], batch_size=10)


def test_strengths_of_alike_runs_are_their_own():
    """In one sum over pairs: runs of fixed and of gradient-balanced strengths, and of other weights."""
    own = [
        member("ld", 0, 5, strength=0.1, grouping="none"),
        member("ld", 1, 5, strength=0.7, grouping="none"),
        member("ld-sqrt", 2, 5, strength=0.2, grouping="none"),
        member("ld", 3, 5, balance=0.4, grouping="none"),
    ]
    given = rows(4)
    order = order_of(own, given)
    given = given._replace(inputs=given.inputs[order], targets=given.targets[order])
    make = lambda members, of: Stack(  # noqa: E731
        members, SHAPE, of, device=torch.device("cpu")
    )
    together = make([own[k] for k in order], given)
    assert len(together.regularizers.bundles) == 1
    together.advance(6)
    for place, k in enumerate(order):
        one = given._replace(
            inputs=given.inputs[[place]], targets=given.targets[[place]], which=[0], counts=[20], seeds=[k]
        )
        alone = make([own[k]], one)
        alone.advance(6)
        for name, view in alone.network.parameters.of_run(0).items():
            torch.testing.assert_close(together.network.parameters.of_run(place)[name], view, rtol=1e-12, atol=1e-14)
        assert together.scalars(place) == pytest.approx(alone.scalars(0), rel=1e-12)
        assert bool(together.scalars(place)) is (k == 3)


def test_settings_in_common_are_those_of_the_optimizer_and_others_add_no_calls():
    alike, apart = ([member(name, seed) for seed, name in enumerate(("baseline", "oe", "huber"))] for _ in range(2))
    apart = [replace(own, learning_rate=1e-2 / (1 + k), weight_decay=0.1 * k) for k, own in enumerate(apart)]
    one, several = stack_of(alike), stack_of(apart)
    (group,) = one.optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (1e-2, 0.1) and one._ways is None
    assert group["params"][0].data_ptr() == one.network.parameters.flat.data_ptr()
    (group,) = several.optimizer.param_groups
    assert (group["lr"], group["weight_decay"]) == (1.0, 0.0) and len(group["params"]) == 2  # encoder and heads
    heads = stack_of([member("coral", seed) for seed in range(3)]).optimizer.param_groups
    assert len(heads) == 1
    own_heads = [replace(member("coral", seed), learning_rate=rate) for seed, rate in enumerate((1e-2, 2e-2, 1e-2))]
    groups = stack_of(own_heads).optimizer.param_groups
    assert [group["lr"] for group in groups] == [1.0, 1e-2, 2e-2]
    assert len(groups[1]["params"]) == 2 * len(groups[2]["params"])


@pytest.mark.parametrize("names", [("baseline", "oe", "huber"), ("rnc", "rnc")])
def test_a_state_of_runs_of_several_rates_is_gone_back_to(names):
    members = [replace(member(name, seed), learning_rate=1e-2 / (1 + seed)) for seed, name in enumerate(names)]
    stack = stack_of(members)
    for first in (1, 3):  # of two stages in the first, then across
        stack.advance(first)
        before = {name: tensor.clone() for name, tensor in stack.state.items()}
        stack.advance(2)
        after = {name: tensor.clone() for name, tensor in stack.state.items()}
        stack.restore(before)
        stack.advance(2)
        for name, tensor in stack.state.items():
            assert torch.equal(tensor, after[name]), name
        stack.restore(before)


def test_a_state_is_gone_back_to():
    names = ("baseline", "oe", "huber")
    stack = stack_of([member(name, seed) for seed, name in enumerate(names)])
    stack.advance(3)
    before = {name: tensor.clone() for name, tensor in stack.state.items()}
    stack.advance(2)
    after = {name: tensor.clone() for name, tensor in stack.state.items()}
    assert not torch.equal(before["parameters"], after["parameters"])
    stack.restore(before)
    assert stack.step == 3
    stack.advance(2)
    for name, tensor in stack.state.items():
        assert torch.equal(tensor, after[name]), name


def test_runs_go_on_in_another_stack():
    members = [member("baseline", 0), member("oe", 1), member("huber", 2)]
    whole = stack_of(members, batch_size=7)
    whole.advance(6)  # two epochs
    states = [whole.run_state(run) for run in range(3)]
    again = stack_of(members, batch_size=7)
    again.restore_runs(states, epoch=2)
    for stack in (whole, again):
        stack.advance(3)
    assert again.epoch == 3
    torch.testing.assert_close(again.network.parameters.flat, whole.network.parameters.flat, rtol=1e-12, atol=1e-14)


def test_the_best_parameters_are_each_runs_own():
    stack = stack_of([member("baseline", 0), member("huber", 1)])
    stack.note_best([1.0, 1.0])
    first = stack.best.flat.clone()
    stack.advance(1)
    stack.note_best([2.0, 0.5])
    assert stack.best_score.tolist() == [1.0, 0.5]
    now = stack.network.parameters
    for name, view in stack.best.of_run(1).items():
        assert torch.equal(view, now.of_run(1)[name])
    stack.best.flat.copy_(torch.where(stack.best.flat == now.flat, now.flat, first))
    assert not torch.equal(stack.best.of_run(0)["0.weight"], now.of_run(0)["0.weight"])


def test_a_network_may_have_other_depths():
    own = replace(SHAPE, layers=3)
    stack = Stack([member("oe")], own, rows(1), device=torch.device("cpu"))
    stack.advance(2)
    assert len(stack.network.parameters.hidden) == 3


def over_groups():
    parts = [(name, next(iter(methods.create(name).parts.values()))) for name in methods.names()]
    return [name for name, part in parts if part.over_groups and part.kind in ("head", "loss")]


@pytest.mark.parametrize("name", over_groups())
def test_a_loss_over_groups_trains_each_run_as_by_itself(name, monkeypatch):
    """With targets of ranges and distinct values of their own, so that no run can have the bins of another."""
    options = {
        key: value for key, value in (("bins", 20), ("sigma", 1.0), ("learned", False)) if key in methods.options(name)
    }
    given = rows(3)
    given = given._replace(targets=given.targets.mul(2).round() * torch.tensor([1.0, 40.0, 0.01])[:, None, None] - 3)
    own = [member(name, seed, **options) for seed in range(3)]
    make = lambda members, of: Stack(  # noqa: E731
        members, SHAPE, of, device=torch.device("cpu")
    )
    together = make(own, given)
    assert not together.singles and len(together._losses) == 1
    together.advance(5)
    monkeypatch.setattr(type(own[0].method.parts[name]), "over_groups", False)
    apart = make(own, given)
    assert len(apart.singles) == 3
    apart.advance(5)
    torch.testing.assert_close(together.network.parameters.flat, apart.network.parameters.flat, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", over_groups())
def test_a_loss_over_groups_looks_at_no_value(name):
    """On the device "meta", where there are none: as a CUDA graph wants it."""
    runs = [methods.create(name) for _ in range(3)]
    for run in runs:
        run.prepare(torch.arange(50.0)[:, None])
    together = joined(runs).to("meta")
    features, targets, outputs = (torch.empty(3, 20, k, device="meta") for k in (7, 1, together.outputs(1)))
    loss = together(features, targets, predictions=outputs.requires_grad_())
    (by,) = torch.autograd.grad(loss, outputs)
    assert loss.shape == () and by.shape == outputs.shape
    assert runs[0].to("meta").decode(outputs[0]).shape == (20, 1)


AVERAGED = {"ema": "baseline", "huber+swa": "huber", "coral+ema": "coral"}  # and what trains the same weights


@pytest.mark.parametrize("name", AVERAGED)
def test_averages_are_those_of_the_weights_of_each_step(name):
    """The weights are those of the same run without an average; predictions are by the average."""
    one, plain = (stack_of([member(each)], batch_size=10) for each in (name, AVERAGED[name]))
    weights = lambda stack: stack._weights_of(0)  # noqa: E731
    expected, seen, steps = [each.clone() for each in weights(plain)], plain.inputs[0], 12
    for step in range(1, steps + 1):
        one.advance(1)
        plain.advance(1)
        for now, before in zip(weights(one), weights(plain), strict=True):
            torch.testing.assert_close(now, before, rtol=1e-10, atol=1e-12)
        kept = 1 - float(one.own[0].method.share(torch.tensor(step), steps))
        expected = [kept * old + (1 - kept) * now for old, now in zip(expected, weights(plain), strict=True)]
    ((_, found),) = one.predictions(seen)
    with torch.no_grad():
        for now, average in zip(weights(plain), expected, strict=True):
            now.copy_(average)
    ((_, predictions),) = plain.predictions(seen)
    torch.testing.assert_close(found, predictions, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", AVERAGED)
def test_a_run_that_averages_goes_on_where_it_was_stopped_and_keeps_its_best(name):
    whole, stopped, resumed = (stack_of([member(name)], batch_size=10) for _ in range(3))
    for stack in (whole, stopped):
        stack.advance(6)
        stack.note_best([1.0])
    ((_, best),) = whole.predictions(whole.inputs[0])
    resumed.check_run(0, stopped.run_state(0))
    resumed.restore_runs([stopped.run_state(0)], epoch=3)
    for stack in (whole, resumed):
        stack.advance(6)
        stack.note_best([2.0])  # no better
    for stack in (whole, resumed):
        ((_, found),) = stack.predictions(stack.inputs[0], best=True)
        assert torch.equal(found, best)
        assert torch.equal(next(stack.predictions(stack.inputs[0]))[1], next(whole.predictions(stack.inputs[0]))[1])
