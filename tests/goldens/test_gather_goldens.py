"""Two ranks give the losses and gradients that are recorded."""

from goldens import gather, regularizer


def test_losses_and_gradients_of_ranks_are_those_recorded():
    given, recorded = gather.recorded()
    found = gather.computed(given)
    assert found.keys() == recorded.keys()
    off = {name: regularizer.farthest(found[name], true) for name, true in recorded.items()}
    assert {name: far for name, far in off.items() if not far <= 1} == {}


def test_what_all_ranks_have_in_common_is_the_loss():
    _, recorded = gather.recorded()
    for name, numbers in recorded.items():
        assert abs(numbers).max() > 1e-6, name
        assert numbers[0] == recorded[name.replace("rank1", "rank0")][0]
