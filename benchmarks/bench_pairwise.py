"""The diversity on a GPU, forward and backward: the authors' way, the plain formula, and this library's kernels.

    python benchmarks/bench_pairwise.py                # about 5 minutes; writes bench_pairwise.json, docs/pairwise.png
    python benchmarks/bench_pairwise.py --sizes 100x100,300x64 --collapsed-size 300x64 --out /tmp/a.json --picture ""
    python benchmarks/bench_pairwise.py --draw-only benchmarks/bench_pairwise.json

All versions of a size take turns in one run, so that a change of the clock meets all of them; a slow version has fewer
turns, spread over the run. "ms" is the time between two events on the device while the host is ahead, as it is in a
training step. "A call" is the time of one of many calls that follow each other, "idle" that of a single one after the
device has come to rest: both with the host's time in them, which for small sizes is the longer one. Memory is the
highest that torch has allocated during the call beyond what it had before, the gradient included. Errors are relative
to float64. A number that is missing has a note that says why.

What the hardware could do is measured in the same run: a matrix product of the same shapes in TF32 and in float16, and
a copy. All ordered pairs take 4 m^2 d operations: 2 m^2 d for the distances, as many for the gradient; with each pair
once, for the distances half of that. "fused" makes three float16 products out of each, which gives it about the
precision of float32, "fused tf32" one.
"""

import argparse
import functools
import gc
import importlib.util
import itertools
import json
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from formulas import Loss, authors, data, kernel, plain
from ordinal_entropy import kernels
from ordinal_entropy.functional import ordinal_entropy

import record

Row = dict[str, Any]
Size = tuple[int, int]  # m, d

SIZES = "100x100,3536x512,3536x2048,16384x512,32768x512,65536x512,131072x256"
ROUNDS = (3, 101)  # at least and at most, of each version at each size
PROBE = 8192  # rows that tell how long float64 takes on all
FLOAT64_SECONDS = 20.0
LARGEST_PRODUCT = 32768  # the m of the largest matrix product whose rate is measured
REPLAYS = 100
HEAD_START = 6_000_000  # cycles that the device waits, some 3 ms: longer than the host takes to queue a call
BURSTS = {"call": 100, "idle": 1}  # calls one after the other from an empty queue, to see what the host takes
PICTURE = Path(__file__).parent.parent / "docs" / "pairwise.png"


@dataclass(frozen=True)
class Version:
    """One way to compute the diversity, and where it can run."""

    loss: Loss
    precision: str = "highest"  # of torch.set_float32_matmul_precision
    kernel: str | None = None  # the name the dispatch must know
    largest: int | None = None  # no m above it, because of the m x m matrices
    rescale: str = "max"  # what the float64 value is computed with
    products: int | None = None  # float16 products for each useful one, where there is a floor to compare with


def difference(features: Tensor, targets: Tensor) -> Tensor:
    """The plain formula with each distance as the norm of a difference: slow, and exact up to the normalisation."""
    z, m = F.normalize(features, dim=1), features.shape[0]
    weights = (targets - targets.T).abs()
    distances = torch.cdist(z, z, compute_mode="donot_use_mm_for_euclid_dist")
    return (weights / weights.max() * distances).sum() / (m * (m - 1))


COMPILED: Loss = torch.compile(plain, dynamic=False)
FUSED = kernel("fused", grouping="none")

VERSIONS: dict[str, Version] = {
    "authors": Version(authors, largest=16384, rescale="authors"),
    "plain": Version(plain, largest=32768),
    "compiled": Version(COMPILED, largest=32768),
    "compiled tf32": Version(COMPILED, "high", largest=32768),
    "blocked": Version(kernel("blocked", grouping="none"), kernel="blocked"),
    "fused": Version(FUSED, kernel="fused", products=3),
    "fused tf32": Version(FUSED, "high", kernel="fused", products=1),
    "auto": Version(kernel("auto"), kernel="auto"),  # grouping included: what a user calls
}
BASES = ("authors", "plain", "compiled")
COLLAPSED: dict[str, Version] = {
    "plain": VERSIONS["plain"],
    "difference": Version(difference, largest=16384),
    "blocked": VERSIONS["blocked"],
    "fused": VERSIONS["fused"],
    "fused tf32": VERSIONS["fused tf32"],
}
GRAPHS: dict[str, Version] = {
    "plain": VERSIONS["plain"],
    "fused": VERSIONS["fused"],
    "auto": VERSIONS["auto"],
    "ordinal_entropy": Version(ordinal_entropy),  # tightness too
}


