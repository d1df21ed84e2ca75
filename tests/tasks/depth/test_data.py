"""Lists of pairs: what is read, and what every kind of bad line and file is told to be."""

import os
import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL", reason="images are read with Pillow")
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from ordinal_entropy.tasks.depth import data
from ordinal_entropy.tasks.depth.data import Problem
from ordinal_entropy.vision.images import ImageError

TRAIN, TEST = "nyudepthv2_train_files_with_gt.txt", "nyudepthv2_test_files_with_gt.txt"


def pair(root, stem, value=1500, size=(8, 6)):
    """An image of so many columns and rows and its depth; the line that names them."""
    place = root / os.path.dirname(stem)
    place.mkdir(parents=True, exist_ok=True)
    name = os.path.basename(stem)
    Image.new("RGB", size, (200, 100, 50)).save(place / f"rgb_{name}.jpg")
    Image.fromarray(np.full(size[::-1], value, np.uint16)).save(place / f"sync_depth_{name}.png")
    return f"{os.path.dirname(stem)}/rgb_{name}.jpg {os.path.dirname(stem)}/sync_depth_{name}.png 518.8579"


def lists(root, train, test):
    (root / TRAIN).write_text("\n".join([*train, ""]))
    (root / TEST).write_text("\n".join([*test, ""]))
    return root


def folder(root, *more, train=4, test=2):
    """So many good pairs, and further lines at the end of the training list."""
    good = [pair(root, f"train/{k:05}") for k in range(train)]
    return lists(root, [*good, *more], [pair(root, f"test/{k:05}") for k in range(test)])


def parts(found):
    return Counter(record.split for record in found)


def test_lists_are_read_in_their_order(tmp_path):
    root = folder(tmp_path, train=20, test=3)
    found, problems = data.records(root)
    assert problems == [] == data.check(root)
    assert [record.image.name for record in found] == [f"rgb_{k:05}.jpg" for k in (*range(20), *range(3))]
    assert all(record.depth.name == record.image.name.replace("rgb", "sync_depth")[:-3] + "png" for record in found)
    assert parts(found) == {"train": 18, "val": 2, "test": 3}
    assert all((record.split == "test") == (record.image.parent.name == "test") for record in found)
    image, depth = data.read(found[0])
    assert image.shape == (6, 8, 3) and image.dtype == np.uint8
    assert depth.dtype == np.float32 and np.array_equal(depth, np.full((6, 8), 1.5, np.float32))


def test_slashes_empty_lines_windows_and_a_dense_column(tmp_path):
    root = folder(tmp_path)
    lines = [f"/{a} /{b} {c}" for a, b, c in (line.split() for line in (root / TRAIN).read_text().splitlines())]
    dense = lines[1].rsplit(" ", 1)[0] + "  /train/dense_00001.png"  # as NeW-CRFs have it, and it need not be there
    text = "\r\n".join([lines[0], "", dense, *lines[2:]])
    (root / TRAIN).write_bytes(b"\xef\xbb\xbf" + text.encode())
    found, problems = data.records(root)
    assert problems == [] and len(found) == 6 and data.check(root) == []
    assert found[1].depth == root / "train" / "sync_depth_00001.png"


def test_the_list_of_new_crfs_goes_by_its_name(tmp_path):
    root = folder(tmp_path)
    (root / TRAIN).rename(root / "nyudepthv2_train_files_with_gt_dense.txt")
    assert data.records(root) == (data.records(folder(tmp_path))[0], [])


