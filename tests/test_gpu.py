"""On a CUDA device: the same numbers, no host synchronisation, graphs and compiled code."""

import pytest
import torch

from called import functions_of
from ordinal_entropy import OrdinalEntropy, kernels
from ordinal_entropy.functional import ordinal_entropy

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

OPTIONS = [
    {},
    {"grouping": "none"},
    {"grouping": 2.5, "weighting": "sqrt"},
    {"distance": "cosine", "weighting": "squared"},
    {"rescale": "authors", "centers": "average-first", "tightness_over": "shared"},
]


def batch(n=300, d=16, t=1, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(n, d, generator=generator, dtype=torch.float64).to(dtype)
    targets = torch.randint(40, (n, t), generator=generator).to(dtype)
    return features, targets, torch.rand(n, generator=generator) > 0.2


def value_and_gradient(features, targets, mask, **options):
    x = features.detach().clone().requires_grad_()
    loss = ordinal_entropy(x, targets, mask, **options)
    loss.backward()
    return loss.detach(), x.grad


@pytest.mark.parametrize("kernel", ["reference", "blocked", "fused"])
@pytest.mark.parametrize("n", [100, 300])  # few rows have a fused kernel of their own
@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_same_numbers_as_on_the_cpu(kernel, n, t, options):
    parts = batch(n, t=t)
    expected = value_and_gradient(parts[0].double(), *parts[1:], **options)
    with kernels.use(kernel):
        value, gradient = value_and_gradient(*(p.cuda() for p in parts), **options)
    torch.testing.assert_close(value.cpu().double(), expected[0], rtol=1e-5, atol=1e-6)
    assert (gradient.cpu().double() - expected[1]).norm() / expected[1].norm() < 1e-4


@pytest.mark.parametrize("d", [1, 30, 100, 256])
def test_few_rows_of_any_width(d):
    features, targets, _ = batch(100, d)
    expected = value_and_gradient(features.double(), targets, None, grouping="none")
    value, gradient = value_and_gradient(features.cuda(), targets.cuda(), None, grouping="none")
    torch.testing.assert_close(value.cpu().double(), expected[0], rtol=1e-6, atol=1e-9)
    assert (gradient.cpu().double() - expected[1]).norm() <= 1e-6 * expected[1].norm() + 1e-9


def test_gradient_at_features_that_are_a_view():
    features, targets, _ = (p.cuda() for p in batch(100))
    whole = features.requires_grad_()
    for view in (whole, whole.view(100, 16), whole[:], whole.t().contiguous().t()):
        loss = ordinal_entropy(view, targets, grouping="none")
        assert torch.autograd.grad(loss, view)[0].shape == view.shape


@pytest.mark.parametrize("kernel", ["reference", "blocked", "fused"])
@pytest.mark.parametrize("n", [100, 300])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_no_host_synchronisation(kernel, n, options):
    parts = [p.cuda() for p in batch(n)]
    with kernels.use(kernel):
        value_and_gradient(*parts, **options)
        try:
            torch.cuda.set_sync_debug_mode("error")
            value_and_gradient(*parts, **options)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("kernel", ["reference", "blocked", "fused"])
@pytest.mark.parametrize("n", [100, 300])
@pytest.mark.parametrize("options", [{}, {"grouping": "none"}, {"num_pairs": 50}], ids=str)
def test_forward_and_backward_in_a_cuda_graph(kernel, n, options):
    x, y, mask = (p.cuda() for p in batch(n))
    x.requires_grad_()

    def step():
        loss = ordinal_entropy(x, y, mask, **options)
        return loss, torch.autograd.grad(loss, x)[0]

    with kernels.use(kernel):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            loss, gradient = step()
        features, targets, mask_again = batch(n)
        with torch.no_grad():
            x.copy_(features.flip(0))
        y.copy_(targets.flip(0))
        mask.copy_(mask_again.flip(0))
        graph.replay()
    if "num_pairs" not in options:
        expected = value_and_gradient(features.flip(0), targets.flip(0), mask_again.flip(0), **options)
        torch.testing.assert_close(loss.cpu(), expected[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(gradient.cpu(), expected[1], rtol=1e-3, atol=1e-6)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("kernel", ["reference", "blocked", "fused"])
def test_compiled_by_inductor(kernel):
    parts = [p.cuda() for p in batch()]
    x = parts[0].clone().requires_grad_()
    with kernels.use(kernel):
        expected = value_and_gradient(*parts)
        torch.compiler.reset()
        loss = torch.compile(ordinal_entropy, fullgraph=True)(x, *parts[1:])
        loss.backward()
    torch.testing.assert_close(loss.detach(), expected[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(x.grad, expected[1], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_and_autocast(dtype):
    features, targets, mask = (p.cuda() for p in batch())
    expected = ordinal_entropy(features, targets, mask)
    with torch.autocast("cuda", dtype=dtype):
        torch.testing.assert_close(ordinal_entropy(features, targets, mask), expected, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ordinal_entropy(features.to(dtype), targets, mask), expected, rtol=2e-2, atol=1e-3)


def test_values_are_checked_only_when_asked():
    features, targets, _ = (p.cuda() for p in batch())
    targets[3] = torch.nan
    ordinal_entropy(features, targets)
    with pytest.raises(ValueError, match="got 1 rows"):
        ordinal_entropy(features, targets, check=True)


# --------------------------------------------------------------------------------------------------- the fused kernels


def pair_mean(points, values, amount=None, **options):
    """Value and gradient of the mean over pairs under the kernel in force."""
    x = points.detach().clone().requires_grad_()
    amount = torch.ones(points.shape[:2], device=points.device) if amount is None else amount
    chosen = {"weighting": "l2", "distance": "l2", "project": True, "rescale": "max"} | options
    mean = kernels.pair_mean(x, values, amount.to(x.dtype), num_pairs=None, generator=None, eager=False, **chosen)
    mean.backward()
    return mean.detach().double(), x.grad.double()


def errors(points, values, amount=None, **options):
    with kernels.use("reference"):
        exact = pair_mean(points.double(), values.double(), amount, **options)
    with kernels.use("fused"):
        found = pair_mean(points, values, amount, **options)
    return [float((a - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)]


def problem(g, m, d, t=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (g, m, d), (g, m, t)
    points, values = (torch.randn(shape, generator=generator).cuda() for shape in shapes)
    return points, values, torch.randint(0, 3, (g, m), generator=generator).cuda().float()


@pytest.mark.parametrize("m, d", [(3, 2), (5, 3), (63, 64), (65, 130), (129, 20), (513, 65), (1000, 129), (2500, 40)])
@pytest.mark.parametrize("g, t", [(1, 1), (3, 2)])
def test_fused_sizes(g, t, m, d):
    points, values, amount = problem(g, m, d, t)
    value, gradient = errors(points, values, amount + 1)
    assert value < 1e-6
    assert gradient < 1e-5


@pytest.mark.parametrize("weighting", ["l2", "squared", "sqrt", "none"])
@pytest.mark.parametrize("distance, project", [("l2", True), ("l2", False), ("cosine", True)])
@pytest.mark.parametrize("rescale", ["max", "authors", "none"])
def test_fused_options(weighting, distance, project, rescale):
    points, values, amount = problem(2, 300, 40)
    points[0, 3] = 0
    options = {"weighting": weighting, "distance": distance, "project": project, "rescale": rescale}
    assert max(errors(points, values, amount, **options)) < 1e-5


@pytest.mark.parametrize("precision, bound", [("highest", 1e-6), ("high", 5e-5)])
@pytest.mark.parametrize("places", [1, 2, 5])
@pytest.mark.parametrize("spread", [1e-2, 1e-3, 1e-4])
def test_fused_on_collapsed_features(places, spread, precision, bound):
    """No worse than exact float32 differences, which are off by about 3e-8 / spread; the module says why."""
    points, values, _ = problem(1, 1000, 64)
    middle = torch.nn.functional.normalize(torch.randn(places, 64, generator=torch.Generator().manual_seed(1)), dim=1)
    points = middle.cuda()[torch.arange(1000) % places] + spread * points / 8
    try:
        torch.set_float32_matmul_precision(precision)
        value, gradient = errors(points, values)
    finally:
        torch.set_float32_matmul_precision("highest")
    assert value < 1e-5
    assert gradient < bound


@pytest.mark.parametrize("bits", [True, False])
@pytest.mark.parametrize("m, d", [(100, 100), (400, 40), (1500, 200)])
@pytest.mark.parametrize("copies", [2, 20, 60])
def test_fused_with_few_close_pairs(m, d, copies, bits, monkeypatch):
    """Neighbours of one row at 1e-2 to 1e-6, in all tiles."""
    from ordinal_entropy.kernels import fused

    if not bits:
        monkeypatch.setattr(fused, "BITS", 0)
    fused._program.cache_clear()
    points, values, _ = problem(2, m, d)
    rows = torch.randperm(m, generator=torch.Generator().manual_seed(1))[:copies].cuda()
    noise = torch.randn(2, copies, d, generator=torch.Generator().manual_seed(2)).cuda()
    points[:, rows] = points[:, rows[:1]] + noise * 0.1 ** (2 + torch.arange(copies).cuda() % 5)[:, None]
    value, gradient = errors(points, values)
    fused._program.cache_clear()
    assert value < 1e-6
    assert gradient < 1e-5


def test_fused_twice_gives_the_same_bits():
    points, values, amount = problem(2, 1500, 64)
    points[:, 7::50] = points[:, :1] + 1e-3 * points[:, 7::50]  # close pairs too
    with kernels.use("fused"):
        first, second = (pair_mean(points, values, amount) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_fused_memory():
    m, d = 8192, 256
    points, values, _ = problem(1, m, d)
    with kernels.use("fused"):
        pair_mean(points, values)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        x = points.requires_grad_()
        ordinal_entropy(x[0], values[0], grouping="none").backward()
    assert torch.cuda.max_memory_allocated() - before <= 3 * m * d * 4 + 2**26


def test_fused_operator_is_registered_as_torch_wants_it():
    from ordinal_entropy.kernels import fused

    points, values, amount = problem(2, 40, 8)
    options = (1.0, "l2", True, "max", 1.0, False, True)
    torch.library.opcheck(fused.operator, (points.requires_grad_(), values, amount, *options))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fused_takes_half_precision(dtype):
    from ordinal_entropy.kernels import fused

    points, values, amount = problem(1, 300, 40)
    options = (values, amount, 1.0, "l2", True, "max", 1.0)
    half = fused.means_and_gradient(points.to(dtype), *options, False, True)
    coarse = fused.means_and_gradient(points.to(dtype).float(), *options, True, True)
    fine = fused.means_and_gradient(points.to(dtype).float(), *options, False, True)
    for a, b, c in zip(half, coarse, fine, strict=True):
        assert torch.equal(a, b)
        assert (a - c).norm() < 1e-3 * c.norm()


def test_fused_vmap_is_a_loop():
    points, values, _ = problem(4, 200, 16)

    def loss(x, y):
        return ordinal_entropy(x, y, grouping="none")

    with kernels.use("fused"):
        gradient = torch.func.vmap(torch.func.grad(loss))(points, values)
        for k in range(4):
            torch.testing.assert_close(gradient[k], torch.func.grad(loss)(points[k], values[k]), rtol=1e-4, atol=1e-8)


def test_second_derivatives():
    points, values, _ = problem(1, 30, 4)
    x = points[0].requires_grad_()

    def second(**options):
        first = torch.autograd.grad(ordinal_entropy(x, values[0], **options), x, create_graph=True)[0]
        return torch.autograd.grad(first.square().sum(), x)[0]

    with kernels.use("reference"):
        expected = second(grouping="none"), second()
    torch.testing.assert_close(second(grouping="none"), expected[0], rtol=1e-3, atol=1e-7)
    with pytest.raises(RuntimeError, match=r"needs ordinal_entropy.kernels.use\('reference'\)"):
        second()


@pytest.mark.parametrize("rows", [100, 1000])
def test_a_call_passes_through_few_functions(rows):
    features = torch.randn(rows, 100, device="cuda", requires_grad=True)
    targets, reg = torch.arange(rows, device="cuda").float() // 2, OrdinalEntropy()
    for _ in range(2):  # what is known of a shape is kept, and what was compiled
        reg(features, targets)
    seen = functions_of(lambda: reg(features, targets))
    assert len(seen) <= 15, sorted(seen)


@pytest.mark.parametrize("per", ["batch", "image"])
@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_fused_grouping_of_maps(options, t, per):
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(3, 8, 12, 10, generator=generator)
    targets = torch.randint(0, 20, (3, t, 24, 20), generator=generator).float()
    mask = torch.rand(3, 24, 20, generator=generator) > 0.3
    expected = value_and_gradient(maps.double(), targets, mask, per=per, stride=2, **options)
    value, gradient = value_and_gradient(maps.cuda(), targets.cuda(), mask.cuda(), per=per, stride=2, **options)
    torch.testing.assert_close(value.cpu().double(), expected[0], rtol=1e-5, atol=1e-6)
    assert (gradient.cpu().double() - expected[1]).norm() / expected[1].norm() < 1e-5


# ----------------------------------------------------------------------------------------------------------- dense maps


DENSE = [
    {},
    {"distance": "cosine", "tightness_over": "shared"},
    {"centers": "average-first", "tightness_power": 2, "rescale": "authors"},
    {"normalize": False, "tightness_over": "shared", "grouping": 2.5},
]


def dense(dtype=torch.float32, last=True, t=1, weighted=False):
    """Maps of four images: the third has no valid place, the fourth one; what is not valid is NaN."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(4, 24, 32, 40, generator=generator).to(dtype)
    targets = torch.randint(0, 30, (4, t, 64, 80), generator=generator).float()
    mask = torch.rand(4, 64, 80, generator=generator) > 0.25
    mask[2:] = False
    mask[3, 8, 16] = True
    maps.movedim(1, 3)[~mask[:, ::2, ::2]] = torch.nan
    targets.movedim(1, 3)[~mask] = torch.nan
    parts = [targets, mask]
    if weighted:
        parts.append(torch.randint(0, 3, (4, 64, 80), generator=generator) + 0.5)
    return maps.contiguous(memory_format=torch.channels_last if last else torch.contiguous_format), *parts


def dense_step(maps, targets, mask, weight=None, tensors=False, **options):
    """Loss and its gradient; where the strengths are tensors, also by them."""
    x = maps.detach().clone().requires_grad_()
    push, pull = 0.7, 1.3
    if tensors:
        wide = {"dtype": torch.promote_types(x.dtype, torch.float32), "device": x.device}
        push, pull = (torch.tensor(strength, requires_grad=True, **wide) for strength in (push, pull))
    options |= {"diversity_weight": push, "tightness_weight": pull, "sample_weight": weight}
    loss = ordinal_entropy(x, targets, mask, **options)
    (1024 * loss).backward()  # so that half precision can hold the gradient
    return loss.detach(), x.grad, *([push.grad, pull.grad] if tensors else [])


@pytest.mark.parametrize("options", DENSE, ids=str)
@pytest.mark.parametrize("per", ["image", "batch"])
@pytest.mark.parametrize(
    "dtype, last, weighted, tensors, stride",
    [
        (torch.float32, True, False, False, 2),
        (torch.float32, False, True, True, 4),
        (torch.bfloat16, True, True, False, 4),
        (torch.float16, True, False, True, 2),
        (torch.bfloat16, False, False, False, 1),
    ],
)
def test_dense_maps(dtype, last, weighted, tensors, stride, per, options):
    maps, *parts = dense(dtype, last, weighted=weighted)
    options = {"stride": stride, "per": per, "tensors": tensors} | options
    value, gradient, *by_strengths = dense_step(maps.double(), *parts, **options)
    found, of_found, *by_found = dense_step(maps.cuda(), *(part.cuda() for part in parts), **options)
    bound = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 1e-3}[dtype]
    close = {"rtol": 1e-5, "atol": 2e-6} if dtype == torch.float32 else {"rtol": 5e-4, "atol": 5e-4}
    torch.testing.assert_close(found.cpu().double(), value, **close)
    for a, b in zip(by_found, by_strengths, strict=True):
        torch.testing.assert_close(a.cpu().double(), b, rtol=close["rtol"], atol=1024 * close["atol"])
    of_found = of_found.cpu()
    assert of_found.stride() == maps.stride()
    assert of_found.isfinite().all()
    assert (of_found.double() - gradient).norm() / gradient.norm() < bound
    assert (of_found.movedim(1, 3)[~parts[1][:, ::2, ::2]] == 0).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("c", [1, 24, 128, 700])
@pytest.mark.parametrize("masked", [True, False])
def test_picked_and_spread_are_those_of_slices(c, masked, dtype):
    from ordinal_entropy.kernels import maps as fused

    maps = torch.randn(3, c, 24, 36, device="cuda").to(dtype).contiguous(memory_format=torch.channels_last)
    amount = torch.randint(0, 3, (3, 6, 9), device="cuda").float()
    kept = (amount != 0)[..., None] | (not masked)
    amount = amount if masked else None
    picked = fused.picked(maps, amount, 4, 4, torch.float32)
    assert torch.equal(picked, torch.where(kept, maps.permute(0, 2, 3, 1)[:, ::4, ::4].float(), 0))
    by_picked = torch.where(kept, torch.randn_like(picked), torch.nan)
    expected = torch.zeros(3, 24, 36, c, device="cuda", dtype=dtype)
    expected[:, ::4, ::4] = torch.where(kept, by_picked, 0).to(dtype)
    assert torch.equal(fused.spread(by_picked, amount, 24, 36, dtype), expected.permute(0, 3, 1, 2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("width", [0.0, 2.5])
@pytest.mark.parametrize("g, n, t", [(1, 1, 1), (3, 33, 2), (2, 300, 1), (2, 3536, 1), (1, 5000, 3), (1, 8192, 1)])
def test_places_of_rows(g, n, t, width, dtype):
    """As plain operations group them."""
    from ordinal_entropy.centers import group
    from ordinal_entropy.kernels import grouped

    generator = torch.Generator().manual_seed(n)
    targets = torch.randint(-20, n // 2 + 1, (g, n, t), generator=generator).to(dtype) / 4
    amount = torch.randint(0, 3, (g, n), generator=generator).float()
    slot, share, values, there, used = (x.cpu() for x in grouped.places(targets.cuda(), amount.cuda(), width))
    features = torch.ones(g, n, 1, dtype=torch.float64)
    expected = group(features, targets, amount, grouping=width or "unique", unit=False, eager=False)
    kept = amount > 0
    assert torch.equal(used, expected.amount.sum(1))
    for k in range(g):
        m = int(used[k])
        assert torch.equal(there[k], (torch.arange(n) < m).float())
        assert (values[k, m:] == 0).all()
        mine = slot[k][kept[k]]
        assert mine.numel() == 0 or torch.equal(mine.unique(), torch.arange(m))
        if t == 1:  # otherwise the plain operations take another order
            assert torch.equal(mine, expected.slot[k][kept[k]])
        of_rows = expected.values[k][expected.slot[k]][kept[k]]
        torch.testing.assert_close(values[k][mine], of_rows, rtol=1e-6, atol=1e-6)
        sums = torch.zeros(n).index_add(0, slot[k], share[k])
        torch.testing.assert_close(sums, there[k], rtol=1e-5, atol=1e-6)
    assert (share[~kept] == 0).all()


@pytest.mark.parametrize("options", DENSE, ids=str)
def test_no_host_synchronisation_on_dense_maps(options):
    maps, targets, mask = (part.cuda() for part in dense(torch.bfloat16))
    options = {"stride": 4, "per": "image"} | options
    dense_step(maps, targets, mask, **options)
    try:
        torch.cuda.set_sync_debug_mode("error")
        dense_step(maps, targets, mask, **options)
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("last", [True, False])
def test_dense_step_in_a_cuda_graph(last):
    """A head and the regularizer on the same maps; replayed on other maps, targets and masks."""
    maps, targets, mask = (part.cuda() for part in dense(torch.bfloat16, last))
    maps = maps.nan_to_num()
    x, head = maps.clone(), torch.randn(24, device="cuda", dtype=torch.bfloat16)

    def step():
        own = x.detach().requires_grad_()  # a leaf of this stream
        task = (own * head[:, None, None]).float().square().mean()
        loss = task + ordinal_entropy(own, targets, mask, stride=4, per="image")
        return loss, torch.autograd.grad(1024 * loss, own)[0]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss, gradient = step()
    with torch.no_grad():
        x.copy_(maps.flip(0))
        targets.copy_(targets.flip(0))
        mask.copy_(mask.flip(0))
    for _ in range(2):
        graph.replay()
        expected = step()
        torch.testing.assert_close(loss, expected[0], rtol=1e-5, atol=1e-6)
        assert (gradient.double() - expected[1].double()).norm() < 1e-3 * expected[1].double().norm()


def test_dense_backward_twice():
    maps, targets, mask = (part.cuda() for part in dense())
    x, strength = maps.requires_grad_(), torch.tensor(2.0, device="cuda", requires_grad=True)
    loss = ordinal_entropy(x, targets, mask, stride=2, per="image", tightness_weight=strength)
    first = torch.autograd.grad(loss, [x, strength], retain_graph=True)
    second = torch.autograd.grad(3 * loss, [x, strength])
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(3 * a, b)


def test_dense_maps_compiled_and_transformed():
    maps, targets, mask = (part.cuda() for part in dense())

    def loss(x):
        return ordinal_entropy(x, targets, mask, stride=4, per="image")

    expected = value_and_gradient(maps, targets, mask, stride=4, per="image")
    x = maps.clone().requires_grad_()
    torch.compiler.reset()
    compiled = torch.compile(loss, fullgraph=True)(x)
    compiled.backward()
    for value, gradient in ((compiled.detach(), x.grad), (loss(maps), torch.func.grad(loss)(maps))):
        torch.testing.assert_close(value, expected[0], rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(gradient, expected[1], rtol=1e-3, atol=1e-7)


def test_a_dense_step_takes_few_launches():
    maps, targets, mask = (part.cuda() for part in dense(torch.bfloat16))
    x = maps.requires_grad_()

    def step():
        return torch.autograd.grad(ordinal_entropy(x, targets, mask, stride=4, per="image"), x)

    step()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        step()
        torch.cuda.synchronize()
    names = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    assert names
    assert len(names) <= 22, names


def test_a_balance_and_a_memory_go_where_the_features_are():
    """The module was never moved; after the first step nothing waits for the device."""
    reg = OrdinalEntropy(balance=0.1, memory=64)
    features, targets, _ = (each.cuda() for each in batch(100))
    features.requires_grad_()
    reg(features, targets, task_loss=features.square().mean())
    assert all(each.is_cuda for each in reg.buffers())
    try:
        torch.cuda.set_sync_debug_mode("error")
        reg(features, targets, task_loss=features.square().mean()).backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(strength > 0 for strength in reg.strengths)


def test_on_a_gpu_too_rows_that_are_not_finite_are_not_remembered():
    reg = OrdinalEntropy(memory=8)
    features, targets, _ = (each.cuda() for each in batch(6))
    features[2, 1] = torch.inf
    reg(features, targets)
    assert all(each.isfinite().all() for each in reg.buffers()) and reg.memory.amount.sum() == 5
