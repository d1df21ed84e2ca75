"""The command ``ordinal-entropy``: its parts read options, call the library and print.

Exit status 2: a mistake of the user's, told in one sentence; 130: stopped by the user.
"""

import sys


def main() -> None:
    """Runs the command line; without the packages that it needs, one sentence says which extra brings them."""
    try:
        from ordinal_entropy.commands.app import app
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("typer", "rich"):
            raise
        print(
            f"the command ordinal-entropy needs {error.name}: pip install 'ordinal-entropy[train]'",
            file=sys.stderr,
        )
        raise SystemExit(2) from None
    app(prog_name="ordinal-entropy")