def test_paths_of_the_original_lists_are_below_sync_and_official_splits(tmp_path):
    train = [pair(tmp_path / "sync", f"kitchen_{k:04}/00000") for k in range(4)]
    test = [pair(tmp_path / "official_splits" / "test", f"kitchen/{k:05}") for k in range(2)]
    root = lists(tmp_path, ["/gone.jpg /gone.png 518.8", *(f"/{line}".replace(" k", " /k") for line in train)], test)
    found, problems = data.records(root)
    where = f"(line 1 of {TRAIN})"
    assert problems == [Problem("sync/gone.jpg", f"missing {where}"), Problem("sync/gone.png", f"missing {where}")]
    assert [record.image.relative_to(root).as_posix() for record in found[:1] + found[-1:]] == [
        "sync/kitchen_0000/rgb_00000.jpg",
        "official_splits/test/kitchen/rgb_00001.jpg",
    ]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("train/a.jpg train/a.png", "expected 3 fields, image, depth and focal length, got 2"),
        ("train/a.jpg", "expected 3 fields, image, depth and focal length, got 1"),
        ("train/a b.jpg train/a.png 518", "expected 3 fields, image, depth and focal length, got 4"),
        ("train/a.jpg train/a.png far", "focal length 'far' is not a positive number"),
        ("train/a.jpg train/a.png nan", "focal length 'nan' is not a positive number"),
        ("train/a.jpg train/a.png 0", "focal length '0' is not a positive number"),
        ("train/a.jpg train/a.png 5_1", "focal length '5_1' is not a positive number"),
        ("train/a.jpg train/a.png \x1b[2J", "focal length '\\\\x1b[2J' is not a positive number"),
    ],
)
def test_a_line_that_is_none(tmp_path, line, reason):
    root = folder(tmp_path, line)
    found, problems = data.records(root)
    assert problems == [Problem(TRAIN, f"line 5: {reason}")] == data.check(root)
    assert len(found) == 6


@pytest.mark.parametrize(
    ("image", "depth", "file", "reason"),
    [
        ("train/no.jpg", "train/spare.png", "train/no.jpg", "missing"),
        ("train/spare.jpg", "train/no.png", "train/no.png", "missing"),
        ("train/spare.jpg", "train", "train", "a folder"),
        ("../outside.jpg", "train/spare.png", "../outside.jpg", "path has .. in it"),
        ("train/spare.jpg", "train/../../outside.png", "train/../../outside.png", "path has .. in it"),
        ("/etc/passwd", "train/spare.png", "etc/passwd", "missing"),  # a slash in front is of the list, not of the disk
        ("C:/outside.jpg", "train/spare.png", "C:/outside.jpg", "path is absolute"),
        ("train/spare.jpg", "train/link.png", "train/link.png", "a link leads out of the folder"),
        ("train/rgb_00000.jpg", "train/spare.png", "train/rgb_00000.jpg", f"listed before, in line 1 of {TRAIN}"),
        (".//train/rgb_00000.jpg", "train/spare.png", ".//train/rgb_00000.jpg", f"listed before, in line 1 of {TRAIN}"),
    ],
)
def test_a_bad_path_is_told_and_the_others_are_read(tmp_path, image, depth, file, reason):
    root = tmp_path / "root"
    root.mkdir()
    folder(root, f"{image} {depth} 518", pair(root, "train/00099"), train=28)
    for name in (root / "train" / "spare.jpg", root / "train" / "spare.png", tmp_path / "outside.png"):
        name.write_text("")
    (root / "train" / "link.png").symlink_to(tmp_path / "outside.png")
    found, problems = data.records(root)
    assert problems == [Problem(file, f"{reason} (line 29 of {TRAIN})")]
    assert len(found) == 31 and found[28].image.name == "rgb_00099.jpg"


def test_a_test_image_in_the_training_list_is_told(tmp_path):
    root = folder(tmp_path)
    with (root / TEST).open("a") as file:
        file.write("train/rgb_00002.jpg train/sync_depth_00002.png 518.8579\n")
    _, problems = data.records(root)
    where = f"listed before, in line 3 of {TRAIN} (line 3 of {TEST})"
    assert problems == [Problem("train/rgb_00002.jpg", where)]


