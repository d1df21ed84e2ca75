"""What is written beside every result."""

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
import torch

import ordinal_entropy
from ordinal_entropy.environment import PARTS, environment, missing_extras, optional_parts


def test_environment_names_versions_and_machine():
    found = environment()
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["torch"] == torch.__version__ and type(found["torch"]) is str
    assert found["numpy"] == numpy.__version__
    assert found["ordinal_entropy"] == ordinal_entropy.__version__
    assert found["processor"] and found["cores"] >= 1 and found["system"]
    assert found["threads"] == torch.get_num_threads()
    assert (found["gpu"] is None) == (not torch.cuda.is_available())
    assert found["cuda"] == torch.version.cuda
    assert json.loads(json.dumps(found)) == found


def test_optional_parts_have_a_version_or_none():
    import scipy

    found = optional_parts()
    assert found["scipy"] == scipy.__version__
    assert all(version is None or version for version in found.values())
    assert set(found) == {name for part in PARTS.values() for name in part} | {"triton"}


def test_optional_parts_that_are_missing_are_none(monkeypatch):
    monkeypatch.setitem(PARTS, "train", ("no-such-distribution",))
    assert optional_parts()["no-such-distribution"] is None


def test_only_extras_that_lack_something_are_named(monkeypatch):
    for extra in list(PARTS):
        monkeypatch.setitem(PARTS, extra, ("numpy",))
    assert missing_extras() == []
    monkeypatch.setitem(PARTS, "hf", ("numpy", "no-such-distribution"))
    assert missing_extras() == ["hf"]


def test_looking_imports_none_of_them():
    script = (
        "import sys, torch; before = set(sys.modules); from ordinal_entropy import environment as e; "
        "e.environment(); e.optional_parts(); "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert set(answer.stdout.split()) - set(sys.stdlib_module_names) <= {"ordinal_entropy", "torch"}


def test_parts_are_those_of_the_project_file():
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 cannot read pyproject.toml")
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    for extra, names in PARTS.items():
        always = [requirement for requirement in extras[extra] if "python_version" not in requirement]
        listed = {requirement.split(">")[0].split("[")[0].split(";")[0].strip() for requirement in always}
        assert set(names) == listed, extra
