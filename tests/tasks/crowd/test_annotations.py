"""Points out of ``.mat`` files: both nestings, nobody, and what every kind of bad file is told to be."""

import io
import os
import zlib

import numpy as np
import pytest

pytest.importorskip("scipy", reason="MATLAB files are written with SciPy")
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.io import loadmat, savemat

from ordinal_entropy.tasks.crowd import annotations
from ordinal_entropy.tasks.crowd.annotations import AnnotationError

POINTS = np.array([[3.25, 4.5], [10.0, 2.0], [10.0, 2.0]])


def in_cell(content):
    cell = np.empty((1, 1), dtype=object)
    cell[0, 0] = content
    return cell


def content(image_info, name="image_info", **options):
    file = io.BytesIO()
    savemat(file, {name: image_info}, **options)
    return file.getvalue()


def info(location=POINTS, **fields):
    return {"location": location, **fields}


def reason(tmp_path, written):
    path = tmp_path / "GT_IMG_1.mat"
    path.write_bytes(written)
    with pytest.raises(AnnotationError) as caught:
        annotations.read(path)
    assert str(path) in str(caught.value) and caught.value.reason in str(caught.value)
    return caught.value.reason


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize(
    "image_info",
    [
        in_cell(info(number=3.0)),  # ShanghaiTech
        info(number=3.0),  # without the cell
        in_cell(in_cell(info(number=3.0))),
        in_cell({"inside": info(number=3.0)}),
        in_cell(info()),  # no number
        in_cell(info(number=np.uint8(3), names="more")),
    ],
    ids=["cell", "struct", "cells", "structs", "no number", "other fields"],
)
def test_points_however_they_are_wrapped(tmp_path, image_info, compressed):
    path = tmp_path / "GT_IMG_1.mat"
    path.write_bytes(content(image_info, do_compression=compressed))
    found = annotations.read(path)
    assert found.dtype == np.float64
    assert np.array_equal(found, POINTS)


def test_the_first_nesting_is_that_of_the_dataset():
    read = loadmat(io.BytesIO(content(in_cell(info(number=3.0)))))
    location, number = read["image_info"][0, 0][0, 0]
    assert np.array_equal(location, POINTS) and number.item() == 3


@pytest.mark.parametrize("dtype", [np.float32, np.int16, np.uint8])
def test_points_of_other_types(tmp_path, dtype):
    path = tmp_path / "GT_IMG_1.mat"
    path.write_bytes(content(in_cell(info(POINTS.astype(dtype)))))
    found = annotations.read(path)
    assert found.dtype == np.float64 and np.array_equal(found, POINTS.astype(dtype))


@pytest.mark.parametrize("shape", [(0, 0), (0, 2), (1, 0)])
def test_nobody_is_valid(tmp_path, shape):
    path = tmp_path / "GT_IMG_1.mat"
    path.write_bytes(content(in_cell(info(np.zeros(shape), number=0.0))))
    assert annotations.read(path).shape == (0, 2)


@pytest.mark.parametrize(
    ("image_info", "wanted"),
    [
        (in_cell(info(number=4.0)), "number is 4, but there are 3 points"),
        (in_cell(info(POINTS[:1], number=0.0)), "number is 0, but there is 1 point"),
        (in_cell(info(number=np.nan)), "number is nan, but there are 3 points"),
        (in_cell(info(number=POINTS)), "number is not one number"),
        (in_cell(info(number="three")), "number is not one number"),
        (in_cell(info(np.array([[1, np.nan], [np.inf, 2], [3, 4]]))), "2 of 3 points not finite"),
        (in_cell(info(POINTS.T)), "location is of shape 2 x 3, not n x 2"),
        (in_cell(info(np.zeros((2, 2, 2)))), "location is of shape 2 x 2 x 2, not n x 2"),
        (in_cell(info("here")), "location is not made of numbers"),
        (in_cell(info(POINTS + 1j)), "location is not made of numbers"),
        (in_cell(info(in_cell(POINTS))), "location is not made of numbers"),
        (in_cell({"place": POINTS, "number": 3.0}), "no location in its image_info"),
        (POINTS, "no location in its image_info"),
        ("text", "no location in its image_info"),
        (np.zeros((0, 0)), "no location in its image_info"),
        (np.array([[info(), info()]], dtype=object), "no location in its image_info"),
    ],
)
def test_what_is_in_it_is_wrong(tmp_path, image_info, wanted):
    assert reason(tmp_path, content(image_info)) == wanted


