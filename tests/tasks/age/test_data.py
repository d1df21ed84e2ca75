"""Lists of faces: what is read, and what every kind of bad row is told to be."""

import os
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("PIL", reason="images are read with Pillow")
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from ordinal_entropy.tasks.age import data
from ordinal_entropy.tasks.age.data import Problem, Record

GOOD = ["35,AgeDB/0.jpg,train", "36.5,AgeDB/1.jpg,val", "0,AgeDB/2.jpg,test"]


def folder(root, *rows, header="age,path,split", name="agedb.csv", images=6):
    (root / "AgeDB").mkdir(parents=True, exist_ok=True)
    for k in range(images):
        Image.new("RGB", (8, 8)).save(root / "AgeDB" / f"{k}.jpg")
    (root / name).write_text("\n".join([header, *rows, ""]))
    return root


@pytest.mark.parametrize("name", ["agedb.csv", "imdb_wiki.csv", "utkface.csv", "mine.csv", "AgeDB.CSV"])
def test_a_csv_is_found_by_its_name(tmp_path, name):
    found, problems = data.records(folder(tmp_path, *GOOD, name=name))
    assert problems == []
    assert found == [
        Record(tmp_path / "AgeDB" / "0.jpg", 35.0, "train"),
        Record(tmp_path / "AgeDB" / "1.jpg", 36.5, "val"),
        Record(tmp_path / "AgeDB" / "2.jpg", 0.0, "test"),
    ]


def test_a_known_name_goes_before_others_and_two_of_a_kind_are_refused(tmp_path):
    root = folder(tmp_path, *GOOD)
    (root / "notes.csv").write_text("nothing,of,this\n")
    assert len(data.records(root)[0]) == 3
    folder(tmp_path, "1,AgeDB/3.jpg,train", name="utkface.csv")
    with pytest.raises(ValueError, match=r"expected one csv in .*, got agedb.csv, utkface.csv; give the one you mean"):
        data.records(root)
    assert [record.age for record in data.records(root / "utkface.csv")[0]] == [1]
    assert data.check(root / "agedb.csv") == []


