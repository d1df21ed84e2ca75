"""Writes what was measured of each method into its page: docs/methods/NAME.md, below "Measured here".

    python benchmarks/measured.py

From bench_methods.json, bench_methods_cpu.json and first_light.json. A test holds the pages against these files.
"""

import json
from pathlib import Path
from typing import Any

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
    gpu = rows_of("bench_methods.json", method)
    for row in gpu:
        if row.get("of_the_step"):
            share = 100 * row["device_share_of_step"]
            said.append(
                f"On an NVIDIA H200 it adds {row['device_ms']:.2f} ms to a step on 256 images (features of 2,048 "
                f"numbers), {share:.1f}% of that of a ResNet-50"
            )
    for row in gpu:
        if (row["m"], row["d"]) == (2048, 512):
            said.append(f"of 2,048 rows of 512 numbers it takes {row['device_ms']:.2f} ms and {_mib(row)} there")
    for row in rows_of("bench_methods_cpu.json", method):
        if (row["m"], row["d"]) == (256, 512):
            said.append(f"of 256 such rows {row['ms']:.1f} ms on two cores of a CPU")
    text = "; ".join(said)
    files = "[on a GPU](../../benchmarks/bench_methods.json), [on a CPU](../../benchmarks/bench_methods_cpu.json)"
    return f"{text[:1].upper()}{text[1:]} ({files})." if said else ""


def _mib(row: dict[str, Any]) -> str:
    return f"{row['extra_mib']:.0f} MiB" if row["extra_mib"] >= 1 else "less than 1 MiB"


def first_light(method: str) -> str:
    """One seed on each task, as a table."""
    results = json.loads((HERE / "first_light.json").read_text())["results"]
    lines, refused = [], []
    for task, found in results.items():
        if method in found["methods"]:
            own, base = (found["methods"][each]["score"] for each in (method, "baseline"))
            lines.append(f"| {task} | {UNITS[found['metric']]} | {own:.4g} | {base:.4g} | {found['median']:.4g} |")
        else:
            refused.append(task)
    without = f" It is refused on {' and '.join(refused)}." if refused else ""
    intro = (
        "One seed of a short training on each task says that it learns, and compares nothing "
        f"([first_light.json](../../benchmarks/first_light.json)).{without}"
    )
    return "\n".join(
        [intro, "", "| task | | this method | baseline | median of the targets |", "|---|---|---|---|---|", *lines]
    )


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
