"""Folders of crowds: what is read, and what every kind of bad file is told to be."""

import io
import os
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("PIL", reason="images are read with Pillow")
pytest.importorskip("scipy", reason="MATLAB files are written with SciPy")
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from scipy.io import savemat

from ordinal_entropy.tasks.crowd import data
from ordinal_entropy.tasks.crowd.data import Problem
from ordinal_entropy.vision import images

POINTS = np.array([[1.0, 2.0], [7.5, 3.25]])


def mat(points=POINTS, name="image_info", number=None):
    cell = np.empty((1, 1), dtype=object)
    cell[0, 0] = {"location": points, "number": float(len(points) if number is None else number)}
    file = io.BytesIO()
    savemat(file, {name: cell})
    return file.getvalue()


def folder(root, train=4, test=2, annotations="ground-truth"):
    for name, count in (("train_data", train), ("test_data", test)):
        (root / name / "images").mkdir(parents=True)
        (root / name / annotations).mkdir()
        for k in range(1, count + 1):
            Image.new("RGB", (12, 9)).save(root / name / "images" / f"IMG_{k}.jpg")
            (root / name / annotations / f"GT_IMG_{k}.mat").write_bytes(mat(POINTS[: k % 3]))
    return root


@pytest.mark.parametrize("annotations", ["ground-truth", "ground_truth"])
@pytest.mark.parametrize("part", ["part_A", "part_A_final", "part_B", "part_B_final", "mine"])
def test_images_with_their_points(tmp_path, part, annotations):
    root = folder(tmp_path / part, annotations=annotations)
    found, problems = data.records(root)
    assert problems == [] and data.check(root) == []
    data.require(root)
    assert [record.path for record in found] == [
        *(root / "train_data" / "images" / f"IMG_{k}.jpg" for k in range(1, 5)),
        *(root / "test_data" / "images" / f"IMG_{k}.jpg" for k in range(1, 3)),
    ]
    assert [len(record.points) for record in found] == [1, 2, 0, 1, 1, 2]
    assert np.array_equal(found[1].points, POINTS) and found[2].points.shape == (0, 2)
    assert Counter(record.split for record in found) == {"train": 3, "val": 1, "test": 2}
    assert [record.split for record in found[4:]] == ["test", "test"]
    if part != "mine":  # the folder above will do
        assert [record.path for record in data.records(tmp_path)[0]] == [record.path for record in found]
        assert data.check(tmp_path) == []


def test_of_two_parts_one_must_be_given(tmp_path):
    folder(tmp_path / "part_A")
    folder(tmp_path / "part_B_final")
    with pytest.raises(ValueError, match=r"expected one part of ShanghaiTech in .*, got part_A, part_B_final; give"):
        data.records(tmp_path)
    assert len(data.records(tmp_path / "part_A")[0]) == 6


def test_names_in_the_order_of_their_numbers(tmp_path):
    found, _ = data.records(folder(tmp_path, train=12))
    assert [record.path.name for record in found][:12] == [f"IMG_{k}.jpg" for k in range(1, 13)]


def test_other_files_are_let_be(tmp_path):
    root = folder(tmp_path)
    for name in ("images/notes.txt", "images/.DS_Store", "images/._IMG_1.jpg", "ground-truth/._GT_IMG_1.mat"):
        (root / "train_data" / name).write_text("")
    (root / "README.md").write_text("")
    assert data.check(root) == []


def test_the_split_is_of_the_training_images_by_lot(tmp_path):
    root = folder(tmp_path, train=30)

    def validation(**options):
        return {record.path.name for record in data.records(root, **options)[0] if record.split == "val"}

    assert len(validation()) == 3 and validation() == validation()
    assert len(validation(validation=0.5)) == 15
    assert validation(seed=1) != validation(seed=2)


@given(st.integers(0, 400), st.integers(0, 5), st.floats(0.01, 0.99))
def test_sizes_of_the_split(count, seed, validation):
    split = Counter(data.validation_split(count, seed, validation))
    assert split.total() == count
    wanted = round(count * validation)
    assert split["val"] == (wanted if 1 <= wanted < count else min(max(wanted, 1), max(count - 1, 0)))
    assert (split["train"] > 0) == (count > 0)


@pytest.mark.parametrize("validation", [0, 1, -0.1, float("nan")])
def test_a_split_that_cannot_be(validation):
    with pytest.raises(ValueError, match="expected validation to be between 0 and 1"):
        data.validation_split(10, 0, validation)


GT = "train_data/ground-truth/GT_IMG_2.mat"
IMAGE = "train_data/images/IMG_2.jpg"


