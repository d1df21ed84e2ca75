"""Writes the goldens anew: python tests/goldens/record.py [PART ...], without parts all of them.

Only with a change of numbers that is meant, and that the changelog tells of. See CONTRIBUTING.md.
"""

import os
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path

PARTS = {  # module, function
    "machine": ("store", "record_machine"),
    "regularizer": ("regularizer", "record"),
    "gather": ("gather", "record"),
    "rows": ("curves", "record_rows"),
    "curves": ("curves", "record"),
    "resumed": ("resume", "record"),
    "help": ("commands_of", "record_help"),
    "summaries": ("commands_of", "record_summaries"),
    "folders": ("commands_of", "record_folders"),
    "seeds": ("seeds", "record"),
}


def main(wanted):
    """Records the parts that are named."""
    unknown = [name for name in wanted if name not in PARTS]
    if unknown:
        sys.exit(f"expected parts among {', '.join(PARTS)}, got {', '.join(unknown)}")
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    with tempfile.TemporaryDirectory() as cache:
        os.environ["ORDINAL_ENTROPY_CACHE"] = cache  # what is generated is generated anew
        for name in wanted or PARTS:
            start = time.perf_counter()
            module, function = PARTS[name]
            getattr(import_module(f"goldens.{module}"), function)()
            print(f"{name}: {time.perf_counter() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
