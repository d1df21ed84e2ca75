"""The mean over all pairs fused on the tensor cores: no m x m matrix, rows split into two halves of float16.

Kernels follow each other without a look at any value: those of ``directions`` take the points apart, for each block of
pairs those of ``products`` give distances and pulls, ``close`` does again what is too close for a product, and
``directions.finish`` puts the gradient together. Where ``torch.get_float32_matmul_precision()`` is not "highest", and
for features of half precision, one half of the two will do. Few points have a kernel of their own, in ``few``.
"""

import functools
import itertools
import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from ordinal_entropy.kernels import few
from ordinal_entropy.kernels.autograd import differentiable
from ordinal_entropy.kernels.choice import MOST_GROUPS, use
from ordinal_entropy.kernels.close import take_close_pairs
from ordinal_entropy.kernels.directions import finish, measure, prepare, split, summarise
from ordinal_entropy.kernels.launch import At, Launch, Program, aligned, current
from ordinal_entropy.kernels.pairs import pair_mean
from ordinal_entropy.kernels.products import add_pulls, take_pairs
from ordinal_entropy.kernels.weights import POWERS, smallest_gap
from ordinal_entropy.kernels.workspace import FACTS, NUMBERS

SCRATCH = 2**25  # bytes for the pulls of one block of pairs
# Columns of a block of pairs: tensor cores round their sums down, so that of longer ones the gradient would be off by
# more than 5e-6. With one product it is off by 3e-4 anyway.
LONGEST = {2: 2048, 1: 4096}
BITS = 2**25  # bytes that may say which pairs are close; of more pairs it is known by tiles only
FEW = 2**14  # numbers of a group that one program prepares
_ROWS = 32  # of a program that computes in float64


@triton.jit
def _extremes(values, amount, smallest, largest, m, T: tl.constexpr, TILE: tl.constexpr):
    """Of the pairs of some rows with all: the smallest and the largest squared distance between targets."""
    block, group = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i = block * TILE + tl.arange(0, TILE)
    a = tl.load(amount + group * m + i, i < m, 0.0)
    low = tl.full([TILE, TILE], float("inf"), tl.float64)
    high = tl.full([TILE, TILE], float("-inf"), tl.float64)
    for start in range(0, m, TILE):
        j = start + tl.arange(0, TILE)
        pair = (a > 0)[:, None] & (tl.load(amount + group * m + j, j < m, 0.0) > 0)[None, :]
        pair = pair & ((i[:, None] != j[None, :]) | (a > 1)[:, None])  # with itself only where it has copies
        squares = tl.zeros([TILE, TILE], tl.float64)  # of any float32
        for c in tl.static_range(T):
            y_i = tl.load(values + (group * m + i) * T + c, i < m, 0.0).to(tl.float64)
            y_j = tl.load(values + (group * m + j) * T + c, j < m, 0.0).to(tl.float64)
            gap = y_i[:, None] - y_j[None, :]
            squares += gap * gap
        low = tl.where(pair, tl.minimum(low, squares), low)
        high = tl.where(pair, tl.maximum(high, squares), high)
    tl.store(smallest + group * tl.num_programs(0) + block, tl.min(low))
    tl.store(largest + group * tl.num_programs(0) + block, tl.max(high))