def test_a_missing_list_and_one_that_is_no_text(tmp_path):
    root = folder(tmp_path)
    (root / TEST).unlink()
    found, problems = data.records(root)
    assert parts(found) == {"train": 3, "val": 1}
    assert problems == [Problem(TEST, "missing"), Problem(root.name, "no pair to use in split test")]
    folder(tmp_path)
    (root / TRAIN).write_bytes(b"train/\xff.jpg train/a.png 518\n")
    found, problems = data.records(root)
    assert parts(found) == {"test": 2}
    assert problems[0] == Problem(TRAIN, "not text in UTF-8: byte 6 is 0xff")
    assert [problem.reason for problem in problems[1:]] == [
        f"no pair to use in split {split}" for split in ("train", "val")
    ]


@settings(max_examples=60)
@given(st.binary(max_size=200))
def test_whatever_the_list_there_is_an_answer(tmp_path_factory, content):
    root = tmp_path_factory.mktemp("any")
    (root / TRAIN).write_bytes(content)
    found, problems = data.records(root)
    assert not found and problems
    assert all(problem.file.isprintable() and problem.reason.isprintable() for problem in problems)


def save(array, path):
    Image.fromarray(array).save(path)


def damaged(kind, image, depth):
    if kind == "truncated image":
        image.write_bytes(image.read_bytes()[:-40])
    elif kind == "no image":
        image.write_text("<html>")
    elif kind == "truncated depth":
        save(np.random.default_rng(0).integers(0, 9999, (6, 8)).astype(np.uint16), depth)
        depth.write_bytes(depth.read_bytes()[:-60])
    elif kind == "empty depth":
        depth.write_bytes(b"")
    elif kind == "8 bits":
        save(np.full((6, 8), 100, np.uint8), depth)
    elif kind == "colour":
        save(np.zeros((6, 8, 3), np.uint8), depth)
    elif kind == "jpeg":
        Image.new("L", (8, 6)).save(depth, "JPEG")
    elif kind == "another size":
        save(np.full((3, 4), 1000, np.uint16), depth)
    elif kind == "nothing":
        save(np.zeros((6, 8), np.uint16), depth)
    elif kind == "far":
        save(np.full((6, 8), 10_000, np.uint16), depth)
    elif kind == "header":
        depth.write_bytes(depth.read_bytes()[:20])
    elif kind == "huge":
        whole = depth.read_bytes()
        header = b"IHDR" + (60_000).to_bytes(4, "big") * 2 + whole[24:29]
        depth.write_bytes(whole[:12] + header + zlib.crc32(header).to_bytes(4, "big") + whole[33:])


@pytest.mark.parametrize(
    ("kind", "file", "reason"),
    [
        ("truncated image", "rgb_00001.jpg", "truncated"),
        ("no image", "rgb_00001.jpg", "not an image (JPEG, PNG, BMP, GIF, WEBP)"),
        ("truncated depth", "sync_depth_00001.png", "truncated"),
        ("empty depth", "sync_depth_00001.png", "empty"),
        ("8 bits", "sync_depth_00001.png", "8 bits, expected 16"),
        ("colour", "sync_depth_00001.png", "in colour, expected 16 bits of grey"),
        ("jpeg", "sync_depth_00001.png", "not a PNG, expected one of 16 bits"),
        ("another size", "sync_depth_00001.png", "4 x 3 pixels, its image rgb_00001.jpg has 8 x 6"),
        ("nothing", "sync_depth_00001.png", "no pixel with a depth between 0.001 and 10 m"),
        ("far", "sync_depth_00001.png", "no pixel with a depth between 0.001 and 10 m"),
        ("header", "sync_depth_00001.png", "truncated"),
        ("huge", "sync_depth_00001.png", "larger than 50,000,000 pixels"),
    ],
)
def test_check_reads_every_pair(tmp_path, kind, file, reason):
    root = folder(tmp_path)
    damaged(kind, root / "train" / "rgb_00001.jpg", root / "train" / "sync_depth_00001.png")
    told = []
    problems = data.check(root, lambda done, total: told.append((done, total)))
    assert [problem.file for problem in problems] == [f"train/{file}"]
    assert problems[0].reason.startswith(reason)
    assert told == [(k, 12) for k in range(2, 13, 2)]
    found, problems = data.records(root)
    assert problems == []
    if kind not in ("nothing", "far"):  # those can be read
        with pytest.raises(ImageError, match=f"expected an image in .*{file}, got: "):
            data.read(found[1])


