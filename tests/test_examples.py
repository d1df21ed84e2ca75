"""The examples run."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


def test_demo_trains_and_reports():
    pytest.importorskip("rich", reason="the demo draws its progress bar with rich")
    demo = [sys.executable, EXAMPLES / "demo.py"]
    answer = subprocess.run([*demo, "--seeds", "1", "--steps", "3"], capture_output=True, text=True, check=True)
    assert "with ordinal entropy" in answer.stdout
    assert "of 1 paired seeds" in answer.stdout


def test_demo_refuses_nonsense():
    pytest.importorskip("rich", reason="the demo draws its progress bar with rich")
    demo = [sys.executable, EXAMPLES / "demo.py", "--seeds", "0"]
    answer = subprocess.run(demo, capture_output=True, text=True, check=False)
    assert answer.returncode == 2
    assert "at least 1" in answer.stderr
    assert "Traceback" not in answer.stderr