def missing(version: Version, m: int, device: str) -> str | None:
    """Why the version cannot run, if it cannot."""
    if version.kernel is not None and version.kernel not in kernels.NAMES:
        return f"skipped: the kernels are {', '.join(kernels.NAMES)}; there is no {version.kernel!r}"
    if version.kernel == "fused" and device != "cuda":
        return "skipped: needs a CUDA device"
    if version.largest is not None and m > version.largest:
        return f"skipped: m x m matrices, not tried above m = {version.largest}"
    return None


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Matrix products in that precision inside the ``with``."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def attempt(call: Callable[..., Any], *inputs: Any) -> tuple[Any, str | None]:
    """What the call returns, or why it returns nothing."""
    note = None
    try:
        return call(*inputs), None
    except torch.OutOfMemoryError:
        note = "out of memory"
    except Exception as error:  # the other versions are still worth their numbers
        note = f"failed: {type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return None, note


def seconds_of(call: Callable[[], Any], device: str, ahead: bool = True) -> float:
    """Seconds of the device for a call: while it is kept busy till the host is ahead, or from an empty queue."""
    if device != "cuda":
        start = time.perf_counter()
        call()
        return time.perf_counter() - start
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    if ahead:
        torch.cuda._sleep(HEAD_START)
    first.record()
    call()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / 1000


def step(version: Version, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, float, float | None]:
    """Value, gradient, seconds and MiB of one forward and backward pass."""
    device = features.device.type
    features.grad = None
    values = []

    def call() -> None:
        values.append(version.loss(features, targets))
        values[0].backward()

    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
    with precision(version.precision):
        seconds = seconds_of(call, device)
    extra = (torch.cuda.max_memory_allocated() - before) / 2**20 if device == "cuda" else None
    assert features.grad is not None
    return values[0].detach(), features.grad, seconds, extra


def burst(version: Version, features: Tensor, targets: Tensor, count: int) -> float:
    """Seconds of one call among so many that follow each other from an empty queue: host or device, who is slower."""

    def calls() -> None:
        for _ in range(count):
            features.grad = None
            version.loss(features, targets).backward()

    with precision(version.precision):
        return seconds_of(calls, features.device.type, ahead=False) / count


def float64(features: Tensor, targets: Tensor, name: str, rescale: str = "max") -> tuple[Tensor, Tensor]:
    """Value and gradient in float64, by the kernel of that name."""
    x = features.detach().double().requires_grad_()
    value = kernel(name, grouping="none", rescale=rescale)(x, targets.double())
    return value.detach(), torch.autograd.grad(value, x)[0]


def affordable(features: Tensor, targets: Tensor) -> bool:
    """Whether all rows in float64 take less than ``FLOAT64_SECONDS``, judged by some of them."""
    m, device = features.shape[0], features.device.type
    if m <= LARGEST_PRODUCT:
        return True
    some = features[:PROBE], targets[:PROBE]
    seconds = min(seconds_of(lambda: float64(*some, "blocked"), device) for _ in range(2)) * (m / PROBE) ** 2
    print(f"  float64 takes about {seconds:.1f} s", flush=True)
    return seconds < FLOAT64_SECONDS


def errors(value: Tensor, gradient: Tensor, truth: tuple[Tensor, Tensor] | None) -> Row:
    """Relative errors of value and gradient; those that are no numbers are said in a note."""
    if truth is None:
        return {"relative_error_value": None, "relative_error_gradient": None}
    of_value = ((value - truth[0]).abs() / truth[0].abs()).item()
    of_gradient = ((gradient - truth[1]).norm() / truth[1].norm()).item()
    row: Row = {
        "relative_error_value": of_value if math.isfinite(of_value) else None,
        "relative_error_gradient": of_gradient if math.isfinite(of_gradient) else None,
    }
    return row if math.isfinite(of_value + of_gradient) else {**row, "note": "not finite"}


def turns(rounds: dict[str, int]) -> Iterator[str]:
    """The names in turn, each as often as it says, those with fewer rounds spread evenly over all.

    Example:
        >>> list(turns({"a": 3, "b": 1}))
        ['a', 'a', 'a', 'b']
    """
    longest = max(rounds.values(), default=0)
    for turn in range(longest):
        for name, count in rounds.items():
            if (turn + 1) * count // longest > turn * count // longest:
                yield name


