"""Files before they are read: their kind, what they claim, what is in a zip archive; files of datasets with faults."""

import os
import pickle
import socket
import struct
import zipfile
from typing import NamedTuple

import pytest

from ordinal_entropy import files
from ordinal_entropy.files import SPLITS, Problem, refuse
from ordinal_entropy.vision.images import ImageError


def pipe(path):
    os.mkfifo(path)


def bound(path):
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket may have some hundred characters only
    try:
        with socket.socket(socket.AF_UNIX) as own:
            own.bind(path.name)
    finally:
        os.chdir(here)


KINDS = {
    "missing": lambda path: None,
    "a folder": lambda path: path.mkdir(),
    "a pipe": pipe,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a socket": bound,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_named_and_never_opened(tmp_path, kind):
    path = tmp_path / "a.csv"
    KINDS[kind](path)
    assert files.fault(path) == kind
    there = "no such file" if kind == "missing" else kind
    for read in (files.size, files.content, files.text, files.members):
        with pytest.raises(OSError, match=f"expected a file in .*a.csv, got {there}"):
            read(path)


def test_links_to_files_are_followed(tmp_path):
    (tmp_path / "real.txt").write_bytes(b"\xef\xbb\xbfage\n")
    (tmp_path / "link.txt").symlink_to("real.txt")
    assert files.fault(tmp_path / "link.txt") is None and files.size(tmp_path / "link.txt") == 7
    assert files.text(tmp_path / "link.txt") == "age\n"
    assert files.fault(tmp_path / "real.txt" / "below") == "missing"
    assert files.fault("a\0b") == "not a path" and files.fault("a" * 5000) == "missing"


def test_a_file_larger_than_the_memory_is_not_read(tmp_path):
    with (tmp_path / "large.csv").open("wb") as file:
        file.truncate(2**42)
    with pytest.raises(ValueError, match=r"expected .*large.csv to fit into [\d,]+ bytes of memory, got 4,398,"):
        files.content(tmp_path / "large.csv")


def test_a_file_may_unpack_to_a_modest_size_or_to_a_hundred_times_its_own(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(bytes(10))
    files.check_unpacked(path, files.MODEST)
    with pytest.raises(ValueError, match=r"at most 268,435,456 bytes .* from .*a.bin, which has 10, got 268,435,457"):
        files.check_unpacked(path, files.MODEST + 1)
    with path.open("wb") as file:
        file.truncate(files.MODEST)
    files.check_unpacked(path, files.RATIO * files.MODEST)


def test_members_of_an_archive(tmp_path):
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", bytes(100_000))
        archive.writestr("word", b"age")
    assert {name: entry.file_size for name, entry in files.members(path).items()} == {"zeros": 100_000, "word": 3}
    whole = path.read_bytes()
    place = whole.index(b"PK\x01\x02") + 24  # the size, in the list at the end
    path.write_bytes(whole[:place] + struct.pack("<I", 2**31) + whole[place + 4 :])
    with pytest.raises(ValueError, match=r"a.zip, which is damaged: one of [\d,]+ bytes in all claims 2,147,483,648"):
        files.members(path)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("word", b"age")
    with pytest.raises(ValueError, match=r"stored or deflated, got one packed by method 14"):
        files.members(path)
    path.write_bytes(b"PK\x05\x06 no archive")
    with pytest.raises(ValueError, match=r"expected a whole zip archive, got .*a.zip, which is damaged: "):
        files.members(path)


class Face(NamedTuple):
    split: str


def test_refuse_tells_the_first_and_the_count():
    faces = [Face(split) for split in SPLITS]
    problems = [Problem("a.jpg", "missing"), Problem("b.jpg", "empty")]
    refuse(faces, [])
    refuse(faces, problems, skip_bad=True)
    with pytest.raises(ValueError, match=r"got a.jpg: missing \(2 problems in all"):
        refuse(faces, problems)
    with pytest.raises(ValueError, match=r"got none in val, test; the first of 2 problems: a.jpg: missing$"):
        refuse(faces[:1], problems, skip_bad=True)
    with pytest.raises(ValueError, match=r"got none in train, val, test$"):
        refuse([], [])


def test_an_error_of_a_file_reaches_another_process():
    error = pickle.loads(pickle.dumps(ImageError("a.jpg", "truncated")))
    assert isinstance(error, ImageError) and isinstance(error, ValueError)
    assert str(error) == "expected an image in a.jpg, got: truncated" and error.reason == "truncated"
