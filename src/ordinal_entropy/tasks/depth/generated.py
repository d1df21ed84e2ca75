"""Rendered rooms with exact depth, in the layout of NYU-Depth-v2: everything runs with nothing downloaded.

A room has walls, floor, ceiling, furniture of usual sizes, textures, a lamp and shadows, and is seen from several
places at about eye level. The depth of a pixel is that of the ray through its middle, along the camera's axis.
"""

import math
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordinal_entropy import runs
from ordinal_entropy.tasks.depth.data import TEST_LISTS, TRAIN_LISTS
from ordinal_entropy.tasks.generating import new_folder

Array = NDArray[np.float32]
Random = np.random.Generator

SIZE = (120, 160)  # rows and columns of an image
FOCAL = 518.8579  # of the dataset's camera, in pixels of images with 640 columns
VIEWS = 4  # of a room
KINDS = ("bedroom", "classroom", "dining_room", "kitchen", "living_room", "office")
_LEAST = 40  # pairs: with fewer a split might be empty
_FOLDERS = {"train": "sync", "test": "official_splits"}
_FINER = 2  # edges are seen so many times finer in both directions, then averaged
_FAR = np.float32(1e9)


def make(
    folder: str | os.PathLike[str],
    seed: int = 0,
    count: int = 1000,
    *,
    size: tuple[int, int] = SIZE,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Writes both lists and as many pairs of image and depth, the same for the same seed.

    Four pairs show one room; a fifth of the rooms is for the test. The lists come last: a folder that was not finished
    has none, and after Ctrl-C nothing is left in it.

    Args:
        folder: where; made if it is missing, refused if anything is in it.
        seed: of rooms and views.
        count: of pairs in all splits together, at least 40.
        size: rows and columns of an image.
        progress: is told how many pairs are rendered, and how many there will be.
    """
    if min(size) < 8:
        raise ValueError(f"expected images of at least 8 x 8 pixels, got {size[0]} x {size[1]}")
    folder = new_folder(folder, seed, count, least=_LEAST, of="pairs")
    for name in _FOLDERS.values():
        (folder / name).mkdir(parents=True)
    try:
        lines = _render_all(folder, np.random.SeedSequence(seed), count, size, progress)
        for split, name in (("test", TEST_LISTS[0]), ("train", TRAIN_LISTS[0])):
            with runs.replacing(folder / name) as file:
                file.write("".join(lines[split]).encode())
    except BaseException:
        for name in (*_FOLDERS.values(), TEST_LISTS[0]):
            shutil.rmtree(folder / name, ignore_errors=True)
        (folder / TEST_LISTS[0]).unlink(missing_ok=True)
        raise


def _render_all(
    folder: Path,
    seed: np.random.SeedSequence,
    count: int,
    size: tuple[int, int],
    progress: Callable[[int, int], None] | None,
) -> dict[str, list[str]]:
    """The lines of the lists."""
    from PIL import Image

    number = -(-count // VIEWS)  # of rooms
    training = number - max(round(number / 5), 1)
    seeds = seed.spawn(number)
    focal = FOCAL * size[1] / 640

    def one(index: int) -> list[str]:
        random = np.random.default_rng(seeds[index])
        kind = KINDS[index % len(KINDS)]
        room = furnished(kind, random)
        place = f"sync/{kind}_{index:04}" if index < training else f"official_splits/test/{kind}"
        (folder / place).mkdir(parents=True, exist_ok=True)
        lines = []
        for each in range(index * VIEWS, min((index + 1) * VIEWS, count)):
            image, depth = view(room, random, size)
            names = f"{place}/rgb_{each:05}.jpg", f"{place}/sync_depth_{each:05}.png"
            Image.fromarray(image).save(folder / names[0], "JPEG", quality=int(random.integers(85, 96)))
            Image.fromarray(np.rint(1000 * depth).astype(np.uint16)).save(folder / names[1], "PNG")
            lines.append(f"{names[0]} {names[1]} {focal:.4f}\n")
        return lines

    found: dict[str, list[str]] = {"train": [], "test": []}
    done = 0
    pool = ThreadPoolExecutor(os.cpu_count())
    try:
        for index, lines in enumerate(pool.map(one, range(number))):
            found["train" if index < training else "test"] += lines
            done += len(lines)
            if progress is not None:
                progress(done, count)
    finally:
        pool.shutdown(cancel_futures=True)
    return found


@dataclass(frozen=True)
class Paint:
    """How a surface looks: two colours in a pattern of some size."""

    colours: Array  # (2, 3), 0 to 1
    pattern: str  # "plain", "checks", "stripes", "planks" or "clouds"
    period: float  # metres
    phases: Array  # (4,)

    def at(self, across: Array, along: Array) -> Array:
        """Colours ``(n, 3)`` at places ``(n,)`` in metres."""
        u, v = across / self.period, along / self.period
        if self.pattern == "checks":
            share = (np.floor(u) + np.floor(v)) % 2
        elif self.pattern == "stripes":
            share = ((u % 1) < 0.5).astype(np.float32)
        elif self.pattern == "planks":
            row = np.floor(u)
            tone = np.sin(12.9898 * row + 78.233 * np.floor(v / 6 + row * 0.37)) * 43758.5453 % 1  # one a plank
            seam = ((u % 1) < 0.06) | ((v / 6 + row * 0.37) % 1 < 0.01)
            share = np.where(seam, 1.0, 0.6 * tone)
        elif self.pattern == "clouds":
            a, b, c, d = self.phases
            waves = np.sin(2.1 * u + 1.3 * v + a) + np.sin(-1.7 * u + 2.9 * v + b)
            waves = waves + np.sin(4.3 * u - 3.7 * v + c) / 2 + np.sin(6.1 * u + 7.3 * v + d) / 3
            share = 0.5 + waves / 6
        else:
            share = np.zeros_like(u)
        share = share[:, None].astype(np.float32)
        return _array(self.colours[0] * (1 - share) + self.colours[1] * share)


@dataclass(frozen=True)
class Block:
    """A box that stands upright."""

    centre: Array  # (3,) metres: x, y, and z up
    half: Array  # (3,)
    turn: float  # radians about the upright axis
    paint: Paint
    shade: bool = True  # whether it throws one


@dataclass(frozen=True)
class Ball:
    """A sphere."""

    centre: Array  # (3,)
    radius: float
    paint: Paint


@dataclass(frozen=True)
class Room:
    """Walls from 0 to ``extent``, and what is between them."""

    extent: Array  # (3,) metres
    paints: tuple[Paint, Paint, Paint]  # walls, floor, ceiling
    blocks: tuple[Block, ...]
    balls: tuple[Ball, ...]
    lamp: Array  # (3,)
    light: Array  # (3,), its colour


def furnished(kind: str, random: Random) -> Room:
    """A room of that kind, one of ``KINDS``, with its furniture."""
    extent = np.array([random.uniform(2.6, 6.5), random.uniform(2.6, 6.5), random.uniform(2.3, 3.0)], np.float32)
    paints = (
        _paint(random, ("plain", "plain", "stripes", "clouds"), (0.15, 0.4), bright=(0.5, 0.95), contrast=0.12),
        _paint(random, ("checks", "planks", "planks", "clouds"), (0.12, 0.45), bright=(0.2, 0.7), contrast=0.35),
        _paint(random, ("plain", "plain", "checks"), (0.6, 0.6), bright=(0.8, 1.0), contrast=0.05),
    )
    blocks: list[Block] = []
    balls: list[Ball] = []
    for piece in _pieces(kind, random):
        parts, rounds = _FURNITURE[piece](random)
        place, turn = _placed(piece, parts, extent, random)
        blocks += [_moved(part, place, turn) for part in parts]
        balls += [Ball(_turned(ball.centre, turn) + place, ball.radius, ball.paint) for ball in rounds]
    for wall in range(4):
        blocks += _on_wall(wall, extent, random, door=wall == 0)
    lamp = extent * np.array([random.uniform(0.25, 0.75), random.uniform(0.25, 0.75), 0.92], np.float32)
    warmth = random.uniform(-0.12, 0.12)
    light = np.array([1 + warmth, 1, 1 - warmth], np.float32)
    return Room(extent, paints, tuple(blocks), tuple(balls), lamp.astype(np.float32), light)


def view(room: Room, random: Random, size: tuple[int, int] = SIZE) -> tuple[NDArray[np.uint8], Array]:
    """A picture of the room from a place of its own, ``(h, w, 3)``, and its depth in metres, ``(h, w)``."""
    h, w = size
    eye, axes = _pose(room, random)
    seen = _seen(room, eye, _rays(axes, h, w), axes[2])
    depth, colours = seen[0].reshape(h, w), seen[1].reshape(h, w, 3)
    edges = _edges(colours)  # (h, w)
    finer = _rays(axes, _FINER * h, _FINER * w).reshape(3, h, _FINER, w, _FINER).transpose(0, 1, 3, 2, 4)[:, edges]
    _, several = _seen(room, eye, finer.reshape(3, -1), axes[2])
    colours[edges] = several.reshape(-1, _FINER * _FINER, 3).mean(1)
    return _photographed(colours, random), depth


def _edges(colours: Array) -> NDArray[np.bool_]:
    """Pixels ``(h, w)`` that differ from a neighbour: one ray does not tell their colour."""
    edges = np.zeros(colours.shape[:2], bool)
    for ahead, behind in ((np.s_[1:, :], np.s_[:-1, :]), (np.s_[:, 1:], np.s_[:, :-1])):
        differ = np.abs(colours[ahead] - colours[behind]).max(-1) > 0.04
        edges[ahead] |= differ
        edges[behind] |= differ
    return edges


def _pose(room: Room, random: Random) -> tuple[Array, Array]:
    """Where the camera is, and its axes to the right, down and forward, ``(3, 3)``; nothing is right before it."""
    best: tuple[float, Array, Array] | None = None
    for _ in range(30):
        eye = np.array([*random.uniform(0.35, room.extent[:2] - 0.35), random.uniform(1.2, 1.7)], np.float32)
        middle = room.extent[:2] * random.uniform(0.3, 0.7, 2) - eye[:2]  # it looks there
        pitch = float(np.clip(random.normal(-0.18, 0.12), -0.5, 0.15))
        axes = _axes(float(np.arctan2(middle[1], middle[0])), pitch, float(random.normal(0, 0.025)))
        depth, _ = _hits(room, eye, _rays(axes, 12, 16))
        before = float(min(np.quantile(depth, 0.02) / 0.6, np.median(depth) / 1.8))
        if best is None or before > best[0]:
            best = before, eye, axes
        if before >= 1:
            break
    assert best is not None
    return best[1], best[2]


def _axes(yaw: float, pitch: float, roll: float) -> Array:
    forward = np.array([np.cos(yaw) * np.cos(pitch), np.sin(yaw) * np.cos(pitch), np.sin(pitch)])
    right = np.array([np.sin(yaw), -np.cos(yaw), 0.0])
    down = np.cross(forward, right)
    right, down = np.cos(roll) * right + np.sin(roll) * down, np.cos(roll) * down - np.sin(roll) * right
    return _array(np.stack([right, down, forward]))


def _rays(axes: Array, h: int, w: int) -> Array:
    """Directions through the middles of the pixels, ``(3, h * w)``, each 1 long along the axis of the camera."""
    focal = FOCAL * w / 640
    right = (np.arange(w, dtype=np.float32) + np.float32(0.5 - w / 2)) / np.float32(focal)
    down = (np.arange(h, dtype=np.float32) + np.float32(0.5 - h / 2)) / np.float32(focal)
    across, along, forward = axes[:, :, None, None]  # (3, 1, 1) each
    return _array(forward + across * right + along * down[:, None]).reshape(3, -1)


def _hits(room: Room, eye: Array, rays: Array) -> tuple[Array, NDArray[np.int16]]:
    """How far along each ray ``(3, n)`` the first thing is, and which: 0 the room, then blocks, then balls."""
    half = room.extent / np.float32(2)
    depth = _ends(half, eye - half, rays)[1]
    which = np.zeros(len(depth), np.int16)
    lengths = _dot(rays, rays)
    things: list[Block | Ball] = [*room.blocks, *room.balls]
    for number, thing in enumerate(things, start=1):
        rows = _near(thing, eye, rays, lengths)
        distance = _distance(thing, eye, rays[:, rows])
        closer = distance < depth[rows]
        rows = rows[closer]
        depth[rows], which[rows] = distance[closer], number
    return depth, which


def _near(thing: Block | Ball, eye: Array, rays: Array, lengths: Array) -> NDArray[np.intp]:
    """The rays that come near the thing at all: those that hit the ball around it."""
    radius = thing.radius if isinstance(thing, Ball) else math.hypot(*thing.half)
    to = thing.centre - eye
    beyond = np.float32(_dot(to, to) - radius * radius)
    along = _dot(to, rays)
    if beyond <= 0:  # we are inside of that ball
        return np.arange(len(along))
    return np.flatnonzero((along > 0) & (along * along >= np.float32(0.999) * beyond * lengths))


def _ends(half: Array, start: Array, rays: Array) -> tuple[Array, Array]:
    """Where rays ``(3, n)`` enter and leave the box from ``-half`` to ``half``; those that miss it leave before."""
    safe = np.where(np.abs(rays) < 1e-6, np.float32(1e-6), rays)
    start = start.reshape(3, -1)
    side = np.copysign(half[:, None], safe)
    return _array(((-side - start) / safe).max(0)), _array(((side - start) / safe).min(0))


def _distance(thing: Block | Ball, eye: Array, rays: Array) -> Array:
    """How far along each ray the thing is, or far away where it is not hit."""
    if isinstance(thing, Ball):
        to = eye - thing.centre
        a, b = _dot(rays, rays), _dot(to, rays)
        root = b * b - a * (_dot(to, to) - thing.radius**2)
        distance = _array((-b - np.sqrt(np.maximum(root, 0))) / a)
        hit = (root > 0) & (distance > 0)
    else:
        distance, leave = _ends(thing.half, _turned(eye - thing.centre, -thing.turn), _turned(rays, -thing.turn))
        hit = (distance > 0) & (distance < leave)
    return np.where(hit, distance, _FAR)


def _seen(room: Room, eye: Array, rays: Array, forward: Array) -> tuple[Array, Array]:
    """How far along each ray ``(3, n)`` the first thing is, ``(n,)``, and its colour, ``(n, 3)``, 0 to 1 and more."""
    depth, which = _hits(room, eye, rays)
    points = eye[:, None] + depth * rays
    normals, colours = np.empty_like(points), np.empty((len(depth), 3), np.float32)
    for number in np.unique(which):
        rows = np.flatnonzero(which == number)
        if number == 0:
            normals[:, rows], colours[rows] = _inside(room, points[:, rows])
        elif number <= len(room.blocks):
            normals[:, rows], colours[rows] = _on_block(room.blocks[number - 1], points[:, rows])
        else:
            normals[:, rows], colours[rows] = _on_ball(room.balls[number - 1 - len(room.blocks)], points[:, rows])
    to_lamp = room.lamp[:, None] - points
    away = np.sqrt(_dot(to_lamp, to_lamp))
    facing = np.maximum(_dot(to_lamp, normals) / away, 0)
    facing[_in_shade(room, points, to_lamp, facing)] *= 0.15
    lamp = 1.1 * facing / (1 + (away / 3) ** 2)
    flash = 0.35 * np.abs(_dot(forward, normals)) / (1 + (depth / 2.5) ** 2)
    corner = 0.75 + 0.25 * np.clip(points[2] / 0.4, 0, 1)  # less light reaches the floor's edges and under things
    return depth, _array(colours * ((0.3 * corner + flash)[:, None] + lamp[:, None] * room.light))


def _in_shade(room: Room, points: Array, to_lamp: Array, facing: Array) -> NDArray[np.bool_]:
    """Of the points ``(3, n)`` that face the lamp those with a block between, ``(n,)``."""
    shade = np.zeros(len(facing), bool)
    for block in room.blocks:
        if block.shade:
            below = points[2] < block.centre[2] + block.half[2]  # the lamp is above
            rows = np.flatnonzero(below & (facing > 0) & ~shade)
            start = _turned(points[:, rows] - block.centre[:, None], -block.turn)
            enter, leave = _ends(block.half, start, _turned(to_lamp[:, rows], -block.turn))
            shade[rows[(enter < leave) & (leave > 0.003) & (enter < 1)]] = True
    return shade


def _inside(room: Room, points: Array) -> tuple[Array, Array]:
    """Normals ``(3, n)`` and colours ``(n, 3)`` of walls, floor and ceiling."""
    gaps = np.concatenate([points, room.extent[:, None] - points])  # (6, n): to x = 0, y = 0, floor, the other ends
    face = gaps.argmin(0)
    normals = np.concatenate([np.eye(3), -np.eye(3)], dtype=np.float32)[face].T
    colours = np.empty((len(face), 3), np.float32)
    for number in range(6):
        rows = np.flatnonzero(face == number)
        paint = room.paints[0 if number % 3 < 2 else 1 if number == 2 else 2]
        across = points[1 if number % 3 == 0 else 0, rows]
        along = points[1 if number % 3 == 2 else 2, rows]
        colours[rows] = paint.at(across, along)
    return normals, colours


def _on_block(block: Block, points: Array) -> tuple[Array, Array]:
    local = _turned(points - block.centre[:, None], -block.turn)
    axis = np.abs(local / block.half[:, None]).argmax(0)
    sign = np.sign(local[axis, np.arange(len(axis))])
    normals = np.eye(3, dtype=np.float32)[axis].T * sign
    across = np.where(axis == 0, local[1], local[0])
    along = np.where(axis == 2, local[1], local[2])
    return _turned(normals, block.turn), block.paint.at(across, along)


def _on_ball(ball: Ball, points: Array) -> tuple[Array, Array]:
    normals = (points - ball.centre[:, None]) / np.float32(ball.radius)
    return normals, ball.paint.at(ball.radius * np.arctan2(normals[1], normals[0]), points[2])


def _turned(vectors: Array, angle: float) -> Array:
    """Vectors ``(3,)`` or ``(3, n)`` about the upright axis."""
    cosine, sine = np.float32(np.cos(angle)), np.float32(np.sin(angle))
    x, y, z = vectors
    return np.stack([cosine * x - sine * y, sine * x + cosine * y, z])


def _dot(a: Array, b: Array) -> Array:
    """Of vectors ``(3,)`` or ``(3, n)``: summed in this order on every machine, as a BLAS does not."""
    return _array(a[0] * b[0] + a[1] * b[1] + a[2] * b[2])


def _array(values: Any) -> Array:
    return np.asarray(values, np.float32)


def _moved(block: Block, place: Array, turn: float) -> Block:
    return Block(_turned(block.centre, turn) + place, block.half, block.turn + turn, block.paint, block.shade)


def _photographed(colours: Array, random: Random) -> NDArray[np.uint8]:
    """Exposure, the curve of a camera, noise."""
    exposed = colours * (random.uniform(0.36, 0.55) / max(float(colours.mean()), 1e-3))
    pixels = 255 * np.clip(exposed, 0, 1) ** random.uniform(0.75, 0.95)
    pixels = pixels + random.uniform(1, 4) * random.standard_normal(pixels.shape, dtype=np.float32)
    bytes_: NDArray[np.uint8] = np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
    return bytes_


def _paint(
    random: Random,
    patterns: Sequence[str],
    period: tuple[float, float],
    *,
    bright: tuple[float, float] = (0.15, 0.85),
    contrast: float = 0.2,
) -> Paint:
    tint = random.normal(0, 0.07, 3)
    first = random.uniform(*bright) + tint
    second = first * (1 - random.uniform(0.3, 1) * contrast) - random.uniform(0, 0.3) * contrast
    colours = np.clip(np.stack([first, second]), 0.03, 1).astype(np.float32)
    phases = random.uniform(0, 2 * np.pi, 4).astype(np.float32)
    return Paint(colours, str(random.choice(list(patterns))), float(random.uniform(*period)), phases)


def _wood(random: Random) -> Paint:
    brown = np.array([0.62, 0.42, 0.25]) * random.uniform(0.5, 1.4)
    colours = np.clip(np.stack([brown, brown * 0.8]), 0.03, 1).astype(np.float32)
    return Paint(colours, "clouds", float(random.uniform(0.05, 0.15)), random.uniform(0, 6, 4).astype(np.float32))


def _cloth(random: Random) -> Paint:
    colours = np.stack([random.uniform(0.1, 0.9, 3), random.uniform(0.1, 0.9, 3)])
    colours[1] = 0.6 * colours[0] + 0.4 * colours[1]
    pattern = str(random.choice(["plain", "checks", "stripes", "clouds"]))
    phases = random.uniform(0, 6, 4).astype(np.float32)
    return Paint(colours.astype(np.float32), pattern, float(random.uniform(0.06, 0.2)), phases)


def _block(middle: Sequence[float], whole: Sequence[float], paint: Paint, *, shade: bool = True) -> Block:
    """A box by the middle of its bottom and its whole size."""
    x, y, bottom = middle
    centre = np.array([x, y, bottom + whole[2] / 2], np.float32)
    return Block(centre, _array(whole) / np.float32(2), 0.0, paint, shade)


Piece = tuple[list[Block], list[Ball]]  # around the origin, its back towards negative y


def _legs(length: float, depth: float, height: float, paint: Paint) -> list[Block]:
    thick = 0.05
    x, y = length / 2 - thick, depth / 2 - thick
    return [_block((a * x, b * y, 0), (thick, thick, height), paint, shade=False) for a in (-1, 1) for b in (-1, 1)]


def _table(random: Random) -> Piece:
    wood, length, depth, height = _wood(random), random.uniform(1, 1.6), random.uniform(0.6, 0.9), 0.72
    things = [_block((0, 0, height), (length, depth, 0.04), wood), *_legs(length, depth, height, wood)]
    on_top = _block(
        (random.uniform(-0.4, 0.4), 0, height + 0.04), random.uniform(0.1, 0.35, 3).tolist(), _cloth(random)
    )
    return [*things, on_top], []


def _chair(random: Random) -> Piece:
    paint = _wood(random) if random.random() < 0.6 else _cloth(random)
    seat, back = _block((0, 0, 0.43), (0.45, 0.45, 0.04), paint), _block((0, -0.2, 0.47), (0.45, 0.04, 0.45), paint)
    return [seat, back, *_legs(0.45, 0.45, 0.43, paint)], []


def _bed(random: Random) -> Piece:
    width, cloth = random.uniform(0.9, 1.6), _cloth(random)
    parts = [_block((0, 0, 0), (width, 2, 0.3), _wood(random)), _block((0, 0, 0.3), (width, 1.95, 0.22), cloth)]
    parts += [_block((0, -0.98, 0), (width, 0.06, random.uniform(0.8, 1.1)), _wood(random))]
    return [*parts, _block((0, -0.7, 0.52), (0.6, 0.4, 0.12), _cloth(random))], []


def _sofa(random: Random) -> Piece:
    width, cloth = random.uniform(1.4, 2.2), _cloth(random)
    parts = [_block((0, 0, 0.08), (width, 0.85, 0.34), cloth), _block((0, -0.35, 0.42), (width, 0.18, 0.4), cloth)]
    return parts + [_block((side * (width / 2 - 0.09), 0, 0.08), (0.18, 0.85, 0.52), cloth) for side in (-1, 1)], []


def _cupboard(random: Random) -> Piece:
    width, height, wood = random.uniform(0.6, 1.4), random.uniform(0.8, 2.0), _wood(random)
    parts = [_block((0, 0, 0), (width, 0.42, height), wood)]
    for side in (-1, 1):  # its doors
        parts.append(_block((side * width / 4, 0.215, 0.05), (width / 2 - 0.03, 0.02, height - 0.1), wood, shade=False))
    return parts, []


def _shelf(random: Random) -> Piece:
    width, height, wood = random.uniform(0.7, 1.2), random.uniform(1.4, 2.0), _wood(random)
    parts = [_block((0, -0.14, 0), (width, 0.02, height), wood)]
    parts += [_block((side * width / 2, 0, 0), (0.03, 0.3, height), wood) for side in (-1, 1)]
    for board in np.linspace(0.05, height - 0.03, 5).tolist():
        parts.append(_block((0, 0, board), (width, 0.3, 0.03), wood, shade=False))
        books = random.uniform(0.2, 0.8) * width
        parts.append(_block((0, -0.02, board + 0.03), (books, 0.2, 0.22), _cloth(random), shade=False))
    return parts[:-1], []


def _counter(random: Random) -> Piece:
    width, paint = random.uniform(1.2, 2.4), _paint(random, ("plain",), (0.6, 0.6), bright=(0.5, 0.95))
    parts = [_block((0, 0, 0), (width, 0.6, 0.86), paint), _block((0, 0, 0.86), (width, 0.64, 0.04), _wood(random))]
    above = _block((0, -0.13, 1.45), (width, 0.34, 0.65), paint)
    return [*parts, above], []


def _crate(random: Random) -> Piece:
    return [_block((0, 0, 0), random.uniform(0.25, 0.55, 3).tolist(), _cloth(random))], []


def _ball(random: Random) -> Piece:
    radius = float(random.uniform(0.1, 0.28))
    return [], [Ball(np.array([0, 0, radius], np.float32), radius, _cloth(random))]


def _standing_lamp(random: Random) -> Piece:
    metal, height = _paint(random, ("plain",), (1, 1)), float(random.uniform(1.3, 1.7))
    shade = _paint(random, ("plain", "stripes"), (0.06, 0.06), bright=(0.8, 1))
    pole = [_block((0, 0, 0), (0.04, 0.04, height), metal), _block((0, 0, 0), (0.3, 0.3, 0.03), metal, shade=False)]
    return pole, [Ball(np.array([0, 0, height], np.float32), 0.18, shade)]


_FURNITURE: dict[str, Callable[[Random], Piece]] = {
    "table": _table,
    "chair": _chair,
    "bed": _bed,
    "sofa": _sofa,
    "cupboard": _cupboard,
    "shelf": _shelf,
    "counter": _counter,
    "crate": _crate,
    "ball": _ball,
    "lamp": _standing_lamp,
}
_USUAL = {  # what is in every room of a kind
    "bedroom": ("bed", "cupboard", "lamp"),
    "classroom": ("table", "chair", "table", "chair", "shelf"),
    "dining_room": ("table", "chair", "chair", "cupboard"),
    "kitchen": ("counter", "table", "chair"),
    "living_room": ("sofa", "table", "shelf", "lamp"),
    "office": ("table", "chair", "shelf", "cupboard"),
}
_FREE = ("table", "chair", "crate", "ball")  # these stand anywhere, the others with their back to a wall


def _pieces(kind: str, random: Random) -> list[str]:
    more = random.choice(["chair", "crate", "crate", "ball", "ball", "cupboard", "lamp"], size=random.integers(1, 4))
    return [*_USUAL[kind], *more.tolist()]


def _placed(piece: str, parts: Sequence[Block], extent: Array, random: Random) -> tuple[Array, float]:
    """Where a piece of furniture stands on the floor, and how it is turned."""
    if piece in _FREE:
        x, y = random.uniform(0.5, extent[:2] - 0.5).tolist()
        return np.array([x, y, 0], np.float32), float(random.uniform(0, 2 * np.pi))
    back = max((float(part.half[1] - part.centre[1]) for part in parts), default=0.2)
    reach = max((float(abs(part.centre[0]) + part.half[0]) for part in parts), default=0.2)
    wall = int(random.integers(4))
    length = float(extent[wall % 2])
    along = float(random.uniform(min(reach, length / 2), max(length - reach, length / 2)))
    return _at_wall(wall, along, back, extent)


def _at_wall(wall: int, along: float, away: float, extent: Array) -> tuple[Array, float]:
    """A place so far along a wall and away from it, and the turn that has a back to it."""
    x, y = extent[:2].tolist()
    place = {0: (along, away), 1: (x - away, along), 2: (along, y - away), 3: (away, along)}[wall]
    return np.array([*place, 0], np.float32), (0, np.pi / 2, np.pi, -np.pi / 2)[wall]


def _on_wall(wall: int, extent: Array, random: Random, *, door: bool) -> list[Block]:
    """A door or pictures, flat on a wall."""
    length = float(extent[wall % 2])
    if door:
        whole, bottom, paint = (0.9, 0.06, 2.0), 0.0, _wood(random)
    elif random.random() < 0.7:
        whole = (float(random.uniform(0.3, 1.2)), 0.04, float(random.uniform(0.3, 0.8)))
        bottom, paint = float(random.uniform(1.1, 1.4)), _cloth(random)
    else:
        return []
    along = float(random.uniform(whole[0] / 2, length - whole[0] / 2))
    place, turn = _at_wall(wall, along, 0.0, extent)
    return [_moved(_block((0, 0, bottom), whole, paint, shade=False), place, turn)]