def test_columns_in_any_order_among_others_with_a_mark_and_windows_lines(tmp_path):
    root = folder(tmp_path)
    text = 'split, path,id,age\r\ntrain,"AgeDB/0.jpg",9,1\r\n\r\nval,AgeDB/1.jpg,"9,""9",2\r\ntest,AgeDB/2.jpg,,3'
    (root / "agedb.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    found, problems = data.records(root)
    assert problems == [] and [(r.age, r.split) for r in found] == [(1, "train"), (2, "val"), (3, "test")]


@pytest.mark.parametrize(
    ("row", "file", "reason"),
    [
        ("35,AgeDB/no.jpg,train", "AgeDB/no.jpg", "missing"),
        ("35,AgeDB,train", "AgeDB", "a folder"),
        ("35,,train", "agedb.csv", "path is empty"),
        ("35,../outside.jpg,train", "../outside.jpg", "path has .. in it"),
        ("35,AgeDB/../AgeDB/5.jpg,train", "AgeDB/../AgeDB/5.jpg", "path has .. in it"),
        ("35,/etc/passwd,train", "/etc/passwd", "path is absolute"),
        ("35,AgeDB/link.jpg,train", "AgeDB/link.jpg", "a link leads out of the folder"),
        ("35,AgeDB/0.jpg,test", "AgeDB/0.jpg", "listed before, in line 2"),
        ("35,./AgeDB//0.jpg,test", "./AgeDB//0.jpg", "listed before, in line 2"),
        ("old,AgeDB/5.jpg,train", "AgeDB/5.jpg", "age 'old' is not a number"),
        (",AgeDB/5.jpg,train", "AgeDB/5.jpg", "age '' is not a number"),
        ("nan,AgeDB/5.jpg,train", "AgeDB/5.jpg", "age 'nan' is not a number"),
        ("inf,AgeDB/5.jpg,train", "AgeDB/5.jpg", "age 'inf' is not a number"),
        ("3_5,AgeDB/5.jpg,train", "AgeDB/5.jpg", "age '3_5' is not a number"),
        ("-1,AgeDB/5.jpg,train", "AgeDB/5.jpg", "age -1 is not from 0 to 200"),
        ("200.5,AgeDB/5.jpg,train", "AgeDB/5.jpg", "age 200.5 is not from 0 to 200"),
        ("1e9,AgeDB/5.jpg,train", "AgeDB/5.jpg", "age 1e9 is not from 0 to 200"),
        ("35,AgeDB/5.jpg,Train", "AgeDB/5.jpg", "split 'Train' is none of train, val, test"),
        ("35,AgeDB/5.jpg,", "AgeDB/5.jpg", "split '' is none of train, val, test"),
    ],
)
def test_a_bad_row_is_told_and_the_others_are_read(tmp_path, row, file, reason):
    root = folder(tmp_path / "root", *GOOD, row, "90,AgeDB/4.jpg,train")
    (tmp_path / "outside.jpg").write_text("")
    (root / "AgeDB" / "link.jpg").symlink_to(tmp_path / "outside.jpg")
    found, problems = data.records(root)
    assert problems == [Problem(file, f"{reason} (line 5 of agedb.csv)")]
    assert [record.age for record in found] == [35, 36.5, 0, 90]
    assert data.check(root) == problems


@pytest.mark.parametrize("row", ["35,AgeDB/5.jpg", "35", "35,AgeDB/5.jpg,train,more"])
def test_a_row_of_another_length(tmp_path, row):
    found, problems = data.records(folder(tmp_path, *GOOD, row))
    count = row.count(",") + 1
    assert problems == [Problem("agedb.csv", f"line 5: expected 3 values, got {count}")]
    assert len(found) == 3


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "expected the columns age, path, split, got none"),
        (b"age,file,split\n1,AgeDB/0.jpg,train\n", "expected the columns age, path, split, got age, file, split"),
        (b"age,path,split\n1,AgeDB/\xff.jpg,train\n", "not text in UTF-8: byte 23 is 0xff"),
        ("age,path,split\n".encode("utf-16"), "not text in UTF-8: byte 0 is 0xff"),
        (b"PK\x03\x04", "expected the columns age, path, split, got PK\\x03\\x04"),
        (b'age,path,split\n1,"AgeDB/0.jpg,train\n', "cannot be read from line 2 on: unexpected end of data"),
    ],
)
def test_a_csv_that_is_none(tmp_path, content, reason):
    root = folder(tmp_path)
    (root / "agedb.csv").write_bytes(content)
    found, problems = data.records(root)
    assert found == []
    assert problems[0] == Problem("agedb.csv", reason)
    assert {problem.reason for problem in problems[1:]} == {
        f"no face to use in split {split}" for split in ("train", "val", "test")
    }


def test_an_empty_split_is_a_problem(tmp_path):
    _, problems = data.records(folder(tmp_path, *GOOD[:2]))
    assert problems == [Problem("agedb.csv", "no face to use in split test")]


@given(st.binary(max_size=300))
def test_whatever_the_csv_there_is_an_answer(tmp_path_factory, content):
    root = tmp_path_factory.mktemp("any")
    (root / "agedb.csv").write_bytes(b"age,path,split\n" + content)
    found, problems = data.records(root)
    assert not found and problems
    assert all(problem.file.isprintable() and problem.reason.isprintable() for problem in problems)


def test_check_reads_every_image(tmp_path):
    root = folder(tmp_path, *GOOD, "9,AgeDB/3.jpg,train", "10,AgeDB/4.jpg,train", "11,AgeDB/gone.jpg,train")
    whole = (root / "AgeDB" / "3.jpg").read_bytes()
    (root / "AgeDB" / "3.jpg").write_bytes(whole[:-50])
    (root / "AgeDB" / "4.jpg").write_bytes(b"<html>")
    told = []
    problems = data.check(root, lambda done, total: told.append((done, total)))
    assert problems == [
        Problem("AgeDB/gone.jpg", "missing (line 7 of agedb.csv)"),
        Problem("AgeDB/3.jpg", "truncated"),
        Problem("AgeDB/4.jpg", "not an image (JPEG, PNG, BMP, GIF, WEBP)"),
    ]
    assert told == [(k, 5) for k in range(1, 6)]


def test_a_missing_dataset_says_where_to_get_it(tmp_path):
    for place in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(FileNotFoundError) as caught:
            data.records(place)
        said = str(caught.value)
        assert str(place) in said
        assert "agedb.csv from github.com/YyzHarry/imbalanced-regression" in said
        assert "susanqq.github.io/UTKFace" in said
        assert "<id>_<name>_<age>_<m|f>.jpg" in said and "data make age DIR" in said


