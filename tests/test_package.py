"""The package as others meet it: what an import brings in, how deep a call goes, what a wheel holds."""

import ast
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
import torch

import ordinal_entropy as oe
from called import functions_of

ROOT = Path(__file__).parent.parent


def test_public_names():
    assert {"OrdinalEntropy", "capture", "functional", "estimators", "kernels"} <= set(oe.__all__)
    for name in oe.__all__:
        assert hasattr(oe, name), name
    assert metadata.version("ordinal-entropy") == oe.__version__


def test_import_brings_in_torch_and_nothing_else():
    script = (
        "import sys, torch; before = set(sys.modules); import ordinal_entropy; "
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert set(answer.stdout.split()) - set(sys.stdlib_module_names) <= {"ordinal_entropy", "torch"}


@pytest.mark.parametrize("rows_of_a_target", [1, 2])
def test_a_call_passes_through_few_functions(rows_of_a_target):
    features, reg = torch.randn(32, 8, requires_grad=True), oe.OrdinalEntropy()
    seen = functions_of(lambda: reg(features, torch.arange(32.0) // rows_of_a_target))
    assert len(seen) <= 6, seen
    assert len({file for file, _ in seen}) <= 5, seen


def contents(archive):
    if archive.suffix == ".whl":
        return zipfile.ZipFile(archive).namelist()
    return tarfile.open(archive).getnames()


@pytest.mark.slow
def test_wheel_and_sdist_install_into_an_empty_environment(tmp_path):
    subprocess.run([sys.executable, "-m", "build", "--outdir", tmp_path / "dist", ROOT], check=True)
    wheel, sdist = (next((tmp_path / "dist").glob(pattern)) for pattern in ("*.whl", "*.tar.gz"))
    assert "ordinal_entropy/py.typed" in contents(wheel)
    assert not any(name.startswith(("tests", "docs", "benchmarks")) for name in contents(wheel))
    assert any(name.endswith("LICENSE") for name in contents(wheel))
    venv.create(tmp_path / "empty", with_pip=True)
    python = tmp_path / "empty" / Path(sysconfig.get_path("scripts")).name / "python"
    check = (
        "import torch, ordinal_entropy as oe; "
        "print(oe.OrdinalEntropy()(torch.eye(3), torch.tensor([0.0, 3.0, 3.0])).item())"
    )
    for archive in (wheel, sdist):
        subprocess.run(
            [python, "-m", "pip", "install", "-q", "--force-reinstall", "-c", ROOT / "constraints.txt", archive],
            check=True,
        )
        answer = subprocess.run([python, "-c", check], check=True, capture_output=True, text=True, cwd=tmp_path)
        assert float(answer.stdout) == pytest.approx(-0.7533, abs=1e-4)


def test_every_public_name_says_what_it_is():
    """Modules, and their classes, functions and methods, but those that begin with an underscore."""
    named = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)

    def silent(tree, place):
        found = [] if ast.get_docstring(tree) else [place]
        own = [node for node in tree.body if isinstance(node, named) and not node.name.startswith("_")]
        for node in own if isinstance(tree, (ast.Module, ast.ClassDef)) else []:
            found += silent(node, f"{place}:{node.name}")
        return found

    root = ROOT / "src" / "ordinal_entropy"
    files = sorted(root.rglob("*.py"))
    assert len(files) > 150
    assert [
        place for path in files for place in silent(ast.parse(path.read_text("utf-8")), str(path.relative_to(root)))
    ] == []
