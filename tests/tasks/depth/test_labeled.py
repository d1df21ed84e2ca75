"""The labelled .mat: pairs, splits, and what every kind of bad file is told to be."""

import os
import random
import struct
import sys
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("h5py", reason="a .mat of version 7.3 is HDF5")
import h5py
from scipy.io import savemat

from ordinal_entropy.files import refuse
from ordinal_entropy.tasks.depth import data, labeled
from ordinal_entropy.tasks.depth.data import Problem
from ordinal_entropy.vision.images import ImageError

NAME = "nyu_depth_v2_labeled.mat"


def arrays(n=6, h=48, w=64):
    random = np.random.default_rng(0)
    pixels = random.integers(1, 256, (n, h, w, 3)).astype(np.uint8)
    return pixels, random.uniform(0.5, 9, (n, h, w)).astype(np.float32)


def mat(root, n=6, *, name="rawDepths", places=None, others=None):
    """As MATLAB writes it: images of (h, w, 3, n) have their dimensions turned round in HDF5."""
    pixels, metres = arrays(n)
    contents = {"images": pixels.transpose(0, 3, 2, 1), name: metres.transpose(0, 2, 1)} | (others or {})
    with h5py.File(root / NAME, "w") as file:
        for key, values in contents.items():
            file[key] = values
        if places is not None:
            cells = file.create_dataset("scenes", (1, n), dtype=h5py.ref_dtype)
            for k, scene in enumerate(places):
                file[f"#refs#/{k}"] = np.array([[ord(letter)] for letter in scene], np.uint16)
                cells[0, k] = file[f"#refs#/{k}"].ref
    return root


def test_pairs_are_turned_upright_in_metres_with_a_black_border(tmp_path):
    found, problems = data.records(mat(tmp_path))
    assert problems == [] == data.check(tmp_path)
    assert [record.place for record in found] == list(range(6))
    assert all(record.image == record.depth == tmp_path / NAME for record in found)
    pixels, metres = arrays()
    for record in found:
        image, depth = data.read(record)
        assert image.shape == (48, 64, 3) and depth.dtype == np.float32
        assert np.array_equal(depth, metres[record.place])
        assert np.array_equal(image[0:48, 0:64], np.where(image > 0, pixels[record.place], 0))
        assert np.flatnonzero(image.any((1, 2))).tolist() == list(range(48))  # at 480 x 640: rows 7 to 474
        assert np.flatnonzero(image.any((0, 2))).tolist() == list(range(64))
    assert data.records(tmp_path / NAME)[0] == found


def test_the_border_at_full_resolution(tmp_path):
    pixels, metres = np.full((1, 3, 640, 480), 255, np.uint8), np.full((1, 640, 480), np.nan, np.float32)
    metres[0, 10, 20] = 2.5
    metres[0, 11, 20] = -1
    with h5py.File(tmp_path / NAME, "w") as file:
        file["images"], file["depths"] = pixels, metres
    image, depth = labeled.pair(tmp_path / NAME, 0)
    rows, columns = np.flatnonzero(image.any((1, 2))), np.flatnonzero(image.any((0, 2)))
    assert (rows[0], rows[-1] + 1, columns[0], columns[-1] + 1) == (7, 474, 7, 632)
    assert depth[20, 10] == 2.5 and np.count_nonzero(depth) == 1  # NaN and less than 0 are no depths


def test_raw_depths_go_before_filled_ones_and_lists_before_a_mat(tmp_path):
    _, metres = arrays()
    mat(tmp_path, name="depths")
    assert np.array_equal(labeled.pair(tmp_path / NAME, 2)[1], metres[2])
    mat(tmp_path, others={"depths": np.ones((6, 64, 48), np.float32)})
    assert np.array_equal(labeled.pair(tmp_path / NAME, 2)[1], metres[2])
    (tmp_path / "nyudepthv2_train_files_with_gt.txt").write_text("")
    assert data.records(tmp_path)[0] == []


def test_official_splits(tmp_path):
    mat(tmp_path, 20)
    savemat(tmp_path / "splits.mat", {"trainNdxs": np.arange(1, 13)[:, None], "testNdxs": np.arange(15, 21)[:, None]})
    found, problems = data.records(tmp_path)
    assert not problems
    assert Counter(record.split for record in found) == {"train": 11, "val": 1, "test": 6}
    assert [record.place for record in found] == [*range(12), *range(14, 20)]
    assert [record.place for record in found if record.split == "test"] == list(range(14, 20))


