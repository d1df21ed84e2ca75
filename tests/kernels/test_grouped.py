"""Grouping and tightness of the GPU without one, through Triton's interpreter: against the plain operations."""

import math

import pytest
import torch

from ordinal_entropy import functional, kernels
from ordinal_entropy.centers import group
from ordinal_entropy.functional import ordinal_entropy

pytest.importorskip("triton", reason="the interpreter is Triton's")

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


@pytest.mark.parametrize("t", [1, 2])
def test_slots_in_the_order_of_the_targets(t):
    features, targets, mask = batch(t=t)
    amount = mask.float()[None]
    with kernels.use("fused"):
        found = group(features[None], targets[None], amount, grouping="unique", unit=True, eager=False)
    present = targets[mask]
    distinct = present.unique(dim=0)  # sorted
    used = len(distinct)
    assert found.fused
    assert torch.equal(found.values[0, :used], distinct)
    assert found.amount[0].tolist() == [1.0] * used + [0.0] * (70 - used)
    assert torch.equal(found.values[0][found.slot[0][mask]], present)


def test_images_do_not_mix():
    generator = torch.Generator().manual_seed(0)
    maps, targets = torch.randn(3, 4, 5, 6, generator=generator), torch.randint(0, 4, (3, 5, 6), generator=generator)
    with kernels.use("reference"):
        value, gradient = value_and_gradient(maps.double(), targets, per="image")
    with kernels.use("fused"):
        found, of_found = value_and_gradient(maps, targets, per="image")
    assert found == pytest.approx(value, rel=1e-5)
    assert (of_found - gradient).norm() / gradient.norm() < 2e-6


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
