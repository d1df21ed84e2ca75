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
