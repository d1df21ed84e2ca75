"""Rows out of points and maps, against slicing by hand and torch's own nearest sampling."""

import pytest
import torch
import torch.nn.functional as F

from cases import every_pair
from ordinal_entropy.functional import diversity, ordinal_entropy, tightness
from ordinal_entropy.layouts import rows

import oracle


def maps(b=3, c=4, h=6, w=8, scale=1, t=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(b, c, h, w, generator=generator, dtype=torch.float64)
    targets = torch.randint(4, (b, t, h * scale, w * scale), generator=generator).double()
    return features, targets


def flat(features):
    return features.permute(0, 2, 3, 1).flatten(1, 2)  # (b, n, c)


def test_rows_of_a_batch():
    features, targets = torch.randn(5, 3), torch.arange(5)
    data = rows(features, targets)
    assert data.features.shape == (1, 5, 3)
    assert data.targets.shape == (1, 5, 1)
    assert data.targets.dtype == torch.float64  # whole numbers stay exact
    assert data.amount is None  # all count once


@pytest.mark.parametrize("shape", [(5,), (5, 1)])
def test_scalar_targets_in_both_shapes(shape):
    features, targets = torch.randn(5, 3), torch.arange(5.0)
    assert ordinal_entropy(features, targets.reshape(shape)) == ordinal_entropy(features, targets)


@pytest.mark.parametrize("per", ["batch", "image"])
@pytest.mark.parametrize("t", [None, 1, 2])
def test_points(per, t):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(3, 7, 4, generator=generator, dtype=torch.float64)
    targets = torch.randint(4, (3, 7) if t is None else (3, 7, t), generator=generator).double()
    mask = torch.rand(3, 7, generator=generator) > 0.2
    column = targets[..., None] if t is None else targets
    if per == "batch":
        groups = [(features[mask], column[mask])]
    else:
        groups = [(x[m], y[m]) for x, y, m in zip(features, column, mask, strict=True)]
    expected = oracle.mean_of_groups(groups)
    assert diversity(features, targets, mask, per=per).item() == pytest.approx(expected[0])
    assert tightness(features, targets, mask, per=per).item() == pytest.approx(expected[1])


@pytest.mark.parametrize("per", ["batch", "image"])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
@pytest.mark.parametrize(("scale", "t"), [(1, 1), (4, 1), (2, 2)])
def test_maps(per, stride, scale, t):
    features, targets = maps(scale=scale, t=t)
    mask = targets[:, :1] > 0
    size = (features.shape[2] // stride, features.shape[3] // stride)
    x, y, m = (flat(F.interpolate(z.double(), size=size, mode="nearest")) for z in (features, targets, mask))
    m = m[..., 0] > 0
    groups = [(x[m], y[m])] if per == "batch" else [(x[k][m[k]], y[k][m[k]]) for k in range(len(x))]
    expected = oracle.mean_of_groups(groups)
    assert diversity(features, targets, mask, stride=stride, per=per).item() == pytest.approx(expected[0])
    assert tightness(features, targets, mask, stride=stride, per=per).item() == pytest.approx(expected[1])


def test_maps_take_targets_without_a_channel_and_masks_of_their_own_size():
    features, targets = maps(scale=4)
    expected = ordinal_entropy(features, targets, targets > 0)
    small = F.interpolate((targets > 0).double(), size=features.shape[2:], mode="nearest") > 0
    torch.testing.assert_close(ordinal_entropy(features, targets[:, 0], small[:, 0]), expected)
    torch.testing.assert_close(ordinal_entropy(features, targets, sample_weight=(targets > 0).long()), expected)


def test_a_row_of_several_targets_counts_where_all_do():
    features, targets = torch.randn(6, 3, dtype=torch.float64), torch.randint(3, (6, 2)).double()
    each = torch.tensor([[1, 1], [1, 0], [1, 1], [0, 0], [1, 1], [1, 1]]).bool()
    torch.testing.assert_close(
        ordinal_entropy(features, targets, each), ordinal_entropy(features, targets, each.all(1))
    )


def test_images_without_a_pair_leave_the_mean_alone():
    features, targets = maps(b=2)
    empty = torch.zeros_like(targets, dtype=torch.bool)
    empty[0] = True
    alone = ordinal_entropy(features[:1], targets[:1])
    torch.testing.assert_close(ordinal_entropy(features, targets, empty, per="image"), alone)


def test_gradient_reaches_the_sampled_pixels_only():
    features, targets = maps()
    features.requires_grad_()
    ordinal_entropy(features, targets, stride=2, per="image").backward()
    touched = (features.grad != 0).any(1)
    assert touched[:, ::2, ::2].all()
    assert touched.sum() == touched[:, ::2, ::2].sum()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_maps_in_every_precision(dtype):
    features, targets = maps(scale=2)
    exact = features.to(dtype).double().requires_grad_()  # what the dtype can hold of them
    half = features.to(dtype).requires_grad_()
    for x in (exact, half):
        (1024 * ordinal_entropy(x, targets, targets > 0, stride=2, per="image")).backward()
    error = (half.grad.double() - exact.grad).norm() / exact.grad.norm()
    assert error < {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 1e-3}[dtype]


def test_channels_last_maps():
    features, targets = maps()
    torch.testing.assert_close(
        ordinal_entropy(features.to(memory_format=torch.channels_last), targets),
        ordinal_entropy(features, targets),
    )


@pytest.mark.parametrize("shape", [(0, 4, 6, 8), (3, 0, 4), (0, 4)])
def test_empty_batches_of_every_layout(shape):
    x = torch.zeros(shape, requires_grad=True)
    y = torch.zeros(shape[0], 6, 8) if len(shape) == 4 else torch.zeros(shape[:-1])
    loss = ordinal_entropy(x, y, per="image")
    loss.backward()
    assert loss == 0
    assert x.grad is not None


@pytest.mark.parametrize(
    ("features", "targets", "keywords", "message"),
    [
        ((2, 5, 3), (2, 4), {}, r"expected targets with n=5 rows x 2, got \(2, 4\)"),
        ((2, 5, 3), (10,), {}, r"expected targets with n=5 rows x 2, got \(10,\)"),
        ((2, 3, 4, 4), (3, 4, 4), {}, r"expected targets with b=2 maps, got \(3, 4, 4\)"),
        ((2, 3, 4, 4), (2, 16), {}, r"expected targets with b=2 maps, got \(2, 16\)"),
        ((2, 3, 4, 4), (2, 4, 4), {"stride": 5}, "stride of at most 4 for maps of 4 x 4, got 5"),
        ((2, 3, 4, 4, 4), (2, 4, 4), {}, r"expected features .*, got \(2, 3, 4, 4, 4\)"),
    ],
)
def test_shapes_that_do_not_fit(features, targets, keywords, message):
    with pytest.raises(ValueError, match=message):
        ordinal_entropy(torch.rand(features), torch.rand(targets), **keywords)


@every_pair(masked=[True, False], last=[True, False], dtype=[torch.float64, torch.bfloat16])
def test_picked_rows_have_the_gradient_of_slices(masked, last, dtype):
    """Values, gradient and its layout in memory; what the gradient's own gradient is; under vmap."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(2, 3, 8, 12, generator=generator, dtype=torch.float64).to(dtype)
    maps = maps.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    targets = torch.rand(2, 8, 12, generator=generator)
    mask = torch.rand(2, 8, 12, generator=generator) > 0.3 if masked else None

    def by_slices(x):
        picked = x.permute(0, 2, 3, 1)[:, ::4, ::4].flatten(1, 2)
        inside = mask[:, ::4, ::4].flatten(1) if masked else None
        return ordinal_entropy(picked, targets[:, ::4, ::4].flatten(1), inside, per="image")

    def by_stride(x):
        return ordinal_entropy(x, targets, mask, stride=4, per="image")

    x, y = maps.clone().requires_grad_(), maps.clone().requires_grad_()
    assert by_stride(x).item() == by_slices(y).item()
    (found,) = torch.autograd.grad(by_stride(x), x, create_graph=dtype == torch.float64)
    (expected,) = torch.autograd.grad(by_slices(y), y, create_graph=dtype == torch.float64)
    assert torch.equal(found, expected)
    assert found.stride() == maps.stride()
    if dtype == torch.float64:
        seconds = (torch.autograd.grad(first.square().sum(), of)[0] for first, of in ((found, x), (expected, y)))
        torch.testing.assert_close(*seconds)
        assert torch.autograd.gradcheck(by_stride, x)
        stack = torch.stack([maps, 2 * maps + 1])
        both = torch.func.vmap(torch.func.grad(by_stride))(stack)
        torch.testing.assert_close(both, torch.stack([torch.func.grad(by_stride)(one) for one in stack]))


@pytest.mark.parametrize("last", [True, False])
def test_what_lies_outside_the_mask_leaves_no_trace(last):
    """NaN of features and targets, inside a stride too."""
    maps, targets = torch.randn(2, 3, 8, 12), torch.rand(2, 8, 12)
    mask = torch.rand(2, 8, 12, generator=torch.Generator().manual_seed(0)) > 0.4
    maps = maps.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    answers = []
    for hidden in (0.0, torch.nan):
        x = torch.where(mask[:, None], maps, hidden).requires_grad_()
        loss = ordinal_entropy(x, torch.where(mask, targets, hidden), mask, stride=2, per="image")
        loss.backward()
        answers.append((loss.detach(), x.grad))
    torch.testing.assert_close(*answers, rtol=0, atol=0)
    assert (answers[1][1].movedim(1, 3)[~mask] == 0).all()
