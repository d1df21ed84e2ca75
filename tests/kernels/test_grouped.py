"""Grouping and tightness of the GPU without one, through Triton's interpreter: against the plain operations."""

import math
import sys

import pytest
import torch

from ordinal_entropy import OrdinalEntropy, functional, kernels
from ordinal_entropy.functional import ordinal_entropy

pytest.importorskip("triton", reason="the interpreter is Triton's")

from called import functions_of
from ordinal_entropy.kernels import grouped

pytestmark = [
    pytest.mark.usefixtures("interpreter"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="tests/test_gpu.py does it on the device"),
]


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """No look at values, as on a GPU: only then are the kernels taken."""
    rows = functional.rows
    monkeypatch.setattr(functional, "rows", lambda *a, **k: rows(*a, **k)._replace(eager=False))


def batch(n=70, d=9, t=1):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(n, d, generator=generator)
    features[3] = 0
    features[10] = features[11]
    targets = torch.randint(0, 8, (n, t), generator=generator).float()
    return features, targets, torch.rand(n, generator=generator) > 0.2


def value_and_gradient(features, *parts, **options):
    x = features.clone().requires_grad_()
    loss = ordinal_entropy(x, *parts, **options)
    loss.backward()
    return loss.item(), x.grad.double()


@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("grouping", ["unique", 2.5])
@pytest.mark.parametrize("normalize, distance", [(True, "l2"), (False, "l2"), (True, "cosine")])
@pytest.mark.parametrize("centers", ["normalize-first", "average-first"])
@pytest.mark.parametrize("over, power", [("all", 1), ("shared", 2)])
def test_the_same_as_plain_operations(t, grouping, normalize, distance, centers, over, power):
    features, *parts = batch(t=t)
    options = {"grouping": grouping, "normalize": normalize, "distance": distance, "centers": centers}
    options |= {"tightness_over": over, "tightness_power": power}
    with kernels.use("reference"):
        value, gradient = value_and_gradient(features.double(), *parts, **options)
    with kernels.use("fused"):
        found, of_found = value_and_gradient(features, *parts, **options)
    assert found == pytest.approx(value, rel=1e-5, abs=2e-6)
    assert (of_found - gradient).norm() / gradient.norm() < 2e-6


