"""What every benchmark writes beside its numbers: the command, the versions and the machine."""

import json
import os
import sys
from datetime import date
from pathlib import Path
from typing import Any

from ordinal_entropy.environment import environment


def machine() -> dict[str, Any]:
    """The processor, the memory and the versions in use."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {**environment(), "memory_gib": round(memory, 1)}


def command() -> str:
    """The command line, without where its results and its runs are kept, which does not matter."""
    options, rest = [], iter(sys.argv[1:])
    for option in rest:
        if option in ("--out", "--picture", "--runs"):
            next(rest, None)
        else:
            options.append(option)
    return " ".join(["python", os.path.relpath(sys.argv[0]), *options])


def write(path: Path, results: dict[str, Any]) -> None:
    """Writes the results with the command that made them."""
    record = {"command": command(), "date": date.today().isoformat(), "machine": machine(), **results}
    path.write_text(json.dumps(record, indent=2) + "\n")
    print(f"wrote {path}")