def test_cells_without_end(tmp_path):
    nested = info()
    for _ in range(20):
        nested = in_cell(nested)
    assert reason(tmp_path, content(nested)) == "damaged: nested too deep"


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        (b"", "empty"),
        (b"x", "not a MATLAB file (5 to 7.2)"),
        (b"<html>" * 60, "not a MATLAB file (5 to 7.2)"),
        (content(in_cell(info()))[:-20], "damaged: cut off"),
        (content(in_cell(info()), name="annPoints"), "no image_info in it"),
        (b"MATLAB 7.3 MAT-file".ljust(128) + b"\x89HDF", "a MATLAB 7.3 file; save it with -v7"),
        (b"\x89HDF\r\n\x1a\n", "a MATLAB 7.3 file; save it with -v7"),
    ],
)
def test_the_file_is_wrong(tmp_path, written, wanted):
    assert reason(tmp_path, written) == wanted


def test_missing_a_folder_and_a_file_that_may_not_be_read(tmp_path):
    for path, wanted in ((tmp_path / "no.mat", "missing"), (tmp_path, "a folder")):
        with pytest.raises(AnnotationError) as caught:
            annotations.read(path)
        assert caught.value.reason == wanted
    if os.geteuid():
        (tmp_path / "locked.mat").write_bytes(b"x")
        (tmp_path / "locked.mat").chmod(0)
        with pytest.raises(AnnotationError, match="not readable: Permission denied"):
            annotations.read(tmp_path / "locked.mat")


def test_what_would_fill_the_memory_is_not_unpacked(tmp_path, monkeypatch):
    monkeypatch.setattr(annotations, "MAX_BYTES", 20_000)
    large = content(in_cell(info(np.zeros((10_000, 2)))), do_compression=True)
    assert len(large) < 20_000
    assert reason(tmp_path, large) == "larger than 20,000 bytes when unpacked"
    assert reason(tmp_path, bytes(20_001)) == "larger than 20,000 bytes: 20,001"
    several = content(in_cell(info(np.zeros((700, 2)))), do_compression=True)
    path = tmp_path / "two.mat"
    path.write_bytes(several)
    assert len(annotations.read(path)) == 700
    assert reason(tmp_path, several + several[128:]) == "larger than 20,000 bytes when unpacked"


@settings(max_examples=200)
@given(st.data())
def test_whatever_the_file_there_is_an_answer(tmp_path_factory, data):
    """A file cut, or with some bytes changed, is read or refused; nothing else is raised."""
    whole = bytearray(content(in_cell(info(number=3.0)), do_compression=data.draw(st.booleans())))
    for place, value in data.draw(
        st.lists(st.tuples(st.integers(124, len(whole) - 1), st.integers(0, 255)), max_size=3)
    ):
        whole[place] = value
    path = tmp_path_factory.mktemp("any") / "GT_IMG_1.mat"
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole)))] if data.draw(st.booleans()) else whole)
    try:
        found = annotations.read(path)
    except AnnotationError as error:
        assert error.reason.isprintable() and len(error.reason) < 200
    else:
        assert found.shape[1] == 2 and np.isfinite(found).all()


@pytest.mark.parametrize(
    ("point", "wrong"),
    [
        ((0, 0), False),
        ((8, 6), False),
        ((9, 7), False),
        ((-1, -1), False),
        ((9.01, 3), True),
        ((3, 7.01), True),
        ((-1.01, 3), True),
        ((3, -2), True),
    ],
)
def test_points_outside(point, wrong):
    points = np.array([(1.0, 1.0), point])
    said = annotations.outside(points, height=6, width=8)
    x, y = point
    assert said == (f"1 of 2 points outside the image of 8 x 6, the first at x={x:g} y={y:g}" if wrong else None)


def test_nobody_is_not_outside():
    assert annotations.outside(np.zeros((0, 2)), height=6, width=8) is None


def test_a_stream_that_is_no_zlib(tmp_path):
    whole = bytearray(content(in_cell(info()), do_compression=True))
    whole[136:140] = b"none"
    with pytest.raises(zlib.error):
        zlib.decompress(bytes(whole[136:]))
    assert reason(tmp_path, bytes(whole)) == "damaged: cannot be unpacked"