def test_without_splits_whole_scenes_are_drawn(tmp_path):
    scenes = [f"office_{k // 2:04}{'ab'[k % 2]}" for k in range(40)]
    found, problems = data.records(mat(tmp_path, 40, places=scenes))
    assert not problems and labeled.contents(tmp_path / NAME).scenes == scenes
    counted = Counter(record.split for record in found)
    assert counted == {"test": 18, "val": 2, "train": 20}
    by_scene = {}
    for record in found:
        by_scene.setdefault(scenes[record.place][:-1], set()).add(record.split)
    assert all(len(splits) == 1 for splits in by_scene.values())
    assert data.records(tmp_path, seed=1)[0] != found
    assert data.records(tmp_path)[0] == found


@pytest.mark.parametrize("scenes", [np.zeros((1, 6)), np.zeros((2, 3, 4), np.uint8), None])
def test_odd_scenes_do_no_harm(tmp_path, scenes):
    mat(tmp_path, others={} if scenes is None else {"scenes": scenes})
    contents = labeled.contents(tmp_path / NAME)
    assert contents.n == 6 and len(set(contents.scenes)) == 1
    assert data.check(tmp_path) == []


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ({"trainNdxs": [[1]]}, "expected the variables trainNdxs, testNdxs, got no testNdxs"),
        ({"trainNdxs": [[0]], "testNdxs": [[1]]}, "expected trainNdxs from 1 to 6, got others"),
        ({"trainNdxs": [[1]], "testNdxs": [[7]]}, "expected testNdxs from 1 to 6, got others"),
        ({"trainNdxs": [[1.5]], "testNdxs": [[2]]}, "expected trainNdxs from 1 to 6, got others"),
        ({"trainNdxs": [["one"]], "testNdxs": [[2]]}, "expected trainNdxs from 1 to 6, got others"),
        ({"trainNdxs": [[1, 2]], "testNdxs": [[2]]}, "pair 2 is named twice"),
        (b"no .mat at all", "not a .mat that can be read: "),
        (None, "a link leads out of the folder"),
    ],
)
def test_odd_splits_are_told(tmp_path, contents, reason):
    root = tmp_path / "root"
    root.mkdir()
    mat(root)
    if contents is None:
        (tmp_path / "elsewhere.mat").write_bytes(b"")
        (root / "splits.mat").symlink_to(tmp_path / "elsewhere.mat")
    elif isinstance(contents, bytes):
        (root / "splits.mat").write_bytes(contents)
    else:
        savemat(root / "splits.mat", contents)
    found, problems = data.records(root)
    assert not found and problems[0].file == "splits.mat" and problems[0].reason.startswith(reason)


def truncated(path):
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])


def damaged(path):
    """Compressed pixels that cannot be decompressed."""
    pixels, metres = arrays()
    with h5py.File(path, "w") as file:
        images = file.create_dataset("images", data=pixels.transpose(0, 3, 2, 1), chunks=(1, 3, 64, 48), compression=4)
        place = images.id.get_chunk_info(3).byte_offset
        file["depths"] = metres.transpose(0, 2, 1)
    whole = bytearray(path.read_bytes())
    whole[place : place + 200] = bytes(200)
    path.write_bytes(whole)


def test_damaged_pixels_are_told_pair_by_pair(tmp_path):
    damaged(tmp_path / NAME)
    found, problems = data.records(tmp_path)
    assert problems == [] and len(found) == 6
    problems = data.check(tmp_path)
    assert [problem.file for problem in problems] == [NAME] and problems[0].reason.startswith("pair 4: damaged: ")
    with pytest.raises(ImageError, match=r"expected an image in .*labeled\.mat, got: pair 4: damaged"):
        data.read(found[3])


def test_a_pair_without_depth_is_told(tmp_path):
    metres = arrays()[1].transpose(0, 2, 1).copy()
    metres[2] = 0
    mat(tmp_path, others={"rawDepths": metres})
    told = []
    problems = data.check(tmp_path, lambda done, total: told.append((done, total)))
    assert problems == [Problem(NAME, "pair 3: no pixel with a depth between 0.001 and 10 m")]
    assert told == [(k, 6) for k in range(1, 7)]


def foreign(path, write):
    with h5py.File(path, "w") as file:
        write(file)


