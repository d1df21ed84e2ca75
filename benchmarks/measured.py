"""Writes what was measured of each method into its page: docs/methods/NAME.md, below "Measured here".

    python benchmarks/measured.py

From bench_methods.json, bench_methods_cpu.json and first_light.json. A test holds the pages against these files.
"""

import json
import textwrap
from pathlib import Path
from typing import Any

from ordinal_entropy import methods

HERE = Path(__file__).parent
PAGES = HERE.parent / "docs" / "methods"
HEADING, BEFORE = "## Measured here\n", "## Example\n"
UNITS = {"mse": "MSE", "rmse": "RMSE", "mae": "MAE", "rms": "RMS"}


def rows_of(name: str, method: str) -> list[dict[str, Any]]:
    """Of a method, those that were measured."""
    rows = json.loads((HERE / name).read_text())["results"]
    return [row for row in rows if row["method"] == method and "ms" in row]


def costs(method: str) -> str:
    """What it adds to a step, in sentences."""
    said = []
    gpu = sorted(rows_of("bench_methods.json", method), key=lambda row: not row.get("of_the_step"))
    for row in gpu:
        if "network" in row:
            said.append(_averaging(row, "an NVIDIA H200", row["device_ms"]))
        elif row.get("of_the_step"):
            share = 100 * row["device_share_of_step"]
            said.append(
                f"On an NVIDIA H200 it adds {_ms(row['device_ms'])} to a step on 256 images (features of 2,048 "
                f"numbers), {share:.1f}% of that of a ResNet-50"
            )
        elif (row["m"], row["d"]) == (2048, 512):
            said.append(f"2,048 rows of 512 numbers take {_ms(row['device_ms'])} and {_mib(row)} on an H200")
    for row in rows_of("bench_methods_cpu.json", method):
        if "network" in row:
            said.append(_averaging(row, "two cores of a CPU", row["ms"]))
        elif (row["m"], row["d"]) == (256, 512):
            said.append(f"256 rows of 512 numbers take {_ms(row['ms'])} on two cores of a CPU")
    files = "[on a CPU](../../benchmarks/bench_methods_cpu.json)"
    files = f"[on a GPU](../../benchmarks/bench_methods.json), {files}" if gpu else files
    return textwrap.fill(f"{'. '.join(said)} ({files}).", 130, break_long_words=False, break_on_hyphens=False)


def _averaging(row: dict[str, Any], machine: str, ms: float) -> str:
    """Of an average of weights, which has no rows."""
    if not row.get("of_the_step"):
        own = f"a perceptron of {row['parameters']:,} weights"
        return f"To a step of the optimizer of {own} it adds {_ms(ms)} on {machine}"
    share = 100 * row.get("device_share_of_step", row["share_of_step"])
    step = f"a step of a ResNet-50 on 256 images, {share:.1f}% of it"
    return f"On {machine} it adds {_ms(ms)} to {step}, and holds {_mib(row)} for a copy of the weights"


def _ms(value: float) -> str:
    return f"{value:.2g} ms" if value >= 0.01 else "less than 0.01 ms"


def _mib(row: dict[str, Any]) -> str:
    return f"{row['extra_mib']:.0f} MiB" if row["extra_mib"] >= 1 else "less than 1 MiB"


def first_light(method: str) -> str:
    """One seed on each task, as a table."""
    results = json.loads((HERE / "first_light.json").read_text())["results"]
    lines, refused = [], []
    older = any("median" in found for found in results.values())  # of all targets; since then the task's constant
    for task, found in results.items():
        if method in found["methods"]:
            own, base = (found["methods"][each]["score"] for each in (method, "baseline"))
            naive = found["median" if "median" in found else "constant"]
            own, base = ("failed" if each is None else f"{each:.4g}" for each in (own, base))
            lines.append(f"| {task} | {UNITS[found['metric']]} | {own} | {base} | {naive:.4g} |")
        else:
            refused.append(task)
    learned = {task: found["methods"].get(method, {"learns": True})["learns"] for task, found in results.items()}
    no_better = [task for task, learns in learned.items() if not learns]
    file = "[first_light.json](../../benchmarks/first_light.json)"
    intro = f"One seed of a short training on each task; it compares nothing ({file})."
    fixed = any(
        "oe-balanced" in found["methods"] for found in results.values()
    )  # which it was unless told otherwise then
    intro += " It has a fixed strength there." if fixed and methods.create(method).has_terms else ""
    intro += f" It is refused on {' and '.join(refused)}." if refused else ""
    naive_is = "median of the targets" if older else "constant"
    intro += (
        f" It is no better than the {naive_is.partition(' ')[0]} on {' and '.join(no_better)}." if no_better else ""
    )
    intro = textwrap.fill(intro, 130, break_long_words=False, break_on_hyphens=False)
    return "\n".join([intro, "", f"| task | | this method | baseline | {naive_is} |", "|---|---|---|---|---|", *lines])


def section(method: str) -> str:
    """What stands on its page."""
    return f"{HEADING}\n{costs(method)}\n\n{first_light(method)}\n\n".replace("\n\n\n\n", "\n\n")


def page(text: str, method: str) -> str:
    """A page with that section, in front of its example."""
    head, rest = text.split(BEFORE)
    return head.split(HEADING)[0] + section(method) + BEFORE + rest


def main() -> None:
    for path in sorted(PAGES.glob("*.md")):
        path.write_text(page(path.read_text(), path.stem))
        print(path)


if __name__ == "__main__":
    main()
