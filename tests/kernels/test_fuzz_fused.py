"""Random calls of the fused kernels, through Triton's interpreter, against float64."""

import pytest
import torch

from ordinal_entropy import functional

import fuzz
from fuzz import of_calls

pytest.importorskip("triton", reason="the interpreter is Triton's")

pytestmark = [
    pytest.mark.usefixtures("interpreter"),
    pytest.mark.skipif(torch.cuda.is_available(), reason="tests/test_fuzz.py does it on the device"),
]


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch):
    """No look at values, as on a GPU: only then are the kernels taken."""
    rows = functional.rows
    monkeypatch.setattr(functional, "rows", lambda *a, **k: rows(*a, **k)._replace(eager=False))


# features that are small beside sample weights that are large: their product must not be lost on the way
SMALL_FEATURES_LARGE_WEIGHTS = fuzz.Call(
    layout="points",
    images=1,
    n=37,
    d=8,
    t=2,
    dtype=torch.float32,
    kernel="fused",
    shape="copies",
    features=-22.66,
    targets=23.4,
    weights=18.6,
    levels=5,
    masked=True,
    strengths=(0.0, 1.0),
    options={
        "weighting": "squared",
        "distance": "l2",
        "normalize": False,
        "rescale": "max",
        "grouping": "bins",
        "centers": "normalize-first",
        "tightness_over": "shared",
        "tightness_power": 1,
        "per": "image",
    },
    seed=995646718,
)


def test_small_features_and_large_weights():
    fuzz.check(SMALL_FEATURES_LARGE_WEIGHTS)


@of_calls(25, of=("fused",), most=24, dtypes=fuzz.DTYPES[1:])
def test_few_points(call):
    fuzz.check(call)


@pytest.mark.slow
@of_calls(300, of=("fused",), most=40, dtypes=fuzz.DTYPES[1:])
def test_calls(call):
    fuzz.check(call)


@pytest.mark.slow
@of_calls(60, of=("fused",), most=40, dtypes=fuzz.DTYPES[1:])
def test_calls_as_of_many_points(call, monkeypatch):
    from ordinal_entropy.kernels import few

    monkeypatch.setattr(few, "fits", lambda *shape: False)
    fuzz.check(call)