def outside(path):
    """Both arrays in another file, which this one links to."""
    other = path.parent / "other.h5"
    mat(path.parent)
    path.rename(other)
    with h5py.File(path, "w") as file:
        file["images"], file["depths"] = (
            h5py.ExternalLink(str(other), "images"),
            h5py.ExternalLink(str(other), "depths"),
        )


def raw_outside(path):
    with h5py.File(path, "w") as file:
        file.create_dataset("images", (1, 3, 64, 48), np.uint8, external=[("/etc/passwd", 0, 3 * 64 * 48)])
        file["depths"] = np.ones((1, 64, 48), np.float32)


IMAGES, DEPTHS = np.ones((2, 3, 8, 6), np.uint8), np.ones((2, 8, 6), np.float32)


@pytest.mark.parametrize(
    ("break_it", "reason"),
    [
        (truncated, "truncated"),
        (lambda path: path.write_text("<html>"), "not a .mat of version 7.3, which is HDF5"),
        (lambda path: path.write_bytes(b""), "not a .mat of version 7.3, which is HDF5"),
        (lambda path: savemat(path, {"images": [1]}), "a .mat of version 5, expected 7.3, which is HDF5"),
        (lambda path: foreign(path, lambda f: None), "expected images and rawDepths or depths, got nothing"),
        (
            lambda path: foreign(path, lambda f: f.update({"images": IMAGES, "labels": DEPTHS})),
            "expected images and rawDepths or depths, got images, labels",
        ),
        (
            lambda path: foreign(path, lambda f: f.update({"images": IMAGES.astype(float), "depths": DEPTHS})),
            "expected images (n, 3, w, h) of bytes, got (2, 3, 8, 6) of float64",
        ),
        (
            lambda path: foreign(path, lambda f: f.update({"images": IMAGES[0], "depths": DEPTHS})),
            "expected images (n, 3, w, h) of bytes, got (3, 8, 6) of uint8",
        ),
        (
            lambda path: foreign(path, lambda f: f.update({"images": IMAGES, "depths": DEPTHS[:1]})),
            "expected depths (2, 8, 6) of floats beside the images, got (1, 8, 6) of float32",
        ),
        (
            lambda path: foreign(path, lambda f: f.update({"images": IMAGES, "depths": DEPTHS.astype(np.int32)})),
            "expected depths (2, 8, 6) of floats beside the images, got (2, 8, 6) of int32",
        ),
        (lambda path: foreign(path, lambda f: f.update({"images": IMAGES[:0], "depths": DEPTHS[:0]})), "no pairs"),
        (
            lambda path: foreign(path, lambda f: (f.create_group("images"), f.update({"depths": DEPTHS}))),
            "images is not an array inside of the file",
        ),
        (outside, "images is not an array inside of the file"),
        (raw_outside, "images is not an array inside of the file"),
        (
            lambda path: foreign(
                path,
                lambda f: (
                    f.create_dataset("images", (1, 3, 9000, 9000), np.uint8, chunks=(1, 1, 90, 90)),
                    f.create_dataset("depths", (1, 9000, 9000), np.float32, chunks=(1, 90, 90)),
                ),
            ),
            "images larger than 50,000,000 pixels: 9,000 x 9,000",
        ),
    ],
)
def test_a_mat_that_is_none(tmp_path, break_it, reason):
    mat(tmp_path)
    break_it(tmp_path / NAME)
    found, problems = data.records(tmp_path)
    assert found == [] and problems[0] == Problem(NAME, reason)
    assert data.check(tmp_path) == problems
    with pytest.raises(ValueError, match=r"expected a dataset without faults, got nyu_depth_v2_labeled\.mat: "):
        refuse(found, problems)


def test_without_h5py_a_sentence_says_so(tmp_path, monkeypatch):
    mat(tmp_path)
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(ModuleNotFoundError, match=r"needs h5py, which is not installed: pip install 'ordinal-entropy"):
        data.records(tmp_path)


