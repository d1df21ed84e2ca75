"""Random calls of every option, layout, precision and scale, against float64; see ``fuzz.py`` for what must hold."""

import pytest
import torch

import fuzz
from fuzz import of_calls


@of_calls(300)
def test_small_calls(call):
    fuzz.check(call)


@of_calls(40, most=150)
def test_calls_of_several_blocks(call):
    fuzz.check(call)


@pytest.mark.slow
@of_calls(20_000)
def test_20_000_calls(call):
    fuzz.check(call)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@of_calls(2_000, of=("auto", "fused"), most=150, dtypes=fuzz.DTYPES[1:], widths=(3, 8))
def test_calls_on_a_gpu(call):  # few widths: each is compiled anew
    fuzz.check(call, "cuda")
