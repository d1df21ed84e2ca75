"""Scores of depth: against plain loops, by hand, and streamed."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ordinal_entropy.tasks.depth import metrics
from ordinal_entropy.tasks.depth.maps import EIGEN, FRAME, resized
from ordinal_entropy.tasks.depth.metrics import (
    SCORES,
    DepthScores,
    QuickRms,
    clamped,
    depth_scores,
    flip_averaged,
    image_scores,
)


def maps(b=5, h=24, w=32, seed=0):
    """Predictions and targets, some of which are no depths, some predictions no numbers."""
    generator = torch.Generator().manual_seed(seed)
    targets = 12 * torch.rand(b, h, w, generator=generator, dtype=torch.float64)
    targets[torch.rand(b, h, w, generator=generator) < 0.2] = 0
    predictions = targets + torch.randn(b, h, w, generator=generator, dtype=torch.float64)
    for place, strange in enumerate((math.nan, math.inf, -math.inf, -3.0, 0.0, 40.0)):
        predictions[..., 10, 10 + place] = strange
        targets[..., 10, 10 + place] = 1.0 + place
    return predictions, targets


def by_loop(predictions, targets, crop=True):
    """One image, with the crop as it is written down for 480 x 640, in lists."""
    h, w = targets.shape
    pairs = []
    for i in range(h):
        for j in range(w):
            whole = i + 1 > 45 * h / 480 and i < 471 * h / 480 and j + 1 > 41 * w / 640 and j < 601 * w / 640
            p, t = float(predictions[i, j]), float(targets[i, j])
            if 1e-3 < t < 10 and (whole or not crop):
                p = 1e-3 if math.isnan(p) else min(max(p, 1e-3), 10.0)
                pairs.append((p, t))
    n = len(pairs)
    if not n:
        return [math.nan] * 7
    logs = [math.log(p) - math.log(t) for p, t in pairs]
    mean = sum(logs) / n
    return [
        *(sum(max(p / t, t / p) < 1.25**k for p, t in pairs) / n for k in (1, 2, 3)),
        sum(abs(p - t) / t for p, t in pairs) / n,
        math.sqrt(sum((p - t) ** 2 for p, t in pairs) / n),
        sum(abs(math.log10(p) - math.log10(t)) for p, t in pairs) / n,
        100 * math.sqrt(sum((d - mean) ** 2 for d in logs) / n),
    ]


def assert_same(found, expected, rel=1e-12):
    assert list(found) == list(SCORES)
    for name, value in found.items():
        assert value.dtype == torch.float64 and value.shape == ()
        assert value.item() == pytest.approx(float(expected[name]), rel=rel, abs=1e-12, nan_ok=True), name


@pytest.mark.parametrize("crop", [True, False])
def test_each_image_by_loop(crop):
    predictions, targets = maps()
    found = image_scores(predictions, targets[:, None], crop=EIGEN if crop else None)
    assert found.shape == (5, 7) and found.dtype == torch.float64
    for row, p, t in zip(found.tolist(), predictions, targets, strict=True):
        assert row == pytest.approx(by_loop(p, t, crop), rel=1e-10)
    means = {name: found[:, k].mean() for k, name in enumerate(SCORES)}
    assert_same(depth_scores(predictions, targets, crop=EIGEN if crop else None), means)


def test_by_hand():
    targets = torch.zeros(1, 48, 64)
    targets[0, 20, 30:33] = torch.tensor([1.0, 2.0, 4.0])
    predictions = torch.full((1, 48, 64), 2.0)  # off by factors of 2, 1 and 2
    found = depth_scores(predictions, targets)
    two = math.log(2)
    expected = {"delta1": 1 / 3, "delta2": 1 / 3, "delta3": 1 / 3, "rel": 0.5, "rms": math.sqrt(5 / 3)}
    expected |= {"log10": 2 / 3 * math.log10(2), "silog": 100 * math.sqrt(2 / 3) * two}
    assert_same(found, expected)


def test_limits_of_the_deltas_do_not_count():
    targets = torch.ones(3, 48, 64, dtype=torch.float64)
    predictions = torch.tensor([1.25, 1.25**2, 1.25**3], dtype=torch.float64)[:, None, None].expand(3, 48, 64)
    assert image_scores(predictions, targets)[:, :3].tolist() == [[0, 1, 1], [0, 0, 1], [0, 0, 0]]
    assert image_scores(predictions - 1e-9, targets)[:, :3].tolist() == [[1, 1, 1], [0, 1, 1], [0, 0, 1]]


def test_only_the_crop_counts():
    predictions, targets = torch.full((1, 240, 320), 9.0), torch.full((1, 240, 320), 1.0)
    predictions[:, 22:236, 20:301] = 1.0
    assert depth_scores(predictions, targets)["rms"] == 0
    assert depth_scores(predictions, targets, crop=FRAME)["rms"] > 0
    assert depth_scores(predictions, targets, crop=None)["rms"] > 0


def test_relative_to_the_target():
    found = depth_scores(torch.full((1, 48, 64), 3.0), torch.full((1, 48, 64), 2.0))
    assert found["rel"] == pytest.approx(0.5)


def test_an_image_without_a_valid_pixel_does_not_count():
    predictions, targets = maps()
    expected = depth_scores(predictions[1:], targets[1:])
    for nothing in (0.0, math.nan, 20.0):
        targets[0] = nothing
        assert image_scores(predictions, targets)[0].isnan().all()
        assert_same(depth_scores(predictions, targets), expected)
    outside = torch.zeros(1, 48, 64)
    outside[0, 0, 0] = 1.0
    assert all(value.isnan() for value in depth_scores(torch.ones(1, 48, 64), outside).values())
    assert all(value.isnan() for value in depth_scores(torch.zeros(0, 4, 4), torch.zeros(0, 4, 4)).values())


def test_no_numbers_are_the_limits():
    strange = torch.tensor([math.nan, math.inf, -math.inf, -5.0, 0.0, 3.0, 99.0], dtype=torch.float64)
    assert clamped(strange).tolist() == [1e-3, 10, 1e-3, 1e-3, 1e-3, 3, 10]
    targets = torch.full((1, 48, 64), 2.0)
    assert depth_scores(torch.full((1, 48, 64), math.nan), targets)["rms"] == pytest.approx(1.999)
    assert depth_scores(torch.full((1, 48, 64), math.inf), targets)["rms"] == pytest.approx(8)


@pytest.mark.parametrize("align_corners", [True, False])
def test_smaller_predictions_are_enlarged(align_corners):
    predictions, targets = maps()
    predictions = predictions.nan_to_num()[:, None, ::2, ::2]
    whole = resized(predictions[:, 0], (24, 32), align_corners=align_corners)
    assert_same(depth_scores(predictions, targets, align_corners=align_corners), depth_scores(whole, targets))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_lower_precision_is_accumulated_in_float64(dtype):
    predictions, targets = maps()
    predictions, targets = predictions.to(dtype), targets.float()
    assert_same(depth_scores(predictions, targets), depth_scores(predictions.double(), targets.double()))


@pytest.mark.parametrize(
    ("predictions", "targets", "message"),
    [
        (torch.ones(2, 3, 3), torch.ones(1, 3, 3), r"expected predictions of b=1 maps, got \(2, 3, 3\)"),
        (torch.ones(3, 3), torch.ones(1, 3, 3), r"expected predictions \(b, h, w\) or \(b, 1, h, w\), got \(3, 3\)"),
        (torch.ones(1, 3, 3), torch.ones(1, 3, 3, 3), r"expected targets \(b, h, w\) or \(b, 1, h, w\)"),
    ],
)
def test_shapes_are_checked(predictions, targets, message):
    with pytest.raises(ValueError, match=message):
        depth_scores(predictions, targets)
    with pytest.raises(ValueError, match=message):
        DepthScores().update(predictions, targets)


@settings(max_examples=20)
@given(b=st.integers(0, 9), cuts=st.lists(st.integers(0, 9), max_size=4), seed=st.integers(0, 100))
def test_any_split_into_batches_gives_the_same(b, cuts, seed):
    predictions, targets = maps(b, 12, 16, seed) if b else (torch.zeros(0, 12, 16), torch.zeros(0, 12, 16))
    targets[::4] = 0  # images of nothing
    metric = DepthScores()
    for start, stop in zip([0, *sorted(cuts)], [*sorted(cuts), 9], strict=True):
        metric.update(predictions[start:stop, None], targets[start:stop])  # some of no images
    assert_same(metric.compute(), depth_scores(predictions, targets))


def test_forward_gives_the_batch_and_reset_begins_anew():
    metric = DepthScores()
    predictions, targets = maps()
    for part in (slice(0, 2), slice(2, 5)):
        assert_same(metric(predictions[part], targets[part]), depth_scores(predictions[part], targets[part]))
    whole = depth_scores(predictions, targets)
    for each in (metric, copy.deepcopy(metric), pickle.loads(pickle.dumps(metric))):
        assert_same(each.compute(), whole)
    metric.reset()
    metric.update(predictions[:3], targets[:3])
    assert_same(metric.compute(), depth_scores(predictions[:3], targets[:3]))
    assert metric.total.dtype == metric.half().total.dtype == torch.float64


def test_options_reach_the_function():
    predictions, targets = maps()
    metric = DepthScores(crop=None, align_corners=False)
    metric.update(predictions.nan_to_num()[:, ::2, ::2], targets)
    expected = depth_scores(predictions.nan_to_num()[:, ::2, ::2], targets, crop=None, align_corners=False)
    assert_same(metric.compute(), expected)


def test_flips_are_averaged():
    plain = torch.rand(2, 1, 6, 40, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 1
    mirrored = torch.rand(2, 1, 6, 40, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 1
    back = mirrored.flip(-1)
    assert torch.equal(flip_averaged(plain, mirrored), (plain + back) / 2)
    assert torch.allclose(flip_averaged(plain, plain.flip(-1), ramp=True), plain)
    ramp = flip_averaged(plain, mirrored, ramp=True)
    for column in range(40):
        place = column / 39
        left = 1 - min(max(20 * (place - 0.05), 0), 1)
        right = 1 - min(max(20 * (1 - place - 0.05), 0), 1)
        middle = 1 - left - right
        expected = right * plain + left * back + middle * (plain + back) / 2
        assert torch.allclose(ramp[..., column], expected[..., column])
    assert torch.allclose(ramp[..., 0], back[..., 0]) and torch.allclose(ramp[..., -1], plain[..., -1])
    assert torch.allclose(ramp[..., 4:36], (plain + back)[..., 4:36] / 2)


def test_flips_are_clamped_first_and_checked():
    strange = torch.tensor([[math.nan, math.inf, 50.0]])
    found = flip_averaged(strange, torch.full((1, 3), 2.0))
    assert found[0].tolist() == pytest.approx([1.0005, 6.0, 6.0])
    with pytest.raises(ValueError, match=r"expected both in one shape, got \(1, 3\) and \(1, 4\)"):
        flip_averaged(strange, torch.ones(1, 4))


@pytest.mark.parametrize("at_once", [1, 2 * 24 * 32, 10**9])
def test_a_large_batch_is_scored_in_parts(monkeypatch, at_once):
    predictions, targets = maps(b=5)
    monkeypatch.setattr(metrics, "_AT_ONCE", at_once)
    metric = DepthScores()
    metric.update(predictions[:, None], targets[:, None])
    assert_same(metric.compute(), depth_scores(predictions, targets))
    with pytest.raises(ValueError, match="expected predictions of b=5 maps"):
        metric.update(predictions[:4], targets)


def test_quick_errors_by_loop():
    predictions, targets = maps(b=4)
    predictions = predictions.nan_to_num(nan=1.0, posinf=2.0, neginf=3.0)
    targets[2] = 0  # no depth at all
    metric = QuickRms()
    metric.update(predictions[:3, None].float(), targets[:3, None].float())
    metric.update(predictions[3:].float(), targets[3:].float())
    roots = []
    for p, t in zip(predictions, targets, strict=True):
        errors = [float(p[i, j] - t[i, j]) ** 2 for i in range(24) for j in range(32) if 1e-3 < t[i, j] < 10]
        roots += [math.sqrt(sum(errors) / len(errors))] if errors else []
    assert len(roots) == 3
    assert metric.compute()["rms"].item() == pytest.approx(sum(roots) / 3, rel=1e-5)


def test_quick_errors_of_smaller_predictions():
    _, targets = maps(b=2)
    small = targets[:, ::2, ::2].float()
    for align in (True, False):
        metric = QuickRms(align_corners=align)
        metric.update(small, targets.float())
        whole = QuickRms()
        whole.update(resized(small, (24, 32), align_corners=align), targets.float())
        assert metric.compute()["rms"] == whole.compute()["rms"]
