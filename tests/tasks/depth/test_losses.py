"""The losses over pixels: loops in float64, edges, gradients, precisions."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from ordinal_entropy.tasks.depth.losses import FORMS, masked_mse, silog
from ordinal_entropy.tasks.depth.maps import resized


def maps(seed=0, b=3, h=6, w=8, dtype=torch.float64):
    """Predictions, and targets of which some are 0, tiny, NaN or infinite."""
    generator = torch.Generator().manual_seed(seed)
    targets = 0.2 + 9 * torch.rand(b, h, w, generator=generator, dtype=dtype)
    targets.view(-1)[::7] = 0
    targets.view(-1)[1::11] = 0.05
    targets.view(-1)[3] = math.nan
    targets.view(-1)[4] = math.inf
    return 0.1 + 9 * torch.rand(b, h, w, generator=generator, dtype=dtype), targets


def differences(predictions, targets, above, mask=None, logs=False):
    found = []
    for place, (p, t) in enumerate(zip(predictions.flatten().tolist(), targets.flatten().tolist(), strict=True)):
        if above < t < math.inf and (mask is None or mask.flatten()[place]):
            found.append(math.log(p) - math.log(t) if logs else p - t)
    return found


def some(targets, seed=1):
    return torch.rand(targets.shape, generator=torch.Generator().manual_seed(seed)) < 0.6


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("above", [1e-3, 0.1])
def test_mse_by_loop(masked, above):
    predictions, targets = maps()
    mask = some(targets) if masked else None
    each = differences(predictions, targets, above, mask)
    expected = sum(d * d for d in each) / len(each)
    found = masked_mse(predictions, targets[:, None], mask, above=above)
    assert found.item() == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("factor", [0.0, 0.5, 0.85, 1.0])
@pytest.mark.parametrize("form", ["adabins", "newcrfs"])
def test_silog_by_loop_in_its_published_forms(form, factor, masked):
    predictions, targets = maps()
    mask = some(targets) if masked else None
    each = differences(predictions, targets, {"adabins": 1e-3, "newcrfs": 0.1}[form], mask, logs=True)
    n, mean = len(each), sum(each) / len(each)
    if form == "adabins":
        inside = sum((d - mean) ** 2 for d in each) / (n - 1) + (1 - factor) * mean**2
    else:
        inside = sum(d * d for d in each) / n - factor * mean**2
    found = silog(predictions[:, None], targets, mask, form=form, factor=factor)
    assert found.item() == pytest.approx(10 * math.sqrt(inside), rel=1e-10)
    third = silog(predictions, targets, mask, form=form, factor=factor, scale=3)
    assert third.item() == pytest.approx(3 * math.sqrt(inside), rel=1e-10)


def test_a_common_factor_is_forgiven_by_so_much():
    predictions, targets = maps()
    assert silog(7 * predictions, targets, factor=1.0) == pytest.approx(silog(predictions, targets, factor=1.0).item())
    assert silog(7 * targets, targets).item() == pytest.approx(10 * math.sqrt(0.15) * math.log(7))


def test_a_limit_of_ones_own():
    predictions, targets = maps()
    assert silog(predictions, targets, form="newcrfs", above=1e-3) == pytest.approx(
        silog(predictions, targets, form="newcrfs", above=0.01).item()
    )
    assert silog(predictions, targets, above=1e-3) != silog(predictions, targets)


@pytest.mark.parametrize("align_corners", [True, False])
@pytest.mark.parametrize("loss", [masked_mse, silog])
def test_smaller_predictions_are_enlarged(loss, align_corners):
    predictions, targets = maps()
    small = predictions[:, ::2, ::2]
    expected = loss(resized(small, (6, 8), align_corners=align_corners), targets)
    assert loss(small, targets, align_corners=align_corners) == expected


LOSSES = [masked_mse, *(lambda p, t, m=None, form=form: silog(p, t, m, form=form) for form in FORMS)]


@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_to_learn_from_is_a_zero_with_a_zero_gradient(loss):
    predictions, targets = maps()
    for true, mask in (
        (torch.zeros_like(targets), None),
        (torch.full_like(targets, math.nan), None),
        (targets, torch.zeros_like(targets, dtype=torch.bool)),
    ):
        p = predictions.clone().requires_grad_()
        value = loss(p, true, mask)
        value.backward()
        assert value == 0 and torch.equal(p.grad, torch.zeros_like(p))
    empty = torch.zeros(0, 4, 4, requires_grad=True)
    loss(empty, torch.zeros(0, 4, 4)).backward()
    assert empty.grad.shape == (0, 4, 4)


@pytest.mark.parametrize("loss", LOSSES)
def test_no_error_at_all_and_a_single_pixel(loss):
    _, targets = maps()
    p = torch.where(targets.isfinite() & (targets > 0), targets, 1.0).requires_grad_()
    value = loss(p, targets)
    value.backward()
    assert value == 0 and torch.equal(p.grad, torch.zeros_like(p))
    one = torch.zeros(1, 2, 2)
    one[0, 0, 0] = 2
    p = torch.full((1, 2, 2), 3.0, requires_grad=True)
    loss(p, one).backward()
    assert p.grad.isfinite().all() and (p.grad != 0).sum() == 1


@pytest.mark.parametrize("loss", LOSSES)
def test_what_does_not_count_leaves_no_trace_and_what_does_is_not_hidden(loss):
    predictions, targets = maps()
    outside = ~(targets.isfinite() & (targets > 0.1))
    p = torch.where(outside, math.nan, predictions).requires_grad_()
    value = loss(p, torch.where(outside, 0.0, targets))
    value.backward()
    assert value == loss(predictions, torch.where(outside, 0.0, targets)) and p.grad.isfinite().all()
    assert loss(torch.full_like(predictions, math.nan), targets).isnan()


@pytest.mark.parametrize("loss", LOSSES)
def test_predictions_of_zero_and_less_have_finite_gradients(loss):
    _, targets = maps(dtype=torch.float32)
    p = torch.zeros(3, 6, 8)
    p[0] = -1
    p.requires_grad_()
    loss(p, targets).backward()
    assert p.grad.isfinite().all()


@pytest.mark.parametrize("loss", LOSSES)
def test_gradcheck(loss):
    predictions, targets = maps(b=2, h=4, w=5)
    assert gradcheck(lambda p: loss(p, targets, some(targets)), predictions.requires_grad_())
    small = torch.rand(2, 2, 3, dtype=torch.float64) + 0.5
    assert gradcheck(lambda p: loss(p, targets), small.requires_grad_())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("loss", LOSSES)
def test_half_precision_is_computed_in_float32(loss, dtype):
    predictions, targets = maps(dtype=torch.float32)
    predictions = predictions.to(dtype)
    expected = loss(predictions.double(), targets.double())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = loss(predictions, targets)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize("form", [None, *FORMS])
def test_weights_of_pixels(form):
    """Weights of 1 are none, to the last bit; whole ones count a pixel so often, but for the form's n."""
    predictions, targets = maps()
    loss = masked_mse if form is None else lambda *own: silog(*own, form=form)
    mask, ones = some(targets), torch.ones_like(targets)
    assert torch.equal(loss(predictions, targets, mask, ones), loss(predictions, targets, mask))
    draw = torch.Generator().manual_seed(5)
    weight = torch.rand(targets.shape, generator=draw, dtype=targets.dtype)
    each = torch.tensor(differences(predictions, targets, 0.1 if form == "newcrfs" else 1e-3, mask, logs=form))
    counts = mask & targets.isfinite() & (targets > (0.1 if form == "newcrfs" else 1e-3))
    own = weight[counts]
    if form is None:
        expected = (own * each.square()).mean()
    else:
        own = own / own.mean()
        mean = (own * each).mean()
        below = len(each) - (form == "adabins")
        expected = 10 * ((own * (each - mean).square()).sum() / below + 0.15 * mean.square()).sqrt()
    found = loss(predictions, targets, mask, weight)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    assert gradcheck(lambda p: loss(p, targets, mask, weight), predictions.requires_grad_())
    nothing = loss(predictions, targets, mask, torch.zeros_like(weight))
    assert nothing == 0


