"""Anchor data augmentation: the projection as a matrix, clusters, what is drawn, edges."""

import math

import pytest
import torch

from ordinal_entropy import methods
from ordinal_entropy.methods import Batch
from ordinal_entropy.methods.ada import ADA, clusters_of
from ordinal_entropy.methods.functional import anchored

N = 40
INPUTS = torch.randn(N, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * torch.tensor([1, 50, 0.1])
TARGETS = INPUTS.sum(1, keepdim=True) + torch.arange(2.0)


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def test_equals_the_projection_on_the_anchors():
    cluster = torch.randint(5, (N,), generator=seeded())
    anchors = torch.nn.functional.one_hot(cluster).double()
    projection = anchors @ torch.linalg.pinv(anchors.T @ anchors) @ anchors.T
    for gamma in (0.3, 1.0, 4.0):
        moved = INPUTS + (math.sqrt(gamma) - 1) * projection @ INPUTS
        expected = moved / (1 + (math.sqrt(gamma) - 1) * projection.sum(1, keepdim=True))
        assert torch.allclose(anchored(INPUTS, cluster, gamma), expected, rtol=1e-10)


def test_clusters_are_those_of_a_loop():
    rows, centers = INPUTS.tolist(), [INPUTS[k].tolist() for k in (0, 7, 9)]
    for _ in range(4):
        nearest = [min(range(3), key=lambda k: math.dist(row, centers[k])) for row in rows]
        for k in range(3):
            own = [row for row, place in zip(rows, nearest, strict=True) if place == k]
            centers[k] = [sum(column) / len(own) for column in zip(*own, strict=True)] if own else centers[k]
    nearest = [min(range(3), key=lambda k: math.dist(row, centers[k])) for row in rows]
    assert clusters_of(INPUTS, torch.tensor([0, 7, 9]), rounds=4).tolist() == nearest
    lost = clusters_of(torch.zeros(3, 1), torch.tensor([0, 1]))  # the second cluster loses its row
    assert lost.tolist() == [0, 0, 0]


def test_all_rows_of_a_cluster_move_by_one_factor_that_is_drawn():
    method = ADA(alpha=3.0, clusters=4, steps=2)
    assert method.gammas() == pytest.approx([1 / 3, 1 / 2, 1, 2, 3])
    seen = set()
    for seed in range(40):
        found = method.change(Batch(INPUTS, TARGETS), seeded(seed))
        for moved, rows in ((found.inputs, INPUTS), (found.targets, TARGETS)):
            still = moved - rows  # proportional to the distance from the mean of the cluster
            assert torch.allclose(still.sum(0), torch.zeros(()).double(), atol=1e-9)
        after, before = (each[:, :1] - each[:, :1].T for each in (found.inputs, INPUTS))
        apart = after / before.fill_diagonal_(1)
        factor = 1 / torch.tensor(method.gammas(), dtype=torch.float64).sqrt()
        close = ((apart[..., None] - factor).abs() < 1e-9).sum((0, 1))
        seen.add(int(close.argmax()))
        assert close.max() >= N  # pairs within clusters
    assert seen == {0, 1, 2, 3, 4}


def test_the_units_of_inputs_and_targets_do_not_matter():
    own = ADA().change(Batch(INPUTS, TARGETS), seeded(1))
    unit = torch.tensor([1000.0, 0.01, 3.0]).double()
    other = ADA().change(Batch(INPUTS * unit - 7, 1e4 * TARGETS + 3), seeded(1))
    assert torch.allclose(other.inputs, own.inputs * unit - 7) and not torch.equal(own.inputs, INPUTS)
    assert torch.allclose(other.targets, 1e4 * own.targets + 3)


def test_targets_outside_the_mask_stay_and_move_nobody():
    mask = torch.rand(N, 2, generator=seeded(2)) > 0.3
    found = []
    for outside in (math.nan, 1e6):
        batch = Batch(INPUTS, torch.where(mask, TARGETS, outside), mask, torch.ones(N, 1))
        found.append(ADA().change(batch, seeded(3)))
        assert torch.equal(found[-1].targets[~mask], batch.targets[~mask]) or math.isnan(outside)
        assert found[-1].mask is mask and found[-1].weight is batch.weight
    assert torch.equal(found[0].targets[mask], found[1].targets[mask]) and torch.equal(found[0].inputs, found[1].inputs)
    assert found[0].targets[mask].isfinite().all() and not torch.equal(found[0].targets[mask], TARGETS[mask])


@pytest.mark.parametrize("n", [0, 1])
def test_a_single_row_stays_as_it_is(n):
    batch = Batch(INPUTS[:n], TARGETS[:n])
    assert ADA().change(batch, seeded()) is batch


@pytest.mark.parametrize("shape", [(N,), (N, 1)])
def test_whole_numbers_one_distinct_target_and_shapes(shape):
    targets = torch.full(shape, 3)
    found = ADA().change(Batch(INPUTS.float(), targets), seeded())
    assert found.targets.shape == shape and found.targets.dtype == torch.float32
    assert torch.allclose(found.targets, torch.tensor(3.0))
    assert ADA().change(Batch(INPUTS.bfloat16(), targets), seeded()).inputs.dtype == torch.bfloat16


def test_mistakes_are_named():
    for options, message in [
        ({"alpha": 1.0}, "alpha to be a number above 1, got 1"),
        ({"clusters": 0}, "clusters to be a whole number of at least 1, got 0"),
        ({"steps": 1.5}, "steps to be a whole number of at least 1, got 1.5"),
    ]:
        with pytest.raises(ValueError, match=message):
            ADA(**options)
    with pytest.raises(ValueError, match=r"inputs \(n, features\) for ada, .* got \(40, 3, 8, 8\)"):
        ADA().change(Batch(torch.zeros(N, 3, 8, 8), TARGETS))
    with pytest.raises(ValueError, match=r"inputs \(n, features\) for ada, .* got tuple"):
        ADA().change(Batch((INPUTS, INPUTS), TARGETS))
    with pytest.raises(
        ValueError, match="my loop cannot train 'ada', which has to see inputs as rows of numbers: no tables"
    ):
        methods.require(methods.create("ada"), set(methods.KINDS), "my loop", "no tables")
