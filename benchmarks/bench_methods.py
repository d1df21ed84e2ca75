"""What every registered method adds to a training step: time and memory against the rows of a batch.

    python benchmarks/bench_methods.py --device cuda --step                       # a few minutes on one GPU
    python benchmarks/bench_methods.py --methods rnc,ph-reg --rows 64,256 --out /tmp/a.json

Features are float32, after a ReLU; a target is one whole number from 1 to 100. Measured are the forward and the
backward pass, to the features or the outputs, of what a method adds: of a term, the term at a strength of 1; of
a head or a loss, the task loss and the decoding; of weights and mixing, the change of a batch, whose inputs are as wide
as the features; of smoothing, the calibration and what it observes. ``ms`` is the median on the clock, from an idle
device to an idle device, launches included. On a GPU ``device_ms`` is that of the device alone, whose work is queued
before it begins. ``extra_mib`` is the peak of memory beyond what was held before. With ``--step`` the times are also
compared with a training step of ResNet-50 on 256 images of 224 x 224 (bf16 autocast, channels last, Adam), of as many
rows and with features of 2048 numbers: ``share_of_step`` and ``device_share_of_step``; weights and mixing are then of
these images. A method that fails is recorded with its error.

Averaging adds to no loss: its cost does not depend on the rows but on the weights, which it reads after each step of
the optimizer. It has one line for a perceptron with a hidden layer of that width, and with ``--step`` one for
ResNet-50, each of ``parameters`` weights: ``optimizer_ms`` is a step of Adam, ``averaged_ms`` one and an update of the
average, in turns; ``ms`` is the median of their differences, and ``device_ms`` likewise. ``extra_mib`` has the copy of
the weights.
"""

import argparse
import contextlib
import gc
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ordinal_entropy import methods
from ordinal_entropy.environment import import_torchvision
from ordinal_entropy.methods import Batch, Composition, Step, squared_error
from ordinal_entropy.methods.averaging import Average

import record

Row = dict[str, Any]
ROWS = "64,256,1024,2048"
WIDTH = 512
WIDE = 2048  # of ResNet-50
WIDE_AT_ALL_ROWS = ("rnc", "ph-reg")  # whose cost is that of the distances between features
STEP_ROWS, IMAGE = 256, (3, 224, 224)
ROUNDS, SECONDS = 15, 0.4  # at most, of each
HEAD_START = 60_000_000  # cycles that a GPU waits while a call is queued, some 30 ms
LIMIT = 0.05  # of a step
STEPS = 1000  # of the training that an average is of


def targets(rows: int, device: str) -> Tensor:
    return torch.randint(1, 101, (rows, 1), generator=torch.Generator().manual_seed(0)).float().to(device)


def features(rows: int, width: int, device: str) -> Tensor:
    found = torch.randn(rows, width, generator=torch.Generator().manual_seed(1)).relu()
    return found.to(device).requires_grad_()


def added(method: Composition, rows: int, width: int, device: str, images: bool) -> Callable[[], None]:
    """A call of what the method adds to a step, forward and backward."""
    (kind,) = {part.kind for part in method.parts.values()}
    method.prepare(targets(4096, "cpu"), None, width)
    method.to(device)
    torch.manual_seed(0)
    head = method.head(width, 1).to(device)
    z, y = features(rows, width, device), targets(rows, device)
    inputs = torch.randn(rows, *IMAGE, device=device) if images and kind in ("weights", "mixing") else z.detach()
    batch, generator = Batch(inputs, y), torch.Generator(device).manual_seed(0)
    outputs = head(z)
    if isinstance(outputs, Tensor):
        outputs = outputs.detach().requires_grad_()
    step = Step(batch, z, outputs, squared_error)

    def term() -> None:
        method.added(step).backward()

    def loss() -> None:
        given = step if isinstance(outputs, Tensor) else step._replace(outputs=head(z))
        method.task_loss(given).backward()
        with torch.no_grad():
            method.decode(given.outputs)

    def change() -> None:
        method.change(batch, generator)

    def smooth() -> None:
        method.calibrate(z, batch).sum().backward()
        method.observe(z.detach(), y)

    for _ in range(2):  # epochs, after which there are statistics to smooth with
        method.observe(z.detach(), y)
        method.end_epoch()
    calls = {"term": term, "head": loss, "loss": loss, "weights": change, "mixing": change, "smoothing": smooth}
    call = calls[kind]

    def once() -> None:
        z.grad = None
        if isinstance(outputs, Tensor):
            outputs.grad = None
        call()

    return once


