"""Errors of counts: against plain loops, by hand, and streamed."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ordinal_entropy.tasks.crowd.metrics import CountErrors, count_errors, counts


def rows(n, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(3000, (n,), generator=generator)
    return targets.to(dtype) + 90 * torch.randn(n, generator=generator, dtype=dtype), targets


def by_loop(predictions, targets):
    absolute = squared = 0.0
    for prediction, target in zip(predictions.tolist(), targets.tolist(), strict=True):
        absolute += abs(prediction - target)
        squared += (prediction - target) ** 2
    n = len(targets)
    return {"mae": absolute / n, "rmse": math.sqrt(squared / n)} if n else {"mae": math.nan, "rmse": math.nan}


def assert_same(found, expected):
    assert list(found) == ["mae", "rmse"]
    for name, value in found.items():
        assert value.dtype == torch.float64 and value.shape == ()
        assert value.item() == pytest.approx(float(expected[name]), rel=1e-12, abs=0, nan_ok=True), name


@pytest.mark.parametrize("n", [0, 1, 2, 500])
def test_loop(n):
    assert_same(count_errors(*rows(n)), by_loop(*rows(n)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision_is_accumulated_in_float64(dtype):
    predictions, targets = rows(300, dtype=torch.float32)
    predictions = predictions.to(dtype)
    assert_same(count_errors(predictions[:, None], targets), by_loop(predictions, targets))


def test_by_hand():
    scores = count_errors(torch.tensor([3.0, 46.0, 0.0]), torch.tensor([0, 50, 0]))
    assert_same(scores, {"mae": 7 / 3, "rmse": math.sqrt(25 / 3)})


def test_a_prediction_that_is_not_a_number_is_not_hidden():
    scores = count_errors(torch.tensor([3.0, math.nan]), torch.tensor([3, 4]))
    assert all(value.isnan() for value in scores.values())


def test_shapes_that_do_not_fit():
    metric = CountErrors()
    for call in (count_errors, metric.update):
        with pytest.raises(ValueError, match=r"expected targets with n=3 rows, got \(2,\)"):
            call(torch.zeros(3), torch.zeros(2))
        with pytest.raises(ValueError, match=r"expected predictions \(n,\) or \(n, 1\), got \(3, 2\)"):
            call(torch.zeros(3, 2), torch.zeros(3))
        with pytest.raises(ValueError, match=r"expected targets \(n,\) or \(n, 1\), got \(\)"):
            call(torch.zeros(1), torch.tensor(3))


@pytest.mark.parametrize("shape", [(3, 4, 5), (3, 1, 4, 5), (0, 4, 5)])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16])
def test_counts_of_maps(shape, dtype):
    maps = torch.rand(shape, generator=torch.Generator().manual_seed(0)).to(dtype).requires_grad_()
    found = counts(maps)
    assert found.dtype == torch.float64 and not found.requires_grad
    assert found.tolist() == pytest.approx([sum(each.flatten().tolist()) for each in maps], rel=1e-12)


def test_a_large_map_in_half_precision():
    assert counts(torch.ones(1, 100, 100, dtype=torch.float16)).tolist() == [10_000]


@pytest.mark.parametrize("shape", [(3,), (4, 5), (3, 2, 4, 5)])
def test_maps_that_are_none(shape):
    with pytest.raises(ValueError, match=r"expected maps \(n, h, w\) or \(n, 1, h, w\), got"):
        counts(torch.zeros(shape))


@settings(max_examples=40)
@given(n=st.integers(0, 60), cuts=st.lists(st.integers(0, 60), max_size=6), seed=st.integers(0, 1000))
def test_any_split_into_batches_gives_the_same(n, cuts, seed):
    predictions, targets = rows(n, seed)
    metric = CountErrors()
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), 60], strict=True):
        metric.update(predictions[start:stop, None], targets[start:stop])  # some of no rows
    assert_same(metric.compute(), count_errors(predictions, targets))


def test_forward_gives_the_batch_and_reset_begins_anew():
    metric = CountErrors()
    predictions, targets = rows(40)
    for part in (slice(0, 25), slice(25, 40)):
        assert_same(metric(predictions[part], targets[part]), count_errors(predictions[part], targets[part]))
    whole = count_errors(predictions, targets)
    for each in (metric, copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert_same(each.compute(), whole)
    metric.reset()
    metric.update(predictions[:3], targets[:3])
    assert_same(metric.compute(), count_errors(predictions[:3], targets[:3]))
    assert metric.error.dtype == metric.half().error.dtype == torch.float64
