"""Rendered rooms: the layout, exact depth, the same for a seed, whole or not there, and something to learn from."""

import os
import subprocess
import sys
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("PIL", reason="images are written with Pillow")

from ordinal_entropy.tasks.depth import data, generated
from ordinal_entropy.tasks.depth.generated import Ball, Block, Paint, Room

TRAIN, TEST = "nyudepthv2_train_files_with_gt.txt", "nyudepthv2_test_files_with_gt.txt"

MAKE = """
import sys
from pathlib import Path
from ordinal_entropy.tasks.depth import generated
generated.make(Path(sys.argv[1]), seed=1, count=62, size=(48, 64))
"""


def content(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def rooms(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made") / "rooms"
    generated.make(folder, seed=1, count=62, size=(48, 64))
    return folder


def test_it_is_whole_and_in_the_layout_of_the_lists(rooms):
    assert data.check(rooms) == []
    found, _ = data.records(rooms)
    assert Counter(record.split for record in found) == {"train": 44, "val": 8, "test": 10}
    assert sorted(path.name for path in rooms.iterdir()) == [TEST, TRAIN, "official_splits", "sync"]
    image, depth, focal = (rooms / TRAIN).read_text().splitlines()[5].split()
    assert (image, depth) == ("sync/classroom_0001/rgb_00005.jpg", "sync/classroom_0001/sync_depth_00005.png")
    assert float(focal) == pytest.approx(51.8858, abs=1e-4)
    assert len(content(rooms)) == 2 * 62 + 2
    depths = np.stack([data.read(record)[1] for record in found])
    assert depths.shape == (62, 48, 64) and 0.1 < depths.min() < depths.max() < 10
    assert depths.std() > 0.7


def test_the_same_for_a_seed_and_another_for_another(rooms, tmp_path):
    generated.make(tmp_path / "again", seed=1, count=62, size=(48, 64))
    assert content(tmp_path / "again") == content(rooms)
    generated.make(tmp_path / "other", seed=2, count=40, size=(48, 64))
    first = next((tmp_path / "other").rglob("sync_depth_00000.png")).read_bytes()
    assert first != next(rooms.rglob("sync_depth_00000.png")).read_bytes()


@pytest.mark.slow
def test_the_same_whatever_the_blas_does(rooms, tmp_path):
    """OpenBLAS has other code for other processors, which rounds otherwise; another BLAS ignores this."""
    for processor in ("Haswell", "SkylakeX", "Prescott"):
        other = {**os.environ, "OPENBLAS_CORETYPE": processor}
        subprocess.run([sys.executable, "-c", MAKE, str(tmp_path / processor)], env=other, check=True)
        assert content(tmp_path / processor) == content(rooms)


PLAIN = Paint(np.full((2, 3), 0.5, np.float32), "plain", 1.0, np.zeros(4, np.float32))


def vector(*numbers):
    return np.array(numbers, np.float32)


def forward():
    """A camera in the middle of a room of 4 x 6 x 3 m that looks along y; right is x."""
    return vector(2, 1, 1.5), generated._axes(np.pi / 2, 0.0, 0.0)


def test_axes_are_at_right_angles_and_down_is_down():
    _, axes = forward()
    assert np.allclose(axes, [[1, 0, 0], [0, 0, -1], [0, 1, 0]], atol=1e-6)
    turned = generated._axes(0.3, -0.2, 0.1)
    assert np.allclose(turned @ turned.T, np.eye(3), atol=1e-6)
    assert turned[1, 2] < 0 and turned[2, 2] < 0  # looks down


def test_depths_by_hand():
    """A wall at 5 m, and the floor 1.5 m below; a block and a ball before it."""
    eye, axes = forward()
    block = Block(vector(2, 4, 1.5), vector(0.5, 0.5, 0.5), 0.0, PLAIN)
    ball = Ball(vector(2, 3, 1.5), 0.25, PLAIN)
    rays = generated._rays(axes, 121, 161)  # a ray in the very middle
    middle = 60 * 161 + 80

    def depth(*things):
        blocks, balls = (tuple(t for t in things if isinstance(t, kind)) for kind in (Block, Ball))
        room = Room(vector(4, 6, 3), (PLAIN, PLAIN, PLAIN), blocks, balls, vector(2, 3, 2.8), vector(1, 1, 1))
        return generated._hits(room, eye, rays)[0].reshape(121, 161)

    empty = depth()
    assert empty[60, 80] == pytest.approx(5)
    assert np.allclose(empty[40, 60:100], 5)  # along the axis of the camera, not along the ray
    down = (120 - 60) / (generated.FOCAL * 161 / 640)
    assert empty[120, 80] == pytest.approx(1.5 / down, rel=1e-4)
    assert depth(block)[60, 80] == pytest.approx(2.5)
    assert depth(block, ball)[60, 80] == pytest.approx(1.75)
    turned = Block(block.centre, block.half, np.pi / 4, PLAIN)
    assert depth(turned)[60, 80] == pytest.approx(3 - np.sqrt(0.5), rel=1e-4)
    assert rays[:, middle] == pytest.approx(axes[2])
    behind = Block(vector(2, 0.2, 1.5), vector(0.1, 0.1, 0.1), 0.0, PLAIN)
    assert np.array_equal(depth(behind), empty)


def test_depth_is_where_a_march_along_the_ray_first_meets_something():
    random = np.random.default_rng(3)
    room = generated.furnished("office", random)
    eye, axes = generated._pose(room, random)
    rays = generated._rays(axes, 6, 8)
    depth, _ = generated._hits(room, eye, rays)

    def solid(points):  # (3, n)
        inside = (points < 0).any(0) | (points > room.extent[:, None]).any(0)
        for block in room.blocks:
            local = generated._turned(points - block.centre[:, None], -block.turn)
            inside |= (np.abs(local) < block.half[:, None]).all(0)
        for ball in room.balls:
            inside |= ((points - ball.centre[:, None]) ** 2).sum(0) < ball.radius**2
        return inside

    steps = np.arange(0, 10, 0.002, dtype=np.float32)
    for ray, found in zip(rays.T, depth, strict=True):
        first = steps[solid(eye[:, None] + ray[:, None] * steps).argmax()]
        assert first == pytest.approx(found, abs=0.004)


@pytest.mark.parametrize("kind", generated.KINDS)
def test_every_kind_of_room_is_light_enough_and_not_right_before_the_camera(kind):
    random = np.random.default_rng(7)
    room = generated.furnished(kind, random)
    for _ in range(3):
        image, depth = generated.view(room, random, (30, 40))
        assert image.shape == (30, 40, 3) and image.dtype == np.uint8 and depth.shape == (30, 40)
        assert 60 < image.mean() < 200 and image.std() > 10
        assert np.median(depth) > 1 and depth.max() < 10


def test_shade_is_darker():
    eye, axes = forward()
    lid = Block(vector(2, 3, 1.9), vector(0.8, 0.8, 0.02), 0.0, PLAIN)
    floors = []
    for blocks in ((), (lid,)):
        room = Room(vector(4, 6, 3), (PLAIN, PLAIN, PLAIN), blocks, (), vector(2, 3, 2.8), vector(1, 1, 1))
        ray = (vector(2, 3, 0) - eye)[:, None]  # to the floor below
        floors.append(generated._seen(room, eye, ray, axes[2])[1].mean())
    assert floors[1] < 0.8 * floors[0]


def test_an_empty_folder_will_do_and_a_full_one_will_not(tmp_path):
    (tmp_path / "empty").mkdir()
    generated.make(tmp_path / "empty", count=40, size=(12, 16))
    before = content(tmp_path / "empty")
    with pytest.raises(ValueError, match=r"expected an empty folder, or none yet, got .*empty, which is not empty"):
        generated.make(tmp_path / "empty", count=40)
    assert content(tmp_path / "empty") == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"count": 39}, "expected a count of at least 40 pairs, got 39"),
        ({"seed": -1}, "expected a seed of at least 0, got -1"),
        ({"size": (4, 80)}, "expected images of at least 8 x 8 pixels, got 4 x 80"),
    ],
)
def test_options_are_checked(tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        generated.make(tmp_path / "rooms", **options)
    assert not (tmp_path / "rooms").exists()


def test_a_stop_leaves_nothing_that_passes_as_whole(tmp_path):
    def stop(done, total):
        if done == 12:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generated.make(tmp_path / "rooms", count=40, size=(12, 16), progress=stop)
    assert content(tmp_path / "rooms") == {}
    told = []
    generated.make(tmp_path / "rooms", count=42, size=(12, 16), progress=lambda *counts: told.append(counts))
    assert told == [(min(4 * k, 42), 42) for k in range(1, 12)]
    assert data.check(tmp_path / "rooms") == []


@pytest.mark.slow
def test_a_small_network_learns_the_depth(tmp_path):
    """Half a minute of a few convolutions: at least a quarter less error than predicting the mean of each pixel."""
    import torch
    from torch import nn

    from ordinal_entropy.tasks.depth.losses import masked_mse
    from ordinal_entropy.tasks.depth.metrics import depth_scores

    generated.make(tmp_path / "rooms", seed=0, count=400, size=(60, 80))
    found, _ = data.records(tmp_path / "rooms")

    def part(*splits):
        pairs = [data.read(record) for record in found if record.split in splits]
        images = torch.from_numpy(np.stack([image for image, _ in pairs])).permute(0, 3, 1, 2) / 255 - 0.5
        return images, torch.from_numpy(np.stack([depth for _, depth in pairs]))

    (images, depths), (test, wanted) = part("train", "val"), part("test")
    torch.manual_seed(0)
    widths = (3, 32, 64, 96, 128)
    layers = []
    for a, b in pairwise(widths):
        layers += [nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU()]
    layers += [nn.Conv2d(128, 128, 3, 1, 1), nn.ReLU(), nn.Flatten(), nn.Linear(128 * 4 * 5, 15 * 20)]
    net = nn.Sequential(*layers)
    mean = depths.mean(0)
    optimizer = torch.optim.AdamW(net.parameters(), 1e-3)

    def predictions(x):
        return mean[2::4, 2::4] + net(x).view(-1, 15, 20)

    for _ in range(30):
        for rows in torch.randperm(len(images)).split(16):
            x, y = images[rows], depths[rows]
            if torch.rand(()) < 0.5:
                x, y = x.flip(-1), y.flip(-1)
            loss = masked_mse(predictions(x), y, align_corners=False)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        scores = depth_scores(predictions(test), wanted, align_corners=False)
    plain = depth_scores(mean.expand(len(wanted), -1, -1), wanted)
    assert scores["rms"] < 0.75 * plain["rms"] and scores["rel"] < 0.75 * plain["rel"]
