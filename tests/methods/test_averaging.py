"""Averages of weights against loops; every loop that trains such methods has a test of its own."""

import pytest
import torch
from torch import nn

from ordinal_entropy import methods
from ordinal_entropy.methods.averaging import EMA, SWA, Average


def weights_of(seed):
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    for each in model.state_dict().values():
        each.copy_(torch.rand(each.shape, generator=generator) * 9)
    return model


def averaged(method, steps):
    """The average of all weights after so many steps, and the average itself."""
    average = Average(weights_of(0))
    for step in range(1, steps + 1):
        average.update(weights_of(step), method.share(torch.tensor(step), steps))
    return average


@pytest.mark.parametrize("start", [0.0, 0.5, 0.75])
def test_swa_is_the_mean_of_the_last_weights(start):
    steps = 12
    found = averaged(SWA(start), steps).model.state_dict()
    last = [weights_of(step).state_dict() for step in range(max(int(start * steps), 1), steps + 1)]
    for name in ("0.weight", "1.running_var"):
        torch.testing.assert_close(found[name], torch.stack([each[name] for each in last]).mean(0))


def test_ema_forgets_by_its_decay_and_begins_short():
    steps, decay = 12, 0.5
    expected = weights_of(0)[0].weight.detach()
    for step in range(1, steps + 1):
        kept = min(decay, (1 + step) / (10 + step))
        expected = kept * expected + (1 - kept) * weights_of(step)[0].weight.detach()
    torch.testing.assert_close(averaged(EMA(decay), steps).model[0].weight, expected)


def test_inside_the_average_predicts_and_afterwards_all_is_as_it_was():
    model, average = weights_of(1), Average(weights_of(2))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    places = [each.data_ptr() for each in model.parameters()]
    with pytest.raises(ZeroDivisionError), average.in_place_of(model):
        torch.testing.assert_close(model[0].weight, weights_of(2)[0].weight)
        raise ZeroDivisionError
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    assert [each.data_ptr() for each in model.parameters()] == places  # a captured graph still finds them


def test_joins_and_mistakes():
    method = methods.create("oe+swa", {"swa": {"start": 0.5}})
    assert method.averages and method.requirements()["averaging"] == "swa"
    assert method.share(torch.tensor([1, 8]), 8).tolist() == pytest.approx([1, 0.2])
    assert methods.create("oe").share(torch.tensor([3]), 8).tolist() == [1]
    with pytest.raises(ValueError, match="at most one averaging, got 'ema' and 'swa'"):
        methods.create("ema+swa")
    for make in (lambda: EMA(1.0), lambda: SWA(-0.1)):
        with pytest.raises(ValueError, match="from 0 to below 1"):
            make()
    with pytest.raises(ValueError, match="predict by an average of the weights"):
        methods.require(method, {"term"}, "a loop", "it has none")