def test_both_files_of_a_pair_are_told(tmp_path):
    root = folder(tmp_path)
    damaged("no image", root / "train" / "rgb_00001.jpg", None)
    damaged("8 bits", None, root / "train" / "sync_depth_00001.png")
    assert [problem.file for problem in data.check(root)] == ["train/rgb_00001.jpg", "train/sync_depth_00001.png"]


def test_depth_in_metres_to_the_millimetre(tmp_path):
    values = np.array([[0, 1, 999], [1000, 9999, 65535]], np.uint16)
    save(values, tmp_path / "depth.png")
    assert np.array_equal(data.read_depth(tmp_path / "depth.png"), (values / 1000).astype(np.float32))
    for place, reason in ((tmp_path, "a folder"), (tmp_path / "none.png", "missing")):
        with pytest.raises(ImageError) as caught:
            data.read_depth(place)
        assert caught.value.reason == reason


@settings(max_examples=60)
@given(st.binary(max_size=120), st.integers(0, 90))
def test_whatever_the_depth_file_there_is_an_answer(tmp_path_factory, noise, cut):
    path = tmp_path_factory.mktemp("any") / "depth.png"
    save(np.full((6, 8), 100, np.uint16), path)
    path.write_bytes(path.read_bytes()[:cut] + noise)
    try:
        assert data.read_depth(path).dtype == np.float32
    except ImageError as error:
        assert error.reason.isprintable()


def test_a_missing_dataset_says_where_to_get_it(tmp_path):
    for place in (tmp_path / "nowhere", tmp_path):
        for function in (data.records, data.require, data.check):
            with pytest.raises(FileNotFoundError) as caught:
                function(place)
            said = str(caught.value)
            assert str(place) in said and TRAIN in said and TEST in said and "data make depth DIR" in said
            assert "sync/<scene>/rgb_00000.jpg" in said and "nyu_depth_v2_labeled.mat" in said
            assert "github.com/cleinc/bts" in said and "cs.nyu.edu/~fergus" in said
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ValueError, match=r"expected a dataset folder or its \.mat, got the file .*notes\.txt"):
        data.records(tmp_path / "notes.txt")
    data.require(folder(tmp_path))


@given(st.lists(st.integers(0, 30), min_size=2, max_size=200), st.floats(0.01, 0.99), st.integers(0, 5))
def test_the_draw_is_of_that_part_and_of_whole_scenes(places, part, seed):
    scenes = [f"scene {place}" for place in places]
    chosen = data.drawn(scenes, part, seed)
    assert chosen == data.drawn(scenes, part, seed) and len(chosen) == len(scenes)
    assert any(chosen) and not all(chosen)
    counted = Counter(scenes)
    if len(counted) >= 10:
        inside = {scene for scene, drawn in zip(scenes, chosen, strict=True) if drawn}
        assert sum(counted[scene] for scene in inside) == sum(chosen)
        assert sum(chosen) <= max(round(part * len(scenes)), 1) + max(counted.values()) - 1
    else:
        assert sum(chosen) == min(max(round(part * len(scenes)), 1), len(scenes) - 1)


def test_the_draw_has_edges():
    assert data.drawn([], 0.1) == [] and data.drawn(["a"], 0.1) == [False]
    assert data.drawn(["a"] * 50, 0.1, 1) != data.drawn(["a"] * 50, 0.1, 2)


