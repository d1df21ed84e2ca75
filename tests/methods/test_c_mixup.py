"""C-Mixup: who is whose partner, what is mixed, edges."""

import copy
import math
import pickle
from typing import NamedTuple

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch
from ordinal_entropy.methods.c_mixup import CMixup
from ordinal_entropy.methods.functional import distance_quantile, mixing_probabilities

N = 200
TARGETS = torch.randint(20, (N, 1), generator=torch.Generator().manual_seed(0)).double()
PLACES = torch.eye(N, dtype=torch.float64)  # as inputs: a mixed row tells of whom it was made


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def prepared(targets=TARGETS, **options):
    method = CMixup(**options)
    method.prepare(targets)
    return method


def pairs(mixed):
    """The partner of each row and the share that it keeps, of mixed ``PLACES``."""
    n = len(mixed)
    share = mixed.diagonal()
    return (mixed - torch.diag(share)).argmax(1), share, n


def loop(targets, bandwidth):
    rows = targets.tolist()
    found = []
    for i, a in enumerate(rows):
        own = [0.0 if i == j else math.exp(-(math.dist(a, b) ** 2) / 2 / bandwidth**2) for j, b in enumerate(rows)]
        found.append([each / sum(own) for each in own])
    return torch.tensor(found, dtype=torch.float64)


def test_probabilities_equal_a_loop():
    targets = torch.randn(7, 2, dtype=torch.float64, generator=seeded())
    assert torch.allclose(mixing_probabilities(targets, 0.7), loop(targets, 0.7), rtol=1e-12)


def test_however_far_the_others_are_the_nearest_is_the_partner():
    found = mixing_probabilities(torch.tensor([[0.0], [1e6], [3e6]]), 1.0)
    assert found.tolist() == [[0, 1, 0], [1, 0, 0], [0, 1, 0]]
    assert mixing_probabilities(torch.zeros(1, 1), 1.0).shape == (1, 1)


def test_partners_are_drawn_with_these_probabilities():
    targets = torch.tensor([[0.0], [1.0], [1.5], [4.0]])
    method = prepared(targets, bandwidth=0.5)
    expected = mixing_probabilities((targets - method.center) / method.scale, method.width)
    counts, draws, generator = torch.zeros(4, 4), 2000, seeded()
    for _ in range(draws):
        partner, _, _ = pairs(method.change(Batch(PLACES[:4, :4], targets), generator).inputs)
        counts[torch.arange(4), partner] += 1
    assert (counts / draws - expected).abs().max() < 4 * 0.5 / draws**0.5


def test_no_row_is_its_own_partner_and_each_has_a_share_of_its_own():
    partner, share, n = pairs(prepared(alpha=2.0).change(Batch(PLACES, TARGETS), seeded()).inputs)
    assert (partner != torch.arange(n)).all()
    assert share.unique().numel() == n and share.min() > 0 and share.max() < 1
    assert share.mean().item() == pytest.approx(0.5, abs=0.06)
    assert share.var().item() == pytest.approx(0.05, abs=0.02)  # of Beta(2, 2)
    assert (TARGETS - TARGETS[partner]).abs().median() <= 1


def test_inputs_targets_weights_and_masks_are_mixed_with_the_same_partner():
    mask = torch.arange(N)[:, None] % 3 != 0
    own = torch.rand(N, 1, generator=seeded(1)).double()
    targets = torch.where(mask, TARGETS, math.nan)
    found = prepared().change(Batch(PLACES, targets, mask, own, own[:, 0]), seeded())
    for i, row in enumerate(found.inputs.tolist()):
        j, a = max((k for k in range(N) if k != i), key=row.__getitem__), row[i]
        assert row[j] == pytest.approx(1 - a)
        assert bool(mask[j])  # a row whose target does not count is nobody's partner
        assert bool(found.mask[i]) == bool(mask[i])
        if mask[i]:
            assert float(found.targets[i]) == pytest.approx(a * float(TARGETS[i]) + (1 - a) * float(TARGETS[j]))
        assert float(found.weight[i]) == pytest.approx(a * float(own[i]) + (1 - a) * float(own[j]))
        assert float(found.repeats[i]) == pytest.approx(float(found.weight[i]))


