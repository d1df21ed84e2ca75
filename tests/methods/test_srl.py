"""SRL against loops: its three parts, the running means of its centers, its edges."""

import copy
import itertools
import math

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch, Step
from ordinal_entropy.methods.functional import center_contrast, envelope, homogeneity
from ordinal_entropy.methods.srl import SRL

N, D = 12, 4
FEATURES = torch.randn(N, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
VALUES = torch.tensor([1.0, 2.0, 4.0, 7.0, 11.0], dtype=torch.float64)
INDEX = torch.tensor([0, 1, 1, 3, 0, 1, 3, 3, 1, 0, 0, 3])  # nothing of the third and the last
TARGETS = VALUES[INDEX][:, None]


def unit(row):
    length = math.hypot(*row)
    return [value / length for value in row] if length else row


def dot(one, other):
    return sum(a * b for a, b in zip(one, other, strict=True))


def centers_of(features, index, k):
    """Unit centers of unit rows; None without rows."""
    z, found = [unit(row) for row in features.tolist()], []
    for own in range(k):
        rows = [row for row, place in zip(z, index.tolist(), strict=True) if place == own]
        found.append(unit([sum(column) for column in zip(*rows, strict=True)]) if rows else None)
    return found


def loop(features, index, running, values, directions, temperature, weights):
    """The formula; ``running`` has unit vectors, or None where there is none."""
    batch = centers_of(features, index, len(values))
    rivals = [own if own is not None else other for own, other in zip(running, batch, strict=True)]
    total, z = 0.0, [unit(row) for row in features.tolist()]
    for row, own in zip(z, index.tolist(), strict=True):
        scores = [dot(row, each) / temperature for each in rivals if each is not None]
        total += math.log(sum(map(math.exp, scores))) - dot(row, rivals[own]) / temperature
    path = [own if own is not None else other for own, other in zip(batch, running, strict=True)]
    known = [(y, center) for y, center in zip(values.tolist(), path, strict=True) if center is not None]
    span = float(values[-1] - values[0])
    around = [max(dot(row, center) for _, center in known) for row in directions.tolist()]
    energy = sum(math.dist(c, d) ** 2 / ((y - x) / span) for (x, c), (y, d) in itertools.pairwise(known))
    return total / len(z) + weights[0] * (1 - sum(around) / len(around)) + weights[1] * energy


def prepared(**options):
    method = SRL(**{"directions": 20, **options})
    method.prepare(VALUES[:, None], width=D)
    return method


def term(method, features=FEATURES, targets=TARGETS, mask=None):
    return method.term(Step(Batch(None, targets, mask), features, None, None))


def test_equals_the_loop_with_and_without_running_means():
    method = prepared(temperature=0.3, envelope_weight=0.7, homogeneity_weight=0.2, momentum=0.8)
    own = {"values": VALUES, "temperature": 0.3, "weights": (0.7, 0.2)}
    nothing = [None] * 5
    expected = loop(FEATURES, INDEX, nothing, directions=method._directions(), **own)
    assert term(method).item() == pytest.approx(expected, rel=1e-12)
    first, second = FEATURES.flip(0), FEATURES.roll(1, 1)
    places = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3])
    for features in (first, second):
        for some in (slice(0, 5), slice(5, None)):  # two batches an epoch
            method.observe(features[some], VALUES[places[some]][:, None])
        method.end_epoch()
    one, two = (centers_of(each, places, 5) for each in (first, second))
    running = [
        None if a is None else unit([0.8 * p + 0.2 * q for p, q in zip(a, b, strict=True)])
        for a, b in zip(one, two, strict=True)
    ]
    expected = loop(FEATURES, INDEX, running, directions=method._directions(), **own)
    assert term(method).item() == pytest.approx(expected, rel=1e-12)
    assert running[2] is not None and running[4] is None


def test_parts_against_closed_forms():
    angles = torch.tensor([0.0, 0.3, 1.0])
    path = torch.stack([angles.cos(), angles.sin()], 1)
    chords = 2 * (angles.diff() / 2).sin()
    assert torch.allclose(homogeneity(path, angles), (chords**2 / angles.diff()).sum())
    skipped = homogeneity(path, angles, torch.tensor([True, False, True]))
    assert torch.allclose(skipped, (2 * torch.tensor(0.5).sin()) ** 2)
    assert homogeneity(path, angles, torch.tensor([False, True, False])) == 0 == homogeneity(path[:0], angles[:0])
    assert envelope(path, path) == pytest.approx(0, abs=1e-6) and envelope(path, -path[:1]) > 1
    assert envelope(path, path[:1], torch.tensor([False, False, True])) == pytest.approx(1 - math.cos(1))
    assert envelope(path, path, torch.zeros(3, dtype=torch.bool)) == 0 == envelope(path[:0], path)
    own = center_contrast(path, torch.arange(3), path, 0.01)
    assert own < 0.05 < center_contrast(path, torch.tensor([1, 2, 0]), path, 0.01)
    halves = torch.tensor([True, True, False])
    both = torch.nn.functional.cross_entropy(path[:2] @ path[:2].T, torch.arange(2))
    assert torch.allclose(center_contrast(path, torch.arange(3), path, 1.0, halves, halves), both)


def test_gradient_reaches_features_through_centers_and_contrast():
    method = prepared(temperature=0.5)
    method.observe(FEATURES.flip(0), TARGETS)
    method.end_epoch()
    assert torch.autograd.gradcheck(lambda z: term(method, z), FEATURES.clone().requires_grad_())


