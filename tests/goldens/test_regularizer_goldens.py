"""The regularizer gives the losses and gradients that are recorded."""

import pytest
import torch

from goldens import regularizer


@pytest.fixture(scope="module")
def recorded():
    return regularizer.recorded()


def test_losses_and_gradients_are_those_recorded(recorded):
    given, cases = recorded
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    off = {str(case): regularizer.farthest(regularizer.computed(case, given), true) for case, true in cases}
    torch.set_num_threads(before)
    assert {case: far for case, far in off.items() if not far <= 1} == {}


def test_every_value_of_every_option_is_recorded(recorded):
    _, cases = recorded
    for name, values in regularizer.OPTIONS.items():
        found = {repr(case.get(name, values[0])) for case, _ in cases}
        assert found >= {repr(value) for value in values}, name


def test_a_golden_tells_one_loss_from_another(recorded):
    """No vector is all zeros, and no two cases that differ in the weighting give the same."""
    given, cases = recorded
    assert all(abs(true).max() > 1e-6 for _, true in cases)
    for weighting in regularizer.OPTIONS["weighting"][1:]:
        plain = regularizer.computed({"layout": "rows"}, given)
        assert regularizer.farthest(regularizer.computed({"layout": "rows", "weighting": weighting}, given), plain) > 1