@given(st.lists(st.floats(0, 20), max_size=300), st.integers(0, 5), st.integers(1, 8))
def test_the_split_is_as_the_benchmark_says(ages, seed, at_most):
    split = data.balanced_split(ages, seed, at_most=at_most)
    assert split == data.balanced_split(ages, seed, at_most=at_most)
    for age in range(21):
        counted = Counter(part for part, years in zip(split, ages, strict=True) if int(years) == age)
        size = min(counted.total() // 3, at_most)
        assert (counted["val"], counted["test"]) == (size, size)


def test_another_seed_is_another_split():
    ages = [age for age in range(50) for _ in range(20)]
    assert data.balanced_split(ages, 1) != data.balanced_split(ages, 2)


def utkface(root):
    root.mkdir(parents=True)
    for age in (1, 26, 116):
        for k in range(6):
            Image.new("RGB", (8, 8)).save(root / f"{age}_{k % 2}_{k % 5}_2017011217{k:04}.jpg.chip.jpg")
    return root


def test_utkface_by_its_names_alone(tmp_path):
    inside = utkface(tmp_path / "UTKFace")
    (inside / "notes.txt").write_text("")
    found, problems = data.records(tmp_path)
    assert problems == [] and data.check(tmp_path) == []
    assert [record.path for record in found] == sorted(inside.glob("*.jpg"))
    assert all(record.path.name.startswith(f"{record.age:g}_") for record in found)
    assert Counter((r.age, r.split) for r in found) == {
        (age, split): 2 for age in (1, 26, 116) for split in ("train", "val", "test")
    }
    assert data.records(inside)[0] == found
    assert data.records(tmp_path, seed=1)[0] != found


@pytest.mark.parametrize(
    "name", ["61_1_20170109142408075.jpg.chip.jpg", "53__0_20170116184028385.jpg.chip.jpg", "9_1_2_2017.jpg"]
)
def test_odd_names_that_utkface_itself_has(tmp_path, name):
    inside = utkface(tmp_path / "UTKFace")
    Image.new("RGB", (8, 8)).save(inside / name)
    found, problems = data.records(tmp_path)
    assert not problems and float(name.split("_")[0]) in {r.age for r in found if r.path.name == name}


def test_names_without_an_age_are_told(tmp_path):
    inside = utkface(tmp_path / "UTKFace")
    for name in ("face.jpg", "0_MariaCallas_35_f.jpg", "201_0_0_2017.jpg.chip.jpg"):
        (inside / name).write_text("")
    (tmp_path / "out.jpg").write_text("")
    (inside / "7_0_0_2017.jpg.chip.jpg").symlink_to(tmp_path.parent)
    _, problems = data.records(tmp_path)
    named = "name does not begin with an age, as in age_gender_race_date.jpg.chip.jpg"
    assert problems == [
        Problem("UTKFace/0_MariaCallas_35_f.jpg", named),
        Problem("UTKFace/201_0_0_2017.jpg.chip.jpg", "age 201 is not from 0 to 200"),
        Problem("UTKFace/7_0_0_2017.jpg.chip.jpg", "a link leads out of the folder"),
        Problem("UTKFace/face.jpg", named),
    ]


@pytest.fixture
def faces():
    place = os.environ.get("ORDINAL_ENTROPY_DATA")
    if not place or not (Path(place) / "utkface").is_dir():
        pytest.skip("real faces are read from $ORDINAL_ENTROPY_DATA/utkface")
    return Path(place) / "utkface"


def test_real_faces_by_csv_and_by_name(faces):
    found, problems = data.records(faces)
    assert not problems
    assert Counter(record.split for record in found) == {"train": 11_506, "val": 1_547, "test": 1_547}
    by_name, problems = data.records(faces / "UTKFace")
    assert not problems
    assert {r.path.name: r.age for r in by_name} == {r.path.name: r.age for r in found}


@pytest.mark.slow
def test_real_faces_are_whole(faces):
    assert data.check(faces) == []


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_a_csv_that_is_a_pipe_is_named(tmp_path):
    os.mkfifo(tmp_path / "agedb.csv")
    for root in (tmp_path, tmp_path / "agedb.csv"):
        assert data.records(root)[1][0] == Problem("agedb.csv", "a pipe")
