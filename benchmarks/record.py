"""What every benchmark writes beside its numbers: the command, the versions and the machine."""

import json
import os
import platform
import sys
from datetime import date
from pathlib import Path
from typing import Any

import numpy
import torch

import ordinal_entropy


def machine() -> dict[str, Any]:
    """The processor, the memory and the versions in use."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "memory_gib": round(memory, 1),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "system": platform.system(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "ordinal_entropy": ordinal_entropy.__version__,
    }


def write(path: Path, results: dict[str, Any]) -> None:
    """Writes the results with the command that made them."""
    options, rest = [], iter(sys.argv[1:])
    for option in rest:  # where the results went does not matter
        if option in ("--out", "--picture"):
            next(rest, None)
        else:
            options.append(option)
    command = " ".join(["python", os.path.relpath(sys.argv[0]), *options])
    record = {"command": command, "date": date.today().isoformat(), "machine": machine(), **results}
    path.write_text(json.dumps(record, indent=2) + "\n")
    print(f"wrote {path}")