def compare(m: int, d: int, device: str, budget: float) -> list[Row]:
    """All versions at one size: errors, memory and times."""
    torch.compiler.reset()  # each size compiled for itself, none with dynamic shapes
    features, targets = data(m, d, device)
    rows: dict[str, Row] = {name: {"m": m, "d": d, "version": name, "ms": None} for name in VERSIONS}
    truths: dict[str, tuple[Tensor, Tensor] | None] = {} if affordable(features, targets) else {"max": None}
    alone: dict[str, float] = {}  # seconds of one call
    for name, version in VERSIONS.items():
        row, note = rows[name], missing(version, m, device)
        if note is None:
            if version.rescale not in truths:
                way = version.rescale
                truths[way], why = attempt(float64, features, targets, "blocked", way)
                if why is not None:
                    print(f"  float64, rescale={way!r}: {why}", flush=True)
            first, note = attempt(step, version, features, targets)  # compiles and warms up
        if note is None:
            row |= errors(first[0], first[1], truths[version.rescale])
            first = None
            second, note = attempt(step, version, features, targets)
        if note is not None:
            row["note"] = note
            print(f"  {name}: {note}", flush=True)
            continue
        alone[name], extra = second[2:]
        row["extra_mib"] = None if extra is None else round(extra, 2)
        memory = "" if extra is None else f", {extra:.1f} MiB"
        print(f"  {name}: {1000 * alone[name]:.3f} ms at first{memory}", flush=True)
    truths.clear()
    second = None

    share = budget / max(1, len(alone))
    rounds = {name: max(ROUNDS[0], min(ROUNDS[1], int(share / seconds))) for name, seconds in alone.items()}
    times: dict[str, list[float]] = {name: [] for name in rounds}
    for name in turns(rounds):
        if name in times:
            done, note = attempt(step, VERSIONS[name], features, targets)
            if note is None:
                times[name].append(done[2])
            else:
                rows[name]["note"] = note
                print(f"  {name}: {note}", flush=True)
                del times[name]
    for kind, count in BURSTS.items():
        # not the authors' way: its threads on the CPU spin on for a while and slow down whoever comes next
        calls: dict[str, list[float]] = {n: [] for n in times if n != "authors" and alone[n] * count < 0.4}
        for name in turns(dict.fromkeys(calls, 21)):
            calls[name].append(burst(VERSIONS[name], features, targets, count))
        for name, seconds in calls.items():
            rows[name][f"{kind}_ms"] = round(1000 * statistics.median(seconds), 4)
            for base in BASES:
                if base in calls:
                    rows[name][f"{kind}_times_faster_than_{base}"] = round(ratio(calls[base], seconds), 2)
    for name, seconds in times.items():
        rows[name]["ms"] = round(1000 * statistics.median(seconds), 4)
        rows[name]["ms_fastest"] = round(1000 * min(seconds), 4)
        rows[name]["rounds"] = len(seconds)
        for base in BASES:
            if base in times:
                rows[name][f"times_faster_than_{base}"] = round(ratio(times[base], seconds), 2)
    return list(rows.values())


def ratio(base: list[float], seconds: list[float]) -> float:
    """How many times faster than the base: round by round where both have the same rounds."""
    if len(base) == len(seconds):
        return statistics.median(a / b for a, b in zip(base, seconds, strict=True))
    return statistics.median(base) / statistics.median(seconds)


def median_seconds(call: Callable[[], Any], device: str, rounds: int = 21) -> float:
    for _ in range(3):
        call()
    return statistics.median(seconds_of(call, device) for _ in range(rounds))


def product_rates(m: int, d: int, device: str) -> Row:
    """TFLOP/s of the product of ``(m, d)`` and ``(d, m)``, in TF32 and float16; of fewer rows where m is too large."""
    rows = min(m, LARGEST_PRODUCT)
    row: Row = {"m": m, "d": d, "rows_of_the_product": rows}
    for name, dtype, way in (("tf32", torch.float32, "high"), ("fp16", torch.float16, "highest")):
        x = torch.randn(rows, d, device=device).to(dtype)
        out = torch.empty(rows, rows, device=device, dtype=dtype)
        with precision(way):
            seconds, note = attempt(median_seconds, functools.partial(torch.mm, x, x.T, out=out), device)
        row[f"{name}_tflops"] = None if note else round(2 * rows**2 * d / seconds / 1e12, 4)
        if note:
            row["note"] = note
    return row