def test_all_draws_come_from_the_generator():
    method, batch = prepared(), Batch(PLACES, TARGETS)
    first, again = (method.change(batch, seeded(3)) for _ in range(2))
    assert torch.equal(first.inputs, again.inputs) and torch.equal(first.targets, again.targets)
    assert not torch.equal(first.inputs, method.change(batch, seeded(4)).inputs)
    torch.manual_seed(5)
    without = method.change(batch)
    torch.manual_seed(5)
    assert torch.equal(without.inputs, method.change(batch).inputs)


def test_the_unit_of_the_targets_does_not_matter():
    own = prepared().change(Batch(PLACES, TARGETS), seeded())
    other = prepared(1000 * TARGETS - 7).change(Batch(PLACES, 1000 * TARGETS - 7), seeded())
    assert torch.equal(own.inputs, other.inputs)
    assert torch.allclose(other.targets, 1000 * own.targets - 7)
    both = torch.cat([TARGETS, TARGETS.flip(0)], 1)
    scaled = both * torch.tensor([1000.0, 1e-3])
    own, other = (prepared(each).change(Batch(PLACES, each), seeded()) for each in (both, scaled))
    assert torch.equal(own.inputs, other.inputs)


def test_the_bandwidth_is_a_quantile_and_no_tie():
    targets = torch.randn(30, 2, dtype=torch.float64, generator=seeded())
    rows = targets.tolist()
    distances = sorted(math.dist(a, b) for i, a in enumerate(rows) for b in rows[:i])
    place = 0.1 * (len(distances) - 1)
    low = int(place)
    expected = distances[low] + (place - low) * (distances[low + 1] - distances[low])
    assert distance_quantile(targets, 0.1).item() == pytest.approx(expected, rel=1e-12)
    assert distance_quantile(targets.flip(0), 0.1) == distance_quantile(targets, 0.1)
    assert distance_quantile(torch.tensor([[0.0]] * 9 + [[3.0], [5.0]]), 0.1) == 2.0
    assert distance_quantile(torch.zeros(5, 1), 0.1) == 1.0
    assert distance_quantile(torch.zeros(1, 1), 0.1) == 1.0
    many = torch.rand(30_000, 1, dtype=torch.float64, generator=seeded())
    assert distance_quantile(many, 0.5).item() == pytest.approx(1 - 0.5**0.5, abs=0.01)
    assert distance_quantile(many.flip(0), 0.5) == distance_quantile(many, 0.5)


class _Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


def test_inputs_of_several_tensors():
    method = prepared()
    one = method.change(Batch(PLACES, TARGETS), seeded()).inputs
    twice = 2 * PLACES.view(N, N, 1)
    for inputs in [
        (PLACES, twice), [PLACES, twice], {"a": PLACES, "b": twice}, _Pair(PLACES, twice), (PLACES, {"b": twice})
    ]:  # fmt: skip
        found = method.change(Batch(inputs, TARGETS), seeded()).inputs
        assert type(found) is type(inputs)
        first, second = found.values() if isinstance(found, dict) else found
        assert torch.equal(first, one)
        assert torch.allclose(second["b"] if isinstance(second, dict) else second, 2 * one[..., None])


@pytest.mark.parametrize("rows", [0, 1])
def test_a_single_row_stays_as_it_is(rows):
    batch = Batch(PLACES[:rows], TARGETS[:rows], TARGETS[:rows] > 0)
    assert prepared().change(batch, seeded()) is batch


def test_two_rows_are_partners():
    partner, _, _ = pairs(prepared().change(Batch(PLACES[:2, :2], TARGETS[:2]), seeded()).inputs)
    assert partner.tolist() == [1, 0]


def test_one_distinct_target_has_partners_of_any_kind():
    targets = torch.full((N, 1), 3.0)
    found = prepared(targets).change(Batch(PLACES, targets), seeded())
    partner, _, _ = pairs(found.inputs)
    assert (found.targets == 3).all() and partner.unique().numel() > N / 3


def test_rows_without_a_partner_stay_as_they_are():
    nothing = torch.zeros(4, 1, dtype=torch.bool)
    targets = torch.full((4, 1), math.nan).double()
    found = prepared().change(Batch(PLACES[:4, :4], targets, nothing), seeded())
    assert torch.equal(found.inputs, PLACES[:4, :4]) and not found.mask.any()
    one = nothing.clone()
    one[2] = True
    found = prepared().change(Batch(PLACES[:4, :4], torch.where(one, 5.0, targets), one), seeded())
    assert torch.equal(found.inputs[2], PLACES[2, :4]) and torch.equal(found.mask, one) and found.targets[2] == 5


