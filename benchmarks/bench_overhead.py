"""What the regularizer adds to a training step: an age step and two dense depth steps, in time and peak memory.

    python benchmarks/bench_overhead.py                # about 3 minutes on an H200; writes bench_overhead.json
    python benchmarks/bench_overhead.py --tiny         # anywhere, small shapes, to see that it runs; writes nothing

``age``: resnet50, 256 images of 224 px, mean squared error of whole ages; the regularizer sees 256 rows of 2048.
``dense``: resnet50 with an upsampling decoder, 8 images of 416 x 544 with a depth map each, 80% of it valid; the
regularizer sees every fourth pixel, within each image, of the 128 channels at 208 x 272 before the head.
``depth``: the same with the model of the depth task, ``models.decoder``: two convolutions a level in place of one.

Random weights and images, bf16 autocast, channels_last, SGD with momentum, not compiled. All variants share one model
and one optimizer and take turns in random order. Before each timed step an untimed one of the same variant starts from
an empty queue, so that the timed one finds the queue as it is in training (not for a variant that is over five times as
slow as ``without``). The overhead is the median of the differences to ``without`` within a round, in percent of the
median of ``without``; with its 95% interval, by bootstrap over the rounds.

"Replayed" is the same with each whole step, optimizer included, replayed from a CUDA graph: what the GPU takes, without
the host, which in these eager steps is often the slower one. What waits for the GPU has no graph.

"Alone" is the regularizer alone, forward and backward on captured features. On a GPU it is queued behind a wait, so
that no launch is counted; a regularizer that itself waits for the GPU is marked, its time includes the host. The plain
formula has no centers: it is to be held against "diversity only, grouping none".
"""

import argparse
import gc
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from formulas import authors, plain
from ordinal_entropy import OrdinalEntropy, capture, kernels
from ordinal_entropy.environment import import_torchvision
from ordinal_entropy.models import decoder

import record

Regularizer = Callable[[Tensor], Tensor]  # of the captured features; the targets are fixed
Groups = Callable[[Tensor], Iterator[tuple[Tensor, Tensor]]]  # the same as rows (m, d), with targets (m, 1)

STRENGTH = 1e-3
STRIDE = 4
WITHOUT = "without"
WARM_UP = 5
LIMIT_MS = 4000  # of all timings of a regularizer alone
WAIT_CYCLES = 60_000_000  # 30 ms or more: what it takes to launch a regularizer


@dataclass(frozen=True)
class Step:
    """A model, its fixed batch, and the losses that take turns on it."""

    name: str
    model: nn.Module
    layer: str | None  # the head; None: found by capture
    images: Tensor  # (b, 3, h, w)
    task_loss: Callable[[Tensor], Tensor]  # of the prediction
    groups: Groups
    variants: dict[str, Regularizer | None]


def _timm() -> Any:
    import_torchvision()
    import timm

    return timm


class Decoder(nn.Module):
    """A timm encoder, upsampled step by step and joined with what it had at that size, to stride 2; then a 1x1 head."""

    def __init__(self, encoder: str) -> None:
        super().__init__()
        self.encoder = _timm().create_model(encoder, features_only=True, out_indices=(0, 1, 2, 3, 4))
        *skips, channels = self.encoder.feature_info.channels()
        self.levels = nn.ModuleList()
        for skip, width in zip(reversed(skips), (512, 256, 128, 128), strict=True):
            convolution = nn.Conv2d(channels + skip, width, 3, padding=1, bias=False)
            self.levels.append(nn.Sequential(convolution, nn.BatchNorm2d(width), nn.ReLU(inplace=True)))
            channels = width
        self.head = nn.Conv2d(channels, 1, 1)

    def forward(self, images: Tensor) -> Tensor:
        """``(b, 3, h, w)`` to ``(b, 1, h / 2, w / 2)``; both sizes multiples of 32."""
        *skips, x = self.encoder(images)
        for level, skip in zip(self.levels, reversed(skips), strict=True):
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)
            x = level(torch.cat([x, skip], 1))
        prediction: Tensor = self.head(x)
        return prediction


def authors_way(features: Tensor, targets: Tensor) -> Tensor:
    """The steps of the authors' regularizer, restated; 0 where their tightness is the mean of nothing."""
    values, index, counts = torch.unique(targets[:, 0], return_inverse=True, return_counts=True)
    centers = features.new_zeros(len(values), features.shape[1]).index_add(0, index, features) / counts[:, None]
    squares = (F.normalize(features, dim=1) - F.normalize(centers, dim=1)[index]).square().sum(1)
    apart = squares[squares > 0].sqrt()
    return apart.sum() / max(len(apart), 1) - authors(centers, values[:, None])