def copy_bandwidth(device: str) -> float:
    """GB/s read and written by a copy on the device."""
    source = torch.ones(2**30 if device == "cuda" else 2**24, dtype=torch.uint8, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() / median_seconds(lambda: target.copy_(source), device) / 1e9


def add_floor(row: Row, rates: Row | None, bandwidth: float) -> None:
    """The rate of useful operations and, for the fused versions, how far it is from what the device could do."""
    if row["ms"] is None:
        return
    m, d, products = row["m"], row["d"], VERSIONS[row["version"]].products
    useful = 4 * m**2 * d
    row["useful_tflops"] = round(useful / row["ms"] / 1e9, 4)
    if products is None or rates is None or not rates["tf32_tflops"] or not rates["fp16_tflops"]:
        return
    row["fraction_of_tf32"] = round(row["useful_tflops"] * products / rates["tf32_tflops"], 3)
    by_products = 3 * m**2 * d * products / rates["fp16_tflops"] / 1e9  # each pair once; its gradient for two rows
    by_bytes = 3 * m * d * 4 / bandwidth / 1e6  # read the points, write the gradient, write it times that of the loss
    floor = max(by_products, by_bytes)
    row["floor_ms"] = round(floor, 4)
    row["times_floor"] = round(row["ms"] / floor, 2)


def collapsed(m: int, d: int, device: str) -> list[Row]:
    """Errors on features around 1 and 5 directions."""
    _, targets = data(m, d, device)
    rows = []
    for places in (1, 5):
        for spread in (1e-2, 1e-3, 1e-4):
            generator = torch.Generator().manual_seed(places)
            base = F.normalize(torch.randn(places, d, generator=generator), dim=1)[torch.arange(m) % places]
            noise = torch.randn(m, d, generator=generator) / math.sqrt(d)
            features = (base + spread * noise).to(device).requires_grad_()
            print(f"  {places} directions, spread {spread:.0e}", flush=True)
            truth, note = attempt(float64, features, targets, "reference")
            if note is not None:
                print(f"  float64: {note}", flush=True)
            for name, version in COLLAPSED.items():
                row: Row = {"m": m, "d": d, "directions": places, "spread": spread, "version": name}
                note = missing(version, m, device)
                if note is None:
                    done, note = attempt(step, version, features, targets)
                rows.append({**row, **({"note": note} if note else errors(done[0], done[1], truth))})
    return rows


def graphs(m: int, d: int) -> list[Row]:
    """Microseconds of a forward and backward pass replayed from a CUDA graph: no launches, no Python."""
    features, targets = data(m, d, "cuda")
    captured: dict[str, torch.cuda.CUDAGraph] = {}
    rows: dict[str, Row] = {}
    kept = []  # what a graph writes to

    def capture(version: Version) -> torch.cuda.CUDAGraph:
        def once() -> tuple[Tensor, Tensor]:
            value = version.loss(features, targets)
            return value, torch.autograd.grad(value, features)[0]

        with precision(version.precision):
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    once()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                kept.append(once())
        return graph

    def replay(graph: torch.cuda.CUDAGraph) -> None:
        for _ in range(REPLAYS):
            graph.replay()

    for name, version in GRAPHS.items():
        rows[name] = {"m": m, "d": d, "version": name, "graph_us": None}
        note = missing(version, m, "cuda")
        if note is None:
            graph, note = attempt(capture, version)
        if note is None:
            captured[name] = graph
        else:
            rows[name]["note"] = note
    times: dict[str, list[float]] = {name: [] for name in captured}
    for _ in range(23):
        for name, graph in captured.items():
            times[name].append(seconds_of(functools.partial(replay, graph), "cuda"))
    for name, seconds in times.items():
        rows[name]["graph_us"] = round(1e6 * statistics.median(seconds[2:]) / REPLAYS, 2)
    return list(rows.values())


def cell(row: Row, key: str, form: str) -> str:
    """A number of the row, right-aligned in the width of the form; a dash where there is none."""
    width = int(form.lstrip(">").split(".")[0])
    return f"{'-':>{width}}" if row.get(key) is None else f"{row[key]:{form}}"


def table(rows: list[Row]) -> str:
    """The results as lines of text."""
    columns = (
        ("ms", "ms", ">11.4f"),
        ("a call ms", "call_ms", ">10.3f"),
        ("idle ms", "idle_ms", ">10.3f"),
        ("rounds", "rounds", ">7.0f"),
        ("MiB", "extra_mib", ">10.1f"),
        *((f"x {base}", f"times_faster_than_{base}", ">11.2f") for base in BASES),
        ("a call", "call_times_faster_than_plain", ">7.2f"),
        ("idle", "idle_times_faster_than_plain", ">7.2f"),
        ("value", "relative_error_value", ">9.1e"),
        ("gradient", "relative_error_gradient", ">9.1e"),
        ("TFLOP/s", "useful_tflops", ">9.2f"),
        ("of TF32", "fraction_of_tf32", ">8.2f"),
        ("x floor", "times_floor", ">8.2f"),
    )
    heads = "".join(f"{head:>{int(form[1:].split('.')[0])}}" for head, _, form in columns)
    lines = [f"{'m':>6} {'d':>5} {'version':<14}{heads}"]
    for row in rows:
        numbers = "".join(cell(row, key, form) for _, key, form in columns)
        note = f"  {row['note']}" if "note" in row else ""
        lines.append(f"{row['m']:>6} {row['d']:>5} {row['version']:<14}{numbers}{note}")
    return "\n".join(lines)


def collapsed_line(row: Row) -> str:
    text = f"{row['directions']} directions, spread {row['spread']:.0e}  {row['version']:<11}"
    if "relative_error_value" in row:
        text += f" value {cell(row, 'relative_error_value', '>8.1e')}"
        text += f"  gradient {cell(row, 'relative_error_gradient', '>8.1e')}"
    return f"{text}  {row['note']}" if "note" in row else text


def graph_line(row: Row) -> str:
    text = f"m={row['m']} d={row['d']} {row['version']:<16}{cell(row, 'graph_us', '>9.2f')} us a replay"
    return f"{text}  {row['note']}" if "note" in row else text


def show(results: dict[str, Any]) -> None:
    print("\nForward and backward; times faster than; relative errors; useful operations")
    print(table(results["results"]))
    floors = results["floors"]
    print(f"\nCopy: {floors['copy_gb_per_s']:.0f} GB/s")
    for row in floors["products"]:
        rates = f"{cell(row, 'tf32_tflops', '>8.2f')} TFLOP/s in TF32, {cell(row, 'fp16_tflops', '>8.2f')} in float16"
        print(f"Product of ({row['rows_of_the_product']}, {row['d']}) with itself: {rates}")
    for title, key, line in (("Collapsed", "collapsed", collapsed_line), ("CUDA graphs", "graphs", graph_line)):
        print(f"\n{title}", *(line(row) for row in results[key]), sep="\n")


# of Okabe and Ito, told apart with any eyes: colour, line, label
LOOKS = {
    "authors": ("#000000", "-", "the authors' way"),
    "plain": ("#E69F00", "-", "plain formula"),
    "compiled": ("#56B4E9", "-", "plain, compiled"),
    "compiled tf32": ("#56B4E9", "--", "plain, compiled, TF32"),
    "blocked": ("#009E73", "-", "blocked"),
    "fused": ("#D55E00", "-", "fused"),
    "fused tf32": ("#D55E00", "--", "fused, TF32"),
    "auto": ("#0072B2", ":", "the whole call"),
}
MARKERS = "o^sDvP*X"


def draw(rows: list[Row], path: Path) -> None:
    """Time and memory against m: a line a version through the commonest d, a marker for each other d."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.lines import Line2D
    from matplotlib.ticker import NullFormatter

    widths = [d for _, d in sorted({(row["m"], row["d"]) for row in rows})]
    main = statistics.mode(widths)
    markers = dict(zip([main, *sorted(set(widths) - {main})], MARKERS, strict=False))
    figure, axes = pyplot.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    look: dict[str, dict[str, Any]] = {
        name: {
            "color": colour,
            "linestyle": style,
            "markerfacecolor": "white" if style == "--" else colour,
            "markersize": 3 if style == ":" else 5.5,  # what lies below stays visible
        }
        for name, (colour, style, _) in LOOKS.items()
    }
    panels = (axes[0], "ms", "forward and backward (ms)"), (axes[1], "extra_mib", "memory beyond the inputs (MiB)")
    for axis, key, label in panels:
        for (name, options), (d, marker) in itertools.product(look.items(), markers.items()):
            found = [row for row in rows if (row["version"], row["d"]) == (name, d) and row.get(key)]
            points = sorted((row["m"], row[key]) for row in found)
            line = options if d == main else {**options, "linestyle": "none"}
            axis.plot([m for m, _ in points], [y for _, y in points], marker=marker, **line)
        axis.set(xlabel="centers m", ylabel=label)
        if any(row.get(key) for row in rows):  # without a number there is no logarithm
            axis.set(xscale="log", yscale="log")
            for ticks in (axis.xaxis, axis.yaxis):
                ticks.set_major_formatter("{x:,.15g}")
                ticks.set_minor_formatter(NullFormatter())
        axis.grid(True, which="major", color="0.88", linewidth=0.6)
        axis.spines[["top", "right"]].set_visible(False)
    shown = {row["version"] for row in rows if row["ms"] is not None}
    entries = [(LOOKS[name][2], {**options, "marker": "o"}) for name, options in look.items() if name in shown]
    for d, marker in markers.items():
        entries.append((f"d = {d}", {"color": "0.4", "linestyle": "-" if d == main else "none", "marker": marker}))
    handles = [Line2D([], [], label=text, **options) for text, options in entries]
    figure.legend(handles=handles, loc="outside right center", frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, pil_kwargs={"optimize": True})
    pyplot.close(figure)
    print(f"drew {path}, {path.stat().st_size / 1024:.0f} KiB")


def size(text: str) -> Size:
    m, _, d = text.partition("x")
    return int(m), int(d)


def measure(sizes: list[Size], collapsed_size: Size | None, device: str, budget: float, out: Path) -> dict[str, Any]:
    """Everything, written after each part: what was measured stays if the rest is cut off."""
    start = time.perf_counter()
    floors: dict[str, Any] = {"copy_gb_per_s": round(copy_bandwidth(device), 1), "products": []}
    results: dict[str, Any] = {
        "triton": importlib.import_module("triton").__version__ if importlib.util.find_spec("triton") else None,
        "results": [],
        "floors": floors,
        "collapsed": [],
        "graphs": [],
    }
    for m, d in sizes:
        print(f"m={m} d={d}  ({time.perf_counter() - start:.0f} s since the start)", flush=True)
        rates = None
        if m >= 3536:
            rates = product_rates(m, d, device)
            floors["products"].append(rates)
        rows = compare(m, d, device, budget)
        for row in rows:
            add_floor(row, rates, floors["copy_gb_per_s"])
        results["results"] += rows
        record.write(out, results)
        if device == "cuda":
            torch.cuda.empty_cache()
    if collapsed_size is not None:
        print(f"collapsed  ({time.perf_counter() - start:.0f} s since the start)", flush=True)
        results["collapsed"] = collapsed(*collapsed_size, device)
    small = [(m, d) for m, d in sizes if m <= 1024]
    if device != "cuda":
        print("no CUDA graphs: needs a CUDA device", flush=True)
        small = []
    for m, d in small:
        print(f"CUDA graphs  ({time.perf_counter() - start:.0f} s since the start)", flush=True)
        results["graphs"] += graphs(m, d)
    results["seconds"] = round(time.perf_counter() - start)
    show(results)
    record.write(out, results)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", help=f"m x d, separated by commas; {SIZES} where there is a CUDA device")
    parser.add_argument("--collapsed-size", default="3536x512", help='m x d of the collapsed features; "" for none')
    parser.add_argument("--seconds", type=float, default=12.0, help="about how long the rounds of one size may take")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    parser.add_argument("--picture", default=str(PICTURE), help='"" for none')
    parser.add_argument("--draw-only", type=Path, metavar="JSON", help="draw the picture of a record, measure nothing")
    arguments = parser.parse_args()
    if arguments.draw_only:
        draw(json.loads(arguments.draw_only.read_text())["results"], Path(arguments.picture))
        return
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device != "cuda" and arguments.sizes is None:
        print("skipped: no CUDA device; --sizes 100x100,300x64 tries the script without one")
        return
    sizes = [size(text) for text in (arguments.sizes or SIZES).split(",")]
    around = size(arguments.collapsed_size) if arguments.collapsed_size else None
    results = measure(sizes, around, device, arguments.seconds, arguments.out)
    if arguments.picture and importlib.util.find_spec("matplotlib"):
        draw(results["results"], Path(arguments.picture))
    elif arguments.picture:
        print("no picture: matplotlib is not installed; --draw-only draws it later")
    rows = [*results["results"], *results["collapsed"], *results["graphs"]]
    sys.exit(int(any(row.get("note", "").startswith("failed") for row in rows)))


if __name__ == "__main__":
    main()