def test_close_to_the_truth_no_digits_are_lost():
    targets = torch.full((1, 100, 100), 3.0)
    predictions = targets * (1 + 1e-4 * torch.randn(1, 100, 100, generator=torch.Generator().manual_seed(0)))
    expected = silog(predictions.double(), targets.double())
    assert silog(predictions, targets).item() == pytest.approx(expected.item(), rel=1e-3)


@pytest.mark.parametrize("loss", [masked_mse, silog])
@pytest.mark.parametrize(
    ("predictions", "targets", "mask", "error", "message"),
    [
        (torch.ones(2, 3, 3), torch.ones(1, 3, 3), None, ValueError, r"predictions of b=1 maps, got \(2, 3, 3\)"),
        (torch.ones(3, 3), torch.ones(1, 3, 3), None, ValueError, r"expected predictions \(b, h, w\)"),
        (torch.ones(1, 3, 3), torch.ones(1, 2, 3, 3), None, ValueError, r"expected targets \(b, h, w\)"),
        (torch.ones(1, 3, 3).long(), torch.ones(1, 3, 3), None, TypeError, "floating-point predictions, got torch.int"),
        (torch.ones(1, 3, 3), torch.ones(1, 3, 3), torch.ones(1, 3, 3), TypeError, "expected a boolean mask"),
        (
            torch.ones(1, 3, 3),
            torch.ones(1, 3, 3),
            torch.ones(1, 2, 3, dtype=torch.bool),
            ValueError,
            r"mask in the shape of the targets \(1, 3, 3\), got \(1, 2, 3\)",
        ),
    ],
)
def test_what_comes_in_is_checked(loss, predictions, targets, mask, error, message):
    with pytest.raises(error, match=message):
        loss(predictions, targets, mask)


def test_options_are_checked():
    ones = torch.ones(1, 2, 2)
    with pytest.raises(ValueError, match="expected a form like 'adabins', got 'adabin'"):
        silog(ones, ones, form="adabin")
    with pytest.raises(ValueError, match=r"expected a factor from 0 to 1, got 1\.5"):
        silog(ones, ones, factor=1.5)
