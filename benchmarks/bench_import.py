"""What `import ordinal_entropy` adds to `import torch`, and how many of its functions one call passes through.

python benchmarks/bench_import.py                  # half a minute; writes bench_import.json
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

import record

SCRIPT = """
import json, sys, time
import torch
before = set(sys.modules)
start = time.perf_counter()
import ordinal_entropy
seconds = time.perf_counter() - start
roots = {name.partition(".")[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)
folder = ordinal_entropy.__path__[0]
functions = set()
def note(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(folder):
        functions.add(frame.f_code.co_name)
x, y = torch.randn(64, 16), torch.arange(64.0) // 2
sys.setprofile(note)
ordinal_entropy.functional.ordinal_entropy(x, y)
sys.setprofile(None)
print(json.dumps([1000 * seconds, sorted(roots), sorted(functions)]))
"""


def main() -> None:
    runs = [
        json.loads(subprocess.run([sys.executable, "-c", SCRIPT], check=True, capture_output=True, text=True).stdout)
        for _ in range(11)
    ]
    median = statistics.median(run[0] for run in runs[1:])  # the first fills the file cache
    print(f"import ordinal_entropy after torch: {median:.0f} ms, packages {runs[0][1]}, functions {runs[0][2]}")
    results = {"import_ms": round(median, 1), "packages": runs[0][1], "functions_of_one_call": runs[0][2]}
    record.write(Path(__file__).with_suffix(".json"), results)


if __name__ == "__main__":
    main()