def clock_seconds(call: Callable[[], None], device: str) -> float:
    """From an idle device to an idle device."""
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    call()
    if device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - start


def device_seconds(call: Callable[[], None]) -> float:
    """Of a GPU whose queue is filled before it begins."""
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize()
    torch.cuda._sleep(HEAD_START)
    first.record()
    call()
    last.record()
    torch.cuda.synchronize()
    return first.elapsed_time(last) / 1000


def median(measure: Callable[[], float]) -> tuple[float, int]:
    """The median and how many rounds it is of, as many as there is time for, after three that warm up."""
    warm = min(measure() for _ in range(3))
    rounds = max(3, min(ROUNDS, int(SECONDS / max(warm, 1e-6))))
    return statistics.median(measure() for _ in range(rounds)), rounds


def extra_mib(call: Callable[[], None], device: str) -> float | None:
    """The peak of memory beyond what was held before; on a CPU of what torch allocates, by its profiler."""
    call()  # caches and workspaces of libraries
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        call()
        torch.cuda.synchronize()
        return round((torch.cuda.max_memory_allocated() - before) / 2**20, 2)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    try:
        events = [each for each in profiler.profiler.kineto_results.events() if each.name() == "[memory]"]
        held = highest = 0
        for each in sorted(events, key=lambda each: each.start_ns()):
            held += each.nbytes()
            highest = max(highest, held)
    except AttributeError:  # none of this is torch's public interface
        return None
    return round(highest / 2**20, 2)


def measured(name: str, rows: int, width: int, device: str, images: bool = False) -> Row:
    """One line of the table; of a method that fails, with its error."""
    row: Row = {"method": name, "m": rows, "d": width}
    try:
        method = methods.with_default(name, {}, strength=1.0)
        row["kind"] = methods.kind(name)
        if row["kind"] == "averaging":
            del row["m"], row["d"]
            row["network"] = "timm resnet50" if images else f"perceptron {width}-{width}-1"
            small = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))
            row |= averaged(method, resnet50() if images else small, device)
        else:
            call = added(method, rows, width, device, images)
            row["extra_mib"] = extra_mib(call, device)
            seconds, row["rounds"] = median(lambda: clock_seconds(call, device))
            row["ms"] = round(1000 * seconds, 4)
            if device == "cuda":
                row["device_ms"] = round(1000 * median(lambda: device_seconds(call))[0], 4)
    except Exception as error:  # the other methods are still worth their numbers
        said = str(error).strip().splitlines()
        row["error"] = f"{type(error).__name__}: {said[0] if said else ''}"
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
    return row


def averaged(method: Composition, network: nn.Module, device: str) -> Row:
    """What an average of the weights adds to a step of the optimizer."""
    network.to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=device == "cuda")
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    kept = Average(network)

    def update() -> None:
        kept.update(network, method.share(torch.tensor(STEPS), STEPS))

    def both() -> None:
        optimizer.step()
        update()

    copied = sum(each.numel() * each.element_size() for each in kept.state_dict().values()) / 2**20
    peak = extra_mib(update, device)
    row: Row = {
        "parameters": sum(each.numel() for each in network.parameters()),
        "extra_mib": None if peak is None else round(copied + peak, 2),
    }
    row |= in_turns(optimizer.step, both, lambda call: clock_seconds(call, device))
    if device == "cuda":
        found = in_turns(optimizer.step, both, device_seconds)
        row |= {f"device_{name}": value for name, value in found.items() if name != "rounds"}
    return row


def in_turns(alone: Callable[[], Any], both: Callable[[], None], seconds: Callable[..., float]) -> Row:
    """Medians of an optimizer's step, of one with the average, and of the differences of two that follow each other."""
    for call in (alone, both) * 3:
        warm = seconds(call)
    rounds = max(3, min(3 * ROUNDS, int(SECONDS / max(2 * warm, 1e-6))))  # a difference varies more than a time
    pairs = [(seconds(alone), seconds(both)) for _ in range(rounds)]
    found = {
        "ms": [with_it - without for without, with_it in pairs],
        "optimizer_ms": [without for without, _ in pairs],
        "averaged_ms": [with_it for _, with_it in pairs],
    }
    return {"rounds": rounds, **{name: round(1000 * statistics.median(each), 4) for name, each in found.items()}}


