"""``doctor``: what it tells, and what it advises."""

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")

from command_line import call, words
from ordinal_entropy import environment
from ordinal_entropy.environment import PARTS

PROBLEM = "ordinal_entropy.commands.doctor.torchvision_problem"


def test_doctor_tells_versions_kernels_and_parts(monkeypatch):
    monkeypatch.setattr(PROBLEM, lambda: None)  # which takes seconds
    said = call("doctor").stdout
    assert all(word in said for word in ("torch", "processor", "fused", "Optional parts", "matplotlib"))


def test_doctor_advises_only_what_is_missing_and_says_what_cannot_be_imported(monkeypatch):
    for extra in list(PARTS):
        monkeypatch.setitem(PARTS, extra, ("numpy", "torchvision"))
    monkeypatch.setattr(environment, "_version", lambda name: "1.0")
    monkeypatch.setattr(PROBLEM, lambda: None)
    said = call("doctor").stdout
    assert "pip install" not in said and "cannot be imported" not in said
    monkeypatch.setitem(PARTS, "sweep", ("numpy", "ray"))
    monkeypatch.setattr(environment, "_version", lambda name: None if name == "ray" else "1.0")
    monkeypatch.setattr(PROBLEM, lambda: "operator torchvision::nms does not exist")
    said = words(call("doctor").stdout)
    assert "pip install 'ordinal-entropy[sweep]'" in said
    assert "1.0 installed, cannot be imported: operator torchvision::nms does not exist" in said
