"""Places picked out of maps as on a GPU, through Triton's interpreter: against slices."""

import pytest
import torch

from cases import every_pair
from ordinal_entropy import kernels
from ordinal_entropy.layouts import _Picked

pytest.importorskip("triton", reason="the interpreter is Triton's")

from ordinal_entropy.kernels import maps as fused

pytestmark = [
    pytest.mark.usefixtures("interpreter"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="tests/test_gpu.py does it on the device"),
]


def problem(dtype, c=5, h=8, w=12, grid=(2, 3)):
    """Maps, channels last, and amounts of which some are 0; there the maps are NaN."""
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(2, c, h, w, generator=generator).to(dtype)
    amount = torch.randint(0, 3, (2, *grid), generator=generator).to(torch.promote_types(dtype, torch.float32))
    absent = (amount == 0)[:, None].expand(2, c, *grid)
    picked = maps[:, :, :: h // grid[0], :: w // grid[1]]
    picked[absent] = torch.nan
    return maps.contiguous(memory_format=torch.channels_last), amount


def by_slices(maps, amount, down, across, dtype):
    picked = maps.permute(0, 2, 3, 1)[:, ::down, ::across].to(dtype)
    return picked if amount is None else torch.where((amount != 0)[..., None], picked, 0)


@every_pair(
    size=[(5, 8, 12, (2, 3)), (128, 6, 70, (3, 35)), (600, 4, 2, (2, 1)), (1, 3, 3, (1, 1))],
    masked=[True, False],
    dtype=[torch.bfloat16, torch.float16, torch.float32, torch.float64],
)
def test_picked_and_spread_are_those_of_slices(size, masked, dtype):
    c, h, w, grid = size
    maps, amount = problem(dtype, c, h, w, grid)
    amount = amount if masked else None
    steps = h // grid[0], w // grid[1]
    wide = torch.promote_types(dtype, torch.float32)
    picked = fused.picked(maps, amount, *steps, wide)
    torch.testing.assert_close(picked, by_slices(maps, amount, *steps, wide), rtol=0, atol=0, equal_nan=True)
    assert picked.is_contiguous()
    by_picked = torch.randn(picked.shape, generator=torch.Generator().manual_seed(1)).to(wide)
    by_picked[0, 0, 0] = by_picked[0, 0, 0] if amount is None or amount[0, 0, 0] else torch.nan
    expected = torch.zeros(2, h, w, c, dtype=dtype)
    expected[:, :: steps[0], :: steps[1]] = by_slices(by_picked.permute(0, 3, 1, 2), amount, 1, 1, wide).to(dtype)
    found = fused.spread(by_picked, amount, h, w, dtype)
    step = 2.0**-7 if dtype == torch.bfloat16 else 0  # to which the interpreter, not a GPU, rounds down
    torch.testing.assert_close(found, expected.permute(0, 3, 1, 2), rtol=step, atol=0)
    assert found.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(found != 0, expected.permute(0, 3, 1, 2) != 0)


def test_maps_with_gaps_in_memory():
    maps, amount = problem(torch.float32)
    wide = torch.zeros(2, 9, 14, 7).permute(0, 3, 1, 2)
    wide[:, 1:6, 1:, 1:13] = maps
    part = wide[:, 1:6, 1:, 1:13]
    assert not part.is_contiguous(memory_format=torch.channels_last)
    assert part.stride(1) == 1
    found = fused.picked(part, amount, 4, 4, torch.float32)
    assert torch.equal(found, by_slices(maps, amount, 4, 4, torch.float32))


@pytest.mark.parametrize("last", [True, False])
def test_other_maps_and_second_derivatives_are_for_plain_operations(last, monkeypatch):
    """The same numbers; a kernel where channels lie side by side and nothing is asked of the gradient."""
    calls = []
    for name in ("picked", "spread"):
        kernel = getattr(fused, name)
        monkeypatch.setattr(fused, name, lambda *a, name=name, kernel=kernel: calls.append(name) or kernel(*a))
    maps, amount = problem(torch.float32)
    maps = maps.nan_to_num().contiguous(memory_format=torch.channels_last if last else torch.contiguous_format)
    x = maps.clone().requires_grad_()

    def picked():
        return _Picked.apply(x, amount, 4, 4, torch.float32)

    with kernels.use("reference"):
        expected = torch.autograd.grad(picked().square().sum(), x)[0]
    assert calls == []
    (found,) = torch.autograd.grad(picked().square().sum(), x)
    assert calls == (["picked", "spread"] if last else [])
    assert torch.equal(found, expected)
    assert found.stride() == maps.stride()
    (first,) = torch.autograd.grad(picked().pow(3).sum(), x, create_graph=True)
    assert calls.count("spread") == last
    (second,) = torch.autograd.grad(first.sum(), x)
    plain = by_slices(maps, amount, 4, 4, torch.float32)
    torch.testing.assert_close(by_slices(second, None, 4, 4, torch.float32), 6 * plain)
    gradient = torch.func.grad(lambda x: _Picked.apply(x, amount, 4, 4, torch.float32).square().sum())(maps)
    assert torch.equal(gradient, expected)
