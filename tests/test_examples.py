"""The examples run."""

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def run(*arguments):
    return subprocess.run(
        [sys.executable, EXAMPLES / "own_data.py", *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.slow
def test_own_data_compares_every_method():
    pytest.importorskip("scipy", reason="a comparison needs SciPy")
    answer = run("--seeds", "2", "--steps", "3")
    assert answer.returncode == 0, answer.stderr
    for method in ("ld", "oe"):
        assert f"\n{method} against baseline: not significant" in answer.stdout or f"\n{method} is " in answer.stdout
    assert "n = 2" in answer.stdout
    assert "over 2 splits" in answer.stdout


def test_own_data_refuses_nonsense(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["own_data.py", "--seeds", "1"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(EXAMPLES / "own_data.py"), run_name="__main__")
    assert "at least 2" in capsys.readouterr().err


def test_plain_pytorch_learns(capsys):
    runpy.run_path(str(EXAMPLES / "plain_pytorch.py"), run_name="__main__")
    term, composed = capsys.readouterr().out.splitlines()
    words = composed.split()
    assert words[0] == "error" and words[2:] == ["of", "classification+oe"] and float(words[1]) < 0.5
    words = term.replace(",", "").split()
    assert words[::2] == ["error", "diversity", "tightness"]
    error, diversity, tightness = map(float, words[1::2])
    assert error < 0.5  # the targets have a variance of about 1
    assert 0 < diversity < 2 and 0 < tightness < 2  # distances on the unit sphere