def test_an_update_between_forward_and_backward_does_no_harm():
    method = prepared()
    method.observe(FEATURES.flip(0), TARGETS)
    method.end_epoch()
    expected, found = FEATURES.clone().requires_grad_(), FEATURES.clone().requires_grad_()
    term(method, expected).backward()
    loss = term(method, found)
    method.observe(FEATURES, TARGETS)
    method.end_epoch()
    loss.backward()
    assert torch.equal(found.grad, expected.grad)


def test_bins_are_the_distinct_targets_or_of_one_width():
    method = prepared()
    assert torch.equal(method.values, VALUES) and method.notes == ()
    found = method._index(torch.tensor([[-9.0], [1.4], [1.6], [5.4], [99.0], [math.nan]]))
    assert found[:5].tolist() == [0, 0, 1, 2, 4]
    method = methods.create("srl", bins=4)
    method.prepare(torch.tensor([[0.0], [1.0], [2.5], [6.0], [8.0]]), width=D)
    part = method.parts["srl"]
    assert part.values.tolist() == [1.0, 3.0, 5.0, 7.0]
    assert part._index(torch.tensor([[0.0], [1.9], [2.1], [8.0]])).tolist() == [0, 0, 1, 3]
    assert method.notes == ("srl: targets share a center in each of 4 bins of width 2",)


def test_the_unit_of_the_targets_does_not_matter():
    method = SRL()
    method.prepare(1000 * VALUES[:, None] + 7, width=D)
    assert torch.allclose(term(method, targets=1000 * TARGETS + 7), term(prepared(directions=1000)), rtol=1e-12)


def test_directions_are_unit_vectors_that_every_step_shifts():
    method = prepared(directions=5)
    before = method._directions()
    assert torch.allclose(before.norm(dim=1), torch.ones(5).double())
    method.observe(FEATURES, TARGETS)
    assert torch.equal(method._directions(), before.roll(1, 1))
    method.eval()
    method.observe(FEATURES, TARGETS)
    assert torch.equal(method._directions(), before.roll(1, 1)) and method.amount.sum() == N


def test_a_checkpoint_restores_centers_of_an_epoch_that_has_begun():
    method = prepared()
    for _ in range(2):
        method.observe(FEATURES, TARGETS)
        method.end_epoch()
    method.observe(FEATURES.flip(1), TARGETS)
    fresh = SRL(directions=20)
    fresh.load_state_dict(copy.deepcopy(method.state_dict()))
    for each in (method, fresh):
        each.end_epoch()
    assert torch.equal(fresh.centers, method.centers)
    assert torch.equal(term(fresh), term(method))


def test_rows_outside_the_mask_and_targets_that_are_no_numbers_leave_no_trace():
    mask = torch.arange(N) % 3 != 0
    features, targets = FEATURES.clone(), TARGETS.clone()
    features[~mask], targets[~mask] = 77.0, math.nan
    features.requires_grad_()
    method = prepared()
    loss = term(method, features, targets, mask[:, None])
    assert torch.allclose(loss, term(method, FEATURES[mask], TARGETS[mask]), rtol=1e-12)
    loss.backward()
    assert features.grad.isfinite().all() and (features.grad[~mask] == 0).all()
    other = prepared()
    method.observe(features.detach(), targets)
    other.observe(FEATURES[mask], TARGETS[mask])
    assert torch.allclose(method.sums, other.sums) and torch.equal(method.amount, other.amount)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("features", "targets", "mask"),
    [
        (FEATURES[:0], TARGETS[:0], None),
        (FEATURES[:1], TARGETS[:1], None),
        (torch.zeros(N, D).double(), TARGETS, None),
        (FEATURES[:1].expand(N, D), TARGETS, None),
        (torch.cat([FEATURES, -FEATURES]), torch.cat([TARGETS, TARGETS]), None),  # centers at zero
        (FEATURES, TARGETS, torch.zeros(N, dtype=torch.bool)),
    ],
)
def test_degenerate_batches_have_a_finite_gradient(features, targets, mask, known):
    method = prepared()
    if known:
        method.observe(FEATURES, TARGETS)
        method.end_epoch()
    features = features.clone().requires_grad_()
    loss = term(method, features, targets, mask)
    loss.backward()
    assert loss.isfinite() and features.grad.isfinite().all()
    constant = SRL(directions=20)
    constant.prepare(torch.full((4, 1), 3.0), width=D)
    assert term(constant).isfinite() and homogeneity(constant.centers, constant.values) == 0


def test_mistakes_are_named():
    for options, message in [
        ({"bins": 1}, "bins to be a whole number of at least 2, got 1"),
        ({"directions": 0}, "directions to be a whole number of at least 1, got 0"),
        ({"envelope_weight": -1.0}, "envelope_weight to be a number from 0 on, got -1"),
        ({"temperature": 0.0}, "temperature to be a positive number, got 0"),
        ({"momentum": 1.0}, "momentum from 0 to below 1, got 1"),
    ]:
        with pytest.raises(ValueError, match=message):
            SRL(**options)
    with pytest.raises(ValueError, match=r"expected prepare\(targets, width=d\) before the first step"):
        term(SRL())
    with pytest.raises(ValueError, match=r"one number a row for srl, got \(3, 2\)"):
        SRL().prepare(torch.zeros(3, 2), width=D)
    with pytest.raises(ValueError, match="the width of the features for srl"):
        SRL().prepare(VALUES[:, None])
    with pytest.raises(ValueError, match=r"features \(n, 4\) for srl, not maps, got \(2, 4, 3, 3\)"):
        term(prepared(), torch.zeros(2, 4, 3, 3), torch.zeros(2, 1, 3, 3))
    with pytest.raises(ValueError, match=r"one number a row for srl, got \(12, 2\)"):
        term(prepared(), targets=TARGETS.expand(N, 2))
