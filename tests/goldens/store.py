"""Where goldens lie, how they are written, and how numbers are held against them."""

import json
import math
from pathlib import Path

import numpy as np
import torch

from goldens import adapter

HERE = Path(__file__).parent
RECORDED = HERE / "recorded"

SAME_MACHINE = 1e-10  # relative difference that a score may have from the one recorded
ELSEWHERE = {"linear": 1e-10, "nonlinear": 1e-10, "nonlinear-paths": 1e-10, "tabular": 1e-6}
IMAGES_ELSEWHERE = 0.3
"""The same on another machine, or beside another torch or NumPy.

Threads and another BLAS make 1e-12. But columns of tables are scaled in single precision, and without AVX first weights
are drawn in another rounding of single precision. All of that grows in training. Rows of operators are committed or do
not depend on it, and neither do rendered rooms.
"""


def machine():
    """What the rounding of a run follows from."""
    names = "processor", "torch", "numpy"
    own = {name: adapter.environment()[name] for name in names}
    return {**own, "instructions": torch.backends.cpu.get_cpu_capability()}


def tolerance(task):
    """Relative difference that scores of a task in double precision may have here."""
    return SAME_MACHINE if machine() == read("machine") else ELSEWHERE.get(task, IMAGES_ELSEWHERE)


def record_machine():
    """Run with every other part: goldens of several machines cannot be told apart."""
    write("machine", machine())


def write(name, content):
    """A JSON file; lists of numbers on one line."""
    path = RECORDED / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(_text(content) + "\n")


def read(name):
    """What ``write`` has written."""
    return json.loads((RECORDED / f"{name}.json").read_text())


def write_arrays(name, arrays):
    """A compressed .npz file, the same for the same arrays."""
    path = RECORDED / f"{name}.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **arrays)


def read_arrays(name):
    """What ``write_arrays`` has written."""
    with np.load(RECORDED / f"{name}.npz", allow_pickle=False) as found:
        return dict(found)


def require_close(found, recorded, allowed, place=""):
    """An AssertionError that names the first place where two trees of lists, dictionaries, numbers and texts differ.

    Args:
        found: what was computed.
        recorded: what it should be.
        allowed: relative difference of numbers; or a function from a place to that.
        place: where in the tree.
    """
    if isinstance(recorded, dict):
        assert isinstance(found, dict) and found.keys() == recorded.keys(), f"{place}: {found} is not {recorded}"
        for key, value in recorded.items():
            require_close(found[key], value, allowed, f"{place}.{key}")
    elif isinstance(recorded, list):
        assert isinstance(found, list | tuple) and len(found) == len(recorded), f"{place}: {found} is not {recorded}"
        for number, value in enumerate(recorded):
            require_close(found[number], value, allowed, f"{place}[{number}]")
    elif isinstance(recorded, float) and isinstance(found, float | int):
        limit = allowed(place) if callable(allowed) else allowed
        same = math.isclose(found, recorded, rel_tol=limit, abs_tol=0) or (math.isnan(found) and math.isnan(recorded))
        assert same, f"{place}: {found!r} is not {recorded!r}, to {limit:g} relative"
    else:
        assert found == recorded, f"{place}: {found!r} is not {recorded!r}"


def _text(content, level=0):
    if isinstance(content, dict) and content:
        inner = ",\n".join(
            f"{' ' * (level + 1)}{json.dumps(key)}: {_text(value, level + 1)}" for key, value in content.items()
        )
        return f"{{\n{inner}\n{' ' * level}}}"
    if isinstance(content, list | tuple) and any(isinstance(value, dict) for value in content):
        inner = ",\n".join(" " * (level + 1) + _text(value, level + 1) for value in content)
        return f"[\n{inner}\n{' ' * level}]"
    return json.dumps(content)