def _ceil(n: int, size: int) -> int:
    return -(-n // size) * size


def extremes(values: Tensor, amount: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest distance ``(g,)`` between present values ``(g, m, t)``; no pair: 0 and 0."""
    g, m, t = values.shape
    blocks = _ceil(m, 64) // 64
    low, high = torch.empty(2, g, blocks, dtype=torch.float64, device=values.device).unbind()
    _extremes[(blocks, g)](values, amount, low, high, m, T=t, TILE=64)
    low, high = low.amin(1), high.amax(1)
    none = low.isinf()
    return torch.where(none, 0, low).sqrt(), torch.where(none, 0, high).sqrt()


def blocks_of_pairs(g: int, rows: int, width: int, tile: int, parts: int, processors: int) -> tuple[int, int]:
    """How many groups, and how many rows and columns of pairs, the scratch holds at a time.

    As many as leave the fewest processors idle, but of more than 1024 rows never all pairs.

    Example:
        >>> blocks_of_pairs(1, 16384, 512, 128, 2, 132), blocks_of_pairs(8, 3584, 128, 128, 2, 132)
        ((1, 2048), (8, 896))
    """
    pairs = SCRATCH // (2 * parts)
    groups = max(1, min(g, pairs // min(rows, 1024) ** 2))
    tiles, deep = rows // tile, max(1, width // 128)
    most = min(math.isqrt(pairs // groups), LONGEST[parts]) // tile
    most = max(1, min(most, tiles if rows <= 1024 else -(-tiles // 2)))

    def rounds(number: int) -> int:
        return -(-number * groups // processors)

    def time(side: int) -> float:
        """In products of tiles; what follows those of a tile of pairs counts for 3, a pair of launches for 24."""
        number = -(-tiles // side)
        turned = rounds(side * deep * 2) if 2 * side * deep * groups > processors else 0.6
        alone = rounds(side * deep) if 2 * side * deep * groups > processors else 0.6
        off = rounds(side * side) * (deep + 3) + turned * side + 24
        return number * (rounds(side * (side + 1) // 2) * (deep + 3) + alone * side + 24 + (number - 1) / 2 * off)

    return groups, tile * min(range(most, 0, -1), key=time)


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _tile_and_warps(m: int, d: int) -> tuple[int, int]:
    """Of the pairs; small tiles, where large ones would leave most processors idle."""
    tile = 64 if m <= 512 else 128
    return tile, tile // 16


@functools.cache
def _depth_and_stages(device: torch.device, tile: int, parts: int) -> tuple[int, int]:
    """Depth of a step of the products, and how many steps are loaded ahead, for the shared memory of the device."""
    if device.type != "cuda":
        return 32, 1  # the interpreter
    room = torch.cuda.get_device_properties(device).shared_memory_per_block_optin  # type: ignore[attr-defined]
    depth = 64 if room >= 160 * 1024 else 32
    return depth, max(1, min(4 if tile == 128 else 2, room // (2 * parts * 2 * tile * depth)))


# what a call brings to its program
_POINTS, _VALUES, _AMOUNT_OF, _GAP, _SPAN, _TIMES, _GRADIENT, _MEANS, _WORKSPACE = map(At, range(9))


@functools.lru_cache(maxsize=256)
def _program(
    g: int,
    m: int,
    d: int,
    t: int,
    power: float,
    cosine: bool,
    project: bool,
    rescaled: bool,
    with_amount: bool,
    with_gap: bool,
    with_span: bool,
    with_gradient: bool,
    parts: int,
    device: torch.device,
    compiled_for: tuple[object, ...],
) -> tuple[Program, int]:
    """The kernels for one shape, and the bytes of their workspace."""
    processors = _processors(device)
    tile, warps = _tile_and_warps(m, d)
    rows, width = _ceil(m, tile), (64 if d <= 64 else _ceil(d, 128))
    tiles = rows // tile
    cols = min(512, triton.next_power_of_2(d))
    most = min(64, 4096 // cols)  # rows of a program that goes over the features
    some = min(most, triton.next_power_of_2(max(1, g * rows // (2 * processors))))
    blocks = rows // some
    repeats = triton.cdiv(blocks, 256)
    measured = triton.cdiv(blocks, repeats)
    doubles = FACTS.value + width + rows + measured * (NUMBERS.value + width)
    singles = (5 + t) * rows + 2 * tiles * tiles
    groups, side = blocks_of_pairs(g, rows, width, tile, parts, processors)
    plane, part = g * rows * width, groups * side * side
    depth, stages = _depth_and_stages(device, tile, parts)
    # so that no pull is beyond float16: lengths are at most sqrt(m), and 32 times the distance
    scale = 2.0**15 / max(m, 128) if cosine else 2.0**10 / math.sqrt(max(m, 128))

    by_bits = 0 if cosine or g * rows * rows // 8 > BITS else g * rows * rows // 8
    by_pulls = 8 * groups * (side // tile) * side
    sizes = 8 * g * doubles, 4 * g * singles, by_pulls, by_bits, 2 * parts * plane, 2 * parts * part
    starts = [0, *itertools.accumulate(_ceil(size, 256) for size in sizes)]
    dtypes = torch.float64, torch.float32, torch.float32, torch.int32, torch.float16, torch.float16
    double, single, pulls, all_bits, halves, scratch = (
        At(_WORKSPACE.number, start, dtype) for start, dtype in zip(starts, dtypes, strict=False)
    )
    bits = all_bits if by_bits else None
    amount, gap, span = (
        at if there else None for at, there in ((_AMOUNT_OF, with_amount), (_GAP, with_gap), (_SPAN, with_span))
    )
    if rows * width <= FEW:  # one launch costs less than three
        whole = min(rows & -rows, FEW // cols)  # the largest power of two that divides the rows
        launches = [Launch(prepare, (1, g, 1), (
            _POINTS, _VALUES, amount, double, single, halves, gap, span, _TIMES, m, d, rows, width, doubles,
            singles, plane, rows // whole, project, power, rescaled, parts, t, whole, cols,
        ), warps=16)]  # fmt: skip
    else:
        launches = [
            Launch(measure, (measured, g, 1), (
                _POINTS, _VALUES, amount, double, m, d, rows, width, doubles, repeats, project, t, some, cols,
            )),
            Launch(summarise, (triton.cdiv(width, 64), g, 1), (
                double, gap, span, _TIMES, rows, width, doubles, measured, power, rescaled, t, 64, 64,
            )),
            Launch(split, (blocks, g, 1), (
                _POINTS, _VALUES, amount, double, single, halves, m, d, rows, width, doubles, singles, plane,
                parts, t, some, cols,
            )),
        ]  # fmt: skip
    for group, row in itertools.product(range(0, g, groups), range(0, rows, side)):
        now = min(groups, g - group)
        for col in range(row, rows, side):
            down, across = (min(side, rows - start) // tile for start in (row, col))
            launches.append(Launch(take_pairs, (down * across, now, 1), (
                halves, double, single, bits, scratch, pulls, group, row, col, across, rows, width, doubles, singles,
                plane, side, part, scale, power, cosine, parts, with_gradient, t, tile, depth,
            ), warps, min(stages, width // depth)))  # fmt: skip
            if with_gradient:
                ways = 1 if row == col else 2
                crowded = 2 * down * (width // 128) * now * ways > processors
                slab = tile if crowded else 64  # smaller tiles keep more processors busy
                launches.append(Launch(add_pulls, (down * (width // slab), now, ways), (
                    halves, double, single, scratch, pulls, _GRADIENT, group, row, col, m, d, rows, width, doubles,
                    singles, plane, side, part, scale, cosine, parts, t, tile, slab, depth,
                ), warps, stages))  # fmt: skip
    if not cosine:
        launches.append(Launch(take_close_pairs, (rows // _ROWS, g, 1), (
            _POINTS, double, single, bits, _GRADIENT, m, d, rows, width, doubles, singles, power, with_gradient, t,
            tile, _ROWS, 16, min(64, cols),
        ), warps=8))  # fmt: skip
    launches.append(Launch(finish, (blocks if with_gradient else 1, g, 1), (
        _POINTS, double, single, _GRADIENT, _MEANS, m, d, rows, width, doubles, singles, project, not cosine,
        with_gradient, t, tile, _ROWS, some, cols,
    ), warps=8))  # fmt: skip
    return Program(launches), starts[6] if with_gradient else starts[5]


def means_and_gradient(
    points: Tensor,
    values: Tensor,
    amount: Tensor | None,
    power: float,
    distance: str,
    project: bool,
    rescale: str,
    times: float,
    coarse: bool,
    with_gradient: bool,
) -> tuple[Tensor, Tensor]:
    """Mean over all pairs of weight times distance, one a group, and its gradient in the shape of the points.

    Args:
        points: ``(g, m, d)``, or ``(m, d)`` for one group; float32, bfloat16 or float16.
        values: ``(g, m, t)`` targets.
        amount: ``(g, m)``, how many copies of a point there are; None: one of each.
        power: of the distance between targets: 0, 0.5, 1 or 2.
        distance: "l2" or "cosine" (with ``project``).
        project: divide the points by their norms first.
        rescale: "max", "authors" or "none".
        times: a factor of the means.
        coarse: one product will do; the same for half-precision points.
        with_gradient: compute the gradient too; without, it is empty.

    Returns:
        Both in float32; the means ``(g,)``, of one group a scalar.
    """
    coarse = coarse or points.dtype in (torch.float16, torch.bfloat16)
    points, values = points.float().contiguous(), values.contiguous()
    amount = amount if amount is None else amount.contiguous()
    (g, m, d), t, device = (1, *points.shape)[-3:], values.shape[-1], points.device
    if g > MOST_GROUPS:
        amounts = [None] * -(-g // MOST_GROUPS) if amount is None else amount.split(MOST_GROUPS)
        inputs = zip(points.split(MOST_GROUPS), values.split(MOST_GROUPS), amounts, strict=True)
        options = power, distance, project, rescale, times, coarse, with_gradient
        done = [means_and_gradient(x, y, a, *options) for x, y, a in inputs]
        return torch.cat([means.reshape(-1) for means, _ in done]), torch.cat([gradient for _, gradient in done])
    cosine = distance == "cosine"
    seen = (points, values) if amount is None else (points, values, amount)
    with current(points):
        compiled_for = device, *(x.dtype for x in seen), *aligned(*seen)
        gradient = torch.empty_like(points) if with_gradient else torch.empty(0, device=device)
        means = torch.empty(() if g == 1 else (g,), device=device)
        if few.fits(g, m, d, _processors(device)):
            program, room = few.program(
                g, m, d, t, power, cosine, project, rescale, amount is not None, with_gradient, compiled_for
            )
            workspace = torch.empty(room, dtype=torch.uint8, device=device)
            program(device, points, values, amount, float(times), gradient, means, workspace)
            return means, gradient
        gap = span = None
        rescaled = rescale != "none" and power != 0
        if rescaled and t > 1:
            gap, span = extremes(values, points.new_ones(g, m) if amount is None else amount)
            gap = gap if rescale == "authors" else None
        elif rescaled and rescale == "authors":
            gap = smallest_gap(values, points.new_ones(g, m) if amount is None else amount)
        parts = 1 if coarse or torch.get_float32_matmul_precision() != "highest" else 2
        program, room = _program(
            g, m, d, t, power, cosine, project, rescaled, amount is not None, gap is not None, span is not None,
            with_gradient, parts, device, compiled_for,
        )  # fmt: skip
        workspace = torch.empty(room, dtype=torch.uint8, device=device)
        program(device, points, values, amount, gap, span, float(times), gradient, means, workspace)
    return means, gradient


def _plain(
    points: Tensor,
    values: Tensor,
    amount: Tensor | None,
    power: float,
    distance: str,
    project: bool,
    rescale: str,
    times: float,
    coarse: bool,
) -> Tensor:
    """The same means by plain operations."""
    points = points.float() if points.dim() == 3 else points.float()[None]
    amount = points.new_ones(points.shape[:2]) if amount is None else amount
    weighting = next(name for name, value in POWERS.items() if value == power)
    with use("reference"):
        means = [
            pair_mean(
                *(x[k : k + 1] for x in (points, values, amount)),
                weighting=weighting,
                distance=distance,
                rescale=rescale,
                project=project,
                num_pairs=None,
                generator=None,
                eager=False,
                times=times,
            )
            for k in range(len(points))
        ]
    return torch.stack(means)


operator, pair_means = differentiable(
    "pair_means",
    "(Tensor points, Tensor values, Tensor? amount, float power, str distance, bool project, str rescale, "
    "float times, bool coarse, bool with_gradient) -> (Tensor, Tensor)",
    means_and_gradient,
    _plain,
    tensors=3,
    scalar=True,
)