def whole_image(size=(12, 9)):
    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)).save(file, "JPEG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "file", "reason"),
    [
        (GT, None, IMAGE, f"without annotation: {GT} is missing"),
        (IMAGE, None, GT, f"without image: {IMAGE} is missing"),
        (GT, b"", GT, "empty"),
        (GT, b"<html>", GT, "not a MATLAB file (5 to 7.2)"),
        (GT, mat()[:-30], GT, "damaged: cut off"),
        (GT, mat(name="points"), GT, "no image_info in it"),
        (GT, mat(number=5), GT, "number is 5, but there are 2 points"),
        (GT, mat(np.array([[1, np.nan]])), GT, "1 of 1 point not finite"),
        ("train_data/ground-truth/GT_IMG_9.mat", mat(), "train_data/ground-truth/GT_IMG_9.mat",
         "without image: train_data/images/IMG_9.jpg is missing"),
        ("train_data/ground-truth/\x1b.mat", mat(), "train_data/ground-truth/\\x1b.mat",
         "without image: train_data/images/\\x1b.jpg is missing"),
        ("train_data/images/IMG_2.png", whole_image(), "train_data/images/IMG_2.png",
         "GT_IMG_2.mat is that of IMG_2.jpg already"),
    ],
)  # fmt: skip
def test_a_bad_file_is_told_and_the_others_are_read(tmp_path, name, content, file, reason):
    root = folder(tmp_path, train=5)
    (root / name).unlink(missing_ok=True)
    if content is not None:
        (root / name).write_bytes(content)
    found, problems = data.records(root)
    assert problems == [Problem(file, reason)]
    assert len(found) == 7 - (name in (GT, IMAGE))
    assert data.check(root) == problems


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (whole_image()[:-40], "truncated"),
        (b"<html>", "not an image (JPEG, PNG, BMP, GIF, WEBP)"),
        (whole_image((60, 40)), "larger than 2,000 pixels: 60 x 40"),
        (whole_image((4, 9)), "1 of 2 points outside the image of 4 x 9, the first at x=7.5 y=3.25"),
    ],
)
def test_check_reads_every_image(tmp_path, monkeypatch, content, reason):
    read = images.read
    monkeypatch.setattr(images, "read", lambda path: read(path, max_pixels=2_000))
    root = folder(tmp_path)
    (root / IMAGE).write_bytes(content)
    assert data.records(root)[1] == []
    told = []
    assert data.check(root, lambda done, total: told.append((done, total))) == [Problem(IMAGE, reason)]
    assert told == [(2 * k, 12) for k in range(1, 7)]


def test_links_that_lead_out(tmp_path):
    root = folder(tmp_path / "part_A")
    for name in (IMAGE, "train_data/ground-truth/GT_IMG_3.mat"):
        shutil.move(root / name, tmp_path / "elsewhere")
        (root / name).symlink_to(tmp_path / "elsewhere")
    _, problems = data.records(root)
    assert problems == [
        Problem(IMAGE, "a link leads out of the folder"),
        Problem("train_data/ground-truth/GT_IMG_3.mat", "a link leads out of the folder"),
    ]


def test_an_empty_split_is_a_problem(tmp_path):
    root = folder(tmp_path / "part_A", test=0)
    assert data.records(root)[1] == [Problem("part_A", "no image to use in split test")]
    root = folder(tmp_path / "part_B", train=1)
    assert data.records(root)[1] == [Problem("part_B", "no image to use in split val")]


@pytest.mark.parametrize(
    ("gone", "said"),
    [
        ("", "no such folder"),
        ("train_data", "got no folder train_data."),
        ("test_data", "got no folder test_data."),
        ("train_data/images", "got no folder images in train_data."),
        ("test_data/ground-truth", "got no folder ground-truth in test_data."),
    ],
)
def test_a_missing_dataset_says_where_to_get_it(tmp_path, gone, said):
    root = folder(tmp_path / "part_A")
    shutil.rmtree(root / gone)
    for call in (data.records, data.require, data.check):
        with pytest.raises(FileNotFoundError) as caught:
            call(root)
        message = str(caught.value)
        assert said in message and str(root) in message
        assert "github.com/desenzhou/ShanghaiTechDataset" in message
        assert "part_A/train_data/ground-truth/GT_IMG_1.mat" in message and "data make crowd DIR" in message


def test_a_file_an_empty_folder_and_both_spellings(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(FileNotFoundError, match="got a file"):
        data.records(tmp_path / "file")
    with pytest.raises(FileNotFoundError, match="got no folder train_data and no folder test_data"):
        data.records(tmp_path)
    root = folder(tmp_path / "part_A")
    (root / "train_data" / "ground_truth").mkdir()
    with pytest.raises(ValueError, match=r"expected one of ground-truth and ground_truth in .*train_data, got both"):
        data.records(root)


@pytest.fixture
def part_a():
    place = os.environ.get("ORDINAL_ENTROPY_DATA")
    if not place or not (Path(place) / "ShanghaiTech" / "part_A").is_dir():
        pytest.skip("real crowds are read from $ORDINAL_ENTROPY_DATA/ShanghaiTech/part_A")
    return Path(place) / "ShanghaiTech" / "part_A"


def test_real_crowds(part_a):
    found, problems = data.records(part_a)
    assert not problems
    assert Counter(record.split for record in found) == {"train": 270, "val": 30, "test": 182}
    assert all(np.array_equal(a.points, b.points) for a, b in zip(found, data.records(part_a.parent)[0], strict=True))


def test_real_points_are_those_that_scipy_reads(part_a):
    from scipy.io import loadmat

    for record in data.records(part_a)[0][::20]:
        path = record.path.parents[1] / "ground-truth" / f"GT_{record.path.stem}.mat"
        assert np.array_equal(record.points, loadmat(path)["image_info"][0, 0][0, 0]["location"])


@pytest.mark.slow
def test_real_crowds_are_whole(part_a):
    assert data.check(part_a) == []
