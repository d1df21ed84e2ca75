"""The command ``ordinal-entropy``, which can say what it lacks."""

import sys


def main() -> None:
    """Runs the command line; without the packages that it needs, one sentence says which extra brings them."""
    try:
        from ordinal_entropy.cli import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        print(
            f"the command ordinal-entropy needs {error.name}: pip install 'ordinal-entropy[train]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    app(prog_name="ordinal-entropy")
