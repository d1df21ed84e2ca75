"""The command as a whole: its help, its version, and an install without it."""

import runpy
import subprocess
import sys

import pytest

pytest.importorskip("typer", reason="the command line is typer's")
pytest.importorskip("rich", reason="the tables are rich's")
pytest.importorskip("scipy", reason="the splines and distributions are SciPy's")


import ordinal_entropy
from command_line import call


def test_version_is_printed():
    assert call("--version").stdout.strip() == ordinal_entropy.__version__


@pytest.mark.parametrize(
    "command", ["reproduce", "compare", "train", "evaluate", "predict", "export", "doctor", "data"]
)
def test_every_command_has_help(command):
    assert len(call(command, "--help").stdout) > 200
    assert command in call("--help").stdout


@pytest.mark.parametrize("command", ["check", "make"])
def test_every_command_for_data_has_help(command):
    assert len(call("data", command, "--help").stdout) > 200


def test_the_package_can_be_run_as_the_command(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["ordinal_entropy", "compare", "liner"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_module("ordinal_entropy", run_name="__main__")
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("ordinal-entropy: expected a task like 'linear'")


def test_a_bare_install_says_which_extra_it_needs(tmp_path):
    program = (
        "import sys; sys.modules['typer'] = None; from ordinal_entropy.commands import main; main()"  # not installed
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.strip() == "the command ordinal-entropy needs typer: pip install 'ordinal-entropy[train]'"