def test_filters_on_which_hdf5_may_crash_are_refused(tmp_path):
    """A chunk without the checksum that the filter fletcher32 takes to be there ends the process."""
    pixels, metres = arrays(4, 8, 8)
    with h5py.File(tmp_path / NAME, "w") as file:
        how = {"chunks": (1, 3, 8, 8), "compression": "gzip", "fletcher32": True}
        images = file.create_dataset("images", data=pixels.transpose(0, 3, 2, 1), **how)
        size = images.id.get_chunk_info(2).size
        file["depths"] = metres.transpose(0, 2, 1)
    whole = (tmp_path / NAME).read_bytes()
    key = struct.pack("<IIQQQQQ", size, 0, 2, 0, 0, 0, 0)  # of the chunk in the index: its size, its place
    assert whole.count(key) == 1
    (tmp_path / NAME).write_bytes(whole.replace(key, bytes(4) + key[4:]))
    assert data.check(tmp_path)[0] == Problem(NAME, "images is packed by other filters than gzip and shuffle")


@pytest.mark.parametrize("how", [{"compression": "gzip"}, {"compression": "gzip", "shuffle": True}, {"shuffle": True}])
def test_packed_arrays_are_read(tmp_path, how):
    pixels, metres = arrays()
    with h5py.File(tmp_path / NAME, "w") as file:
        file.create_dataset("images", data=pixels.transpose(0, 3, 2, 1), chunks=(4, 2, 30, 30), **how)
        file.create_dataset("depths", data=metres.transpose(0, 2, 1), chunks=(1, 64, 48), **how)
    assert data.check(tmp_path) == []
    assert all(np.array_equal(labeled.pair(tmp_path / NAME, k)[1], metres[k]) for k in range(6))


def claiming(path, pairs, chunk=1, side=48):
    with h5py.File(path, "w") as file:
        file.create_dataset("images", (pairs, 3, side, side), np.uint8, chunks=(chunk, 3, side, side), compression=1)
        file.create_dataset("depths", (pairs, side, side), np.float32, chunks=(chunk, side, side), compression=1)
    return path.parent


def test_what_a_mat_claims_is_held_against_its_size(tmp_path):
    for pairs, chunk, side in ((10**9, 1, 48), (10**5, 10**5, 48), (8, 1, 7000)):
        found, problems = data.records(claiming(tmp_path / NAME, pairs, chunk, side))
        assert found == [] and problems[0].reason.startswith("expected at most 268,435,456 bytes to be unpacked from ")
    found, problems = data.records(claiming(tmp_path / NAME, 3))
    assert len(found) == 3 and not problems
    assert data.check(tmp_path)[0] == Problem(NAME, "pair 1: damaged: a chunk that is not there")


def test_scenes_that_would_fill_the_memory_are_not_read(tmp_path):
    with h5py.File(mat(tmp_path) / NAME, "r+") as file:
        file.create_dataset("scenes", (1, 10**12), h5py.ref_dtype, chunks=(1, 1000))
    assert labeled.contents(tmp_path / NAME).scenes == [""] * 6
    mat(tmp_path, places=["office_0001"] * 6)
    with h5py.File(tmp_path / NAME, "r+") as file:
        file.create_dataset("long", (10**12, 1), np.uint16, chunks=(1000, 1))
        file["scenes"][0, 3] = file["long"].ref
    assert labeled.contents(tmp_path / NAME).scenes == [""] * 6


@pytest.mark.parametrize("compressed", [False, True])
def test_splits_that_are_damaged_anywhere_are_told_or_read(tmp_path, compressed):
    """SciPy's reader ended the process on some of these."""
    path = tmp_path / "splits.mat"
    order = np.arange(1, 13, dtype=np.uint16)[:, None]
    savemat(path, {"trainNdxs": order[:8], "testNdxs": order[8:]}, do_compression=compressed)
    whole, lot = path.read_bytes(), random.Random(0)
    refused = 0
    for _ in range(400):
        changed = bytearray(whole)
        for _ in range(lot.choice([1, 2, 8])):
            changed[lot.randrange(len(changed))] = lot.randrange(256)
        path.write_bytes(changed[: lot.choice([len(changed), lot.randrange(len(changed))])])
        try:
            assert len(labeled.splits(path, 12)) == 12
        except labeled.LabeledError:
            refused += 1
    assert refused > 100
    path.write_bytes(whole)
    assert labeled.splits(path, 12) == ["train"] * 8 + ["test"] * 4


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_pipes_are_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "splits.mat")
    mat(tmp_path)
    assert data.records(tmp_path)[1][0] == Problem("splits.mat", "a pipe")
    (tmp_path / NAME).unlink()
    os.mkfifo(tmp_path / NAME)
    for root in (tmp_path, tmp_path / NAME):
        assert data.records(root)[1][0] == Problem(NAME, "a pipe")