def resnet50() -> nn.Module:
    """With random weights, one number an image."""
    with contextlib.suppress(ModuleNotFoundError):  # timm does without
        import_torchvision()
    import timm

    return timm.create_model("resnet50", num_classes=1).to(memory_format=torch.channels_last)


def step_of_resnet50(device: str, rows: int) -> Row:
    """Milliseconds of a training step that every method would be added to."""
    torch.backends.cudnn.benchmark = True
    network = resnet50().to(device)
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3, fused=device == "cuda")
    images = torch.randn(rows, *IMAGE, device=device).to(memory_format=torch.channels_last)
    y = targets(rows, device)

    def step() -> None:
        with torch.autocast(device, torch.bfloat16):
            predictions = network(images)
        optimizer.zero_grad()
        F.l1_loss(predictions.float(), y).backward()
        optimizer.step()

    seconds, rounds = median(lambda: clock_seconds(step, device))
    found = {"network": "timm resnet50", "rows": rows, "image": IMAGE, "ms": round(1000 * seconds, 3), "rounds": rounds}
    if device == "cuda":
        found["device_ms"] = round(1000 * median(lambda: device_seconds(step))[0], 3)
    return found


def in_words(row: Row, step: Row | None) -> str:
    """A line of the progress."""
    of = row["network"] if "network" in row else f"m={row['m']:<5} d={row['d']:<5}"
    line = f"{row['method']:<16} {of} "
    if "error" in row:
        return line + row["error"]
    line += f"{row['ms']:10.3f} ms"
    line += f", device {row['device_ms']:.3f} ms" if "device_ms" in row else ""
    line += "" if row["extra_mib"] is None else f", {row['extra_mib']:.1f} MiB"
    return line + (f", {100 * row['share_of_step']:.1f}% of a step" if "share_of_step" in row else "")


def main() -> None:
    """Measures everything, prints a line for each size and writes the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--methods", default="", help="separated by commas; all that are registered if not given")
    parser.add_argument("--rows", default=ROWS, help="separated by commas")
    parser.add_argument("--width", type=int, default=WIDTH, help="of the features")
    parser.add_argument("--step", action="store_true", help="compare with a training step of ResNet-50")
    parser.add_argument("--step-rows", type=int, default=STEP_ROWS, help="images of that step")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    options = parser.parse_args()
    names = [name for name in options.methods.split(",") if name] or methods.names()
    sizes = [int(each) for each in options.rows.split(",")]
    results: dict[str, Any] = {"device": options.device, "limit": LIMIT}
    step = None
    if options.step:
        results["step"] = step = step_of_resnet50(options.device, options.step_rows)
        print(f"a step of ResNet-50: {step}", flush=True)
        gc.collect()
        if options.device == "cuda":
            torch.cuda.empty_cache()
    results["results"] = lines = []
    try:
        for name in names:
            if name == "baseline":
                continue
            wide = sizes if name in WIDE_AT_ALL_ROWS else []
            own = sizes[:1] if methods.kind(name) == "averaging" else sizes  # which has no rows
            for rows, width in [*((m, options.width) for m in own), *((m, WIDE) for m in wide)]:
                lines.append(measured(name, rows, width, options.device))
                print(in_words(lines[-1], step), flush=True)
            if step is not None:
                row = measured(name, step["rows"], WIDE, options.device, images=True)
                row["of_the_step"] = True
                for share, ms in (("share_of_step", "ms"), ("device_share_of_step", "device_ms")):
                    if ms in row:
                        row[share] = round(row[ms] / step[ms], 5)
                lines.append(row)
                print(in_words(row, step), flush=True)
    finally:  # what there is, if interrupted
        if step is not None:
            results["above_the_limit"] = [row["method"] for row in lines if row.get("share_of_step", 0) > LIMIT]
            print(f"above {100 * LIMIT:g}% of a step: {', '.join(results['above_the_limit']) or 'none'}")
        record.write(options.out, results)


if __name__ == "__main__":
    main()
