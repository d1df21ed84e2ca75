"""The commands over damaged files of every kind: a sentence each, no traceback, no crash, no hang."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

HARNESS = Path(__file__).with_name("damaged_files.py")
PARTS = ("h5py", "pandas", "pyarrow", "PIL", "lightning", "plotly", "jinja2", "sklearn", "safetensors", "scipy")

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="cases run in forks of one process"),
    pytest.mark.skipif(not all(map(find_spec, PARTS)), reason="files of every kind are read"),
]


def assert_all_well(*arguments):
    """In a process of its own, which has no threads when it forks."""
    ended = subprocess.run([sys.executable, HARNESS, *arguments], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-8000:] + ended.stderr[-2000:]


def test_some_damaged_files():
    assert_all_well("--cases", "100", "--few", "--data")


@pytest.mark.slow
def test_thousands_of_damaged_files():
    assert_all_well("--cases", "2000")
