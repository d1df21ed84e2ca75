"""MAE and GM by shots: against plain loops and SciPy, by hand, and streamed."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import gmean

from ordinal_entropy.tasks.age.losses import age_counts, training_counts
from ordinal_entropy.tasks.age.metrics import SHOTS, ShotErrors, shot_errors, shots

NAMES = [f"{score}{end}" for score in ("mae", "gm") for end in ("", "_many", "_median", "_few")]
COUNTS = torch.tensor([0, 19, 20, 100, 101, 353])  # of the ages 0 to 5


def rows(n, seed=0, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(8, (n,), generator=generator).to(dtype)  # also ages that never occur in training
    return targets + 3 * torch.randn(n, generator=generator, dtype=dtype), targets


def by_loop(predictions, targets, counts):
    errors = {"": [], "_many": [], "_median": [], "_few": []}
    for prediction, target in zip(predictions.tolist(), targets.tolist(), strict=True):
        count = counts.tolist()[int(target)] if int(target) < len(counts) else 0
        shot = "_many" if count > 100 else "_few" if count < 20 else "_median"
        for end in ("", shot):
            errors[end].append(abs(prediction - target))
    mae = {f"mae{end}": sum(each) / len(each) if each else math.nan for end, each in errors.items()}
    return mae | {f"gm{end}": float(gmean(each)) if each else math.nan for end, each in errors.items()}


def assert_same(found, expected):
    assert list(found) == NAMES
    for name, value in found.items():
        assert value.dtype == torch.float64
        assert value.shape == ()
        assert value.item() == pytest.approx(float(expected[name]), rel=1e-12, abs=0, nan_ok=True), name


def test_loop_and_scipy():
    predictions, targets = rows(500)
    assert {SHOTS[shot] for shot in shots(targets, COUNTS)} == set(SHOTS)
    assert_same(shot_errors(predictions, targets, COUNTS), by_loop(predictions, targets, COUNTS))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision_is_accumulated_in_float64(dtype):
    predictions, targets = rows(300, dtype=torch.float32)
    predictions = predictions.to(dtype)
    assert_same(shot_errors(predictions, targets, COUNTS), by_loop(predictions, targets, COUNTS))


def test_limits_of_the_shots():
    found = [SHOTS[shot] for shot in shots(torch.arange(8.0), COUNTS)]
    assert found == ["few", "few", "median", "median", "many", "many", "few", "few"]


def test_by_hand_with_a_zero_error_and_an_empty_shot():
    predictions, targets = torch.tensor([6.0, 2.0, 9.0, 1.0]), torch.tensor([4.0, 4.0, 5.0, 1.0])
    scores = shot_errors(predictions, targets, COUNTS)  # errors 2, 2 and 4 (many), 0 (few)
    expected = {"mae": 2.0, "mae_many": 8 / 3, "mae_median": math.nan, "mae_few": 0.0}
    expected |= {"gm": 0.0, "gm_many": 16 ** (1 / 3), "gm_median": math.nan, "gm_few": 0.0}
    assert_same(scores, expected)


def test_no_rows():
    assert all(value.isnan() for value in shot_errors(torch.zeros(0), torch.zeros(0, 1), COUNTS).values())


def test_a_prediction_that_is_not_a_number_is_not_hidden():
    scores = shot_errors(torch.tensor([math.nan, 1.0]), torch.tensor([4.0, 2.0]), COUNTS)
    assert {name for name, value in scores.items() if value.isnan()} == {
        "mae", "mae_many", "mae_few", "gm", "gm_many", "gm_few",
    }  # fmt: skip


def test_columns_are_rows():
    predictions, targets = rows(50)
    expected = shot_errors(predictions, targets, COUNTS)
    for pair in [
        (predictions[:, None], targets),
        (predictions, targets[:, None]),
        (predictions[:, None], targets.int()),
    ]:
        assert_same(shot_errors(*pair, COUNTS), expected)


@pytest.mark.parametrize(
    ("predictions", "targets", "counts", "message"),
    [
        (torch.zeros(3), torch.zeros(2), COUNTS, r"expected targets with n=3 rows, got \(2,\)"),
        (torch.zeros(3, 2), torch.zeros(3), COUNTS, r"expected predictions \(n,\) or \(n, 1\), got \(3, 2\)"),
        (torch.zeros(3), torch.zeros(1, 3), COUNTS, r"expected targets \(n,\) or \(n, 1\), got \(1, 3\)"),
        (torch.zeros(3), torch.zeros(3), COUNTS.float(), r"expected counts \(ages,\) as whole numbers, got \(6,\)"),
        (torch.zeros(3), torch.zeros(3), COUNTS[None], r"expected counts \(ages,\) as whole numbers, got \(1, 6\)"),
    ],
)
def test_shapes_are_checked(predictions, targets, counts, message):
    with pytest.raises(ValueError, match=message):
        shot_errors(predictions, targets, counts)
    with pytest.raises(ValueError, match=message):
        ShotErrors(counts).update(predictions, targets)


def test_counts_of_the_training_set():
    targets = torch.tensor([[5.0], [0.0], [5.9], [2.0]])
    assert age_counts(targets).tolist() == [1, 0, 1, 0, 0, 2]
    assert age_counts(targets.int()).tolist() == [1, 0, 1, 0, 0, 2]
    strange = torch.tensor([5.5, -1.0, 6.0, math.nan, math.inf, 0.0])
    assert training_counts(strange, age_counts(targets)).tolist() == [2, 0, 0, 0, 0, 1]
    assert age_counts(torch.zeros(0)).tolist() == []
    assert training_counts(strange, age_counts(torch.zeros(0))).tolist() == [0] * 6
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="expected ages of at least 0, got 2 others"):
            age_counts(torch.tensor([3.0, wrong, wrong]))


@settings(max_examples=40)
@given(
    n=st.integers(0, 60),
    cuts=st.lists(st.integers(0, 60), max_size=6),
    seed=st.integers(0, 1000),
    exact=st.booleans(),
)
def test_any_split_into_batches_gives_the_same(n, cuts, seed, exact):
    predictions, targets = rows(n, seed)
    if exact:
        predictions[::7] = targets[::7]
    metric = ShotErrors(COUNTS)
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), 60], strict=True):
        metric.update(predictions[start:stop, None], targets[start:stop])  # some of no rows
    assert_same(metric.compute(), shot_errors(predictions, targets, COUNTS))


def test_forward_gives_the_batch_and_reset_begins_anew():
    metric = ShotErrors(COUNTS)
    predictions, targets = rows(40)
    for part in (slice(0, 25), slice(25, 40)):
        assert_same(metric(predictions[part], targets[part]), shot_errors(predictions[part], targets[part], COUNTS))
    whole = shot_errors(predictions, targets, COUNTS)
    for each in (metric, copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert_same(each.compute(), whole)
    metric.reset()
    metric.update(predictions[:3], targets[:3])
    assert_same(metric.compute(), shot_errors(predictions[:3], targets[:3], COUNTS))
    assert metric.error.dtype == metric.half().error.dtype == torch.float64


def test_many_small_batches_lose_nothing():
    metric = ShotErrors(COUNTS)
    for _ in range(300):
        metric.update(torch.tensor([1e8, 4.1], dtype=torch.float64), torch.tensor([4.0, 4.0], dtype=torch.float64))
    assert metric.compute()["mae"].item() == pytest.approx((1e8 - 4 + 4.1 - 4) / 2, rel=1e-14)
