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