def test_maps_are_compared_by_their_means():
    level = torch.tensor([0.0, 0.1, 50.0, 50.2]).double()
    targets = level[:, None, None, None] + torch.randn(4, 1, 3, 5, dtype=torch.float64, generator=seeded()) * 0.01
    mask = torch.rand(4, 1, 3, 5, generator=seeded(1)) > 0.3
    images = torch.rand(4, 3, 6, 10, generator=seeded(2))
    given = torch.where(mask, targets, math.nan)
    for shape in ((4, 1, 3, 5), (4, 3, 5)):
        batch = Batch(PLACES[:4, :4], given.reshape(shape), mask.reshape(shape))
        found = prepared(targets.reshape(-1, 1)).change(batch, seeded())
        partner, share, _ = pairs(found.inputs)
        assert partner.tolist() == [1, 0, 3, 2]
        assert torch.equal(found.mask, batch.mask & batch.mask[partner])
        expected = share.view(-1, *[1] * (len(shape) - 1)) * batch.targets
        expected = expected + (1 - share).view(-1, *[1] * (len(shape) - 1)) * batch.targets[partner]
        assert torch.allclose(found.targets[found.mask], expected[found.mask])
    assert prepared(targets.reshape(-1, 1)).change(Batch(images, targets), seeded()).inputs.shape == images.shape


def test_whole_numbers_become_floating_ones():
    found = prepared().change(Batch(PLACES.float(), TARGETS.long()), seeded())
    assert found.targets.dtype == torch.float32 and (found.targets % 1 != 0).any()


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
def test_lower_precisions(dtype, tolerance):
    exact = prepared().change(Batch(PLACES, TARGETS), seeded())
    found = prepared().change(Batch(PLACES.to(dtype), TARGETS.to(dtype)), seeded())
    assert found.inputs.dtype == found.targets.dtype == dtype
    assert torch.allclose(found.inputs.double(), exact.inputs, atol=tolerance)
    assert torch.allclose(found.targets.double(), exact.targets, rtol=tolerance)


def test_a_step_does_not_change_what_came():
    inputs, targets = PLACES.clone(), TARGETS.clone()
    prepared().change(Batch(inputs, targets), seeded())
    assert torch.equal(inputs, PLACES) and torch.equal(targets, TARGETS)


def test_the_bandwidth_is_state_and_a_fresh_method_takes_it_as_it_was():
    method = methods.create("c-mixup", bandwidth=0.3)
    method.prepare(TARGETS)
    fresh = methods.create("c-mixup", bandwidth=0.3)
    fresh.load_state_dict(method.state_dict())
    batch = Batch(PLACES, TARGETS)
    for twin in (fresh, copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert torch.equal(twin.change(batch, seeded()).inputs, method.change(batch, seeded()).inputs)


def test_mistakes_are_named():
    for options, message in [
        ({"alpha": 0.0}, "alpha to be a positive number, got 0"),
        ({"bandwidth": 1.5}, "bandwidth as a quantile of target distances from 0 to 1, got 1.5"),
    ]:
        with pytest.raises(ValueError, match=message):
            CMixup(**options)
    with pytest.raises(TypeError, match=r"floating-point numbers, which can be mixed, got torch\.int64"):
        prepared().change(Batch((PLACES, torch.zeros(N, dtype=torch.long)), TARGETS))
    with pytest.raises(TypeError, match="which can be mixed, got NoneType"):
        prepared().change(Batch(None, TARGETS))
    with pytest.raises(ValueError, match=r"inputs of n=200 rows like the targets, got \(3, 200\)"):
        prepared().change(Batch(PLACES[:3], TARGETS))
    with pytest.raises(ValueError, match=r"prepare\(targets\) before the first step"):
        CMixup().change(Batch(PLACES, TARGETS))
    with pytest.raises(ValueError, match=r"targets of 1 numbers, as those of training, got \(200, 2\)"):
        prepared().change(Batch(PLACES, TARGETS.expand(N, 2)))
    with pytest.raises(ValueError, match="finite training targets"):
        CMixup().prepare(torch.tensor([[math.nan]]))
