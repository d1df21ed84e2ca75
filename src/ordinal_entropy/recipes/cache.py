"""Where generated data are kept."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where generated rows are kept: ``$ORDINAL_ENTROPY_CACHE``, or ``~/.cache/ordinal-entropy``."""
    named = os.environ.get("ORDINAL_ENTROPY_CACHE")
    return Path(named).expanduser() if named else Path.home() / ".cache" / "ordinal-entropy"
