"""On a CUDA device: the same numbers, no host synchronisation, graphs and compiled code."""

import pytest
import torch

from ordinal_entropy import kernels
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
@pytest.mark.parametrize("t", [1, 2])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_same_numbers_as_on_the_cpu(kernel, t, options):
    parts = batch(t=t)
    expected = value_and_gradient(parts[0].double(), *parts[1:], **options)
    with kernels.use(kernel):
        value, gradient = value_and_gradient(*(p.cuda() for p in parts), **options)
    torch.testing.assert_close(value.cpu().double(), expected[0], rtol=1e-5, atol=1e-6)
    assert (gradient.cpu().double() - expected[1]).norm() / expected[1].norm() < 1e-4


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
@pytest.mark.parametrize("kernel", ["reference", "blocked", "fused"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_no_host_synchronisation(kernel, options):
    parts = [p.cuda() for p in batch()]
    with kernels.use(kernel):
        value_and_gradient(*parts, **options)
        try:
            torch.cuda.set_sync_debug_mode("error")
            value_and_gradient(*parts, **options)
        finally:
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("kernel", ["reference", "blocked", "fused"])
@pytest.mark.parametrize("options", [{}, {"grouping": "none"}, {"num_pairs": 50}], ids=str)
def test_forward_and_backward_in_a_cuda_graph(kernel, options):
    x, y, mask = (p.cuda() for p in batch())
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
        features, targets, mask_again = batch()
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
    from ordinal_entropy.kernels import triton as fused

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
    from ordinal_entropy.kernels import triton

    points, values, amount = problem(2, 40, 8)
    options = (1.0, "l2", True, "max", 1.0, False, True)
    torch.library.opcheck(triton.operator, (points.requires_grad_(), values, amount, *options))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_fused_takes_half_precision(dtype):
    from ordinal_entropy.kernels import triton

    points, values, amount = problem(1, 300, 40)
    options = (values, amount, 1.0, "l2", True, "max", 1.0)
    half = triton.means_and_gradient(points.to(dtype), *options, False, True)
    coarse = triton.means_and_gradient(points.to(dtype).float(), *options, True, True)
    fine = triton.means_and_gradient(points.to(dtype).float(), *options, False, True)
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
