"""What a program remembers of its launches."""

from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="launches are of its kernels")

from ordinal_entropy.kernels import launch
from ordinal_entropy.kernels.launch import At, Launch, Program, _prepared, aligned


def test_what_is_not_brought_stays_none():
    x = torch.zeros(8)
    compiled = SimpleNamespace(run="run", function="function", packed_metadata="metadata")
    whole = Launch(None, (3, 2, 1), (At(0), At(1), 7, At(2, 16), At(3)))
    *call, constants, places = _prepared(compiled, whole, (x, None, x, 0.5))
    assert call == ["run", 3, 2, 1, "function", "metadata"]
    assert constants == [None, None, 7, None, None]
    assert places == [(0, 0, 0), (3, 2, 16), (4, 3, 0)]  # where in the arguments, which of what is brought, how far in


def test_whether_tensors_are_there_is_part_of_a_shape():
    x = torch.zeros(8)
    assert aligned(x, None, x[1:]) == (True, None, False)


@pytest.mark.parametrize("known", [True, False])
def test_compiled_kernels_are_called_directly_only_where_their_launcher_is_known(known, monkeypatch):
    """A kernel stands in for one of Triton's, a number for the stream."""
    called = {"publicly": 0, "directly": 0}

    def publicly(*arguments, **options):
        called["publicly"] += 1
        return SimpleNamespace(run=directly, function="function", packed_metadata="metadata")

    def directly(*arguments):
        called["directly"] += 1

    monkeypatch.setattr(launch, "_DIRECT", known)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 0, raising=False)
    program = Program([Launch({(1, 1, 1): publicly}, (1, 1, 1), (At(0), 7))])
    for _ in range(3):
        program(torch.device("cuda", 0), torch.zeros(8))
    assert called == ({"publicly": 1, "directly": 2} if known else {"publicly": 3, "directly": 0})


@pytest.mark.parametrize(
    ("version", "known"),
    [("3.2.0", False), ("3.3.0", True), ("3.9.1+git1", True), ("3.10.0", False), ("4.0.0", False)],
)
def test_launchers_are_known_in_a_range_of_versions(version, known):
    assert launch.has_known_launcher(version) == known
