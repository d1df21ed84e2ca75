"""Generated datasets: where they are written, and what is refused before."""

import os
from pathlib import Path

from ordinal_entropy.files import require_empty


def new_folder(folder: str | os.PathLike[str], seed: int, count: int, *, least: int, of: str) -> Path:
    """The folder of a generated dataset, which is empty or not there yet; not made.

    Args:
        folder: where.
        seed: of the draws, 0 or more.
        count: how many are to be drawn.
        least: with fewer a split might be empty.
        of: what is counted.

    Example:
        >>> new_folder("nowhere", 0, 5, least=10, of="faces")
        Traceback (most recent call last):
        ValueError: expected a count of at least 10 faces, got 5
    """
    if count < least:
        raise ValueError(f"expected a count of at least {least} {of}, got {count}")
    if seed < 0:
        raise ValueError(f"expected a seed of at least 0, got {seed}")
    require_empty(Path(folder))
    return Path(folder)
