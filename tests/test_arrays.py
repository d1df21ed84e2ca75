"""Arrays in files: what NumPy writes is read back; headers that lie are refused before anything is loaded."""

import io
import warnings
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ordinal_entropy import arrays, files

KINDS = st.sampled_from(["f2", "<f4", ">f8", "i1", "<i4", ">u8", "?", "<U3", "S2", "c8"])


@given(
    hnp.arrays(KINDS, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4)), st.booleans(), st.booleans()
)
def test_what_numpy_writes_is_read_back(tmp_path_factory, array, by_columns, packed):
    folder = tmp_path_factory.mktemp("arrays")
    array = np.asfortranarray(array) if by_columns else array
    np.save(folder / "a.npy", array)
    (np.savez_compressed if packed else np.savez)(folder / "a.npz", a=array, b=np.arange(3))
    assert arrays.names(folder / "a.npz") == ["a", "b"]
    for found in (arrays.npy(folder / "a.npy"), arrays.npz(folder / "a.npz", "a")):
        assert found.shape == array.shape and found.nbytes == array.nbytes
        assert found.read().tobytes() == array.tobytes() and found.read().dtype == array.dtype  # NaN too
        assert found.read().flags.writeable
        if array.ndim:
            joined = [row for block in found.blocks(2) for row in block]
            assert [row.tobytes() for row in joined] == [row.tobytes() for row in array]


def header(shape, kind="<f8", **others):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": kind, "fortran_order": False, "shape": shape, **others})
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (
            header((10**9, 10**9)) + bytes(80),
            r"expected 8,000,000,000,000,000,128 bytes in .*, as its header says",
        ),
        (header((-1, 5)) + bytes(80), r"expected the shape of an array in .*, got \(-1, 5\)"),
        (header((10**30, 0)) + bytes(80), r"expected the shape of an array in .*, got"),
        (header((10**9,), "|S0"), r"expected the shape of an array in .*, got"),
        (header((2,), "|O") + bytes(80), r"expected numbers in .*, got Python objects, which are never unpickled"),
        (header((2, 5))[:50], r"in NumPy's format, got something else: "),
        (header((2, 5)).replace(b"(2, 5)", b"((((( "), r"in NumPy's format, got something else: "),
        (header((2, 5)).replace(b"<f8", b"<z8"), r"in NumPy's format, got something else: "),
        (b"", r"in NumPy's format, got something else: "),
    ],
)
def test_headers_that_lie(tmp_path, content, sentence):
    (tmp_path / "a.npy").write_bytes(content)
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", content)
    for read in (lambda: arrays.npy(tmp_path / "a.npy"), lambda: arrays.load(tmp_path / "a.npz", ["a"])):
        with warnings.catch_warnings(), pytest.raises(ValueError, match=sentence):
            warnings.simplefilter("ignore")  # of Python, about what it parses
            read()


def test_damaged_numbers_are_told(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", a=np.random.default_rng(0).random(1000))
    whole = bytearray((tmp_path / "a.npz").read_bytes())
    whole[3000:3100] = bytes(100)
    (tmp_path / "a.npz").write_bytes(whole)
    with pytest.raises(ValueError, match=r"expected a whole array, got a of .*a.npz, which is damaged: "):
        arrays.load(tmp_path / "a.npz", ["a"])
    with pytest.raises(ValueError, match=r"expected b in .*a.npz, got none of that name"):
        arrays.load(tmp_path / "a.npz", ["b"])


def test_what_is_loaded_whole_is_not_far_larger_than_its_file(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MODEST", 1_000_000)
    np.savez_compressed(tmp_path / "a.npz", rows=np.zeros((2000, 100)), columns=np.zeros((100, 2000)).T)
    with pytest.raises(ValueError, match=r"expected at most 1,000,000 bytes to be unpacked from .*a.npz"):
        arrays.load(tmp_path / "a.npz", ["rows"])
    with pytest.raises(ValueError, match=r"expected at most 1,000,000 bytes"):
        next(arrays.npz(tmp_path / "a.npz", "columns").blocks(10))
    assert sum(len(block) for block in arrays.npz(tmp_path / "a.npz", "rows").blocks(300)) == 2000