def test_validation_has_scenes_of_its_own(tmp_path):
    lines = [pair(tmp_path, f"sync/office_{k:04}{side}/{i:05}") for k in range(12) for side in "ab" for i in range(2)]
    root = lists(tmp_path, lines, [pair(tmp_path, "test/00000")])
    found, problems = data.records(root, validation=0.25)
    assert not problems
    scenes = {split: {r.image.parent.name[:-1] for r in found if r.split == split} for split in ("train", "val")}
    assert len(scenes["val"]) == 3 and not scenes["val"] & scenes["train"]
    assert data.records(root, validation=0.25, seed=1)[0] != found
    for wrong in (0, 1, -0.5):
        with pytest.raises(ValueError, match=f"expected a validation part between 0 and 1, got {wrong}"):
            data.records(root, validation=wrong)


def test_a_pair_that_is_left_out_changes_nothing_else(tmp_path):
    root = folder(tmp_path, train=40)
    before = {record.image: record.split for record in data.records(root)[0]}
    (root / "train" / "rgb_00007.jpg").unlink()
    after = {record.image: record.split for record in data.records(root)[0]}
    assert len(after) == len(before) - 1 and all(before[image] == split for image, split in after.items())


def call(*arguments, status):
    testing = pytest.importorskip("typer.testing", reason="the command line is typer's")
    from ordinal_entropy.commands.app import app

    result = testing.CliRunner().invoke(app, [str(argument) for argument in arguments], env={"COLUMNS": "150"})
    assert result.exit_code == status, result.output + repr(result.exception)
    return " ".join((result.stdout + result.stderr).split())


def test_the_command_has_three_answers(tmp_path):
    root = tmp_path / "there"
    root.mkdir()
    folder(root)
    assert "All is well: 12 files of" in call("data", "check", "depth", root, status=0)
    damaged("8 bits", None, root / "train" / "sync_depth_00001.png")
    said = call("data", "check", "depth", root, status=1)
    assert "train/sync_depth_00001.png 8 bits, expected 16" in said and "1 problem in" in said
    said = call("data", "check", "depth", tmp_path / "nowhere", status=2)
    assert "expected a dataset of images with depths in" in said and "Traceback" not in said


@pytest.fixture
def rooms():
    place = os.environ.get("ORDINAL_ENTROPY_DATA")
    if not place or not (Path(place) / "nyu").is_dir():
        pytest.skip("real rooms are read from $ORDINAL_ENTROPY_DATA/nyu")
    return Path(place) / "nyu"


def test_real_rooms_by_their_lists(rooms):
    found, problems = data.records(rooms)
    assert not problems
    assert parts(found) == {"train": 715, "val": 80, "test": 327}
    image, depth = data.read(found[0])
    assert image.shape == (240, 320, 3) and depth.shape == (240, 320) and 0.5 < depth.min() < depth.max() < 10


@pytest.mark.slow
def test_real_rooms_are_whole(rooms):
    assert data.check(rooms) == []


@pytest.mark.slow
def test_predicting_the_mean_of_real_rooms(rooms):
    """Root mean square over all pixels 1.20 m, 1.10 m as the mean over images, and REL 0.41."""
    import torch

    from ordinal_entropy.tasks.depth.maps import EIGEN, inside, valid
    from ordinal_entropy.tasks.depth.metrics import depth_scores

    found, _ = data.records(rooms)
    train = torch.from_numpy(np.stack([data.read(r)[1] for r in found if r.split != "test"]))
    test = torch.from_numpy(np.stack([data.read(r)[1] for r in found if r.split == "test"]))
    mean = train.mean(0).expand(len(test), -1, -1)
    error = (mean - test)[inside(valid(test), EIGEN)]
    assert error.square().mean().sqrt() == pytest.approx(1.1998, abs=1e-3)
    scores = depth_scores(mean, test)
    assert scores["rms"] == pytest.approx(1.1014, abs=1e-3) and scores["rel"] == pytest.approx(0.4084, abs=1e-3)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_list_that_is_a_pipe_is_named(tmp_path):
    os.mkfifo(tmp_path / data.TRAIN_LISTS[0])
    assert data.records(tmp_path)[1][0] == Problem(data.TRAIN_LISTS[0], "a pipe")
    with pytest.raises(FileNotFoundError, match="got a pipe"):
        data.records(tmp_path / data.TRAIN_LISTS[0])