def over_groups(loss: Callable[[Tensor, Tensor], Tensor], groups: Groups, strength: float) -> Regularizer:
    """The mean of a loss over the groups, one after the other, times a strength."""

    def regularizer(features: Tensor) -> Tensor:
        return strength * torch.stack([loss(x, y) for x, y in groups(features)]).mean()

    return regularizer


def library(targets: Tensor, mask: Tensor | None = None, tightness: float = STRENGTH, **options: Any) -> Regularizer:
    """This library's regularizer on fixed targets."""
    module = OrdinalEntropy(diversity_weight=STRENGTH, tightness_weight=tightness, **options)
    return lambda features: module(features, targets, mask)


def images(b: int, h: int, w: int) -> Tensor:
    """Blots and noise ``(b, 3, h, w)``: neighbours are alike and images differ, as in photographs."""
    blots = F.interpolate(torch.randn(b, 3, h // 32, w // 32), size=(h, w), mode="bilinear")
    return (blots + 0.3 * torch.randn(b, 3, h, w)).to(memory_format=torch.channels_last)


def age(device: torch.device, tiny: bool) -> Step:
    b, size, encoder = (4, 64, "resnet18") if tiny else (256, 224, "resnet50")
    model = _timm().create_model(encoder, num_classes=1)
    ages = torch.randint(0, 101, (b,)).float().to(device)

    def groups(features: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        yield features.float(), ages[:, None]

    return Step(
        "age",
        model.to(device, memory_format=torch.channels_last),
        None,
        images(b, size, size).to(device),
        lambda prediction: F.mse_loss(prediction.float()[:, 0], ages),
        groups,
        {
            WITHOUT: None,
            "diversity + tightness": library(ages),
            "diversity only, grouping none": library(ages, tightness=0.0, grouping="none"),
            "authors' way": over_groups(authors_way, groups, STRENGTH),
            "plain formula": over_groups(plain, groups, -STRENGTH),
        },
    )


def dense(device: torch.device, tiny: bool, name: str = "dense", model: Callable[[str], nn.Module] = Decoder) -> Step:
    b, h, w, encoder = (2, 64, 96, "resnet18") if tiny else (8, 416, 544, "resnet50")
    depths = (torch.randint(101, 10_000, (b, h, w)) / 1000).to(device)  # whole millimetres, as from a sensor
    mask = (torch.rand(b, h, w) < 0.8).to(device)

    def groups(features: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        grid = (features.shape[2] // STRIDE, features.shape[3] // STRIDE)
        rows = F.interpolate(features, size=grid, mode="nearest").permute(0, 2, 3, 1).flatten(1, 2).float()  # (b, n, d)
        values = F.interpolate(depths[:, None], size=grid, mode="nearest").flatten(1)  # (b, n)
        inside = F.interpolate(mask[:, None].float(), size=grid, mode="nearest").flatten(1).bool()
        for x, y, valid in zip(rows, values, inside, strict=True):
            yield x[valid], y[valid, None]

    def task_loss(prediction: Tensor) -> Tensor:
        full = F.interpolate(prediction.float(), size=(h, w), mode="bilinear", align_corners=False)[:, 0]
        return ((full - depths).square() * mask).sum() / mask.sum()

    options: dict[str, Any] = {"mask": mask, "stride": STRIDE, "per": "image"}
    return Step(
        name,
        model(encoder).to(device, memory_format=torch.channels_last),  # type: ignore[call-overload]
        "head",
        images(b, h, w).to(device),
        task_loss,
        groups,
        {
            WITHOUT: None,
            "diversity + tightness": library(depths, **options),
            "diversity + tightness, bins of 0.1": library(depths, grouping=0.1, **options),
            "diversity only, grouping none": library(depths, tightness=0.0, grouping="none", **options),
            "authors' way": over_groups(authors_way, groups, STRENGTH),
            "plain formula": over_groups(plain, groups, -STRENGTH),
        },
    )


STEPS = {"age": age, "dense": dense, "depth": partial(dense, name="depth", model=decoder.create)}


def timed(call: Callable[[], Any]) -> tuple[float, bool]:
    """Milliseconds of a call, and whether all of it was in the queue of the GPU before its start was reached."""
    if not torch.cuda.is_available():
        begin = time.perf_counter()
        call()
        return 1000 * (time.perf_counter() - begin), False
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    call()
    end.record()
    ahead = not start.query()
    end.synchronize()
    return start.elapsed_time(end), ahead


@contextmanager
def training(step: Step, optimizer: torch.optim.Optimizer, name: str) -> Iterator[Callable[[], Tensor]]:
    """A call that makes one training step of a variant and returns its task loss; only a regularizer has a tap."""
    regularizer = step.variants[name]
    with nullcontext() if regularizer is None else capture(step.model, step.layer) as tap:

        def train() -> Tensor:
            with torch.autocast(step.images.device.type, dtype=torch.bfloat16):
                prediction = step.model(step.images)
            task_loss = step.task_loss(prediction)
            loss = task_loss
            if regularizer is not None and tap is not None:
                loss = loss + regularizer(tap.features)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return task_loss.detach()

        yield train


def step_times(step: Step, optimizer: torch.optim.Optimizer, rounds: int) -> dict[str, list[float]]:
    """Milliseconds of a step of each variant in each round."""
    order, shuffle = list(step.variants), random.Random(0).shuffle
    times: dict[str, list[float]] = {name: [] for name in order}
    warm: dict[str, float] = {}
    for k in range(-WARM_UP, rounds):
        for name in order:
            with training(step, optimizer, name) as train:
                if k < 0:
                    warm[name], _ = timed(train)
                    continue
                if warm[name] < 5 * warm[WITHOUT]:  # on a slower step the queue before it has no effect
                    train()
                times[name].append(timed(train)[0])
        if k == -1:
            print(f"{step.name}: warm, " + "; ".join(f"{name} {ms:.1f} ms" for name, ms in warm.items()), flush=True)
        elif k >= 0 and (k + 1) % 10 == 0:
            print(f"{step.name}: round {k + 1} of {rounds}", flush=True)
        shuffle(order)
    return times


def replay_times(step: Step, optimizer: torch.optim.Optimizer, rounds: int) -> dict[str, list[float]]:
    """The same for steps replayed from CUDA graphs, for the variants that can be captured."""
    graphs: dict[str, torch.cuda.CUDAGraph] = {}
    for name in step.variants if torch.cuda.is_available() else ():
        graph = torch.cuda.CUDAGraph()
        try:
            with training(step, optimizer, name) as train:
                side = torch.cuda.Stream()
                side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(side):
                    train()
                torch.cuda.current_stream().wait_stream(side)
                with torch.cuda.graph(graph):
                    train()
        except RuntimeError as error:
            print(f"{step.name}: no graph of {name}: {str(error).splitlines()[0]}", flush=True)
            torch.cuda.synchronize()
            optimizer.zero_grad(set_to_none=True)
            continue
        graphs[name] = graph
    times: dict[str, list[float]] = {name: [] for name in graphs}
    order, shuffle = list(graphs), random.Random(0).shuffle
    for _ in range(rounds):
        for name in order:
            graphs[name].replay()
            times[name].append(timed(graphs[name].replay)[0])
        shuffle(order)
    return times


def overhead(times: list[float], base: list[float]) -> tuple[float, float, float]:
    """Median of the differences in percent of the median of the base, and its 95% bootstrap interval."""
    own, other = np.array(times), np.array(base)
    pick = np.random.default_rng(0).integers(len(own), size=(10_000, len(own)))
    draws = 100 * np.median((own - other)[pick], axis=1) / np.median(other[pick], axis=1)
    low, high = np.percentile(draws, [2.5, 97.5])
    return 100 * float(np.median(own - other) / np.median(other)), float(low), float(high)


def peak_memory(step: Step, optimizer: torch.optim.Optimizer, name: str) -> float | None:
    """MiB that one step takes at most, model and optimizer included; None on a CPU."""
    if not torch.cuda.is_available():
        return None
    with training(step, optimizer, name) as train:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        train()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() / 2**20


def alone(regularizer: Regularizer, features: Tensor, rounds: int) -> dict[str, Any]:
    """Value, and milliseconds of forward and backward, of a regularizer by itself."""
    x = features.detach().requires_grad_()
    value = float(regularizer(x).detach())

    def call() -> None:
        x.grad = None
        regularizer(x).backward()

    for _ in range(3):
        warm, _ = timed(call)
    times, ahead = [], []
    for _ in range(max(5, min(rounds, int(LIMIT_MS / warm)))):
        if torch.cuda.is_available():
            torch.cuda._sleep(WAIT_CYCLES)
        ms, queued = timed(call)
        times.append(ms)
        ahead.append(queued)
    only = all(ahead) if torch.cuda.is_available() else None
    return {"value": value, "alone_ms": round(statistics.median(times), 3), "alone_is_gpu_only": only}


def close_share(points: Tensor) -> float:
    """Share of the pairs with a squared distance below 2**-10 of ``|x|^2 + |y|^2``, of unit rows less their mean.

    Kernels may treat such pairs apart, so their number belongs to the times.
    """
    z = F.normalize(points.detach().double(), dim=1)
    z = z - z.mean(0)
    sizes = z.square().sum(1)
    close = torch.cdist(z, z).square() < 2.0**-10 * (sizes[:, None] + sizes)
    return float(close.fill_diagonal_(False).double().mean())


def compare(step: Step, rounds: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the regularizer sees in a step, and a row for each variant."""
    on_gpu = step.images.device.type == "cuda"
    # so small a rate leaves the features as they are: the last round has the work of the first
    optimizer = torch.optim.SGD(step.model.parameters(), lr=1e-6, momentum=0.9, fused=on_gpu)
    times = step_times(step, optimizer, rounds)
    peaks = {name: peak_memory(step, optimizer, name) for name in step.variants}
    replayed = replay_times(step, optimizer, rounds)
    with training(step, optimizer, WITHOUT) as train, capture(step.model, step.layer) as tap:
        last = float(train())
    if not np.isfinite(last):
        raise RuntimeError(f"expected a finite task loss after the last step of {step.name}, got {last}")
    features, layer = tap.features.detach(), tap.layer
    tap.clear()
    points, targets = next(step.groups(features))
    seen = {
        "step": step.name,
        "images": list(step.images.shape),
        "layer": layer,
        "features": list(features.shape),
        "rows_of_first_group": len(points),
        "distinct_targets_of_first_group": len(targets.unique()),
        "close_pairs_of_first_group": close_share(points),
        "task_loss_after_last_step": last,
    }
    rows = []
    for name, regularizer in step.variants.items():
        percent, low, high = overhead(times[name], times[WITHOUT])
        peak, base = peaks[name], peaks[WITHOUT]
        row: dict[str, Any] = {
            "step": step.name,
            "variant": name,
            "rounds": len(times[name]),
            "ms": round(statistics.median(times[name]), 3),
            "overhead_percent": round(percent, 2),
            "overhead_percent_95": [round(low, 2), round(high, 2)],
            "peak_mib": None if peak is None else round(peak, 1),
            "peak_percent": None if peak is None or base is None else round(100 * (peak / base - 1), 2),
        }
        if name in replayed:
            percent, low, high = overhead(replayed[name], replayed[WITHOUT])
            row["replayed_ms"] = round(statistics.median(replayed[name]), 3)
            row["replayed_percent"] = round(percent, 2)
            row["replayed_percent_95"] = [round(low, 2), round(high, 2)]
        nothing = {"value": None, "alone_ms": None, "alone_is_gpu_only": None}
        rows.append({**row, **(nothing if regularizer is None else alone(regularizer, features, rounds))})
    print(f"{step.name}: done", flush=True)
    return seen, rows


def line(row: dict[str, Any]) -> str:
    text = f"{row['step']:<6} {row['variant']:<34} {row['ms']:>9.2f} ms"
    low, high = row["overhead_percent_95"]
    text += f" {row['overhead_percent']:>+9.2f}% [{low:+.2f}, {high:+.2f}]".ljust(36)
    if "replayed_ms" in row:
        low, high = row["replayed_percent_95"]
        text += f" replayed {row['replayed_ms']:>7.2f} ms {row['replayed_percent']:>+6.2f}% [{low:+.2f}, {high:+.2f}]"
    if row["peak_mib"] is not None:
        text += f" {row['peak_mib']:>9.0f} MiB {row['peak_percent']:>+7.2f}%"
    if row["alone_ms"] is not None:
        text += f"  alone {row['alone_ms']:>8.3f} ms"
        text += " (the host included)" if row["alone_is_gpu_only"] is False else ""
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="bench_overhead.json beside this file; nothing with --tiny")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--tiny", action="store_true", help="small shapes, to see that it runs")
    parser.add_argument("--steps", default=",".join(STEPS))
    arguments = parser.parse_args()
    names = arguments.steps.split(",")
    if unknown := [name for name in names if name not in STEPS]:
        parser.error(f"expected steps out of {', '.join(STEPS)}, got {', '.join(unknown)}")
    if not (torch.cuda.is_available() or arguments.tiny):
        print("bench_overhead.py: skipped, it needs a CUDA device; --tiny runs without one")
        return
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True

    seen, rows = [], []
    for name in names:
        gc.collect()  # nothing of the step before is left in the peak of this one
        torch.manual_seed(0)
        print(f"{name}: start", flush=True)
        of_step, of_variants = compare(STEPS[name](device, arguments.tiny), arguments.rounds)
        seen.append(of_step)
        rows += of_variants
    for row in rows:
        print(line(row))
    out = arguments.out or (None if arguments.tiny else Path(__file__).with_suffix(".json"))
    if out is not None:
        version = metadata.version("timm")
        record.write(out, {"timm": version, "kernels": kernels.describe(), "features": seen, "results": rows})


if __name__ == "__main__":
    main()
