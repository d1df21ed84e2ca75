"""The command line as a user calls it."""

from typing import Any

from typer.testing import CliRunner

from ordinal_entropy.cli import app


def call(*arguments: object, status: int = 0) -> Any:
    """What a command says, if it ends with that status."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output + repr(result.exception)
    return result
