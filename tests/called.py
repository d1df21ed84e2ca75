"""What of the package a call passes through."""

import sys
from pathlib import Path

import ordinal_entropy

PACKAGE = str(Path(ordinal_entropy.__file__).parent)


def functions_of(call):
    """Files and names of the package's functions that run in a call; comprehensions are part of theirs."""
    seen = set()

    def note(frame, event, argument):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE) and frame.f_code.co_name[0] != "<":
            seen.add((frame.f_code.co_filename, frame.f_code.co_name))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen
