"""What a program remembers of its launches."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="launches are of its kernels")

from ordinal_entropy.kernels.launch import At, Launch, _prepared, aligned


def test_what_is_not_brought_stays_none():
    x = torch.zeros(8)
    compiled = SimpleNamespace(run="run", function="function", packed_metadata="metadata")
    launch = Launch(None, (3, 2, 1), (At(0), At(1), 7, At(2, 16), At(3)))
    *call, constants, places = _prepared(compiled, launch, (x, None, x, 0.5))
    assert call == ["run", 3, 2, 1, "function", "metadata"]
    assert constants == [None, None, 7, None, None]
    assert places == [(0, 0, 0), (3, 2, 16), (4, 3, 0)]  # where in the arguments, which of what is brought, how far in


def test_whether_tensors_are_there_is_part_of_a_shape():
    x = torch.zeros(8)
    assert aligned(x, None, x[1:]) == (True, None, False)
