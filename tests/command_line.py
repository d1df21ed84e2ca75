"""The command line as a user calls it."""

from typing import Any

from typer.testing import CliRunner

from ordinal_entropy.commands.app import app

TINY = [
    f"--set={setting}"
    for setting in ("rows=30", "parts=3", "validation_rows=20", "test_rows=40", "hidden=8", "steps=20", "samples=5")
] + ["--set=evaluate_every=10", "--device=cpu"]


def call(*arguments: object, status: int = 0) -> Any:
    """What a command says, if it ends with that status."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output + repr(result.exception)
    return result


def words(text: str) -> str:
    """The text in one line, whatever the width of the terminal."""
    return " ".join(text.split())