@pytest.mark.parametrize("options", [{}, {"centers": "average-first", "tightness_over": "shared"}], ids=str)
@pytest.mark.parametrize("rows_of_a_target", [1, 3])
def test_rows_that_all_count_are_those_of_a_full_mask(rows_of_a_target, options):
    """Without amounts: nothing is multiplied, and nothing is read of them."""
    features, _, mask = batch()
    targets = (torch.randperm(70, generator=torch.Generator().manual_seed(0)) // rows_of_a_target)[:, None].float()
    with kernels.use("fused"):
        expected, of_expected = value_and_gradient(features, targets, torch.ones_like(mask), **options)
        found, of_found = value_and_gradient(features, targets, **options)
    assert found == expected
    torch.testing.assert_close(of_found, of_expected)


def test_a_call_passes_through_few_functions():
    features, targets, _ = batch()
    features.requires_grad_()
    reg = OrdinalEntropy()
    with kernels.use("fused"):
        reg(features, targets)  # once before: what is known of a shape is kept
        seen = functions_of(lambda: reg(features, targets))
    own = {name for name in sys.modules if name.startswith("ordinal_entropy.kernels.")}
    interpreted = {name for module in own for name, x in vars(sys.modules[module]).items() if hasattr(x, "rewrite")}
    seen = {(file, name) for file, name in seen if name not in interpreted}
    assert {"terms", "places", "means_and_gradient"} <= {name for _, name in seen}
    assert len(seen) <= 15, sorted(seen)


@pytest.mark.parametrize("t", [1, 2])
def test_slots_in_the_order_of_the_targets(t):
    features, targets, mask = batch(t=t)
    amount = mask.float()[None]
    with kernels.use("fused"):
        assert kernels.choice.groups_fused(features[None], targets[None])
    found = grouped.places(targets[None], amount, 0.0)
    present = targets[mask]
    distinct = present.unique(dim=0)  # sorted
    used = len(distinct)
    assert torch.equal(found.values[0, :used], distinct)
    assert found.there[0].tolist() == [1.0] * used + [0.0] * (70 - used)
    assert torch.equal(found.values[0][found.slot[0][mask]], present)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("n", [1, 2, 31, 33, 128, 129, 300])
def test_places_are_those_of_a_loop(n, t, dtype):
    """Slots, shares, values and numbers of two groups, with repeated targets, amounts of 0 and zeros of both signs."""
    generator = torch.Generator().manual_seed(n)
    targets = torch.randint(-2, 3 + n // 20, (2, n, t), generator=generator).to(dtype)
    targets *= torch.where(torch.rand(2, n, t, generator=generator) < 0.5, -1.0, 1.0)
    amount = torch.randint(0, 3, (2, n), generator=generator) * torch.rand(2, n, generator=generator)
    targets[amount == 0] = torch.nan
    slot, share, values, there, used = grouped.places(targets, amount, 0.0)
    for g in range(2):
        distinct = sorted({tuple(y) for y in (targets[g][amount[g] > 0] + 0.0).tolist()})
        m = len(distinct)
        assert used[g] == m
        assert there[g].tolist() == [1.0] * m + [0.0] * (n - m)
        assert values[g, :m].tolist() == [list(y) for y in distinct]
        assert (values[g, m:] == 0).all()
        for i in range(n):
            if amount[g, i] == 0:
                assert (slot[g, i], share[g, i]) == (0, 0)
                continue
            same = (targets[g] == targets[g, i]).all(1) & (amount[g] > 0)
            assert tuple(targets[g, i].tolist()) == distinct[slot[g, i]]
            assert share[g, i].item() == pytest.approx((amount[g, i] / amount[g][same].sum()).item(), rel=1e-6)


def test_means_of_bins_beside_a_large_offset():
    """Seconds since 1970, in bins of a minute."""
    generator = torch.Generator().manual_seed(0)
    seconds = 1.6e9 + 1000 * torch.rand(1, 200, 1, generator=generator, dtype=torch.float64)
    amount = torch.rand(1, 200, generator=generator)
    slot, share, values, _, used = grouped.places(seconds, amount, 60.0)
    for s in range(int(used)):
        mine = slot[0] == s
        weights = amount[0, mine].double()
        expected = (seconds[0, mine, 0] * weights).sum() / weights.sum()
        assert abs(values[0, s, 0] - expected) < 1e-4
        assert share[0, mine].sum().item() == pytest.approx(1)


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
def test_targets_that_are_no_numbers_do_no_harm_to_others(value):
    """They are not looked at on a GPU; every row still has a place of its own."""
    _, targets, mask = batch()
    targets[[3, 9, 20, 41]] = value
    slot, _, values, _, used = grouped.places(targets[None], mask.float()[None], 0.0)
    assert ((slot >= 0) & (slot < used)).all()
    kept = mask & targets[:, 0].isfinite()
    assert torch.equal(values[0][slot[0][kept]], targets[kept])


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("rows", [1, 5, 70])
@pytest.mark.parametrize("strengths", [(1.0, 0.0), (0.0, 1.0)])
@pytest.mark.parametrize("options", [{}, {"centers": "average-first"}, {"normalize": False}], ids=str)
def test_a_feature_that_is_not_finite_is_not_hidden(value, rows, strengths, options):
    features, targets, _ = batch()
    features[0, 4] = value
    targets = targets if rows == 70 else torch.ones(70, 1)  # few: of one target, without a pair
    push, pull = strengths
    with kernels.use("fused"):
        assert ordinal_entropy(
            features[:rows], targets[:rows], diversity_weight=push, tightness_weight=pull, **options
        ).isnan()


def test_images_do_not_mix():
    generator = torch.Generator().manual_seed(0)
    maps, targets = torch.randn(3, 4, 5, 6, generator=generator), torch.randint(0, 4, (3, 5, 6), generator=generator)
    with kernels.use("reference"):
        value, gradient = value_and_gradient(maps.double(), targets, per="image")
    with kernels.use("fused"):
        found, of_found = value_and_gradient(maps, targets, per="image")
    assert found == pytest.approx(value, rel=1e-5)
    assert (of_found - gradient).norm() / gradient.norm() < 2e-6


def dense(dtype=torch.float32, last=True, t=1, weighted=False):
    """Maps of four images: the third has no valid place, the fourth one; what is not valid is NaN."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(4, 7, 12, 16, generator=generator).to(dtype)
    targets = torch.randint(0, 6, (4, t, 24, 32), generator=generator).float()
    mask = torch.rand(4, 24, 32, generator=generator) > 0.25
    mask[2:] = False
    mask[3, 8, 16] = True
    hidden = ~mask[:, ::2, ::2]
    maps.movedim(1, 3)[hidden] = torch.nan
    targets.movedim(1, 3)[~mask] = torch.nan
    parts = [targets, mask]
    if weighted:
        parts.append(torch.randint(0, 3, (4, 24, 32), generator=generator) + 0.5)
    return maps.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format), *parts


def loss_and_gradients(maps, targets, mask, weight=None, strengths=(0.7, 1.3), tensors=False, **options):
    """Of the loss in both terms; where the strengths are tensors, also by them."""
    x = maps.clone().requires_grad_()
    push, pull = strengths
    if tensors:
        wide = torch.promote_types(x.dtype, torch.float32)
        push, pull = (torch.tensor(strength, dtype=wide, requires_grad=True) for strength in strengths)
    weight = None if weight is None else weight.to(x.dtype)
    options |= {"diversity_weight": push, "tightness_weight": pull, "sample_weight": weight}
    loss = ordinal_entropy(x, targets, mask, **options)
    (1024 * loss).backward()  # so that half precision can hold the gradient
    return loss.item(), x.grad, *([push.grad.item(), pull.grad.item()] if tensors else [])


OPTIONS = [
    {},
    {"distance": "cosine", "tightness_over": "shared"},
    {"centers": "average-first", "tightness_power": 2, "rescale": "authors"},
    {"normalize": False, "tightness_over": "shared", "grouping": 2.5},
    {"distance": "cosine", "tightness_power": 2, "centers": "average-first"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize(
    "dtype, last, weighted, tensors",
    [
        (torch.float32, True, False, False),
        (torch.float32, False, True, True),
        (torch.bfloat16, True, True, False),
        (torch.float16, True, False, True),
    ],
)
def test_dense_maps(dtype, last, weighted, tensors, options):
    maps, *parts = dense(dtype, last, weighted=weighted)
    options = {"stride": 4, "per": "image", "tensors": tensors} | options
    with kernels.use("reference"):
        value, gradient, *by_strengths = loss_and_gradients(maps.double(), *parts, **options)
    with kernels.use("fused"):
        found, of_found, *by_found = loss_and_gradients(maps, *parts, **options)
    bound = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}[dtype]
    close = 2e-6 if dtype == torch.float32 else 5e-4  # of half precision one product is taken; the terms are about 1
    assert found == pytest.approx(value, rel=1e-5, abs=close)
    assert by_found == pytest.approx(by_strengths, rel=max(1e-5, close))
    assert of_found.dtype == dtype
    assert of_found.stride() == maps.stride()
    assert of_found.isfinite().all()
    assert (of_found.double() - gradient).norm() / gradient.norm() < bound
    assert (of_found.movedim(1, 3)[~parts[1][:, ::2, ::2]] == 0).all()
    assert (of_found[2:] == 0).all()


@pytest.mark.parametrize("t", [1, 3])
def test_all_images_without_a_valid_place(t):
    maps, targets, mask = dense(t=t)
    with kernels.use("fused"):
        value, gradient = loss_and_gradients(maps, targets, mask & False, stride=4, per="image")
    assert value == 0
    assert (gradient == 0).all()


@pytest.mark.parametrize("per", ["image", "batch"])
@pytest.mark.parametrize("strengths", [(1.0, 0.0), (0.0, 1.0), (-2.0, 0.5)])
@pytest.mark.parametrize(
    "options",
    [{}, {"weighting": lambda a, b: (a - b.mT).abs() + 0.1}, {"num_pairs": 20}, {"max_samples": 8}],
    ids=["all pairs", "own weights", "drawn pairs", "drawn rows"],
)
def test_terms_alone_and_other_pairs(options, strengths, per):
    """With weights of one's own, drawn pairs and drawn rows the pairs are not the fused kernel's; the rest is."""
    maps, *parts = dense()
    answers = []
    for kernel, x in (("reference", maps.double()), ("fused", maps)):
        draw = {"generator": torch.Generator().manual_seed(1)}
        with kernels.use(kernel):
            answers.append(loss_and_gradients(x, *parts, stride=4, per=per, strengths=strengths, **draw, **options))
    (value, gradient), (found, of_found) = answers
    assert found == pytest.approx(value, rel=1e-5, abs=2e-6)
    assert (of_found.double() - gradient).norm() / gradient.norm() < 2e-6


@pytest.mark.parametrize("tensors", [True, False])
def test_backward_twice(tensors):
    features, targets, mask = batch()
    x = features.requires_grad_()
    strength = torch.tensor(2.0, requires_grad=True) if tensors else 2.0
    inputs = [x, strength] if tensors else [x]
    with kernels.use("fused"):
        loss = ordinal_entropy(x, targets, mask, diversity_weight=strength)
        first = torch.autograd.grad(loss, inputs, retain_graph=True)
        second = torch.autograd.grad(3 * loss, inputs)
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(3 * a, b)


def test_without_a_gradient_none_is_computed():
    features, targets, mask = batch()
    with kernels.use("fused"):
        expected = ordinal_entropy(features.clone().requires_grad_(), targets, mask)
        with torch.no_grad():
            found = ordinal_entropy(features.requires_grad_(), targets, mask)
    assert not found.requires_grad
    assert torch.equal(found, expected)


def test_the_loss_may_be_changed_in_place():
    features, targets, mask = batch()
    for strengths in ((1.0, 0.0), (0.0, 1.0)):
        x = features.clone().requires_grad_()
        with kernels.use("fused"):
            push, pull = strengths
            loss = ordinal_entropy(x, targets, mask, diversity_weight=push, tightness_weight=pull)
            expected = torch.autograd.grad(loss, x, retain_graph=True)[0]
            loss *= 2
            torch.testing.assert_close(torch.autograd.grad(loss, x)[0], 2 * expected)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("mask", [True, False])
def test_little_to_group(n, mask):
    features, targets, _ = batch(n=20)
    with kernels.use("fused"):
        value, gradient = value_and_gradient(features[:n], targets[:n], torch.full((n,), mask))
    assert math.isfinite(value)
    assert gradient.isfinite().all()


def test_a_second_derivative_says_what_to_do():
    features, targets, mask = batch()
    x = features.requires_grad_()
    with kernels.use("fused"):
        loss = ordinal_entropy(x, targets, mask)
        with pytest.raises(RuntimeError, match=r"needs ordinal_entropy.kernels.use\('reference'\)"):
            torch.autograd.grad(loss, x, create_graph=True)
