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


# averages that cancel but for their rounding, in float64 too
CANCELLED = fuzz.Call(
    layout="rows",
    images=1,
    n=21,
    d=1,
    t=1,
    dtype=torch.float32,
    kernel="auto",
    shape="spread",
    features=0.0,
    targets=0.0,
    weights=0.0,
    levels=None,
    masked=False,
    strengths=(1.0, 0.0),
    options={
        "weighting": "l2",
        "distance": "cosine",
        "normalize": True,
        "rescale": "max",
        "grouping": "bins",
        "centers": "normalize-first",
        "tightness_over": "all",
        "tightness_power": 1,
        "per": "batch",
    },
    seed=1,
)


def test_averages_that_cancel_have_any_direction():
    fuzz.check(CANCELLED)


@pytest.mark.slow
@of_calls(20_000)
def test_20_000_calls(call):
    fuzz.check(call)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@of_calls(400, of=("auto", "fused"), most=150, dtypes=fuzz.DTYPES[1:], widths=(3, 8))
def test_calls_on_a_gpu(call):  # few widths: each is compiled anew
    fuzz.check(call, "cuda")
